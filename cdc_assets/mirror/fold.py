"""What events make of rows: the pure part of a mirror, whole arrays at a time.

*Events* come in the order of their positions. An event is about one key and either sets its row or removes it. Together
with the rows that are there they form, key after key, a sequence of states. From it:

1. a value that the log omitted (`missing`) is that of the state before it in the same sequence;
2. a READ that finds the row as the state before it has it changes nothing: a table that is read again does not make
   every row new;
3. of several states with one commit LSN the last one counts, for nobody has seen the others;
4. the last state of a sequence is the row from now on, or its absence; every other one is a version that has ended.

A row that no event is about stays as it is, unless its table was read anew after changes were lost (`void`): then it is
a row that the server no longer has, and its version ends.

*A table without a key* is a multiset. Rows that agree in all columns that the log always holds are exchangeable, so a
removal removes the oldest of them, and what an update sets takes the omitted values of what it removed. READs of one
reading of the table name all copies of a row that there are: as many as were read stay, or are added.

Nothing here knows files, Delta or Spark; nothing loops over rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.mirror.shape import (
    AT,
    CHANGED_AT,
    LSN,
    MISSING,
    OPERATION,
    POSITION,
    Shape,
)
from cdc_assets.typemap.kernels import Numbers

_LSN_WIDTH = 22
"""Characters of a position that are the commit LSN."""


@dataclass(frozen=True, slots=True)
class Void:
    """Rows that were not found when a table was read anew are gone.

    Args:
        since: LSN from which on events tell that a row exists.
        lsn: LSN of the reading, at which the others end.
        at: microseconds since 1970 at which it was read; None if unknown.
    """

    since: str
    lsn: str
    at: int | None = None


@dataclass(frozen=True, slots=True)
class Folded:
    """Rows after some events.

    Args:
        rows: the table's rows, not sorted.
        ended: versions that have ended.
        changed: whether `rows` differ from those before.
    """

    rows: pa.Table
    ended: pa.Table
    changed: bool


def fold_keyed(shape: Shape, rows: pa.Table, events: pa.Table, void: Void | None = None) -> Folded:
    """Apply events to rows.

    Args:
        shape: of the mirror.
        rows: unique by key if there is one.
        events: in the order of their positions, all later than what `rows` contain (or equal to it).
    """
    base, incoming = shape.keys(rows), shape.keys(events)
    distinct = pc.unique(incoming)
    touched = pc.index_in(base, value_set=distinct)
    is_touched = pc.is_valid(touched)
    if void is not None:
        missed = pc.and_(pc.invert(is_touched), pc.less(rows[LSN], void.since))
        gone = rows.filter(missed)
        kept = rows.filter(pc.and_(pc.invert(is_touched), pc.invert(missed)))
    else:
        gone, kept = rows.slice(0, 0), rows.filter(pc.invert(is_touched))
    old = rows.filter(is_touched)
    codes = pa.concat_arrays([touched.filter(is_touched), pc.index_in(incoming, value_set=distinct)])
    states = _States(shape, old, events, codes.to_numpy(zero_copy_only=False))
    alive, ended, same = states.resolve()
    if gone.num_rows and void is not None:
        ended = pa.concat_tables([ended, _voided(shape, gone, void)])
    changed = bool(gone.num_rows) or not same
    return Folded(pa.concat_tables([kept, alive]), ended, changed)


def _voided(shape: Shape, gone: pa.Table, void: Void) -> pa.Table:
    rows = gone.num_rows
    return shape.ended(
        gone,
        pa.repeat(pa.scalar(void.lsn, pa.string()), rows),
        pa.repeat(pa.scalar(void.at, AT), rows),
        pa.repeat(pa.scalar("r", pa.string()), rows),
    )


class _States:
    """States of the keys that events are about, key after key and in order.

    Args:
        old: rows that are there.
        codes: number of the key of each row of `old`, then of each event.
    """

    def __init__(self, shape: Shape, old: pa.Table, events: pa.Table, codes: Numbers) -> None:
        self._shape, self._olds = shape, old.num_rows
        order = np.argsort(codes, kind="stable")
        self._source = order
        self._codes = codes[order]
        self._is_old = order < self._olds
        whole = pa.concat_tables([shape.as_events(old), events.select(shape.event_names)])
        self._table = whole.combine_chunks().take(pa.array(order))
        operations = self._table[OPERATION]
        self._removes = mask_of(pc.equal(operations, "d"))
        self._reads = mask_of(pc.equal(operations, "r"))
        self._fill()

    def _fill(self) -> None:
        """Give omitted values those of the state before."""
        for name in self._shape.large:
            missing = mask_of(self._table[MISSING + name]) | self._removes  # a row may change its message key
            if missing.any():
                filled = _filled(self._table[name].combine_chunks(), missing, self._codes)
                place = self._table.schema.get_field_index(name)
                self._table = self._table.set_column(place, self._table.field(place), filled)

    def resolve(self) -> tuple[pa.Table, pa.Table, bool]:
        """Rows that exist at the end, versions that ended, and whether nothing changed."""
        kept = ~self._agreeing()
        lsns = pc.utf8_slice_codeunits(self._table[POSITION], 0, _LSN_WIDTH)
        chosen = np.flatnonzero(kept)
        codes = self._codes[chosen]
        lsn = lsns.combine_chunks().take(pa.array(chosen)).dictionary_encode()
        lsn = lsn.combine_chunks() if isinstance(lsn, pa.ChunkedArray) else lsn
        moments = lsn.indices.to_numpy(zero_copy_only=False)
        final = np.ones(len(chosen), dtype=bool)
        final[:-1] = (codes[1:] != codes[:-1]) | (moments[1:] != moments[:-1])
        chosen, codes = chosen[final], codes[final]
        last = np.ones(len(chosen), dtype=bool)
        last[:-1] = codes[1:] != codes[:-1]
        exists = ~self._removes[chosen]
        alive = chosen[last & exists]
        ends = np.flatnonzero(~last & exists)
        ended = self._versions(chosen[ends], chosen[ends + 1], lsns)
        same = not len(ends) and bool(self._is_old[alive].all()) and len(alive) == self._olds
        rows = self._shape.as_rows(self._table.take(pa.array(alive)), lsns.take(pa.array(alive)))
        return rows, ended, same

    def _agreeing(self) -> Numbers:
        """READs that find the row as it is."""
        candidates = np.flatnonzero(self._reads)
        candidates = candidates[candidates > 0]
        before = candidates - 1
        candidates = candidates[(self._codes[before] == self._codes[candidates]) & ~self._removes[before]]
        agreeing = np.zeros(len(self._codes), dtype=bool)
        if len(candidates):
            left = self._table.take(pa.array(candidates - 1))
            right = self._table.take(pa.array(candidates))
            agreeing[candidates] = equal_rows(left, right, self._shape.names)
        return agreeing

    def _versions(self, ended: Numbers, by: Numbers, lsns: pa.ChunkedArray) -> pa.Table:
        """Versions and the states that ended them."""
        at = pa.array(by)
        operations = self._table[OPERATION].take(at)
        operations = pc.if_else(pc.equal(operations, "c"), "u", operations)
        rows = self._shape.as_rows(self._table.take(pa.array(ended)), lsns.take(pa.array(ended)))
        return self._shape.ended(rows, lsns.take(at), self._table[CHANGED_AT].take(at), operations)


def mask_of(array: pa.Array | pa.ChunkedArray) -> Numbers:
    """Where an array is true; null is not."""
    found: Numbers = np.asarray(pc.fill_null(array, False)).astype(bool)
    return found


def _filled(values: pa.Array, missing: Numbers, codes: Numbers) -> pa.Array:
    """Values in which a missing one is the one before it of the same code; null if there is none."""
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    places = np.arange(len(codes))
    known = np.maximum.accumulate(np.where(missing, -1, places))
    own = (known >= 0) & (codes[np.maximum(known, 0)] == codes)
    return values.take(pa.array(np.where(own, known, 0), mask=~own))


def equal_rows(left: pa.Table, right: pa.Table, names: Sequence[str]) -> Numbers:
    """Where rows agree in the named columns; two nulls agree."""
    same = np.ones(left.num_rows, dtype=bool)
    for name in names:
        one, other = left[name], right[name]
        equal = mask_of(pc.equal(one, other))
        same &= equal | (mask_of(one.is_null()) & mask_of(other.is_null()))
    return same
