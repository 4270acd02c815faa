"""Capture instances as the `cdc` tables describe them: reading and wiring.

The rows of `cdc.change_tables` and `cdc.captured_columns` are the only description of an
instance. `wire` derives its staging table, its move statement and the triggers of its
source table from them, so a definition change is: unwire, alter, wire again.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mssql_standin.capture import triggers
from mssql_standin.capture.tables import INTERNAL, binary, integer, select, system_table, text
from mssql_standin.catalog import Catalog, Column, Database, Table, fold
from mssql_standin.contract import SessionContext
from mssql_standin.errors import SqlError
from mssql_standin.sqltypes import SqlType, Value

FIRST_CAPTURED: Final = 6
"""column_id of the first captured column in a change table."""


@dataclass(frozen=True, slots=True)
class CaptureInstance:
    """A row of `cdc.change_tables`."""

    object_id: int
    source_object_id: int
    name: str
    start_lsn: bytes
    supports_net_changes: bool
    role_name: str | None
    index_name: str | None
    filegroup_name: str | None
    create_date: int
    partition_switch: bool
    end_lsn: bytes | None


_COLUMNS: Final = (
    "object_id", "source_object_id", "capture_instance", "start_lsn", "supports_net_changes", "role_name",
    "index_name", "filegroup_name", "create_date", "partition_switch", "end_lsn",
)  # fmt: skip


def create_internal(connection: sqlite3.Connection) -> None:
    """Create the tables of our own that no catalogue shows."""
    for statement in INTERNAL:
        connection.execute(statement)


def read(
    connection: sqlite3.Connection, catalog: Catalog, database: str, where: str = "", values: Sequence[Value] = ()
) -> list[CaptureInstance]:
    """The capture instances of a database, oldest first.

    Raises:
        SqlError: 208 when the database is not enabled.
    """
    table = system_table(catalog, database, "change_tables")
    rows = select(connection, table, _COLUMNS, where or "1", values)
    found = [_read(*row) for row in rows]
    return sorted(found, key=lambda instance: (instance.create_date, instance.object_id))


def _read(
    object_id: Value, source: Value, name: Value, start: Value, net: Value, role: Value,
    index: Value, filegroup: Value, created: Value, switch: Value, end: Value,
) -> CaptureInstance:  # fmt: skip
    return CaptureInstance(
        integer(object_id), integer(source), str(name), binary(start) or bytes(10), bool(net),
        text(role), text(index), text(filegroup), integer(created), bool(switch), binary(end),
    )  # fmt: skip


def of_source(connection: sqlite3.Connection, catalog: Catalog, table: Table) -> list[CaptureInstance]:
    """The instances that capture a table."""
    database = catalog.database(table.database)
    if database is None or not database.cdc_enabled:
        return []
    return read(connection, catalog, table.database, "{source_object_id} = ?", (table.object_id,))


def named(connection: sqlite3.Connection, catalog: Catalog, database: str, name: str) -> CaptureInstance | None:
    """The instance of that name, or None."""
    return next((found for found in read(connection, catalog, database) if fold(found.name) == fold(name)), None)


def captured_columns(
    connection: sqlite3.Connection, catalog: Catalog, database: str, object_id: int
) -> list[tuple[str, int, str, int]]:
    """(name, source column id, type, ordinal) of an instance's columns in order."""
    table = system_table(catalog, database, "captured_columns")
    columns = ("column_name", "column_id", "column_type", "column_ordinal")
    rows = select(connection, table, columns, "{object_id} = ? ORDER BY {column_ordinal}", (object_id,))
    return [(str(name), integer(column_id), str(kind), integer(ordinal)) for name, column_id, kind, ordinal in rows]


def readable(context: SessionContext, database: str, found: CaptureInstance) -> bool:
    """Whether the session may see an instance's changes."""
    owner = context.catalog.database(database)
    if context.rights is None or owner is None:
        return True
    return context.rights.reads_changes(owner, owner.table_by_id(found.source_object_id), found.role_name)


def captured_type(column: Column) -> SqlType:
    """Type of a captured column in the change table: rowversion becomes binary(8)."""
    return SqlType("binary", length=8) if column.type.name == "rowversion" else column.type


def wire(connection: sqlite3.Connection, catalog: Catalog, source: Table) -> None:
    """Give the source table the triggers, and every instance the staging table and move statement, that it needs."""
    database = _database(catalog, source)
    wired = [_instance(connection, catalog, source, found) for found in of_source(connection, catalog, source)]
    for instance in wired:
        _register(connection, database, source, instance)
    triggers.create_triggers(connection, source, database.database_id, wired)
    source.tracked_by_cdc = bool(wired)


def unwire(connection: sqlite3.Connection, object_id: int) -> None:
    """Forget a change table's staging table and staged rows; the source's triggers must be dropped or wired anew."""
    connection.execute("DELETE FROM capture_instances WHERE ct = ?", (object_id,))
    connection.execute(f"DROP TABLE IF EXISTS s{object_id}")


def _register(connection: sqlite3.Connection, database: Database, source: Table, instance: triggers.Instance) -> None:
    known = connection.execute("SELECT 1 FROM capture_instances WHERE ct = ?", (instance.change_table,)).fetchone()
    if known:
        return
    triggers.create_staging(connection, instance)
    connection.execute(
        "INSERT INTO capture_instances VALUES (?, ?, ?, ?, ?)",
        (instance.change_table, database.database_id, source.object_id, triggers.move_statement(instance), str(source)),
    )


def _instance(
    connection: sqlite3.Connection, catalog: Catalog, source: Table, found: CaptureInstance
) -> triggers.Instance:
    by_id = {column.column_id: column for column in source.columns}
    columns = captured_columns(connection, catalog, source.database, found.object_id)
    return triggers.Instance(
        found.object_id,
        tuple(
            triggers.Captured(f"c{FIRST_CAPTURED + ordinal - 1}", by_id.get(column_id))
            for _, column_id, _, ordinal in columns
        ),
    )


def _database(catalog: Catalog, table: Table) -> Database:
    database = catalog.database(table.database)
    if database is None:
        raise SqlError(
            911, f"Database '{table.database}' does not exist. Make sure that the name is entered correctly."
        )
    return database


def change_table(catalog: Catalog, database: str, capture_instance: str) -> Table | None:
    """`cdc.<capture_instance>_CT`, or None."""
    found = catalog.database(database)
    return found.table("cdc", f"{capture_instance}_CT") if found else None
