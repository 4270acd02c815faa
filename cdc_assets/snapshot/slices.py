"""Joins fixed key ranges of tables into slices.

*Ranges* are fixed by a table's first snapshot and kept in its state. They stay as long as the column by which they cut it leads
its key, with the type and collation that it had (`core.ranges.fit`). They are half-open and
adjacent, the first and last are unbounded, so together they cover the table whatever is
written later. *Slices* are what one snapshot task reads: adjacent ranges are joined while they are small.
"""

from collections.abc import Sequence
from dataclasses import replace

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.ports import KeyRange
from cdc_assets.ledger.snapshot_state import SnapshotSlice

MIN_SLICE, MAX_SLICE = 20_000, 1_000_000
"""Minimum and maximum number of rows in a slice, as far as the ranges allow it."""


def slices_of(
    table: TableId, ranges: Sequence[KeyRange], chosen: Sequence[int], rows: int, target: int, first: int
) -> list[SnapshotSlice]:
    """Join adjacent chosen ranges into slices of about `target` rows.

    Args:
        ranges: all key ranges of the table, fixed by its first snapshot.
        chosen: numbers of the ranges to read, ascending.
        rows: approximate number of rows in the whole table.
        target: rows per slice.
        first: number of the first slice.
    """
    per_range = rows // max(1, len(ranges))
    groups: list[list[int]] = []
    for index in chosen:
        adjacent = groups and groups[-1][-1] == index - 1
        if adjacent and (len(groups[-1]) + 1) * per_range <= target:
            groups[-1].append(index)
        else:
            groups.append([index])
    return [
        SnapshotSlice(
            table,
            first + index,
            (group[0], group[-1]),
            replace(ranges[group[0]], high=ranges[group[-1]].high),
            per_range * len(group),
        )
        for index, group in enumerate(groups)
    ]


def bundles(slices: Sequence[SnapshotSlice], tasks: int) -> list[tuple[SnapshotSlice, ...]]:
    """Divide slices, in order, into at most `tasks` bundles with about equal numbers of rows."""
    share = sum(max(1, entry.rows) for entry in slices) / max(1, tasks)
    found: list[list[SnapshotSlice]] = [[]]
    weight = 0.0
    for entry in slices:
        if found[-1] and weight >= share * len(found) and len(found) < tasks:
            found.append([])
        found[-1].append(entry)
        weight += max(1, entry.rows)
    return [tuple(bundle) for bundle in found if bundle]
