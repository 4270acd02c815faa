"""Key ranges of a snapshot as partitions.

The set is small and static: ranges are numbered and not named by their bounds, since
the bounds follow the table's rows and are fixed in the snapshot's manifest when
it starts. LSNs and times are never partitions, as there would be millions of them.
"""

from collections.abc import Iterable, Mapping

import dagster as dg

RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"


def range_partitions(count: int) -> dg.StaticPartitionsDefinition:
    """`count` key ranges of a table (`snapshot.partitions`); a small table leaves the higher ones empty."""
    return dg.StaticPartitionsDefinition([f"range_{number:02d}_of_{count:02d}" for number in range(1, count + 1)])


def all_ranges(partitions: dg.StaticPartitionsDefinition) -> Mapping[str, str]:
    """Run tags that select every range in one run."""
    keys = partitions.get_partition_keys()
    return {RANGE_START: keys[0], RANGE_END: keys[-1]}


def range_numbers(partitions: dg.StaticPartitionsDefinition, keys: Iterable[str]) -> tuple[int, ...]:
    """Indexes, from 0, of the named partitions, sorted."""
    order = {key: number for number, key in enumerate(partitions.get_partition_keys())}
    return tuple(sorted(order[key] for key in keys))
