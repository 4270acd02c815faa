"""Divides a table into key ranges with about equal numbers of rows.

There are two methods. An integer key with at least half of the values of its span is divided by arithmetic: two index
seeks, in one query for many tables. Any other key is scanned on the server: from each bound a fixed number of keys
onward, which reads the key index once in total and returns one value per range. Bounds reflect the keys at that moment;
as the first and last range are open and each bound belongs to one range only, the ranges cover the table regardless of
concurrent writes. So a bound need not even be committed, and the queries need no row locks.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from cdc_assets.adapters.sqlserver import table_queries
from cdc_assets.adapters.sqlserver.rows import integer
from cdc_assets.adapters.sqlserver.session import Session
from cdc_assets.core.identifiers import TableId, quote
from cdc_assets.core.ports import KeyExtent, KeyRange
from cdc_assets.core.ranges import cut_by, from_text, to_text, type_of_bounds
from cdc_assets.core.schema import Column, TableSchema

WHOLE = KeyRange(None, None, None)
MIN_ROWS_PER_RANGE = 1000
"""Minimum rows of a range; smaller tables are not worth a second connection."""
_LOSSY = "\ufffd"
"""In place of half a surrogate pair, which has another place in the order: ranges up to such bounds might overlap."""
_INTEGERS = frozenset({"tinyint", "smallint", "int", "bigint"})


def is_worth_cutting(rows: int) -> bool:
    """Whether a table with this number of rows is divided."""
    return rows >= 2 * MIN_ROWS_PER_RANGE


def integer_key(schema: TableSchema) -> Column | None:
    """The leading key column, if it holds integers."""
    leading = schema.column(schema.key[0]) if schema.key else None
    return leading if leading is not None and leading.type_name in _INTEGERS else None


def key_extents(session: Session, schemas: Sequence[TableSchema]) -> dict[TableId, KeyExtent]:
    """Least and greatest leading keys of those tables that have integers there, and rows; one query.

    Raises:
        CdcError: one of the tables cannot be queried, or the server is unavailable.
    """
    keyed = [(schema, key) for schema in schemas if (key := integer_key(schema)) is not None]
    if not keyed:
        return {}
    rows = session.rows(table_queries.extremes([(schema.table.quoted, quote(key.name)) for schema, key in keyed]))
    return {
        keyed[integer(place)][0].table: (integer(low), integer(high)) for place, low, high in rows if low is not None
    }


def key_ranges(
    session: Session, schema: TableSchema, rows: int, slices: int, extent: KeyExtent | None = None
) -> list[KeyRange]:
    """Ranges that together cover the table with about this number of rows; one range if it has no suitable key or few
    rows."""
    leading = cut_by(schema)
    if leading is None:
        return [WHOLE]
    kind = type_of_bounds(leading)
    parts = min(slices, rows // MIN_ROWS_PER_RANGE)
    if parts < 2:
        return [KeyRange(leading.name, None, None, kind)]
    if extent is None:
        extent = key_extents(session, [schema]).get(schema.table)
    bounds = _by_arithmetic(extent, rows, parts) if extent else []
    bounds = bounds or list(_walk(session, schema, leading, rows, parts))
    return [KeyRange(leading.name, low, high, kind) for low, high in pairwise([None, *bounds, None])]


def _by_arithmetic(extent: KeyExtent, rows: int, parts: int) -> list[str]:
    """Bounds of a dense integer key, or none if it is not dense."""
    low, high = extent
    span = high - low + 1
    if span > 2 * rows or span < parts:
        return []
    return [str(low + span * part // parts) for part in range(1, parts)]


def _walk(session: Session, schema: TableSchema, key: Column, rows: int, parts: int) -> Iterator[str]:
    """Bounds found by scanning the key on the server; fewer if there are fewer keys."""
    table, column = schema.table.quoted, quote(key.name)
    shown, bound = to_text(key, "k"), from_text(key)
    low: str | None = None
    for _ in range(parts - 1):
        parameters = (rows // parts,) if low is None else (low, rows // parts)
        found = session.value(
            table_queries.key_at(table, column, shown, bound if low is not None else None), *parameters
        )
        if found == low and low is not None:  # one value fills the whole range: the next one starts the next range
            found = session.value(table_queries.key_after(table, column, shown, bound), low)
        if found is None or _LOSSY in str(found):
            return
        low = str(found)
        yield low
