"""`sys.sp_cdc_enable_db`, `sp_cdc_disable_db`, `sp_cdc_enable_table`, `sp_cdc_disable_table`.

All four work in the caller's transaction: catalogue copy, `cdc` tables and triggers commit
or roll back together. The low end of a new instance is an LSN drawn under the write lock:
above every earlier commit, below every commit that its triggers can have seen.
"""

import re
from dataclasses import dataclass
from typing import Final

from mssql_standin.capture import ddl, instances, jobs, tables
from mssql_standin.capture.arguments import Arguments
from mssql_standin.capture.hooks import agent
from mssql_standin.capture.messages import error
from mssql_standin.capture.times import to_stored
from mssql_standin.catalog import Database, Index, Table, fold
from mssql_standin.contract import Parameter, ProcedureContext
from mssql_standin.errors import SqlError
from mssql_standin.rights import DATABASE_ROLES, role_named
from mssql_standin.sqltypes import INT

_SYSTEM: Final = frozenset({"master", "model", "msdb", "tempdb", "distribution"})
_RESERVED: Final = frozenset({"__$start_lsn", "__$end_lsn", "__$seqval", "__$operation", "__$update_mask"})
_MAX_COLUMNS: Final = 1018
_ENABLE: Final = (
    "source_schema", "source_name", "capture_instance", "supports_net_changes", "role_name", "index_name",
    "captured_column_list", "filegroup_name", "allow_partition_switch",
)  # fmt: skip


def enable_db(context: ProcedureContext, given: dict[str, Parameter]) -> int:
    """`sys.sp_cdc_enable_db`: schema `cdc`, its tables and `dbo.systranschemas`.

    Raises:
        SqlError: 22989 for a system database, 22906 when a schema `cdc` exists.
    """
    Arguments("sp_cdc_enable_db", (), given)
    catalog = context.edit()
    database = _database(context)
    if fold(database.name) in _SYSTEM:
        raise error(22989, database.name)
    if database.cdc_enabled:
        return 0
    if "cdc" in map(fold, (*database.schemas, *database.security.principals)):
        raise error(22906, database.name)
    database.schemas["cdc"] = max(*database.schemas.values(), 4) + 1
    made = tables.database_tables(catalog, database, context.clock.local())
    for table in made:
        context.create_table(table)
    database.cdc_enabled = True
    mapping = next(table for table in made if table.name == "lsn_time_mapping")
    agent(context).enabled(database.database_id)
    position = agent(context).logs.position(database.name)
    context.connection.execute(
        "INSERT OR REPLACE INTO capture_databases VALUES (?, ?, ?, ?)",
        (database.database_id, fold(database.name), mapping.sqlite, position.vlf),
    )
    return 0


def disable_db(context: ProcedureContext, given: dict[str, Parameter]) -> int:
    """`sys.sp_cdc_disable_db`: every instance, table and job of change data capture in the database."""
    Arguments("sp_cdc_disable_db", (), given)
    context.edit()
    database = _database(context)
    if not database.cdc_enabled:
        return 0
    for table in [table for table in database.tables.values() if table.tracked_by_cdc]:
        ddl.drop_instances(context, table)
    for table in [table for table in database.tables.values() if _is_ours(table)]:
        context.drop_table(table)
    jobs.drop_all(context, database)
    database.schemas = {name: key for name, key in database.schemas.items() if fold(name) != "cdc"}
    database.cdc_enabled = False
    for table_name in ("capture_databases", "capture_log"):
        context.connection.execute(f"DELETE FROM {table_name} WHERE database_id = ?", (database.database_id,))
    return 0


def _is_ours(table: Table) -> bool:
    return fold(table.schema) == "cdc" or (table.ms_shipped and fold(table.name) == "systranschemas")


@dataclass(frozen=True, slots=True)
class _Request:
    """Checked arguments of `sp_cdc_enable_table`."""

    source: Table
    name: str
    net: bool
    role: str | None
    index: Index | None
    columns: tuple[str, ...]
    filegroup: str | None
    partition_switch: bool


def enable_table(context: ProcedureContext, given: dict[str, Parameter]) -> int:
    """`sys.sp_cdc_enable_table` with every argument.

    Raises:
        SqlError: 201 for an argument that must be named, and 22901, 22931, 22974, 22962, 22926, 22927, 22932, 22907, 22938,
            22928, 22929, 22930, 22939, 22942, 22943, 22965, 22973, 22975 as the vendor documents them.
    """
    arguments = Arguments("sp_cdc_enable_table", _ENABLE, given)
    for name in ("source_schema", "source_name", "role_name"):  # NULL is a value: no role
        arguments.required(name)
    tables.require_database(context.catalog, context.procedure_database)
    context.edit()
    request = _request(context, arguments)
    security = _database(context).security
    if request.role and role_named(security, request.role, DATABASE_ROLES) is None:
        security.add(request.role, "R", context.clock.local())
    _create(context, request)
    jobs.create_missing(context, _database(context))
    database_id = _database(context).database_id
    if agent(context).latency_s == 0 and agent(context).capturing(database_id):
        agent(context).first_idle(context.connection, database_id)
    agent(context).state(context).logged = True  # `after_commit` wakes the Agent
    return 0


def _request(context: ProcedureContext, arguments: Arguments) -> _Request:
    schema, name = arguments.required("source_schema"), arguments.required("source_name")
    source = _source(context, schema, name)
    existing = instances.of_source(context.connection, context.catalog, source)
    instance = _name(context, arguments.text("capture_instance"), source, len(existing))
    if len(existing) >= 2:
        raise error(22962, source.schema, source.name)
    role = arguments.text("role_name")
    if role == "":
        raise error(22907)
    if role is not None and len(role) > 128:
        raise error(22938, role)
    index = _index(source, arguments.text("index_name"))
    net = bool(arguments.number("supports_net_changes", 0))
    if net and index is None:
        raise error(22939)
    columns = _columns(source, arguments.text("captured_column_list"))
    if net and index is not None and not {fold(key) for key, _ in index.keys} <= {fold(c) for c in columns}:
        raise error(22943)
    filegroup = arguments.text("filegroup_name") or None
    if filegroup is not None and fold(filegroup) != "primary":
        raise error(22973, filegroup, source.database)
    switch = bool(arguments.number("allow_partition_switch", 1))
    return _Request(source, instance, net, role, index, columns, filegroup, switch)


def _source(context: ProcedureContext, schema: str, name: str) -> Table:
    source = _database(context).table(schema, name)
    if source is None or (source.ms_shipped and fold(schema) != "cdc"):
        raise error(22931, schema, name)
    if fold(source.schema) == "cdc":
        raise error(22974)
    return source


def _name(context: ProcedureContext, wanted: str | None, source: Table, existing: int) -> str:
    if wanted == "":
        raise error(22932, wanted)
    name = wanted or f"{source.schema}_{source.name}"
    if len(name) > 100:
        raise error(22927, name)
    if existing < 2 and instances.named(context.connection, context.catalog, source.database, name) is not None:
        raise error(22926, name)
    return name


def _index(source: Table, name: str | None) -> Index | None:
    """The index that identifies rows: the named one, else the primary key."""
    if not name:
        return source.primary_key
    found = next((index for index in source.indexes if fold(index.name) == fold(name)), None)
    if found is None:
        raise error(22928, name, source.schema, source.name)
    if not found.unique:
        raise error(22929, name, source.schema, source.name)
    return found


def _columns(source: Table, text: str | None) -> tuple[str, ...]:
    """Captured columns in table order."""
    listed = None if text is None else split_columns(text)
    for name in listed or ():
        if source.column(name) is None:
            raise error(22930, name, source.schema, source.name)
    wanted = None if listed is None else {fold(name) for name in listed}
    if listed is not None and wanted is not None and len(wanted) < len(listed):
        raise error(22942, source.schema, source.name)
    columns = tuple(column.name for column in source.columns if wanted is None or fold(column.name) in wanted)
    if {fold(column) for column in columns} & _RESERVED:
        raise error(22975, source.name)
    if len(columns) > _MAX_COLUMNS:
        raise error(22925, source.name, _MAX_COLUMNS)
    return columns


def split_columns(text: str) -> list[str]:
    """Names of a column list, plain, in brackets or in double quotes.

    Raises:
        SqlError: 22965 for a name whose closing delimiter is missing.
    """
    names, place = [], 0
    item = re.compile(r'\s*(?:\[((?:[^\]]|\]\])*)\]|"((?:[^"]|"")*)"|([^,\["]*[^,\["\s]))\s*(?:,|$)')
    while place < len(text):
        found = item.match(text, place)
        if not found:
            raise error(22965)
        bracketed, quoted, plain = found.groups()
        names.append(bracketed.replace("]]", "]") if bracketed is not None else (quoted or plain).replace('""', '"'))
        place = found.end()
    return names


def _create(context: ProcedureContext, request: _Request) -> None:
    """Change table, metadata rows, triggers."""
    catalog, source, connection = context.catalog, request.source, context.connection
    database, now = _database(context), context.clock.local()
    captured = [column for column in source.columns if column.name in request.columns]
    columns = [
        *tables.CHANGE_HEAD,
        *((column.name, instances.captured_type(column), True) for column in captured),
        (tables.COMMAND_ID, INT, True),
    ]
    key = ("__$start_lsn", tables.COMMAND_ID, "__$seqval", "__$operation")
    table = tables.build(catalog, database, "cdc", f"{request.name}_CT", columns, key, now)
    context.create_table(table)
    start = agent(context).next_lsn(database.name)
    index = request.index
    row = (
        table.object_id, 0, source.object_id, request.name, start, None, int(request.net), None, request.role,
        index.name if index else None, request.filegroup, to_stored(now), int(request.partition_switch),
    )  # fmt: skip
    tables.insert(connection, tables.system_table(catalog, database.name, "change_tables"), [row])
    tables.insert(
        connection, tables.system_table(catalog, database.name, "captured_columns"),
        [
            (table.object_id, column.name, column.column_id, column.type.name, place, int(column.computed is not None), None)
            for place, column in enumerate(captured, 1)
        ],
    )  # fmt: skip
    if index is not None:
        keys = [(place, source.column(name)) for place, (name, _) in enumerate(index.keys, 1)]
        rows = [(table.object_id, column.name, place, column.column_id) for place, column in keys if column is not None]
        tables.insert(connection, tables.system_table(catalog, database.name, "index_columns"), rows)
    source.tracked_by_cdc = True
    instances.wire(connection, catalog, source)


def disable_table(context: ProcedureContext, given: dict[str, Parameter]) -> int:
    """`sys.sp_cdc_disable_table` for one instance or `all`.

    Raises:
        SqlError: 22901, 22931, 22985 when the table is not captured, 22960 for an unknown instance.
    """
    arguments = Arguments("sp_cdc_disable_table", ("source_schema", "source_name", "capture_instance"), given)
    tables.require_database(context.catalog, context.procedure_database)
    context.edit()
    source = _source(context, arguments.required("source_schema"), arguments.required("source_name"))
    wanted = arguments.required("capture_instance")
    found = instances.of_source(context.connection, context.catalog, source)
    if not found:
        raise error(22985, source.schema, source.name)
    chosen = [instance for instance in found if fold(wanted) in ("all", fold(instance.name))]
    if not chosen:
        raise error(22960, wanted, source.schema, source.name)
    for instance in chosen:
        ddl.drop_instance(context, source.database, instance)
    instances.wire(context.connection, context.catalog, source)
    return 0


def _database(context: ProcedureContext) -> Database:
    database = context.catalog.database(context.procedure_database)
    if database is None:
        raise SqlError(
            911,
            f"Database '{context.procedure_database}' does not exist. Make sure that the name is entered correctly.",
        )
    return database
