"""The events about a leaf, in ranges that fit into a task's memory.

A step is bounded by rows. A bulk load, or many updates of a few wide rows, brings one leaf more bytes than a task may hold; a
column of an array ends at 2 GB. Such events are staged once more, by ranges of key and commit LSN, or of the LSN only if rows have no key, and folded
range after range.

*Why the result is the same.* A range ends between two commits of a key, as a step does: what one range leaves of a row is the row that the
next one begins with (`tasks`). Which rows a table lacks that was read again is seen by all events of a key at once. So then ranges
are of keys only, and without a key there is one.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.core.lsn import LSN_WIDTH
from cdc_assets.kernels import Numbers
from cdc_assets.lake.keys import as_bytes, ranges_of
from cdc_assets.lake.location import Location
from cdc_assets.lake.pieces import Piece, release_memory
from cdc_assets.lake.row_shape import CHANGED_AT, OPERATION, POSITION
from cdc_assets.mirror.rewrite import by_key
from cdc_assets.mirror.shape import Shape
from cdc_assets.mirror.spans import Span
from cdc_assets.mirror.staged import stage_numbered, staged
from cdc_assets.mirror.texts import plain, whole

EVENT_BYTES = 256 * 1024 * 1024
"""Bytes of events that a task holds at once, about."""
_SAMPLES = 64
"""Events of a range among which its bounds are chosen."""


class EventRanges:
    """The events about a leaf; of one range all are kept, of several those of the last request.

    Args:
        staging: folder of the staged files.
        pieces: of the leaf, in the order of the topic's files.
        spans: within the step; a range may end inside, for what both ranges say of a row has the same LSN then.
        since: LSN from which on events show that a row exists, if rows go that no such event is about; else None.

    Raises:
        LakeError: the lake cannot be read or written.
    """

    def __init__(
        self,
        location: Location,
        staging: str,
        pieces: Sequence[Piece],
        shape: Shape,
        spans: Sequence[Span] = (),
        *,
        since: str | None,
    ) -> None:
        self._location, self._staging, self._shape, self._spans = location, staging, shape, spans
        self._since, self._by_lsn = since, since is None
        self.bounds: list[bytes] = []
        """Where each range but the first begins."""
        self.newest: datetime | None = None
        """When the newest event that was read was committed."""
        self._pieces = [tuple(pieces)]
        self._held: tuple[int, pa.Table] | None = None
        size = sum(piece.size for piece in pieces)
        if size > EVENT_BYTES and (shape.keyed or self._by_lsn):
            self._part(pieces, size)

    def __len__(self) -> int:
        return len(self._pieces)

    def _part(self, pieces: Sequence[Piece], size: int) -> None:
        sampled: list[bytes] = []
        for events in self._staged(pieces):
            chosen = np.linspace(0, events.num_rows - 1, 1 + _SAMPLES * events.nbytes // EVENT_BYTES).astype(np.int64)
            sampled += self._places(events.take(pa.array(chosen))).to_pylist()
        sampled.sort()
        count = 2 * size // EVENT_BYTES
        self.bounds = sorted({sampled[len(sampled) * at // count] for at in range(1, count)})
        parted = ((plain(events), self.of(events)) for events in self._staged(pieces))
        found = stage_numbered(self._location, self._staging, parted)
        numbers = range(len(self.bounds) + 1)
        self._pieces = [tuple(piece for piece in found if piece.number == number) for number in numbers]

    def _staged(self, pieces: Sequence[Piece]) -> Iterator[pa.Table]:
        return staged(self._location, self._staging, pieces, self._shape)

    def _places(self, rows: pa.Table) -> pa.Array:
        """What orders events among the ranges: the key, and after it the LSN. A row is before all events of its key."""
        shape = self._shape
        keys = as_bytes(shape.keys(rows)) if shape.keyed else pa.repeat(pa.scalar(b""), rows.num_rows)
        if not self._by_lsn or POSITION not in rows.column_names:
            return keys
        lsns = pc.utf8_slice_codeunits(rows[POSITION].combine_chunks(), 0, LSN_WIDTH).cast(pa.binary())
        return pc.binary_join_element_wise(keys, lsns, b"")

    def of(self, rows: pa.Table) -> Numbers:
        """The range of each row or event."""
        return ranges_of(self._places(rows), self.bounds)

    def within(self, number: int, rows: pa.Table) -> pa.Table:
        """Those of some rows that lie in a range."""
        return rows.filter(pa.array(self.of(rows) == number))

    def going_on(self, number: int) -> bytes | None:
        """The key that may have events in a range and in the next one; None if no key has."""
        bound = self.bounds[number] if number < len(self.bounds) and self._by_lsn and self._shape.keyed else None
        return None if bound is None else bound[:-LSN_WIDTH]

    def events(self, number: int) -> pa.Table:
        """The events of a range in the order of their keys, or of their positions if rows have none.

        Raises:
            LakeError: the lake cannot be read.
        """
        if self._held is None or self._held[0] != number:
            self._held = None
            release_memory()
            found = list(self._staged(self._pieces[number]))
            events = [in_order(found, self._shape)]
            found.clear()
            self.newest = max(filter(None, [self.newest, pc.max(events[0][CHANGED_AT]).as_py()]), default=None)
            if self._since is not None and self._shape.keyed:
                events = [told_since(events.pop(), self._shape, self._since)]
            self._held = number, by_key(self._shape, events.pop(), self._spans) if self._shape.keyed else events.pop()
            release_memory()
        return self._held[1]


def told_since(events: pa.Table, shape: Shape, since: str) -> pa.Table:
    """Events without those about rows that no event has told of since an LSN.

    A span that began before changes were lost is stepped over at its end (`spans`), behind that LSN. What was read in it says no more
    that a row has lived through the loss than what the mirror has of it.
    """
    is_later = pc.greater_equal(pc.utf8_slice_codeunits(events[POSITION], 0, LSN_WIDTH), since)
    if pc.all(is_later).as_py() is not False:
        return events
    keys = shape.keys(events)
    return events.filter(pc.is_in(keys, value_set=keys.filter(whole(is_later))))


def in_order(events: Sequence[pa.Table], shape: Shape) -> pa.Table:
    """Events in the order of their positions, each once; those with one position stay in the given order.

    An event may come twice while another program's rewrite is not undone yet (`lake.foreign`). With a key that would make no
    difference, without one there would be another row.
    """
    whole = pa.concat_tables(events) if events else shape.events.empty_table()
    positions = whole[POSITION].combine_chunks() if whole.num_rows else None
    if positions is None:
        return whole
    if pc.all(pc.less_equal(positions[:-1], positions[1:])).as_py() is False:
        whole = whole.take(_stable(positions))
    return whole if shape.keyed else _once(whole)


def _stable(positions: pa.Array) -> pa.Array:
    numbered = pa.table({"position": positions, "number": np.arange(len(positions))})
    return pc.sort_indices(numbered, sort_keys=[("position", "ascending"), ("number", "ascending")])


def _once(events: pa.Table) -> pa.Table:
    """Of events with one position and operation the first."""
    codes = [events[name].combine_chunks().dictionary_encode().indices.to_numpy() for name in (POSITION, OPERATION)]
    _, first = np.unique(codes[0].astype(np.int64) * len(events) + codes[1], return_index=True)
    return events if len(first) == len(events) else events.take(pa.array(np.sort(first)))
