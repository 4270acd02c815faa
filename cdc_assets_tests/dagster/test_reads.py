"""What the partitions of a snapshot say of how they were read."""

from itertools import pairwise

from cdc_assets.config.settings import EventSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.ports import KeyRange
from cdc_assets.defs.reads import SnapshotReads
from cdc_assets.shared.progress import RangesRead, SliceProgress


def test_what_a_failed_snapshot_has_read_is_not_counted_with_what_the_next_one_reads() -> None:
    table = TableId("SalesDb", "dbo", "people")
    ranges = tuple(KeyRange("id", *pair) for pair in pairwise([None, "2", "3", None]))
    reads = SnapshotReads(["a", "b", "c"], EventSettings("shop"))
    reads.note_slices([SliceProgress(table, (0, 1), 20, 2.0, (10, 10))])
    reads.note_slices(SliceProgress(table, (number, number), 11, 1.0, (11,)) for number in range(3))
    reads.note_read(RangesRead(table, ranges))
    found = reads.take(table)
    assert [(found[name]["rows"], found[name]["seconds"]) for name in "abc"] == [(11, 1.0)] * 3
    assert not any("read_together" in facts for facts in found.values())
