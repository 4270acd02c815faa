"""Schemas, tables, columns, types and objects of a database."""

import zlib
from collections.abc import Iterator, Sequence
from typing import Final

from mssql_standin.capture import instances
from mssql_standin.catalog import Column, Database, Table
from mssql_standin.contract import SessionContext
from mssql_standin.measures import precision, scale
from mssql_standin.rights import DATABASE_ROLES, USERS
from mssql_standin.sqltypes import Value, parse_type
from mssql_standin.system.describe import (
    CLR_TYPES,
    catalog_type_name,
    collation,
    procedures_of,
    schema_id,
    stored_datetime,
    tables_of,
    user_type_id,
)
from mssql_standin.system.view import Rows, view

FIXED_SCHEMAS: Final = {"guest": USERS["guest"], **DATABASE_ROLES}


@view("sys.schemas", "name sysname!, schema_id int!, principal_id int")
def schemas(_: SessionContext, database: Database) -> Rows:
    """The database's schemas and the fixed ones."""
    own = {**FIXED_SCHEMAS, **database.schemas}
    return [
        (name, key, USERS.get(name, key if key >= 16384 else 1))
        for name, key in sorted(own.items(), key=lambda item: item[1])
    ]


OBJECT: Final = (
    "name sysname!, object_id int!, principal_id int, schema_id int!, parent_object_id int!, type char(2), "
    "type_desc nvarchar(60), create_date datetime!, modify_date datetime!, is_ms_shipped bit!, is_published bit!, "
    "is_schema_published bit!"
)


def object_row(
    database: Database, table: Table, name: str, object_id: int, kind: str, described: str, parent: int = 0
) -> tuple[Value, ...]:
    shipped = int(table.ms_shipped)
    dates = stored_datetime(table.created), stored_datetime(table.modified)
    return (
        name,
        object_id,
        None,
        schema_id(database, table.schema),
        parent,
        kind.ljust(2),
        described,
        *dates,
        shipped,
        0,
        0,
    )


@view("sys.objects", OBJECT)
def objects(context: SessionContext, database: Database) -> Rows:
    """Tables, their constraints, and the functions and procedures of change data capture."""
    for table in tables_of(database):
        yield object_row(database, table, table.name, table.object_id, "U", "USER_TABLE")
        yield from _constraints(database, table)
        if table.schema == "cdc" and table.name.endswith("_CT"):
            yield from _change_functions(context, database, table)
    for routine in procedures_of(database):
        yield object_row(
            database, routine.shape, routine.shape.name, routine.shape.object_id, "P", "SQL_STORED_PROCEDURE"
        )


def _constraints(database: Database, table: Table) -> Iterator[Sequence[Value]]:
    for index in table.indexes:
        if index.primary_key or index.unique_constraint:
            kind = ("PK", "PRIMARY_KEY_CONSTRAINT") if index.primary_key else ("UQ", "UNIQUE_CONSTRAINT")
            yield object_row(database, table, index.name, index.object_id, *kind, table.object_id)
    for key in table.foreign_keys:
        yield object_row(database, table, key.name, key.object_id, "F", "FOREIGN_KEY_CONSTRAINT", table.object_id)
    for column in table.columns:
        if column.default is not None:
            name, object_id = default_constraint(table, column)
            yield object_row(database, table, name, object_id, "D", "DEFAULT_CONSTRAINT", table.object_id)


def default_constraint(table: Table, column: Column) -> tuple[str, int]:
    """(name, object id) of a column's default; the catalogue keeps no id for it, so one is derived."""
    name = column.default_name or f"DF__{table.name[:9]}__{column.name[:5]}__{table.object_id + column.column_id:08X}"
    return name, zlib.crc32(f"{table.object_id}:{column.column_id}".encode()) & 0x7FFFFFF0 | 5


def _change_functions(context: SessionContext, database: Database, table: Table) -> Iterator[Sequence[Value]]:
    """Object ids of tables are 1 modulo 16, so the places behind a change table's are free."""
    found = instances.named(context.connection, context.catalog, database.name, table.name.removesuffix("_CT"))
    kinds = ("all", "net") if found is not None and found.supports_net_changes else ("all",)
    for place, kind in enumerate(kinds, 2):
        name = f"fn_cdc_get_{kind}_changes_{table.name.removesuffix('_CT')}"
        yield object_row(database, table, name, table.object_id + place, "IF", "SQL_INLINE_TABLE_VALUED_FUNCTION")


_TABLE: Final = (
    OBJECT + ", lob_data_space_id int!, filestream_data_space_id int, max_column_id_used int!, lock_on_bulk_load bit!, "
    "uses_ansi_nulls bit, is_replicated bit, has_replication_filter bit, is_merge_published bit, is_sync_tran_subscribed bit, "
    "has_unchecked_assembly_data bit!, text_in_row_limit int, large_value_types_out_of_row bit, is_tracked_by_cdc bit, "
    "lock_escalation tinyint, lock_escalation_desc nvarchar(60), is_filetable bit, is_memory_optimized bit, durability tinyint, "
    "durability_desc nvarchar(60), temporal_type tinyint, temporal_type_desc nvarchar(60), history_table_id int, "
    "is_remote_data_archive_enabled bit, is_external bit!, history_retention_period int, history_retention_period_unit int, "
    "history_retention_period_unit_desc nvarchar(10), is_node bit, is_edge bit, data_retention_period int, "
    "data_retention_period_unit int, data_retention_period_unit_desc nvarchar(10), ledger_type tinyint, "
    "ledger_type_desc nvarchar(60), ledger_view_id int, is_dropped_ledger_table bit"
)


@view("sys.tables", _TABLE)
def tables(_: SessionContext, database: Database) -> Rows:
    """Every table of the database, those of change data capture included."""
    for table in tables_of(database):
        yield (
            *object_row(database, table, table.name, table.object_id, "U", "USER_TABLE"),
            0, None, table.next_column_id - 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, int(table.tracked_by_cdc),
            0, "TABLE", 0, 0, 0, "SCHEMA_AND_DATA", 0, "NON_TEMPORAL_TABLE", None, 0, 0, None, None, None, 0, 0,
            None, None, None, 0, "NON_LEDGER_TABLE", None, 0,
        )  # fmt: skip


VIEW: Final = (
    ", is_replicated bit, has_replication_filter bit, has_opaque_metadata bit!, has_unchecked_assembly_data bit!, "
    "with_check_option bit!, is_date_correlation_view bit!, is_tracked_by_cdc bit"
)


_COLUMN: Final = (
    "object_id int!, name sysname, column_id int!, system_type_id tinyint!, user_type_id int!, max_length smallint!, "
    "precision tinyint!, scale tinyint!, collation_name sysname, is_nullable bit, is_ansi_padded bit!, is_rowguidcol bit!, "
    "is_identity bit!, is_computed bit!, is_filestream bit!, is_replicated bit, is_non_sql_subscribed bit, "
    "is_merge_published bit, is_dts_replicated bit, is_xml_document bit!, xml_collection_id int!, default_object_id int!, "
    "rule_object_id int!, is_sparse bit, is_column_set bit, generated_always_type tinyint, "
    "generated_always_type_desc nvarchar(60), encryption_type int, encryption_type_desc nvarchar(64), "
    "encryption_algorithm_name sysname, column_encryption_key_id int, column_encryption_key_database_name sysname, "
    "is_hidden bit, is_masked bit!, graph_type int, graph_type_desc nvarchar(60)"
)


def column_row(database: Database, table: Table, column: Column) -> tuple[Value, ...]:
    """A row of `sys.columns`."""
    kind = column.type
    return (
        table.object_id, column.name, column.column_id, kind.system_id, user_type_id(column, database),
        max(min(kind.max_length, 32767), -1), precision(kind), scale(kind), collation(kind, database),
        int(column.nullable), int(kind.name in _PADDED), int(column.rowguid), int(column.identity is not None),
        int(column.computed is not None), 0, 0, 0, 0, 0, 0, 0,
        default_constraint(table, column)[1] if column.default is not None else 0, 0, int(column.sparse), 0, 0,
        "NOT_APPLICABLE", None, None, None, None, None, 0, 0, None, None,
    )  # fmt: skip


_PADDED: Final = frozenset({"char", "varchar", "nchar", "nvarchar", "binary", "varbinary", "xml"})


@view("sys.columns", _COLUMN)
def columns(_: SessionContext, database: Database) -> Rows:
    """Columns of every table and view."""
    return [column_row(database, table, column) for table in tables_of(database) for column in table.columns]


_SYSTEM_TYPES: Final = (
    "image", "text", "uniqueidentifier", "date", "time(7)", "datetime2(7)", "datetimeoffset(7)", "tinyint", "smallint", "int",
    "smalldatetime", "real", "money", "datetime", "float", "sql_variant", "ntext", "bit", "decimal(38,38)", "numeric(38,38)",
    "smallmoney", "bigint", "hierarchyid", "geometry", "geography", "varbinary(8000)", "varchar(8000)", "binary(8000)",
    "char(8000)", "rowversion", "nvarchar(4000)", "nchar(4000)", "xml", "sysname",
)  # fmt: skip


@view(
    "sys.types",
    "name sysname!, system_type_id tinyint!, user_type_id int!, schema_id int!, principal_id int, max_length smallint!, "
    "precision tinyint!, scale tinyint!, collation_name sysname, is_nullable bit, is_user_defined bit!, is_assembly_type bit!, "
    "default_object_id int!, rule_object_id int!, is_table_type bit!",
)
def types(_: SessionContext, database: Database) -> Rows:
    """System types and the database's alias types."""
    for declared in _SYSTEM_TYPES:
        kind = parse_type(declared)
        name = "sysname" if declared == "sysname" else catalog_type_name(kind)
        user = 256 if declared == "sysname" else CLR_TYPES.get(kind.name, kind.system_id)
        nullable, clr = int(declared != "sysname" and kind.name != "rowversion"), int(kind.name in CLR_TYPES)
        yield (
            name, kind.system_id, user, 4, None, kind.max_length, precision(kind), scale(kind), collation(kind, database),
            nullable, 0, clr, 0, 0, 0,
        )  # fmt: skip
    for alias in database.alias_types:
        kind = alias.base
        yield (
            alias.name, kind.system_id, alias.user_type_id, schema_id(database, alias.schema), None, kind.max_length,
            precision(kind), scale(kind), collation(kind, database), int(alias.nullable), 1, 0, 0, 0, 0,
        )  # fmt: skip


@view("sys.computed_columns", _COLUMN + ", definition nvarchar(max), uses_database_collation bit!, is_persisted bit!")
def computed_columns(_: SessionContext, database: Database) -> Rows:
    """Columns with an expression."""
    for table in tables_of(database):
        for column in table.columns:
            if column.computed is not None:
                yield (*column_row(database, table, column), column.computed, 0, int(column.persisted))


@view(
    "sys.identity_columns",
    _COLUMN + ", seed_value bigint, increment_value bigint, last_value bigint, is_not_for_replication bit",
)
def identity_columns(context: SessionContext, database: Database) -> Rows:
    """Identity columns; seeds are bigint here, sql_variant on a real server."""
    for table in tables_of(database):
        for column in table.columns:
            if column.identity is not None:
                seed, step = column.identity
                last = context.connection.execute(f"SELECT max({column.sqlite}) FROM {table.sqlite}").fetchone()[0]
                yield (*column_row(database, table, column), seed, step, last, 0)


@view(
    "sys.extended_properties",
    "class tinyint!, class_desc nvarchar(60), major_id int!, minor_id int!, name sysname!, value nvarchar(4000)",
)
def extended_properties(_: SessionContext, database: Database) -> Rows:
    """Extended properties of tables and columns; values are text here, not sql_variant."""
    for table in tables_of(database):
        for kept in table.properties:
            yield (1, "OBJECT_OR_COLUMN", table.object_id, kept.column_id, kept.name, kept.value)
