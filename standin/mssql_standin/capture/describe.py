"""Procedures that describe capture: `sp_cdc_help_change_data_capture`, `sp_cdc_get_captured_columns`, `sp_cdc_get_ddl_history`, `sp_cdc_scan`."""

import time
from collections.abc import Iterable
from typing import Final

from mssql_standin.capture import instances, tables
from mssql_standin.capture.arguments import Arguments
from mssql_standin.capture.hooks import agent
from mssql_standin.capture.instances import CaptureInstance
from mssql_standin.capture.messages import error
from mssql_standin.contract import Parameter, ProcedureContext, ResultColumn
from mssql_standin.measures import measures
from mssql_standin.sqltypes import BIT, DATETIME, INT, LSN_TYPE, NVARCHAR_MAX, SMALLINT, SYSNAME, TINYINT, Value

_HELP: Final = (
    ResultColumn("source_schema", SYSNAME), ResultColumn("source_table", SYSNAME),
    ResultColumn("capture_instance", SYSNAME), ResultColumn("object_id", INT), ResultColumn("source_object_id", INT),
    ResultColumn("start_lsn", LSN_TYPE), ResultColumn("end_lsn", LSN_TYPE), ResultColumn("supports_net_changes", BIT),
    ResultColumn("has_drop_pending", BIT), ResultColumn("role_name", SYSNAME), ResultColumn("index_name", SYSNAME),
    ResultColumn("filegroup_name", SYSNAME), ResultColumn("create_date", DATETIME),
    ResultColumn("index_column_list", NVARCHAR_MAX), ResultColumn("captured_column_list", NVARCHAR_MAX),
)  # fmt: skip
_COLUMNS: Final = (
    ResultColumn("source_schema", SYSNAME), ResultColumn("source_table", SYSNAME),
    ResultColumn("capture_instance", SYSNAME), ResultColumn("column_name", SYSNAME), ResultColumn("column_id", INT),
    ResultColumn("column_ordinal", INT), ResultColumn("data_type", SYSNAME), ResultColumn("character_maximum_length", INT),
    ResultColumn("numeric_precision", TINYINT), ResultColumn("numeric_precision_radix", SMALLINT),
    ResultColumn("numeric_scale", INT), ResultColumn("datetime_precision", SMALLINT),
)  # fmt: skip
_HISTORY: Final = (
    ResultColumn("source_schema", SYSNAME), ResultColumn("source_table", SYSNAME),
    ResultColumn("capture_instance", SYSNAME), ResultColumn("required_column_update", BIT),
    ResultColumn("ddl_command", NVARCHAR_MAX), ResultColumn("ddl_lsn", LSN_TYPE), ResultColumn("ddl_time", DATETIME),
)  # fmt: skip


def help_change_data_capture(context: ProcedureContext, given: dict[str, Parameter]) -> int:
    """`sys.sp_cdc_help_change_data_capture`: one row per instance, of one table or of all.

    Raises:
        SqlError: 22901, 22972 for half a name, 22931, 22985, 22981 for a table whose changes are not permitted.
    """
    arguments = Arguments("sp_cdc_help_change_data_capture", ("source_schema", "source_name"), given)
    database = tables.require_database(context.catalog, context.procedure_database)
    schema, name = arguments.text("source_schema"), arguments.text("source_name")
    if bool(schema) != bool(name):
        raise error(22972)
    found = instances.read(context.connection, context.catalog, database.name)
    if schema and name:
        source = database.table(schema, name)
        if source is None:
            raise error(22931, schema, name)
        if not source.tracked_by_cdc:
            raise error(22985, schema, name)
        found = [instance for instance in found if instance.source_object_id == source.object_id]
        if not any(instances.readable(context, database.name, instance) for instance in found):
            raise error(22981)
    found = [instance for instance in found if instances.readable(context, database.name, instance)]
    context.send(_HELP, [_help_row(context, database.name, instance) for instance in found])
    return 0


def _help_row(context: ProcedureContext, database: str, found: CaptureInstance) -> tuple[Value, ...]:
    schema, name = _source_name(context, database, found)
    index = tables.system_table(context.catalog, database, "index_columns")
    keys = tables.select(
        context.connection, index, ("column_name",), "{object_id} = ? ORDER BY {index_ordinal}", (found.object_id,)
    )
    captured = instances.captured_columns(context.connection, context.catalog, database, found.object_id)
    return (
        schema, name, found.name, found.object_id, found.source_object_id, found.start_lsn, found.end_lsn,
        int(found.supports_net_changes), None, found.role_name, found.index_name, found.filegroup_name,
        found.create_date, _listed(str(row[0]) for row in keys), _listed(column for column, *_ in captured),
    )  # fmt: skip


def _listed(names: Iterable[str]) -> str | None:
    return ", ".join("[" + name.replace("]", "]]") + "]" for name in names) or None


def _source_name(context: ProcedureContext, database: str, found: CaptureInstance) -> tuple[str | None, str | None]:
    owner = context.catalog.database(database)
    source = owner.table_by_id(found.source_object_id) if owner else None
    return (source.schema, source.name) if source else (None, None)


def _instance(context: ProcedureContext, arguments: Arguments, database: str) -> CaptureInstance:
    name = arguments.required("capture_instance")
    found = instances.named(context.connection, context.catalog, database, name)
    if found is None or not instances.readable(context, database, found):
        raise error(22981)
    return found


def get_captured_columns(context: ProcedureContext, given: dict[str, Parameter]) -> int:
    """`sys.sp_cdc_get_captured_columns`: types as `INFORMATION_SCHEMA.COLUMNS` shows those of the change table."""
    arguments = Arguments("sp_cdc_get_captured_columns", ("capture_instance",), given)
    database = tables.require_database(context.catalog, context.procedure_database).name
    found = _instance(context, arguments, database)
    change_table = instances.change_table(context.catalog, database, found.name)
    head = (*_source_name(context, database, found), found.name)
    rows = []
    for name, column_id, declared, ordinal in instances.captured_columns(
        context.connection, context.catalog, database, found.object_id
    ):
        column = change_table.column(name) if change_table else None
        length, _, *digits = measures(column.type) if column else (None,) * 6
        rows.append((*head, name, column_id, ordinal, declared, length, *digits))
    context.send(_COLUMNS, rows)
    return 0


def get_ddl_history(context: ProcedureContext, given: dict[str, Parameter]) -> int:
    """`sys.sp_cdc_get_ddl_history`."""
    arguments = Arguments("sp_cdc_get_ddl_history", ("capture_instance",), given)
    database = tables.require_database(context.catalog, context.procedure_database).name
    found = _instance(context, arguments, database)
    columns = ("required_column_update", "ddl_command", "ddl_lsn", "ddl_time")
    table = tables.system_table(context.catalog, database, "ddl_history")
    rows = tables.select(context.connection, table, columns, "{object_id} = ? ORDER BY {ddl_lsn}", (found.object_id,))
    head = (*_source_name(context, database, found), found.name)
    context.send(_HISTORY, [(*head, *row) for row in rows])
    return 0


def scan(context: ProcedureContext, given: dict[str, Parameter]) -> int:
    """`sys.sp_cdc_scan`: capture now what is committed, also while the Agent is stopped.

    Raises:
        SqlError: 22901, 22991, 22970, 22998, 22990, 22999.
    """
    arguments = Arguments(
        "sp_cdc_scan", ("maxtrans", "maxscans", "continuous", "pollinginterval", "is_from_job"), given
    )
    database = tables.require_database(context.catalog, context.procedure_database)
    maxtrans, maxscans = arguments.number("maxtrans", 500) or 0, arguments.number("maxscans", 10) or 0
    if maxtrans <= 0:
        raise error(22991)
    if maxscans <= 0:
        raise error(22970)
    if arguments.number("pollinginterval", 0) and not arguments.number("continuous", 0):
        raise error(22999)
    context.edit()
    agent(context).scan(context.connection, database.database_id, time.time(), maxtrans * maxscans)
    return 0
