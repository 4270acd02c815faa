"""Names of partitions, and why one is not read on."""

from collections.abc import Mapping
from typing import Any, Final

from cdc_assets.connectors.engine.feed import Offsets

AT_THE_END: Final = ("latest", "largest", "end")
AT_THE_BEGINNING: Final = ("earliest", "smallest", "beginning")
ANYWHERE: Final = (*AT_THE_END, *AT_THE_BEGINNING)
"""Values of `auto.offset.reset`, with librdkafka's other names for them."""
STARTED: Final[tuple[Mapping[str, Any], Mapping[str, Any]]] = ({"reader": "kafka"}, {"started": True})
"""What is recorded, as an offset, of a first start that found no partition to begin at its end."""
READ_AGAIN: Final = "consumer.override.auto.offset.reset=earliest lets the next run read it from its beginning"
MISSING: Final = (
    "it was read before and no longer exists: the topic was deleted, the user may not see it (DESCRIBE), or bootstrap.servers is "
    "another cluster; leave it out of topics or topics.regex if it is not needed any more"
)


def is_first_start(offsets: Offsets) -> bool:
    """Whether no run has started before, as far as is recorded: then `latest` means the ends."""
    return not any("partition" in place or place == STARTED[0] for place, _ in offsets)


def lost_span(recorded: int, low: int, high: int) -> str:
    """Why a partition cannot be read on at an offset that it does not have."""
    hint = "consumer.override.auto.offset.reset=earliest continues with what is left"
    if recorded < low:
        return f"offsets {recorded} to {low - 1} were removed before they were read; {hint}"
    return f"it ends at {high}, before the recorded offset {recorded}: it was recreated; {hint}"


def was_recreated(recorded: int) -> str:
    """The reason why a partition stops if its recorded offset belongs to a former topic with the same name and another id."""
    return f"it was recreated after it was read to offset {recorded}; {READ_AGAIN}"


def jumped_span(recorded: int, low: int, begin: int, reset: str) -> str:
    """What is missing where a partition continues at another offset, as its option allows."""
    lost = (
        f"offsets {recorded} to {begin - 1} are not in the lake"
        if recorded < low
        else f"it is shorter than what was read, so it was recreated: what it had after offset {recorded} is not in the lake"
    )
    return f"{lost}; it continues at {begin} (auto.offset.reset={reset}), and later runs do not report this again"


def stream_name(topic: str, partition: int) -> str:
    """A partition as a stream."""
    return f"{topic}:{partition}"


def partition_of(stream: str) -> tuple[str, int]:
    """The partition of a stream."""
    topic, _, partition = stream.rpartition(":")
    return topic, int(partition)


def partition_name(topic: str, partition: int) -> str:
    """A partition, for people."""
    return f"{topic} partition {partition}"
