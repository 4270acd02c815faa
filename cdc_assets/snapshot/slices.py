"""Cuts tables into fixed key ranges, and ranges into partitions and slices.

*Ranges* are fixed by a table's first snapshot and kept in its state: half-open,
adjacent, the first and last open, so together they cover the table whatever is
written later. *Partitions* (of the Dagster asset) are groups of ranges, by
number: partition p of N always means the same rows. *Slices* are what one
snapshot reads at once: neighbouring ranges are joined while they are small.
"""

from collections.abc import Iterable, Sequence
from math import ceil

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.ports import KeyRange
from cdc_assets.ledger.state import SnapshotSlice

ROWS_PER_RANGE = 1_000_000
"""Ranges are made finer than partitions when a table is large, so that little is repeated after a crash."""
MIN_SLICE, MAX_SLICE = 20_000, 1_000_000
"""Rows of a slice, if the ranges allow it."""


def ranges_wanted(rows: int, partitions: int) -> int:
    """How many ranges a table of so many rows is cut into: a multiple of the partitions."""
    return partitions * max(1, ceil(rows / (partitions * ROWS_PER_RANGE)))


def partition_of(index: int, ranges: int, partitions: int) -> int:
    """The partition that a range belongs to; a small table leaves the higher ones empty."""
    return index if ranges < partitions else index * partitions // ranges


def ranges_of(partitions: Iterable[int], ranges: int, count: int) -> list[int]:
    """Numbers of the ranges in some of `count` partitions."""
    wanted = set(partitions)
    return [index for index in range(ranges) if partition_of(index, ranges, count) in wanted]


def slices_of(
    table: TableId, ranges: Sequence[KeyRange], chosen: Sequence[int], rows: int, target: int, first: int
) -> list[SnapshotSlice]:
    """Join neighbouring chosen ranges into slices of about `target` rows.

    Args:
        ranges: all key ranges of the table, fixed by its first snapshot.
        chosen: numbers of the ranges to read, ascending.
        rows: about how many rows the whole table has.
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
            first + place,
            (group[0], group[-1]),
            KeyRange(ranges[group[0]].column, ranges[group[0]].low, ranges[group[-1]].high),
            per_range * len(group),
        )
        for place, group in enumerate(groups)
    ]


def bundles(slices: Sequence[SnapshotSlice], tasks: int) -> list[tuple[SnapshotSlice, ...]]:
    """Divide slices, in order, into at most `tasks` bundles of about equal rows."""
    share = sum(max(1, entry.rows) for entry in slices) / max(1, tasks)
    found: list[list[SnapshotSlice]] = [[]]
    weight = 0.0
    for entry in slices:
        if found[-1] and weight >= share * len(found) and len(found) < tasks:
            found.append([])
        found[-1].append(entry)
        weight += max(1, entry.rows)
    return [tuple(bundle) for bundle in found if bundle]
