"""`sys.*` and `INFORMATION_SCHEMA.*` as relations."""

from typing import Final

from mssql_standin.catalog import Database, fold
from mssql_standin.contract import Relation, RelationColumn, SessionContext
from mssql_standin.errors import unsupported
from mssql_standin.rights import Rights
from mssql_standin.sql.collation import sqlite_collation
from mssql_standin.sqltypes import CHARACTER
from mssql_standin.system import (  # noqa: F401 - they define views
    constraints,
    dynamic,
    indexes,
    information_schema,
    objects,
    principals,
    server,
    system_views,
)
from mssql_standin.system.view import VIEWS, Rows, View

_NEEDS: Final = {
    "sys.dm_server_services": "VIEW SERVER SECURITY STATE",
    **dict.fromkeys(
        ("sys.dm_tran_database_transactions", "sys.dm_tran_session_transactions", "sys.dm_tran_current_transaction",
         "sys.dm_hadr_database_replica_states"),
        "VIEW SERVER PERFORMANCE STATE",
    ),
    **dict.fromkeys(
        ("sys.dm_cdc_log_scan_sessions", "sys.dm_cdc_errors", "sys.dm_db_partition_stats"), "VIEW DATABASE PERFORMANCE STATE"
    ),
}  # fmt: skip
"""What it takes to read a management view (SQL Server 2022); VIEW SERVER STATE and VIEW DATABASE STATE hold these."""
_OWN_ROWS: Final = frozenset({"sys.dm_exec_sessions", "sys.dm_exec_requests"})
"""Without VIEW SERVER PERFORMANCE STATE these show the session itself."""


def view_relation(context: SessionContext, database: str, schema: str, name: str) -> Relation | None:
    """The system view of that name in a database; None for names outside `sys` and `INFORMATION_SCHEMA`.

    Args:
        context: the session that asks.
        database: the database whose objects it shows.
        schema: case does not matter.
        name: of the view.

    Raises:
        SqlError: 40510 for a system view that the stand-in does not have.
    """
    found = VIEWS.get(f"{fold(schema)}.{fold(name)}")
    owner = context.catalog.database(database)
    if found is None and fold(schema) in ("sys", "information_schema"):
        raise unsupported(f"the view {schema}.{name}")
    if found is None or owner is None:
        return None
    if context.rights is not None:
        context.rights.require_entry(owner)
        context.rights.require_state(_NEEDS.get(found.name, ""), owner)
    table = f"v_{fold(found.name).replace('.', '_')}_{owner.database_id}"
    columns = tuple(
        RelationColumn(column, f"c{place}", kind, nullable)
        for place, (column, kind, nullable) in enumerate(found.columns, 1)
    )
    _create(context, found, table, owner)
    return Relation(f"temp.{table}", columns, refresh=lambda: _refresh(context, found, table, owner.name))


def _create(context: SessionContext, found: View, table: str, database: Database) -> None:
    collate = f" COLLATE {sqlite_collation(database.collation)}"
    columns = ", ".join(
        f"c{place}{collate if kind.name in CHARACTER else ''}" for place, (_, kind, _) in enumerate(found.columns, 1)
    )
    context.connection.execute(f"CREATE TEMP TABLE IF NOT EXISTS {table}({columns})")


def _refresh(context: SessionContext, found: View, table: str, database: str) -> None:
    """Fill the temporary table; a rollback may have taken the table itself."""
    owner = context.catalog.database(database)
    if owner is None:
        return
    _create(context, found, table, owner)
    context.connection.execute(f"DELETE FROM temp.{table}")
    marks = ",".join("?" * len(found.columns))
    rows = found.rows(context, owner) if context.rights is None else _shown(context, context.rights, found, owner)
    context.connection.executemany(f"INSERT INTO temp.{table} VALUES ({marks})", rows)


def _shown(context: SessionContext, rights: Rights, found: View, owner: Database) -> Rows:
    """A view's rows for a login that may not see everything."""
    rows = list(found.rows(context, rights.visible(owner)))
    if found.name in _OWN_ROWS and not rights.on_server("VIEW SERVER PERFORMANCE STATE"):
        return [row for row in rows if row[0] == context.session_id]
    places = {column: place for place, (column, _, _) in enumerate(found.columns)}
    if "definition" not in places:
        return rows
    of, text = places.get("parent_object_id", places["object_id"]), places["definition"]
    shapes = (*owner.tables.shared(), *(routine.shape for routine in owner.procedures))
    open_ = {s.object_id for s in shapes if rights.on_database("VIEW DEFINITION", owner, s.schema, s.object_id)}
    return [row if row[of] in open_ else (*row[:text], None, *row[text + 1 :]) for row in rows]
