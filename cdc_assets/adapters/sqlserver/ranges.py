"""Cuts a table into key ranges of about equal rows.

Two ways. An integer key whose values are at least half of their span is cut by arithmetic: two index seeks. Any other
key is walked on the server: from each bound so many keys on, which reads the key index once in all and returns one
value per range. Bounds are where the keys were at that moment; as the first and last range are open and each bound
belongs to one range only, the ranges cover the table whatever is written meanwhile. So a bound need not even be
committed, and the questions wait for no lock of a row.
"""

from collections.abc import Iterator
from itertools import pairwise

from cdc_assets.adapters.sqlserver import queries
from cdc_assets.adapters.sqlserver.rows import integer
from cdc_assets.adapters.sqlserver.session import Session
from cdc_assets.core.identifiers import quote
from cdc_assets.core.ports import KeyRange
from cdc_assets.core.ranges import can_bound, from_text, to_text
from cdc_assets.core.schema import Column, TableSchema

WHOLE = KeyRange(None, None, None)
MIN_ROWS_PER_RANGE = 1000
"""Smaller tables are not worth a second connection."""
_INTEGERS = frozenset({"tinyint", "smallint", "int", "bigint"})


def key_ranges(session: Session, schema: TableSchema, rows: int, slices: int) -> list[KeyRange]:
    """Ranges that together cover the table of about so many rows; one if no key of it can be bounded, or few rows."""
    leading = schema.column(schema.key[0]) if schema.key else None
    if leading is None or not can_bound(leading):
        return [WHOLE]
    parts = min(slices, rows // MIN_ROWS_PER_RANGE)
    if parts < 2:
        return [KeyRange(leading.name, None, None)]
    bounds = _by_arithmetic(session, schema, leading, rows, parts) or list(_walk(session, schema, leading, rows, parts))
    return [KeyRange(leading.name, low, high) for low, high in pairwise([None, *bounds, None])]


def _by_arithmetic(session: Session, schema: TableSchema, key: Column, rows: int, parts: int) -> list[str]:
    """Bounds of a dense integer key, or none if it is not dense."""
    if key.type_name not in _INTEGERS:
        return []
    [(least, greatest)] = session.rows(queries.extremes(schema.table.quoted, quote(key.name)))
    if least is None or greatest is None:
        return []
    low, high = integer(least), integer(greatest)
    span = high - low + 1
    if span > 2 * rows or span < parts:
        return []
    return [str(low + span * part // parts) for part in range(1, parts)]


def _walk(session: Session, schema: TableSchema, key: Column, rows: int, parts: int) -> Iterator[str]:
    """Bounds found by walking the key on the server; ends early when the keys do."""
    table, column = schema.table.quoted, quote(key.name)
    shown, bound = to_text(key, "k"), from_text(key)
    low: str | None = None
    for _ in range(parts - 1):
        parameters = (rows // parts,) if low is None else (low, rows // parts)
        found = session.value(queries.key_at(table, column, shown, bound if low is not None else None), *parameters)
        if found == low and low is not None:  # one value fills the whole range: the next one starts the next range
            found = session.value(queries.key_after(table, column, shown, bound), low)
        if found is None:
            return
        low = str(found)
        yield low
