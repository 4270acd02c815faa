"""Tables without a key: rows that agree in all columns that the log always holds are exchangeable (`fold`).

Changes are taken in portions between the readings of the table. In a portion, the n-th removal of a row ends the n-th
copy of it, the oldest first. An update is a removal and an addition; the values that its event omits are those of the
row that it removed, which may itself have been added by an update of the portion.

A reading has all values. So it also says which of these the copies of a row have, where an update may have removed another copy than
the server's.

An event that removes a row which is not there shows that events no longer name rows as they were read: a captured column was dropped, and the
events of its instance have NULL in it from then on. Where no changes were lost, and snapshots read all rows, that is an error (`tasks`).

What a comparison found absent (`missing_rows`) ends all copies of a row that were there at its LSN.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.core.lsn import LSN_WIDTH
from cdc_assets.kernels import Numbers, mask_of
from cdc_assets.lake.row_shape import AT, CHANGED_AT, MISSING, OPERATION, POSITION
from cdc_assets.mirror.fold import Folded, Void
from cdc_assets.mirror.missing_rows import MISSING_ROW
from cdc_assets.mirror.shape import LSN, Shape
from cdc_assets.mirror.texts import in_form, joined

_READING = 40
"""Characters of a READ's position that are the same for all rows of one reading: LSN, command, number of the window."""
_COMPARED = 1024
"""Rows whose large values are compared at a time."""


def fold_multiset(shape: Shape, rows: pa.Table, events: pa.Table, void: Void | None = None) -> Folded:
    """Apply events to the rows of a table without a key; see `fold`.

    Args:
        events: an update is two of them: `-`, with the row that it removes, and then `u`.
    """
    ended, changed, unknown = [shape.versions.empty_table()], False, ""
    for operation, portion in _portions(events):
        if operation == "r":
            rows, gone, different = _read(shape, rows, portion)
        elif operation == MISSING_ROW:
            rows, gone, different = _end_absent(shape, rows, portion)
        else:
            rows, gone, last = _change(shape, rows, portion)
            different, unknown = True, last or unknown
        ended.append(gone)
        changed |= different
    if void is not None:
        rows, gone = _end_unread(shape, rows, events, void)
        ended.append(gone)
        changed |= bool(gone.num_rows)
    return Folded(rows, pa.concat_tables(ended), changed, unknown)


def _end_unread(shape: Shape, rows: pa.Table, events: pa.Table, void: Void) -> tuple[pa.Table, pa.Table]:
    """End rows that no reading has named when the whole table was read again; others of some rows may have been at that LSN, too."""
    is_read = pc.and_(pc.equal(events[OPERATION], "r"), pc.greater_equal(events[POSITION], void.reads or void.lsn))
    reads = events.filter(is_read)
    stays = pc.is_in(shape.keys(rows), value_set=shape.keys(reads))
    gone = rows.filter(pc.invert(stays))
    at = pc.max(reads[CHANGED_AT]).as_py() if reads.num_rows else void.at
    ended = shape.ended(
        gone,
        pa.repeat(pa.scalar(void.lsn, pa.string()), gone.num_rows),
        pa.repeat(pa.scalar(at, AT), gone.num_rows),
        pa.repeat(pa.scalar("r", pa.string()), gone.num_rows),
    )
    return rows.filter(stays), ended


def _portions(events: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Events of one reading, rows that are absent, or changes between these, in order; each with an operation of it."""
    if not events.num_rows:
        return
    reads = mask_of(pc.equal(events[OPERATION], "r"))
    readings = pc.utf8_slice_codeunits(events[POSITION], 0, _READING).combine_chunks().dictionary_encode()
    number = np.where(reads, readings.indices.to_numpy(zero_copy_only=False) + 1, 0)
    number[mask_of(pc.equal(events[OPERATION], MISSING_ROW))] = -1
    borders = np.flatnonzero(np.diff(number)) + 1
    for start, end in zip([0, *borders], [*borders, len(number)], strict=True):
        yield events[OPERATION][int(start)].as_py(), events.slice(int(start), int(end - start))


def _ranks(codes: Numbers) -> Numbers:
    """For each place, how many places before it have the same code."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(codes) else np.array([], int)
    first = np.repeat(starts, np.diff(np.concatenate([starts, [len(codes)]])))
    ranks = np.empty(len(codes), dtype=np.int64)
    ranks[order] = np.arange(len(codes)) - first
    return ranks


def _change(shape: Shape, rows: pa.Table, events: pa.Table) -> tuple[pa.Table, pa.Table, str]:
    """Apply changes; the text is the position of the last one that removes a row which is not there, empty for none."""
    operations = events[OPERATION]
    removes = mask_of(pc.or_(pc.equal(operations, "d"), pc.equal(operations, "-")))
    adds = pa.concat_tables([shape.as_events(rows), events.filter(pa.array(~removes)).select(shape.event_names)])
    gone = events.filter(pa.array(removes))
    adds, gone = adds.combine_chunks(), gone.combine_chunks()
    codes = pa.concat_arrays([shape.keys(adds), shape.keys(gone)]).dictionary_encode()
    numbers = codes.indices.to_numpy(zero_copy_only=False)
    added, removed = numbers[: adds.num_rows], numbers[adds.num_rows :]
    pairs = _paired(added, removed)
    adds = _with_omitted(shape, adds, rows.num_rows, events, removes, pairs)
    ends, lost = np.flatnonzero(pairs >= 0), np.flatnonzero(pairs < 0)
    unknown = gone[POSITION][int(lost[-1])].as_py() if len(lost) else ""
    lives = np.ones(adds.num_rows, dtype=bool)
    lives[pairs[ends]] = False
    lsn = pc.utf8_slice_codeunits(adds[POSITION], 0, LSN_WIDTH)
    made = shape.as_rows(adds, lsn)
    by = gone.take(pa.array(ends))
    ended_by = pc.if_else(pc.equal(by[OPERATION], "-"), "u", "d")
    versions = shape.ended(
        made.take(pa.array(pairs[ends])), pc.utf8_slice_codeunits(by[POSITION], 0, LSN_WIDTH), by[CHANGED_AT], ended_by
    )
    seen = pc.less(versions["_valid_from_lsn"], versions["_valid_to_lsn"])
    return made.filter(pa.array(lives)), versions.filter(seen), unknown


def _end_absent(shape: Shape, rows: pa.Table, events: pa.Table) -> tuple[pa.Table, pa.Table, bool]:
    """End all copies of rows that a comparison did not find, but those that have come since."""
    said = events.select(shape.event_names).combine_chunks()
    at = pc.index_in(shape.keys(rows), value_set=shape.keys(said))
    lsns = pc.utf8_slice_codeunits(said[POSITION].combine_chunks(), 0, LSN_WIDTH)
    goes = mask_of(pc.less_equal(in_form(rows[LSN], pa.string()), lsns.take(at)))
    gone, by = rows.filter(pa.array(goes)), at.filter(pa.array(goes))
    reasons = pa.repeat(pa.scalar("r", pa.string()), gone.num_rows)
    ended = shape.ended(gone, lsns.take(by), said[CHANGED_AT].take(by), reasons)
    return rows.filter(pa.array(~goes)), ended, bool(gone.num_rows)


def _paired(added: Numbers, removed: Numbers) -> Numbers:
    """For each removal, the addition that it removes; -1 if there is none."""
    size = max(len(added), len(removed)) + 1
    slots = added.astype(np.int64) * size + _ranks(added)
    wanted = removed.astype(np.int64) * size + _ranks(removed)
    found = pc.index_in(pa.array(wanted), value_set=pa.array(slots))
    result: Numbers = pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return result


def _with_omitted(
    shape: Shape, adds: pa.Table, olds: int, events: pa.Table, removes: Numbers, pairs: Numbers
) -> pa.Table:
    """Additions of which those by updates have the values that their events omit."""
    if not shape.large:
        return adds
    event_of_add = np.flatnonzero(~removes)
    removal_of_event = np.cumsum(removes) - 1  # the removal at or before each event
    updates = mask_of(pc.equal(events[OPERATION], "u"))[event_of_add]
    donor = np.full(adds.num_rows, -1, dtype=np.int64)
    chosen = np.flatnonzero(updates)
    donor[olds + chosen] = pairs[removal_of_event[event_of_add[chosen] - 1]] if len(chosen) else donor[:0]
    for name in shape.large:
        missing = mask_of(adds[MISSING + name])
        source = np.arange(adds.num_rows)
        lost = np.zeros(adds.num_rows, dtype=bool)
        while (open_ := missing[source] & ~lost).any():
            following = donor[source]
            lost |= open_ & (following < 0)
            source = np.where(open_ & (following >= 0), following, source)
        place = adds.schema.get_field_index(name)
        values = adds[name].combine_chunks().take(pa.array(source, mask=lost))
        adds = adds.set_column(place, adds.field(place), values)
    return adds


def _read(shape: Shape, rows: pa.Table, events: pa.Table) -> tuple[pa.Table, pa.Table, bool]:
    """Apply one reading: of each row that was read there are as many copies as were read, with the large values that were read."""
    events = events.select(shape.event_names).combine_chunks()
    codes = pa.concat_arrays([shape.keys(rows), shape.keys(events)]).dictionary_encode()
    numbers = codes.indices.to_numpy(zero_copy_only=False)
    old, read = numbers[: rows.num_rows], numbers[rows.num_rows :]
    pairs = _with_large_values(shape, rows, events, old, read)
    stays = ~np.isin(old, read)
    stays[pairs[pairs >= 0]] = True
    lsn = pc.utf8_slice_codeunits(events[POSITION], 0, LSN_WIDTH)
    made = shape.as_rows(events, lsn).filter(pa.array(pairs < 0))
    gone = rows.filter(pa.array(~stays))
    ended = shape.ended(
        gone,
        pa.repeat(pa.scalar(events[POSITION][0].as_py()[:LSN_WIDTH], pa.string()), gone.num_rows),
        pa.repeat(events[CHANGED_AT][0], gone.num_rows),
        pa.repeat(pa.scalar("r", pa.string()), gone.num_rows),
    )
    changed = bool(gone.num_rows or made.num_rows)
    return pa.concat_tables([rows.filter(pa.array(stays)), made]), ended, changed


def _with_large_values(shape: Shape, rows: pa.Table, events: pa.Table, old: Numbers, read: Numbers) -> Numbers:
    """For each row that was read, the copy that it is, also in the values that the log may omit; -1 if there is none.

    Copies are compared in their order first, so that few of a table that is read again are looked for among the others.

    Args:
        old: numbers of the rows, the same for all copies of one.
        read: of the rows that were read.
    """
    pairs = _paired(old, read)
    differ = _differing(shape, rows, events, pairs)
    if not len(differ):
        return pairs
    pairs[differ] = -1
    is_left = np.isin(old, read[differ])
    is_left[pairs[pairs >= 0]] = False
    left, sought = np.flatnonzero(is_left), np.flatnonzero(np.isin(read, read[differ]) & (pairs < 0))
    exact = np.concatenate([old[left], read[sought]]).astype(np.int64)
    for name in shape.large:
        values = joined([rows[name].take(pa.array(left)), events[name].take(pa.array(sought))])
        texts = values.dictionary_encode(null_encoding="encode")
        _, exact = np.unique(exact * (len(texts.dictionary) + 1) + texts.indices.to_numpy(), return_inverse=True)
    found = _paired(exact[: len(left)], exact[len(left) :])
    pairs[sought[found >= 0]] = left[found[found >= 0]]
    return pairs


def _differing(shape: Shape, rows: pa.Table, events: pa.Table, pairs: Numbers) -> Numbers:
    """Rows that were read and differ from their copy in a large value; some are compared at a time, for they are large."""
    chosen, found = np.flatnonzero(pairs >= 0), [np.array([], dtype=np.int64)]
    for start in range(0, len(chosen) if shape.large else 0, _COMPARED):
        part = chosen[start : start + _COMPARED]
        differs = np.zeros(len(part), dtype=bool)
        for name in shape.large:
            said = joined([events[name].take(pa.array(part))])
            known = joined([rows[name].take(pa.array(pairs[part]))])
            same = pc.or_(pc.fill_null(pc.equal(known, said), False), pc.and_(pc.is_null(known), pc.is_null(said)))
            differs |= ~mask_of(same) & ~mask_of(events[MISSING + name].take(pa.array(part)))
        found.append(part[differs])
    return np.concatenate(found)
