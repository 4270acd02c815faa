"""The tables of schema `cdc`, `dbo.systranschemas` and `msdb.dbo.cdc_jobs`, in documented column order.

They are ordinary `ms_shipped` tables of the catalogue, so every query works on them, and
the capture code reads and writes their SQLite tables by `sqlite` names taken from here.
Beside them stand three tables of our own that no catalogue shows (`INTERNAL`).
"""

import sqlite3
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from mssql_standin.capture.messages import error
from mssql_standin.catalog import Catalog, Column, Database, Index, Table
from mssql_standin.errors import SqlError, invalid_object
from mssql_standin.sqltypes import SqlType, Value, parse_type

INTERNAL: Final = (
    "CREATE TABLE IF NOT EXISTS capture_databases(database_id INTEGER PRIMARY KEY, name TEXT, mapping TEXT, vlf INTEGER)",
    # change table → source table and the statement that moves its staged rows; see `triggers`
    "CREATE TABLE IF NOT EXISTS capture_instances(ct INTEGER PRIMARY KEY, database_id INTEGER, source INTEGER, move TEXT, source_name TEXT)",
    "CREATE INDEX IF NOT EXISTS capture_instances_source ON capture_instances(source)",
    # committed transactions whose staged rows the Agent has not moved yet
    "CREATE TABLE IF NOT EXISTS capture_log(tran INTEGER, database_id INTEGER, vlf INTEGER, block INTEGER, changes INTEGER, begin_time INTEGER, end_time INTEGER, committed REAL, sources TEXT, PRIMARY KEY(database_id, tran)) WITHOUT ROWID",
)

# name: ((column, type, nullable), …), clustered key
_CDC: Final[dict[str, tuple[tuple[tuple[str, str, bool], ...], tuple[str, ...]]]] = {
    "captured_columns": (
        (
            ("object_id", "int", False), ("column_name", "sysname", False), ("column_id", "int", True),
            ("column_type", "sysname", False), ("column_ordinal", "int", True), ("is_computed", "bit", True),
            ("masking_function", "nvarchar(4000)", True),
        ),
        ("object_id", "column_ordinal"),
    ),
    "change_tables": (
        (
            ("object_id", "int", False), ("version", "int", True), ("source_object_id", "int", True),
            ("capture_instance", "sysname", False), ("start_lsn", "binary(10)", True), ("end_lsn", "binary(10)", True),
            ("supports_net_changes", "bit", True), ("has_drop_pending", "bit", True), ("role_name", "sysname", True),
            ("index_name", "sysname", True), ("filegroup_name", "sysname", True), ("create_date", "datetime", True),
            ("partition_switch", "bit", False),
        ),
        ("object_id",),
    ),
    "ddl_history": (
        (
            ("source_object_id", "int", True), ("object_id", "int", False), ("required_column_update", "bit", True),
            ("ddl_command", "nvarchar(max)", True), ("ddl_lsn", "binary(10)", False), ("ddl_time", "datetime", True),
        ),
        ("object_id", "ddl_lsn"),
    ),
    "index_columns": (
        (
            ("object_id", "int", False), ("column_name", "sysname", False), ("index_ordinal", "tinyint", False),
            ("column_id", "int", False),
        ),
        ("object_id", "index_ordinal", "column_id"),
    ),
    "lsn_time_mapping": (
        (
            ("start_lsn", "binary(10)", False), ("tran_begin_time", "datetime", True), ("tran_end_time", "datetime", True),
            ("tran_id", "varbinary(10)", True), ("tran_begin_lsn", "binary(10)", True),
        ),
        ("start_lsn",),
    ),
}  # fmt: skip

_SYSTRANSCHEMAS: Final = (
    ("tabid", "int", False), ("startlsn", "binary(10)", False), ("endlsn", "binary(10)", False), ("typeid", "int", False),
)  # fmt: skip

_JOBS: Final = (
    ("database_id", "int", False), ("job_type", "nvarchar(20)", False), ("job_id", "uniqueidentifier", True),
    ("maxtrans", "int", True), ("maxscans", "int", True), ("continuous", "bit", True),
    ("pollinginterval", "bigint", True), ("retention", "bigint", True), ("threshold", "bigint", True),
)  # fmt: skip

CHANGE_HEAD: Final = (
    ("__$start_lsn", SqlType("binary", length=10), False),
    ("__$end_lsn", SqlType("binary", length=10), True),
    ("__$seqval", SqlType("binary", length=10), False),
    ("__$operation", SqlType("int"), False),
    ("__$update_mask", SqlType("varbinary", length=128), True),
)
COMMAND_ID: Final = "__$command_id"


def build(
    catalog: Catalog,
    database: Database,
    schema: str,
    name: str,
    columns: Iterable[tuple[str, SqlType, bool]],
    key: Sequence[str],
    created: datetime,
    unique: bool = True,
) -> Table:
    """A system table with a clustered index, not yet in the catalogue."""
    listed = [Column(column, place, kind, nullable) for place, (column, kind, nullable) in enumerate(columns, 1)]
    index = Index(f"{name}_clustered_idx", 1, tuple((column, False) for column in key), unique, clustered=True)
    return Table(
        catalog.new_object_id(), database.name, schema, name, listed, [index],
        created=created, modified=created, ms_shipped=True, next_column_id=len(listed) + 1,
    )  # fmt: skip


def _typed(columns: Iterable[tuple[str, str, bool]]) -> list[tuple[str, SqlType, bool]]:
    return [(name, parse_type(declared), nullable) for name, declared, nullable in columns]


def database_tables(catalog: Catalog, database: Database, created: datetime) -> list[Table]:
    """The tables that `sp_cdc_enable_db` creates."""
    made = [
        build(catalog, database, "cdc", name, _typed(columns), key, created, unique=name != "ddl_history")
        for name, (columns, key) in _CDC.items()
    ]
    schemas = build(
        catalog,
        database,
        "dbo",
        "systranschemas",
        _typed(_SYSTRANSCHEMAS),
        ("startlsn", "tabid"),
        created,
        unique=False,
    )
    return [*made, schemas]


def jobs_table(catalog: Catalog, msdb: Database, created: datetime) -> Table:
    """`msdb.dbo.cdc_jobs`; on a real server too it exists only while some database is enabled."""
    return build(catalog, msdb, "dbo", "cdc_jobs", _typed(_JOBS), ("database_id", "job_type"), created)


def require_database(catalog: Catalog, name: str) -> Database:
    """The database, which must be enabled for capture.

    Raises:
        SqlError: 22901 when it is not.
    """
    database = catalog.database(name)
    if database is None or not database.cdc_enabled:
        raise error(22901, name)
    return database


def system_table(catalog: Catalog, database: str, name: str, schema: str = "cdc") -> Table:
    """A table of schema cdc.

    Raises:
        SqlError: 208 when the database is not enabled, as a real server answers.
    """
    found = catalog.database(database)
    table = found.table(schema, name) if found else None
    if table is None:
        raise invalid_object(f"{schema}.{name}")
    return table


def insert(connection: sqlite3.Connection, table: Table, rows: Iterable[Sequence[Value]]) -> None:
    """Insert rows of stored values in column order."""
    marks = ",".join("?" * len(table.columns))
    connection.executemany(f"INSERT INTO {table.sqlite} VALUES ({marks})", rows)


def select(
    connection: sqlite3.Connection, table: Table, columns: Sequence[str], where: str = "", values: Sequence[Value] = ()
) -> list[tuple[Value, ...]]:
    """Rows of the named columns; `where` is SQLite text in which `{name}` stands for a column."""
    names = {column.name: column.sqlite for column in table.columns}
    text = f"SELECT {', '.join(names[name] for name in columns)} FROM {table.sqlite}"
    if where:
        text += " WHERE " + where.format(**names)
    return connection.execute(text, tuple(values)).fetchall()


def change(connection: sqlite3.Connection, table: Table, statement: str, values: Sequence[Value] = ()) -> int:
    """Run an UPDATE or DELETE in which `{table}` and `{column name}` are replaced; returns the rows changed."""
    names = {column.name: column.sqlite for column in table.columns}
    return connection.execute(statement.format(table=table.sqlite, **names), tuple(values)).rowcount


def integer(value: Value) -> int:
    """A stored value that must be an integer."""
    if not isinstance(value, int):
        raise SqlError(8114, f"Error converting a value of type {type(value).__name__} to data type int.")
    return value


def text(value: Value) -> str | None:
    """A stored value that must be text or NULL."""
    return None if value is None else str(value) if not isinstance(value, bytes) else value.hex()


def binary(value: Value) -> bytes | None:
    """A stored value that must be bytes or NULL."""
    return value if isinstance(value, bytes) else None
