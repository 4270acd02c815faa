"""INFORMATION_SCHEMA."""

from collections.abc import Iterator, Sequence
from typing import Final

from cdc_assets.standin.catalog import Column, Database, Index, Table
from cdc_assets.standin.contract import SessionContext
from cdc_assets.standin.measures import measures
from cdc_assets.standin.sqltypes import CHARACTER, UNICODE, Value
from cdc_assets.standin.system.describe import (
    alias_of,
    catalog_type_name,
    collation,
    procedures_of,
    referenced_index,
    shapes_of,
    tables_of,
    views_of,
)
from cdc_assets.standin.system.view import Rows, view

_LONGEST_DEFINITION: Final = 4000


@view(
    "INFORMATION_SCHEMA.SCHEMATA",
    "CATALOG_NAME sysname, SCHEMA_NAME sysname!, SCHEMA_OWNER sysname, DEFAULT_CHARACTER_SET_CATALOG varchar(6), DEFAULT_CHARACTER_SET_SCHEMA varchar(3), DEFAULT_CHARACTER_SET_NAME sysname",
)
def schemata(_: SessionContext, database: Database) -> Rows:
    """Schemas."""
    return [(database.name, name, "dbo", None, None, "iso_1") for name in database.schemas]


@view(
    "INFORMATION_SCHEMA.TABLES",
    "TABLE_CATALOG sysname, TABLE_SCHEMA sysname, TABLE_NAME sysname!, TABLE_TYPE varchar(10)",
)
def tables(_: SessionContext, database: Database) -> Rows:
    """Base tables and views."""
    for table in tables_of(database):
        yield (database.name, table.schema, table.name, "BASE TABLE")
    for found in views_of(database):
        yield (database.name, found.shape.schema, found.shape.name, "VIEW")


@view(
    "INFORMATION_SCHEMA.VIEWS",
    "TABLE_CATALOG sysname, TABLE_SCHEMA sysname, TABLE_NAME sysname!, VIEW_DEFINITION nvarchar(4000), CHECK_OPTION varchar(7), IS_UPDATABLE varchar(2)!",
)
def views(_: SessionContext, database: Database) -> Rows:
    """User views."""
    for found in views_of(database):
        text = found.text if len(found.text) <= _LONGEST_DEFINITION else None
        yield (database.name, found.shape.schema, found.shape.name, text, "NONE", "NO")


@view(
    "INFORMATION_SCHEMA.ROUTINES",
    "SPECIFIC_CATALOG sysname, SPECIFIC_SCHEMA sysname, SPECIFIC_NAME sysname!, ROUTINE_CATALOG sysname, ROUTINE_SCHEMA sysname, ROUTINE_NAME sysname!, ROUTINE_TYPE nvarchar(20)",
)
def routines(_: SessionContext, database: Database) -> Rows:
    """User procedures."""
    for found in procedures_of(database):
        name = (database.name, found.shape.schema, found.shape.name)
        yield (*name, *name, "PROCEDURE")


@view(
    "INFORMATION_SCHEMA.COLUMNS",
    "TABLE_CATALOG sysname, TABLE_SCHEMA sysname, TABLE_NAME sysname!, COLUMN_NAME sysname, ORDINAL_POSITION int, "
    "COLUMN_DEFAULT nvarchar(4000), IS_NULLABLE varchar(3), DATA_TYPE nvarchar(128), CHARACTER_MAXIMUM_LENGTH int, "
    "CHARACTER_OCTET_LENGTH int, NUMERIC_PRECISION tinyint, NUMERIC_PRECISION_RADIX smallint, NUMERIC_SCALE int, "
    "DATETIME_PRECISION smallint, CHARACTER_SET_CATALOG sysname, CHARACTER_SET_SCHEMA sysname, CHARACTER_SET_NAME sysname, "
    "COLLATION_CATALOG sysname, COLLATION_SCHEMA sysname, COLLATION_NAME sysname, DOMAIN_CATALOG sysname, "
    "DOMAIN_SCHEMA sysname, DOMAIN_NAME sysname",
)
def columns(_: SessionContext, database: Database) -> Rows:
    """Columns of tables and views."""
    for table in shapes_of(database):
        for place, column in enumerate(table.columns, 1):
            yield _column(database, table, column, place)


def _column(database: Database, table: Table, column: Column, place: int) -> tuple[Value, ...]:
    kind, alias = column.type, alias_of(column, database)
    domain = (database.name, alias.schema, alias.name) if alias else (None, None, None)
    charset = (
        None if kind.name not in CHARACTER or kind.name == "xml" else "UNICODE" if kind.name in UNICODE else "iso_1"
    )
    return (
        database.name, table.schema, table.name, column.name, place, column.default, "YES" if column.nullable else "NO",
        catalog_type_name(kind), *measures(kind), None, None, charset, None, None,
        collation(kind, database), *domain,
    )  # fmt: skip


def _keys(database: Database) -> Iterator[tuple[Table, Index]]:
    for table in tables_of(database):
        for index in table.indexes:
            if index.primary_key or index.unique_constraint:
                yield table, index


@view(
    "INFORMATION_SCHEMA.TABLE_CONSTRAINTS",
    "CONSTRAINT_CATALOG sysname, CONSTRAINT_SCHEMA sysname, CONSTRAINT_NAME sysname!, TABLE_CATALOG sysname, "
    "TABLE_SCHEMA sysname, TABLE_NAME sysname, CONSTRAINT_TYPE varchar(11), IS_DEFERRABLE varchar(2)!, INITIALLY_DEFERRED varchar(2)!",
)
def table_constraints(_: SessionContext, database: Database) -> Rows:
    """Primary, unique, foreign and check constraints."""
    for table in tables_of(database):
        named = [
            (index.name, "PRIMARY KEY" if index.primary_key else "UNIQUE")
            for index in table.indexes
            if index.primary_key or index.unique_constraint
        ]
        named += [(key.name, "FOREIGN KEY") for key in table.foreign_keys]
        named += [(check.name, "CHECK") for check in table.checks]
        for name, kind in named:
            yield (database.name, table.schema, name, database.name, table.schema, table.name, kind, "NO", "NO")


@view(
    "INFORMATION_SCHEMA.KEY_COLUMN_USAGE",
    "CONSTRAINT_CATALOG sysname, CONSTRAINT_SCHEMA sysname, CONSTRAINT_NAME sysname!, TABLE_CATALOG sysname, "
    "TABLE_SCHEMA sysname, TABLE_NAME sysname, COLUMN_NAME sysname, ORDINAL_POSITION int!",
)
def key_column_usage(_: SessionContext, database: Database) -> Rows:
    """Columns of primary, unique and foreign keys."""
    found: list[Sequence[Value]] = []
    for table in tables_of(database):
        keys = [
            (index.name, tuple(name for name, _ in index.keys)) for owner, index in _keys(database) if owner is table
        ]
        keys += [(key.name, key.columns) for key in table.foreign_keys]
        for name, names in keys:
            for place, column in enumerate(names, 1):
                found.append(
                    (database.name, table.schema, name, database.name, table.schema, table.name, column, place)
                )
    return found


@view(
    "INFORMATION_SCHEMA.CONSTRAINT_COLUMN_USAGE",
    "TABLE_CATALOG sysname, TABLE_SCHEMA sysname, TABLE_NAME sysname!, COLUMN_NAME sysname, CONSTRAINT_CATALOG sysname, "
    "CONSTRAINT_SCHEMA sysname, CONSTRAINT_NAME sysname!",
)
def constraint_column_usage(_: SessionContext, database: Database) -> Rows:
    """Columns of primary and unique keys."""
    for table, index in _keys(database):
        for name, _descending in index.keys:
            yield (database.name, table.schema, table.name, name, database.name, table.schema, index.name)


@view(
    "INFORMATION_SCHEMA.REFERENTIAL_CONSTRAINTS",
    "CONSTRAINT_CATALOG sysname, CONSTRAINT_SCHEMA sysname, CONSTRAINT_NAME sysname!, UNIQUE_CONSTRAINT_CATALOG sysname, "
    "UNIQUE_CONSTRAINT_SCHEMA sysname, UNIQUE_CONSTRAINT_NAME sysname, MATCH_OPTION varchar(7), UPDATE_RULE varchar(11), "
    "DELETE_RULE varchar(11)",
)
def referential_constraints(_: SessionContext, database: Database) -> Rows:
    """Foreign keys."""
    for table in tables_of(database):
        for key in table.foreign_keys:
            index = referenced_index(database, key)
            rules = key.on_update.replace("_", " "), key.on_delete.replace("_", " ")
            yield (
                database.name,
                table.schema,
                key.name,
                database.name,
                key.referenced_schema,
                index.name if index else None,
                "SIMPLE",
                *rules,
            )
