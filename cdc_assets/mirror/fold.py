"""What events make of rows: the pure part of a mirror, whole arrays at a time.

*Events* come in the order of their positions. An event is about one key and either sets its row or removes it. Together
with the rows that are there they form, key after key, a sequence of states. From it:

1. a value that the log omitted (`missing`) is that of the state before it in the same sequence; if an event gives a row another
   message key, and the table has no other one, that is in another sequence, and the value is not known here;
2. a READ that finds the row as the state before it has it changes nothing: a table that is read again does not make
   every row new;
3. of several states with one commit LSN the last one counts, for nobody has seen the others;
4. the last state of a sequence is the row from now on, or its absence; every other one is a version that has ended.

What a comparison found absent (`missing_rows`) ends a row like a deletion, unless the row has come again since.

A row that no event is about stays as it is, unless its table was read again after changes were lost (`void`): then it is
a row that the server no longer has, and its version ends.

*A table without a key* is a multiset. Rows that agree in all columns that the log always holds are exchangeable. So a removal
removes the oldest of them, and what an update sets takes the omitted values of what it removed. READs of one
reading of the table name all copies of a row that there are: as many as were read stay, or are added.

Nothing here knows files, Delta or Spark; nothing loops over rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.core.lsn import LSN_WIDTH
from cdc_assets.kernels import Numbers, mask_of
from cdc_assets.lake.row_shape import AT, CHANGED_AT, MISSING, OPERATION, POSITION
from cdc_assets.mirror.missing_rows import MISSING_ROW
from cdc_assets.mirror.shape import LSN, Shape
from cdc_assets.mirror.texts import TEXTS, in_form, is_encoded, joined, plain, whole

COMMIT = " commit"
"""Column of events whose positions are those at which they count: LSNs of the commits that they are of."""


@dataclass(frozen=True, slots=True)
class Void:
    """Rows that were not found when a table was read again are gone.

    Args:
        since: LSN from which on events show that a row exists.
        lsn: LSN of the reading, at which the others end.
        at: microseconds since 1970 at which it was read; None if unknown.
        proof: LSN from which on rows of the mirror show it; empty for `since`.
        reads: position of the reading in a table without a key; empty for `lsn`.
    """

    since: str
    lsn: str
    at: int | None = None
    proof: str = ""
    reads: str = ""


@dataclass(frozen=True, slots=True)
class Folded:
    """Rows after some events.

    Args:
        rows: the table's rows, not sorted.
        ended: versions that have ended.
        changed: whether `rows` differ from those before.
        unknown: position, or its LSN, of the last event that removes a row which is not there, of a table without a key; or of
            the last one that makes a row with values that are not known, of a table whose only key is the message key. Empty
            for none.
    """

    rows: pa.Table
    ended: pa.Table
    changed: bool
    unknown: str = ""


def fold_keyed(shape: Shape, rows: pa.Table, events: pa.Table, void: Void | None = None, doubt: str = "") -> Folded:
    """Apply events to rows of a table with a key.

    Args:
        shape: of the mirror.
        rows: in the order of their keys, each once.
        events: in the order of their keys, those of one key in the order of their positions, all later than what `rows`
            contain (or equal to it); of the positions the LSNs suffice.
        doubt: see `PlannedStep`.

    Returns:
        Rows in the order of their keys.
    """
    events = _still_true(shape, rows, events)
    base, incoming = shape.keys(rows), shape.keys(events)
    codes = _numbered(incoming)
    distinct = incoming.take(pa.array(np.flatnonzero(np.diff(codes, prepend=-1))))
    places = _places(base, distinct)
    known = np.flatnonzero(_is_there(base, distinct, places))
    keeps = np.ones(rows.num_rows, dtype=bool)
    keeps[places[known]] = False
    gone = shape.no_rows()
    if void is not None:
        missed = keeps & mask_of(pc.less(in_form(rows[LSN], pa.string()), void.proof or void.since))
        gone, keeps = rows.filter(pa.array(missed)), keeps & ~missed
    states = _States(shape, rows.take(pa.array(places[known])), events, np.concatenate([known, codes]), void, doubt)
    alive, owners, ended, same = states.resolve()
    if gone.num_rows and void is not None:
        ended = pa.concat_tables([plain(ended), plain(_voided(shape, gone, void))])
    changed = bool(gone.num_rows) or not same
    return Folded(_merged(rows, keeps, alive, places[owners]) if changed else rows, ended, changed, states.unknown)


def _still_true(shape: Shape, rows: pa.Table, events: pa.Table) -> pa.Table:
    """Events without those that say that a row is gone which has come again since."""
    gone = mask_of(pc.equal(events[OPERATION], MISSING_ROW))
    if not gone.any():
        return events
    said = events.filter(pa.array(gone))
    known = rows[LSN].take(pc.index_in(shape.keys(said), value_set=shape.keys(rows)))
    later = pc.greater(in_form(known, pa.string()), in_form(lsns_of(said[POSITION]), pa.string()))
    gone[np.flatnonzero(gone)] = mask_of(later)
    return events.filter(pa.array(~gone))


def lsns_of(positions: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The commit LSNs of positions, as a dictionary array; if they are that already, as they are."""
    if is_encoded(positions.type):
        return whole(positions)
    return whole(pc.utf8_slice_codeunits(positions, 0, LSN_WIDTH).dictionary_encode())


def _numbered(keys: pa.Array) -> Numbers:
    """Numbers of sorted keys: equal ones have the same, from zero."""
    if not len(keys):
        return np.empty(0, dtype=np.int64)
    differs = np.zeros(len(keys), dtype=bool)
    differs[1:] = mask_of(pc.not_equal(keys[1:], keys[:-1]))
    return np.cumsum(differs)


def _places(base: pa.Array, keys: pa.Array) -> Numbers:
    """How many of sorted keys are below each of some other sorted ones."""
    if pa.types.is_integer(base.type):
        found: Numbers = np.searchsorted(base.to_numpy(), keys.to_numpy())
        return found
    order = pc.array_sort_indices(pa.concat_arrays([keys, base])).to_numpy()  # stable: a key is before its equal
    return np.flatnonzero(order < len(keys)) - np.arange(len(keys))


def _is_there(base: pa.Array, keys: pa.Array, places: Numbers) -> Numbers:
    """Which keys are in the base, given the places of all."""
    inside = places < len(base)
    found = base.take(pa.array(places, mask=~inside))
    return mask_of(pc.equal(found, keys)) & inside


def _merged(rows: pa.Table, keeps: Numbers, alive: pa.Table, places: Numbers) -> pa.Table:
    """Rows that are kept, and others before those of the given places."""
    kept = np.flatnonzero(keeps)
    added = np.arange(rows.num_rows, rows.num_rows + alive.num_rows)
    order = pa.array(np.insert(kept, np.searchsorted(kept, places), added))
    columns = [joined([rows[name], alive[name]]).take(order) for name in rows.column_names]
    return pa.Table.from_arrays(columns, names=rows.column_names)


def _voided(shape: Shape, gone: pa.Table, void: Void) -> pa.Table:
    rows = gone.num_rows
    return shape.ended(
        gone,
        pa.repeat(pa.scalar(void.lsn, pa.string()), rows),
        pa.repeat(pa.scalar(void.at, AT), rows),
        pa.repeat(pa.scalar("r", pa.string()), rows),
    )


class _States:
    """States of the keys that events are about, key after key and in order; rows of `old` and events by number.

    Args:
        old: rows that are there.
        codes: number of the key of each row of `old`, then of each event.
    """

    def __init__(
        self, shape: Shape, old: pa.Table, events: pa.Table, codes: Numbers, void: Void | None, doubt: str
    ) -> None:
        self._shape, self._old, self._events = shape, old, events
        self._order = np.argsort(codes, kind="stable")
        self._codes = codes[self._order]
        operations = events[OPERATION]
        self._sources: dict[str, Numbers] = {}
        self._columns = {LSN: joined([in_form(old[LSN], TEXTS), lsns_of(events[POSITION])]).take(pa.array(self._order))}
        self._removes = self._of_events(mask_of(pc.is_in(operations, value_set=pa.array(["d", MISSING_ROW]))))
        if not shape.own_key:
            self._give_way(void, doubt)
        self._reads = self._of_events(mask_of(pc.equal(operations, "r")))
        made = self._of_events(mask_of(pc.equal(operations, "c")))
        moves = ~self._follow_others()
        moves[1:] |= made[:-1]  # that row gives way to this one, in a span later than here
        self._moves = np.zeros(len(codes), dtype=bool) if shape.own_key else made & moves
        self._lacks = np.zeros(len(codes), dtype=bool)
        self._sources = {name: self._filled(name) for name in shape.large}
        self.unknown = ""
        """LSN of the last row that lacks values."""

    def _give_way(self, void: Void | None, doubt: str) -> None:
        """Put a deletion before the event of its commit that makes a row where one is: a statement may give a row the key that
        another row had, and then that one a new key."""
        operations = self._events[OPERATION]
        own = COMMIT if COMMIT in self._events.column_names else POSITION  # not the end of a span
        commits = lsns_of(self._events[own])
        codes = commits.indices.to_numpy(zero_copy_only=False)
        moments = np.concatenate([np.full(self._old.num_rows, -1), codes])[self._order]
        there = np.ones(len(moments), dtype=bool)
        if void is not None:  # a row from before the loss may have gone in it, also one that a span counts after it
            lived = pc.greater_equal(in_form(self._old[LSN], pa.string()), void.proof or void.since)
            later = pc.greater_equal(in_form(commits, pa.string()), void.since)
            there[1:] = np.concatenate([mask_of(lived), mask_of(later)])[self._order][:-1]
        if doubt:
            early = [mask_of(pc.less(in_form(lsns, pa.string()), doubt)) for lsns in (self._old[LSN], commits)]
            there &= ~self._pass_by(np.concatenate(early)[self._order])
        made, deletes = (self._of_events(mask_of(pc.equal(operations, one))) for one in "cd")
        follows = (self._codes[1:] == self._codes[:-1]) & (moments[1:] == moments[:-1])
        while len(first := np.flatnonzero((made & there & self._follow_others())[:-1] & deletes[1:] & follows)):
            for part in (self._order, self._removes, made, deletes):
                part[first], part[first + 1] = part[first + 1], part[first]

    def _pass_by(self, doubtful: Numbers) -> Numbers:
        """States that the next one ends, as its values show, and not the one before, which may have gone in a loss."""
        held = [name for name in self._shape.names if name not in self._shape.large]
        found = np.zeros(len(doubtful), dtype=bool)
        places = np.flatnonzero(doubtful[:-2] & (self._codes[2:] == self._codes[:-2])) + 1

        def agree(states: Numbers) -> Numbers:
            pairs = [_equal(self._values(name, states), self._values(name, places + 1)) for name in held]
            same: Numbers = np.logical_and.reduce(pairs)
            return same

        if len(places):
            found[places] = agree(places) & ~agree(places - 1)
        return found

    def _of_events(self, mask: Numbers) -> Numbers:
        """Which states are of events in a mask."""
        found: Numbers = np.concatenate([np.zeros(self._old.num_rows, dtype=bool), mask])[self._order]
        return found

    def _filled(self, name: str) -> Numbers:
        """States whose value each state has: an omitted one is that of the state before; -1 if there is none."""
        missing = self._of_events(mask_of(self._events[MISSING + name]))
        lost = missing & self._moves
        places = np.arange(len(self._codes))
        # a row may change its message key, and keep its own
        known = np.maximum.accumulate(np.where((missing & ~lost) | self._removes, -1, places))
        own = (known >= 0) & (self._codes[np.maximum(known, 0)] == self._codes)
        self._lacks |= own & lost[known]
        return np.where(own & ~lost[known], known, -1)

    def _follow_others(self) -> Numbers:
        """States before which the row is there."""
        found = np.zeros(len(self._codes), dtype=bool)
        found[1:] = (self._codes[1:] == self._codes[:-1]) & ~self._removes[:-1]
        return found

    def _values(self, name: str, states: Numbers) -> pa.Array:
        """A column's values in some states."""
        if name not in self._columns:
            self._columns[name] = joined([self._old[name], self._events[name]])
        if name == LSN:
            return self._columns[LSN].take(pa.array(states))
        states = self._sources[name][states] if name in self._sources else states
        return self._columns[name].take(pa.array(self._order[states], mask=states < 0))

    def _rows(self, states: Numbers) -> pa.Table:
        names = self._shape.rows.names
        return pa.Table.from_arrays([self._values(name, states) for name in names], names=names)

    def resolve(self) -> tuple[pa.Table, Numbers, pa.Table, bool]:
        """Rows that exist at the end with the numbers of their keys, versions that ended, and whether nothing changed."""
        kept = ~self._agreeing()
        moments = self._columns[LSN].indices.to_numpy(zero_copy_only=False)
        chosen = np.flatnonzero(kept)
        codes, moments = self._codes[chosen], moments[chosen]
        final = np.ones(len(chosen), dtype=bool)
        final[:-1] = (codes[1:] != codes[:-1]) | (moments[1:] != moments[:-1])
        chosen, codes = chosen[final], codes[final]
        last = np.ones(len(chosen), dtype=bool)
        last[:-1] = codes[1:] != codes[:-1]
        exists = ~self._removes[chosen]
        alive = chosen[last & exists]
        ends = np.flatnonzero(~last & exists)
        ended = self._versions(chosen[ends], chosen[ends + 1])
        lacking = self._values(LSN, chosen[exists & self._lacks[chosen]])
        self.unknown = pc.max(in_form(lacking, pa.string())).as_py() or ""
        olds = self._old.num_rows
        same = not len(ends) and len(alive) == olds and bool((self._order[alive] < olds).all())
        return self._rows(alive), self._codes[alive], ended, same

    def _agreeing(self) -> Numbers:
        """READs that find the row as it is."""
        candidates = np.flatnonzero(self._reads)
        candidates = candidates[candidates > 0]
        before = candidates - 1
        candidates = candidates[(self._codes[before] == self._codes[candidates]) & ~self._removes[before]]
        agreeing = np.zeros(len(self._codes), dtype=bool)
        if len(candidates):
            same = np.ones(len(candidates), dtype=bool)
            for name in self._shape.names:
                same &= _equal(self._values(name, candidates - 1), self._values(name, candidates))
            agreeing[candidates] = same
        return agreeing

    def _versions(self, ended: Numbers, by: Numbers) -> pa.Table:
        """Versions and the states that ended them: always events."""
        at = pa.array(self._order[by] - self._old.num_rows)
        operations = whole(self._events[OPERATION]).take(at)
        operations = pc.if_else(pc.equal(operations, "c"), "u", operations)
        operations = pc.if_else(pc.equal(operations, MISSING_ROW), "r", operations)
        rows, times = self._rows(ended), whole(self._events[CHANGED_AT]).take(at)
        return self._shape.ended(rows, self._values(LSN, by), times, operations)


def _equal(one: pa.Array, other: pa.Array) -> Numbers:
    """Where values agree; two nulls agree."""
    if is_encoded(one.type):
        one, other = one.indices, other.indices  # of one dictionary, in which each text is once
    return mask_of(pc.equal(one, other)) | (mask_of(one.is_null()) & mask_of(other.is_null()))


def equal_rows(left: pa.Table, right: pa.Table, names: Sequence[str]) -> Numbers:
    """Where rows agree in the named columns; two nulls agree."""
    same = np.ones(left.num_rows, dtype=bool)
    for name in names:
        same &= _equal(whole(left[name]), whole(right[name]))
    return same
