"""The interface between the capture of batches (`engine.run`) and a connector that runs elsewhere."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

Offsets = Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]
"""Pairs of a source partition and its offset, as the connector made them."""

FORGOTTEN: Mapping[str, Any] = {"forgotten": True}
"""In place of an offset: nothing is known any more of a partition of the source."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Events of one topic with one pair of schemas, a line of JSON each.

    Args:
        topic: destination.
        structure: number of the topic with this pair of schemas, the same as long as the engine runs.
        key: Connect's JSON schema of the keys; None if there are no keys.
        value: that of the values; None if no value was seen yet, only tombstones.
        rows: number of lines.
        longest: bytes of the longest line.
        data: the lines; each holds `n`, its index in the chunk, and `key`, `value`, `headers`.
        table: the same as columns, if they are columns already, as an engine sends them; then there is no `data`.
    """

    topic: str
    structure: int
    key: Mapping[str, Any] | None
    value: Mapping[str, Any] | None
    rows: int
    longest: int
    data: bytes = field(repr=False)
    table: pa.Table | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive events, and the offsets at which the connector continues after them.

    Args:
        number: from 1, by one.
        lines: by topic and schemas.
        rows: of all topics.
        offsets: after the last event, of the partitions that have advanced. An empty one, as of a notification before
            the first snapshot, is ignored: no connector can start from it.
        history: records that the connector added to its schema history before these events.
        unfinished: whether a snapshot is under way, so that no restart is possible from here.
        anew: whether it holds rows of the connector's initial snapshot, or follows one that found all tables empty.
        nulled: number of values that the connector has replaced by null because it could not convert them, by column.
    """

    number: int
    lines: Sequence[Lines]
    rows: int
    offsets: Offsets
    history: Sequence[str] = ()
    unfinished: bool = False
    anew: bool = False
    nulled: Mapping[str, int] = field(default_factory=dict)


class EngineFeed(Protocol):
    """A running connector."""

    def next(self, timeout_s: float) -> Chunk | None:
        """The next chunk; None if there is none within this time.

        Raises:
            EngineError: the connector has ended by itself, or its process.
        """

    @property
    def started(self) -> bool:
        """Whether the connector reads its source, so that it is quiet because nothing is new."""

    @property
    def snapshot(self) -> bool:
        """Whether the connector takes a snapshot, which it could not resume."""

    def committed(self, number: int) -> None:
        """Report that all chunks up to this one are in the lake, so that the source may discard them."""

    def close(self) -> None:
        """End the connector; no chunk comes any more."""


@dataclass(frozen=True, slots=True)
class Habits:
    """What is to be expected of whoever sends batches.

    Args:
        warm_up_s: how long a connector may be quiet before it has sent anything, if it is to prepare its first snapshot; if
            it only looks up its position in the log, a quarter of it.
        repeats: whether what was recorded may be sent again, to be dropped by its position.
        stopped: partitions and files that are not read on, with the reasons; a connector has none.
    """

    warm_up_s: float = 60.0
    repeats: bool = True
    stopped: Callable[[], Mapping[str, str]] = dict


class EngineStart(Protocol):
    """Starts a connector."""

    def __call__(self, offsets: Offsets, history: Sequence[str]) -> EngineFeed:
        """Start it at these offsets; from the beginning if there are none."""
