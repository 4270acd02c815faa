"""Reads the structures of source tables from the server's catalogue."""

from collections import defaultdict
from collections.abc import Sequence

from cdc_assets.adapters.sqlserver import queries
from cdc_assets.adapters.sqlserver.rows import Row, integer, schema_of
from cdc_assets.adapters.sqlserver.session import Session
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import TableSchema


def table_schemas(session: Session, database: str, tables: Sequence[TableId]) -> dict[TableId, TableSchema]:
    """Current structures of those tables of a database that exist; two queries."""
    names = [name for table in tables for name in (table.schema, table.table)]
    columns: dict[int, list[Row]] = defaultdict(list)
    keys: dict[int, list[Row]] = defaultdict(list)
    object_ids: dict[tuple[str, str], int] = {}
    for schema, table, object_id, *rest in session.rows(queries.columns(database, len(tables)), *names):
        object_ids[str(schema), str(table)] = integer(object_id)
        columns[integer(object_id)].append((object_id, *rest))
    if columns:
        for object_id, *rest in session.rows(queries.keys(database, len(columns)), *columns):
            keys[integer(object_id)].append(tuple(rest))
    folded = {(schema.lower(), table.lower()): number for (schema, table), number in object_ids.items()}
    found = {}
    for wanted in tables:  # the server compares by its collation: the letter case may differ
        object_id = object_ids.get((wanted.schema, wanted.table)) or folded.get(
            (wanted.schema.lower(), wanted.table.lower())
        )
        if object_id is not None:
            found[wanted] = schema_of(wanted, columns[object_id], keys[object_id])
    return found
