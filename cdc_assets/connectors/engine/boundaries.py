"""BEGIN and END of transactions, which have no position in the log, and which a connector may send again.

A connector that is started after an END sends that END again, since its offset lies before the commit in the log; one
that is started inside a transaction may send its BEGIN again. The last recorded one decides: an event of the same
transaction with the same status, or a BEGIN after its END, is held already. The first of another transaction is new, and
so is all after it. PostgreSQL adds the event's own LSN to the transaction's id, which is left out of the comparison.
"""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

Boundary = tuple[str, str]
"""The transaction's id, and BEGIN or END."""
_FIELDS = ("status", "id", "event_count")
"""The first two are texts."""


def has_boundaries(table: pa.Table) -> bool:
    """Whether a table's events are BEGIN and END, by their fields."""
    kind = table.schema.field("value").type if "value" in table.column_names else None
    if kind is None or not pa.types.is_struct(kind):
        return False
    places = [kind.get_field_index(name) for name in _FIELDS]
    if kind.get_field_index("source") >= 0 or min(places) < 0:
        return False
    return all(pa.types.is_string(kind.field(place).type) for place in places[:2])


def boundaries_of(table: pa.Table) -> list[Boundary | None]:
    """Those of a table's events in their order; None for a tombstone."""
    parts = [pc.struct_field(table.column("value"), name).to_pylist() for name in ("id", "status")]
    return [None if id_ is None else (_transaction(id_), status) for id_, status in zip(*parts, strict=True)]


def _transaction(id_: str) -> str:
    number, _, place = id_.partition(":")
    return number if number.isdigit() and place.isdigit() else id_


def last_boundary(tables: Sequence[pa.Table]) -> Boundary | None:
    """The last of a chunk; None if it has none."""
    found = [
        (n, boundary)
        for table in tables
        if has_boundaries(table)
        for n, boundary in zip(table.column("n").to_pylist(), boundaries_of(table), strict=True)
        if boundary is not None
    ]
    return max(found)[1] if found else None


def without_recorded(table: pa.Table, recorded: Boundary) -> tuple[pa.Table, bool]:
    """A table of boundaries without those that a batch holds already.

    Returns:
        The others, and whether a new one has come.
    """
    found = boundaries_of(table)
    for count, boundary in enumerate(found):
        if boundary is None or boundary[0] != recorded[0] or boundary[1] not in ("BEGIN", recorded[1]):
            return table.slice(count), True
    return table.slice(len(found)), False
