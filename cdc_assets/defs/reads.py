"""Which partitions of the `snapshot` assets a run has materialized, and what each brought.

*Materialized means read.* A partition is materialized when a snapshot that covers its key ranges is complete and recorded: all of their
rows are in the lake, those that an earlier run has read before it ended among them. A table that fails in a later round has
none, though rows of it are there; nor has one of which a signal's condition chose the rows.
*Crash* between the record and the report: nothing is reported, and the partition is not green though it is read.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cdc_assets.config.settings import EventSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.partitions import ranges_of
from cdc_assets.defs.range_facts import partition_facts, shown_ranges
from cdc_assets.shared.progress import RangesRead, SliceProgress

Partitions = Mapping[str, dict[str, Any]]
"""Metadata of each partition, by its name."""


class SnapshotReads:
    """What snapshots of a run have read and was not reported yet.

    Args:
        names: all partitions, in order.
        settings: which columns are hidden.
    """

    def __init__(self, names: Sequence[str], settings: EventSettings) -> None:
        self._names, self._settings = names, settings
        self._slices: dict[TableId, list[SliceProgress]] = {}
        self._read: dict[TableId, RangesRead] = {}

    @property
    def tables(self) -> Sequence[TableId]:
        """Tables of which all rows, or those of some ranges, were read."""
        return tuple(self._read)

    def note_slices(self, slices: Iterable[SliceProgress]) -> None:
        """Take note of what a round has committed; it replaces what a snapshot that failed has read of the same ranges."""
        for read in slices:
            others = [one for one in self._slices.get(read.table, ()) if not one.overlaps(read)]
            self._slices[read.table] = [*others, read]

    def note_read(self, read: RangesRead) -> None:
        """Take note of a snapshot that is complete."""
        before = self._read.get(read.table)
        self._read[read.table] = read if before is None else read.joined(before)

    def take(self, table: TableId) -> Partitions:
        """The partitions of a table that were read, to be reported now."""
        read, slices = self._read.pop(table), self._slices.pop(table, [])
        numbers = [number for number in range(len(self._names)) if self._is_read(number, read)]
        if not read.ranges:
            return {self._names[number]: {} for number in numbers}
        ranges = shown_ranges(table, read.ranges, self._settings)
        return dict(partition_facts(slices, ranges, self._names, numbers))

    def _is_read(self, partition: int, read: RangesRead) -> bool:
        """Whether all ranges of a partition were read; one of a small table may have none, and so no rows."""
        return read.numbers is None or set(ranges_of([partition], len(read.ranges), len(self._names))) <= read.numbers
