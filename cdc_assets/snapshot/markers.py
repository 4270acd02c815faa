"""Snapshot markers of READ events (spec debezium-sqlserver §2.5).

| value | row |
|---|---|
| `last` | last row of the last table that has rows |
| `first` | first row of the first table that has rows |
| `last_in_data_collection` | last row of any other table |
| `first_in_data_collection` | first row of any other table |
| `true` | any other row |

Earlier lines win. Whether a row is the last of its table is known only when another row follows or there are no more. So exactly
one row is held back at any time: the newest one. Its marker is decided by the next row or by the end.
"""

import base64
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from cdc_assets.core.identifiers import TableId
from cdc_assets.envelope.reads import mark
from cdc_assets.ledger.snapshot_state import HeldRow
from cdc_assets.snapshot.tasks import SliceEnds, unpack


@dataclass(frozen=True, slots=True)
class MarkedRow:
    """An event with its final marker."""

    table: TableId
    batch: pa.RecordBatch


class Markers:
    """Decides the markers of slice ends, in slice order.

    Args:
        held: row held back by earlier rounds; None if they emitted nothing.
    """

    def __init__(self, held: HeldRow | None) -> None:
        self.held = held

    def add(self, ends: SliceEnds) -> Iterable[MarkedRow]:
        """Rows whose marker is decided by this slice."""
        for packed in (ends.first, ends.last):
            if packed is not None:
                yield from self._next(ends, packed)

    def _next(self, ends: SliceEnds, packed: bytes) -> Iterable[MarkedRow]:
        first = self.held is None or self.held.table != ends.table
        if self.held is not None:
            yield _decided(self.held, closes_table=first, closes_all=False)
        text = base64.b64encode(packed).decode()
        self.held = HeldRow(ends.table, ends.number, first, self.held is None, text)

    def finish(self) -> Iterable[MarkedRow]:
        """The last row of all, if there is any."""
        if self.held is not None:
            yield _decided(self.held, closes_table=True, closes_all=True)
        self.held = None


def marker_of(held: HeldRow, *, closes_table: bool, closes_all: bool) -> str:
    """The marker, according to the table in the module's head."""
    if closes_all:
        return "last"
    if held.first_of_all:
        return "first"
    if closes_table:
        return "last_in_data_collection"
    return "first_in_data_collection" if held.first else "true"


def row_of(held: HeldRow) -> pa.RecordBatch:
    """The event that is held back, as it was made."""
    return unpack(base64.b64decode(held.batch))


def _decided(held: HeldRow, *, closes_table: bool, closes_all: bool) -> MarkedRow:
    batch = row_of(held)
    marker = marker_of(held, closes_table=closes_table, closes_all=closes_all)
    return MarkedRow(held.table, batch if marker == "true" else mark(batch, 0, marker))
