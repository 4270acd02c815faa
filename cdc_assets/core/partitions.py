"""How many key ranges a table is cut into, and which of them a partition of its Dagster asset is.

Ranges are fixed by a table's first snapshot. *Partitions* are groups of them, by number: partition p of N always means the same rows.
"""

from collections.abc import Iterable
from math import ceil

ROWS_PER_RANGE = 1_000_000
"""Number of rows per range: a large table gets more ranges than partitions, so that little is repeated after a crash."""


def ranges_wanted(rows: int, partitions: int) -> int:
    """Number of ranges for a table of so many rows: a multiple of the number of partitions."""
    return partitions * max(1, ceil(rows / (partitions * ROWS_PER_RANGE)))


def partition_of(index: int, ranges: int, partitions: int) -> int:
    """The partition that a range belongs to; a table with few ranges leaves the higher partitions empty."""
    return index if ranges < partitions else index * partitions // ranges


def ranges_of(partitions: Iterable[int], ranges: int, count: int) -> list[int]:
    """Numbers of the ranges that belong to some of `count` partitions."""
    wanted = set(partitions)
    return [index for index in range(ranges) if partition_of(index, ranges, count) in wanted]
