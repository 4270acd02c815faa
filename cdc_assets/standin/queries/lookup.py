"""Names written as text: in sp_rename, IDENT_CURRENT, DBCC."""

from cdc_assets.standin.catalog import Table, fold
from cdc_assets.standin.queries.ports import QuerySession
from cdc_assets.standin.text.clauses import name_parts


def table_named(session: QuerySession, text: str) -> Table | None:
    """The table that a text names, or None."""
    parts = name_parts(text)
    if not parts:
        return None
    if parts[-1].startswith("#"):
        return session.temporary.get(fold(parts[-1]))
    database = session.catalog.database(parts[-3] if len(parts) > 2 and parts[-3] else session.database)
    schema = parts[-2] if len(parts) > 1 and parts[-2] else "dbo"
    return database.table(schema, parts[-1]) if database else None
