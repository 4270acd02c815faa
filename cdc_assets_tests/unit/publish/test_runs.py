"""Records as columns, cut where their fate changes, and made before they are asked for."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from cdc_assets.errors import LakeError
from cdc_assets.publish.cursor import ReadAhead, TopicCursor
from cdc_assets.publish.feed import Topic
from cdc_assets.publish.records import Headers, RecordSlice, TransformedRows, merge_parts, split_by_target
from cdc_assets.publish.rows import between


def data(*values: str | None) -> pa.Array:
    return pa.array([value and value.encode() for value in values], pa.large_binary())


def test_parts_of_a_batch_are_joined_in_the_order_of_its_rows() -> None:
    one: Headers = [("h", b"1")]
    parts = [
        TransformedRows("a", np.array([0, 2, 5]), data("k0", "k2", "k5"), data("v0", None, "v5"), None, None, None),
        TransformedRows("b", np.array([1]), data("k1"), data("v1"), [one], pa.array([3], pa.int64()), pa.array([7])),
    ]
    positions = pa.array([f"p{row}" for row in range(6)])
    slices = list(merge_parts(parts, pa.array([1, 1, 1, 1, 2, 2]), positions))
    assert [(one.window, one.topic, one.is_left_out, len(one)) for one in slices] == [
        (1, "a", False, 1),
        (1, "b", False, 1),
        (1, "a", False, 1),
        (1, "", True, 1),
        (2, "", True, 1),
        (2, "a", False, 1),
    ]
    records = [record for one in slices for record in one]
    assert [record.position for record in records] == positions.to_pylist()
    assert [(r.key, r.value) for r in records if not r.is_left_out] == [
        (b"k0", b"v0"),
        (b"k1", b"v1"),
        (b"k2", None),
        (b"k5", b"v5"),
    ]
    assert [(r.headers, r.partition, r.timestamp) for r in records[:3]] == [([], -1, None), (one, 3, 7), ([], -1, None)]


def test_rows_between_two_positions() -> None:
    batch = pa.RecordBatch.from_pydict({"position": ["c", "d", "a", "b"]})  # of two windows
    assert between(batch, "a", "d").column("position").to_pylist() == ["c", "b"]
    assert between(batch, "", "e") is batch
    assert not len(between(batch, "x", "z"))
    assert not len(between(batch, "c", "b"))


def stream(count: int, ahead: ReadAhead, made: list[int]) -> TopicCursor:
    def slices() -> Iterator[RecordSlice]:
        for number in range(count):
            made.append(number)
            if number == 20:
                raise LakeError("a file is gone")
            yield from split_by_target(
                RecordSlice(-1, pa.array([str(number)] * 2), data("k", "k"), data("v", "v")), pa.array([number] * 2)
            )

    return TopicCursor(topic("t"), slices(), ahead)


def topic(name: str) -> Topic:
    # what a stream needs of a topic is its name
    return Topic(name, 1, True, None, 0, None, None)  # type: ignore[arg-type]


def test_runs_are_made_ahead_in_their_order_and_a_few_only() -> None:
    made: list[int] = []
    with ReadAhead() as ahead:
        found = stream(15, ahead, made)
        others = [stream(3, ahead, []) for _ in range(10)]
        seen = []
        while found.head is not None:
            taken = found.take(1)
            seen.append((taken.window, len(taken)))
            assert len(made) <= taken.window + 7
            for other in others:
                if other.head is not None:
                    other.take(10)
        assert all(other.head is None for other in others)
    assert seen == [(number, 1) for number in range(15) for _ in range(2)]


def test_what_fails_ahead_fails_where_it_is_asked_for() -> None:
    with ReadAhead() as ahead:
        found = stream(30, ahead, [])
        for number in range(19):
            assert found.take(10).window == number
        with pytest.raises(LakeError, match="a file is gone"):
            found.take(10)
