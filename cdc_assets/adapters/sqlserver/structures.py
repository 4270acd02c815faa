"""Reads the structures of source tables from the server's catalogue."""

from collections import defaultdict
from collections.abc import Callable, Sequence

from cdc_assets.adapters.sqlserver import queries
from cdc_assets.adapters.sqlserver.portions import portions
from cdc_assets.adapters.sqlserver.rows import Row, integer, schema_of
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import TableSchema

Query = Callable[..., list[Row]]
"""Returns the rows of a query, with its parameters."""

_NAMES = 100
"""Tables that one query requests by name: each is a condition of its own, which the server compares with every table."""


def table_schemas(query: Query, database: str, tables: Sequence[TableId]) -> dict[TableId, TableSchema]:
    """Current structures of those tables of a database that exist: two queries.

    If there are many tables it is three: a first one requests the numbers of all of the database's tables, so that the others
    name these. Tables of which only the server knows that their names are the same are requested by name, `_NAMES` at a time.
    """
    if len(tables) <= _NAMES:
        return _by_name(query, database, tables)
    numbers = {
        (str(schema), str(table)): integer(number)
        for schema, table, number in query(queries.of_database(queries.TABLE_NUMBERS, database))
    }
    known = [(table, numbers[table.schema, table.table]) for table in tables if (table.schema, table.table) in numbers]
    statement = queries.columns(database, len(known), by_number=True)
    rows = query(statement, *(number for _, number in known)) if known else []
    columns, keys = _parts(query, database, rows)
    found = {table: schema_of(table, columns[number], keys[number]) for table, number in known if number in columns}
    for portion in portions([table for table in tables if table not in found], _NAMES):
        found |= _by_name(query, database, portion)
    return found


def _by_name(query: Query, database: str, tables: Sequence[TableId]) -> dict[TableId, TableSchema]:
    names = [name for table in tables for name in (table.schema, table.table)]
    rows = query(queries.columns(database, len(tables)), *names)
    columns, keys = _parts(query, database, rows)
    numbers = {(str(schema), str(table)): integer(number) for schema, table, number, *_ in rows}
    folded = {(schema.lower(), table.lower()): number for (schema, table), number in numbers.items()}
    found = {}
    for wanted in tables:  # the server compares by its collation: the letter case may differ
        number = numbers.get((wanted.schema, wanted.table)) or folded.get((wanted.schema.lower(), wanted.table.lower()))
        if number is not None:
            found[wanted] = schema_of(wanted, columns[number], keys[number])
    return found


def _parts(query: Query, database: str, rows: Sequence[Row]) -> tuple[dict[int, list[Row]], dict[int, list[Row]]]:
    """Rows of columns and of key columns by the number of their table."""
    columns: dict[int, list[Row]] = defaultdict(list)
    keys: dict[int, list[Row]] = defaultdict(list)
    for _, _, number, *rest in rows:
        columns[integer(number)].append((number, *rest))
    if columns:
        for number, *rest in query(queries.keys(database, len(columns)), *columns):
            keys[integer(number)].append(tuple(rest))
    return columns, keys
