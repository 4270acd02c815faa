"""What each partition of a snapshot brought: its key range, its rows, and how long they were read.

A table that is not large is read in fewer statements than it has partitions; then the time is that of the statement, and what was read
with it is reported. Bounds are values of the key, so they are not shown if a column rule hides its first column. Rows are left out where only the server could distinguish them, and where an earlier run has read a part.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from cdc_assets.config.column_rules import hides
from cdc_assets.config.settings import EventSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.partitions import partition_of, ranges_of
from cdc_assets.core.ports import KeyRange
from cdc_assets.envelope.rules import MASKED
from cdc_assets.shared.progress import SliceProgress


def partition_facts(
    slices: Sequence[SliceProgress], ranges: Sequence[KeyRange], names: Sequence[str], chosen: Iterable[int]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Metadata of each chosen partition, by its name.

    Args:
        slices: what the run has read of the table.
        ranges: where the table is cut, from its first key to its last, as people may see it.
        names: all partitions, in order.
    """
    for number in chosen:
        own = ranges_of([number], len(ranges), len(names))
        yield names[number], _facts(slices, ranges, names, own) if own else {"rows": 0, "key_range": "none: few rows"}


def _facts(
    slices: Sequence[SliceProgress], ranges: Sequence[KeyRange], names: Sequence[str], own: Sequence[int]
) -> dict[str, Any]:
    facts: dict[str, Any] = {"key_range": _range_text(ranges[own[0]], ranges[own[-1]])}
    read = [found for found in slices if found.ranges[0] <= own[-1] and found.ranges[1] >= own[0]]
    if not read:
        return facts
    facts["seconds"] = round(sum(found.seconds for found in read), 3)
    first, last = min(found.ranges[0] for found in read), max(found.ranges[1] for found in read)
    ends = [names[partition_of(at, len(ranges), len(names))] for at in (first, last)]
    if ends[0] != ends[1]:
        facts["read_together"] = f"{ends[0]} to {ends[1]}"
    counts = dict(count for found in read for count in _counts(found))
    if set(own) <= counts.keys() and None not in (found := [counts[at] for at in own]):
        rows = sum(count or 0 for count in found)
        facts |= {"rows": rows, "dagster/partition_row_count": rows}
    return facts


def _counts(found: SliceProgress) -> Iterator[tuple[int, int | None]]:
    """Rows of each range that a slice covers."""
    first, last = found.ranges
    if first == last:
        yield first, found.rows
        return
    yield from zip(range(first, last + 1), found.by_range or [None] * (last - first + 1), strict=True)


def shown_ranges(table: TableId, ranges: Sequence[KeyRange], settings: EventSettings) -> Sequence[KeyRange]:
    """Key ranges of a table as people may see them."""
    column = ranges[0].column if ranges else None
    if column is None or not hides(table, column, settings):
        return ranges
    return [
        replace(one, low=None if one.low is None else MASKED, high=None if one.high is None else MASKED)
        for one in ranges
    ]


def _range_text(first: KeyRange, last: KeyRange) -> str:
    column, low, high = first.column, first.low, last.high
    if column is None or (low is None and high is None):
        return "all rows"
    if low is None:
        return f"{column} < {high}"
    return f"{column} ≥ {low}" if high is None else f"{low} ≤ {column} < {high}"
