"""Records in their order, as columns.

Thousands of neighbouring records share place, target and whether they are sent, so they are handled as columns, cut where
it differs, and handed on as a *slice*. Bytes become Python's objects only where a client takes them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, repeat
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Headers = list[tuple[str, bytes | None]]
Numbers = npt.NDArray[Any]


class Record(NamedTuple):
    """A record of a topic."""

    window: int
    position: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    problem: str = ""
    """Why it has no form in Kafka; empty if it has."""
    is_left_out: bool = False
    """Whether nothing is sent for this event, which only moves the place of its topic."""
    topic: str = ""
    """Where a transform has sent it; empty if it goes where it comes from."""
    partition: int = -1
    """The partition that is chosen for it; -1 if the producer chooses."""
    timestamp: int | None = None
    """Milliseconds since 1970; None for the time of sending."""


@dataclass(frozen=True, slots=True)
class RecordSlice:
    """Neighbouring records of one window that have one fate.

    Args:
        window: its number.
        positions: of each.
        keys: bytes of each; null if it has none.
        values: bytes of each; null is a tombstone.
        headers: of each; None if no record has any.
        problem: why they have no form in Kafka; empty if they have.
        is_left_out: whether nothing is sent for them, and only the place of their topic moves.
        topic: where a transform has sent them; empty if they go where they come from.
        partitions: those that a transform has chosen; None if it chose none, null where it did not.
        partition: of all others; -1 if the producer chooses.
        timestamps: milliseconds since 1970; None and null for the time of sending.
    """

    window: int
    positions: pa.Array
    keys: pa.Array
    values: pa.Array
    headers: Sequence[Headers] | None = None
    problem: str = ""
    is_left_out: bool = False
    topic: str = ""
    partitions: pa.Array | None = None
    partition: int = -1
    timestamps: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.positions)

    def __iter__(self) -> Iterator[Record]:
        chosen = None if self.partitions is None else self.partitions.fill_null(self.partition).to_pylist()
        times = None if self.timestamps is None else self.timestamps.to_pylist()
        sides = [side.to_pylist() for side in (self.positions, self.keys, self.values)]
        more: list[Iterable[Any]] = [
            self.headers or repeat([]),
            chosen or repeat(self.partition),
            times or repeat(None),
        ]
        for position, key, value, headers, *others in zip(*sides, *more, strict=False):
            yield Record(
                self.window, position, key, value, headers, self.problem, self.is_left_out, self.topic, *others
            )

    @property
    def first(self) -> str:
        """Position of its first record."""
        return str(self.positions[0].as_py())

    @property
    def last(self) -> str:
        """Position of its last record."""
        return str(self.positions[-1].as_py())

    def slice(self, start: int, stop: int) -> "RecordSlice":
        """Some neighbours of it."""
        if start <= 0 and stop >= len(self):
            return self

        def part(array: pa.Array | None) -> pa.Array | None:
            return None if array is None else array.slice(start, stop - start)

        return replace(
            self,
            positions=part(self.positions),
            keys=part(self.keys),
            values=part(self.values),
            headers=None if self.headers is None else self.headers[start:stop],
            partitions=part(self.partitions),
            timestamps=part(self.timestamps),
        )


def binary(texts: pa.Array) -> pa.Array:
    """Texts or bytes as bytes, with large offsets."""
    return texts.cast(pa.large_binary())


def problem_record(window: int, position: str, problem: str) -> RecordSlice:
    """In place of what has no form in Kafka."""
    nothing = pa.nulls(1, pa.large_binary())
    return RecordSlice(window, pa.array([position]), nothing, nothing, problem=problem)


def split_by_target(
    whole: RecordSlice, windows: pa.Array, fates: Numbers | None = None, topics: Sequence[str] = ()
) -> Iterator[RecordSlice]:
    """Cut records where their window or their fate changes.

    Args:
        whole: all of them, in their order.
        windows: of each.
        fates: number in `topics` of where each goes, -1 if it is left out; None if all stay.
        topics: where they go.
    """
    numbers = windows.to_numpy()
    differs = numbers[1:] != numbers[:-1]
    if fates is not None:
        differs |= fates[1:] != fates[:-1]
    edges = [0, *(np.flatnonzero(differs) + 1).tolist(), len(numbers)]
    for start, stop in pairwise(edges):
        if start == stop:
            continue
        fate = None if fates is None else int(fates[start])
        yield replace(
            whole.slice(start, stop),
            window=int(numbers[start]),
            is_left_out=fate == -1,
            topic=topics[fate] if fate is not None and fate >= 0 else "",
        )


class TransformedRows(NamedTuple):
    """What a transform has made of some rows of a batch, for one topic."""

    topic: str
    rows: Numbers
    keys: pa.Array
    values: pa.Array
    headers: Sequence[Headers] | None
    partitions: pa.Array | None
    timestamps: pa.Array | None


def merge_parts(parts: Sequence[TransformedRows], windows: pa.Array, positions: pa.Array) -> Iterator[RecordSlice]:
    """Parts of a batch as slices in the order of its rows; rows in no part are left out.

    Args:
        windows: of each row.
        positions: of each row.
    """
    count = len(positions)
    if len(parts) == 1 and len(parts[0].rows) == count:
        topic, _, keys, values, headers, partitions, timestamps = parts[0]
        whole = RecordSlice(-1, positions, keys, values, headers, partitions=partitions, timestamps=timestamps)
        return split_by_target(whole, windows, np.zeros(count, np.int64), (topic,))
    topics = list(dict.fromkeys(part.topic for part in parts))
    fates, at = np.full(count, -1), np.full(count, -1)
    begin = 0
    for part in parts:
        fates[part.rows] = topics.index(part.topic)
        at[part.rows] = np.arange(begin, begin + len(part.rows))
        begin += len(part.rows)
    order = pa.array(at, mask=at < 0)

    def joined(columns: Sequence[pa.Array | None], kind: pa.DataType) -> pa.Array:
        sizes = [len(part.rows) for part in parts]
        filled = [pa.nulls(size, kind) if c is None else c.cast(kind) for c, size in zip(columns, sizes, strict=True)]
        return pa.concat_arrays([pa.nulls(0, kind), *filled]).take(order)

    headers = None
    if any(part.headers is not None for part in parts):
        all_of = [one for part in parts for one in (part.headers or repeat([], len(part.rows)))]
        headers = [all_of[number] if number >= 0 else [] for number in at.tolist()]
    partitions = timestamps = None
    if any(part.partitions is not None for part in parts):
        partitions = joined([part.partitions for part in parts], pa.int32())
    if any(part.timestamps is not None for part in parts):
        timestamps = joined([part.timestamps for part in parts], pa.int64())
    keys, values = (joined([getattr(part, side) for part in parts], pa.large_binary()) for side in ("keys", "values"))
    whole = RecordSlice(-1, positions, keys, values, headers, partitions=partitions, timestamps=timestamps)
    return split_by_target(whole, windows, fates, topics)
