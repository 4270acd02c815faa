"""Which events of a topic others have replaced, up to some LSN: the pure part of compaction by key.

Of the events about one row, in the order of their positions, a suffix stays: from the newest event on that has the row
whole. That is the last one, or, if the log omitted large values in it, the last one before it that has them all. So a reader that folds
what stays, by this key or by a finer one (`message.key.columns`), gets what the whole makes. If the last one is a
deletion, nothing stays.

*Deletions.* A deletion may only go in the very commit in which all that it deletes goes, for between two commits readers
would see the row again. Each table of a topic has commits of its own (`units`). So a deletion of a row that has events in several of them
stays; the next compaction finds only it. The same holds for a part of the events (`whole` is false), of which the rest is
not known.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.kernels import Numbers, mask_of
from cdc_assets.lake.row_shape import MISSING, OPERATION, POSITION, RowShape

UNIT = "__unit"
"""Number of the table of a topic in which an event is."""
KNOWN = frozenset({"c", "u", "d", "r"})
"""Operations that have a whole row; events of others stay."""


def staying(shape: RowShape, events: pa.Table, *, whole: bool) -> Numbers:
    """Which events stay.

    Args:
        shape: whose key identifies rows.
        events: each with its position, operation, what it omits, and its unit; in any order.
        whole: whether these are all events about their rows up to the LSN.
    """
    if not events.num_rows:
        return np.empty(0, dtype=bool)
    order, first, last = _by_row(shape, events)
    removes = mask_of(pc.equal(events[OPERATION], "d"))[order]
    start = _starts(order, first, removes, [mask_of(events[MISSING + name])[order] for name in shape.large])
    start = start[last]
    if whole:
        units = events[UNIT].to_numpy()[order]
        divided = np.maximum.reduceat(units, first) != np.minimum.reduceat(units, first)
        start = np.where(removes[last], np.where(divided, last, last + 1), start)
    stays = np.arange(len(order)) >= np.repeat(start, last - first + 1)
    found = np.empty(len(order), dtype=bool)
    found[order] = stays
    strange = ~mask_of(pc.is_in(events[OPERATION], value_set=pa.array(sorted(KNOWN))))
    return found | strange


def _by_row(shape: RowShape, events: pa.Table) -> tuple[Numbers, Numbers, Numbers]:
    """Events in the order of their rows and positions; the places of the first and last one of each row."""
    keys = shape.keys(events)
    positions = events[POSITION].combine_chunks()
    order = pc.sort_indices(
        pa.table({"key": keys, "position": positions}), sort_keys=[("key", "ascending"), ("position", "ascending")]
    ).to_numpy()
    sorted_keys = keys.take(pa.array(order))
    begins = np.ones(len(order), dtype=bool)
    begins[1:] = mask_of(pc.not_equal(sorted_keys[1:], sorted_keys[:-1]))
    first = np.flatnonzero(begins)
    return order, first, np.append(first[1:], len(order)) - 1


def _starts(order: Numbers, first: Numbers, removes: Numbers, missing: Sequence[Numbers]) -> Numbers:
    """For each event the place of the one from which on all values of its row are known, or else of the row's first one; a
    deletion's own."""
    places = np.arange(len(order))
    begin = np.repeat(first, np.diff(np.append(first, len(order))))
    start = places
    for omitted in missing:
        known = np.maximum.accumulate(np.where(omitted | removes, -1, places))
        # what an event omits may be in other events, so the row may have been deleted under a finer key before it
        start = np.minimum(start, np.where(known >= begin, known, np.where(omitted, begin, places)))
    return start
