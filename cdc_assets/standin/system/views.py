"""`sys.*` and `INFORMATION_SCHEMA.*` as relations."""

from cdc_assets.standin.catalog import Database, fold
from cdc_assets.standin.contract import Relation, RelationColumn, SessionContext
from cdc_assets.standin.sql.collation import sqlite_collation
from cdc_assets.standin.sqltypes import CHARACTER
from cdc_assets.standin.system import constraints, dynamic, indexes, information_schema, objects, server, system_views  # noqa: F401 - they define views
from cdc_assets.standin.system.view import VIEWS, View


def view_relation(context: SessionContext, database: str, schema: str, name: str) -> Relation | None:
    """The system view of that name in a database, or None.

    Args:
        context: the session that asks.
        database: the database whose objects it shows.
        schema: `sys` or `INFORMATION_SCHEMA` (case does not matter); `dbo` finds the old `dbo.sysobjects` kind: none.
        name: of the view.
    """
    found = VIEWS.get(f"{fold(schema)}.{fold(name)}")
    owner = context.catalog.database(database)
    if found is None or owner is None:
        return None
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
    context.connection.executemany(f"INSERT INTO temp.{table} VALUES ({marks})", found.rows(context, owner))
