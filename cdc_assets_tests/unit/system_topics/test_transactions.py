"""Numbering by transaction against a plain model, over random tables and batch borders."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.core.lsn import ZERO_LSN, Lsn, Position
from cdc_assets.envelope.blocks import TRANSACTION
from cdc_assets.errors import CdcError, ConnectionLostError, InvariantError
from cdc_assets.system_topics.transactions import TOPIC_SCHEMA, Stream, number

SOURCE = pa.struct([("commit_lsn", pa.string()), ("ts_ms", pa.int64())])
VALUE = pa.struct([pa.field("source", SOURCE), TRANSACTION.to_field("transaction")])
SCHEMA = pa.schema([("position", pa.string()), ("value", VALUE)])

Event = tuple[int, int, int, bool]
"""Commit, order within it, table, tombstone behind it."""

events_strategy = st.lists(
    st.tuples(st.integers(1, 6), st.integers(1, 40), st.integers(0, 2), st.booleans()),
    max_size=40,
    unique_by=lambda e: e[:2],
)


def lsn(commit: int) -> Lsn:
    return Lsn.from_int(commit << 32)


def rows(events: Sequence[Event], table: int) -> list[dict[str, Any]]:
    found = []
    for commit, order, owner, tombstone in sorted(events):
        if owner != table:
            continue
        position = str(Position(lsn(commit), 1, Lsn.from_int(order), 2))
        value = {"source": {"commit_lsn": str(lsn(commit)), "ts_ms": commit * 1000}, "transaction": None}
        found.append({"position": position, "value": value})
        if tombstone:
            found.append({"position": position + "t", "value": None})
    return found


def split(all_rows: list[dict[str, Any]], sizes: Sequence[int]) -> Iterator[pa.RecordBatch]:
    place, turn = 0, 0
    while place < len(all_rows):
        size = sizes[turn % len(sizes)]
        yield pa.RecordBatch.from_pylist(all_rows[place : place + size], schema=SCHEMA)
        place, turn = place + size, turn + 1


def run(
    events: Sequence[Event], sizes: Sequence[int], known: Lsn = ZERO_LSN
) -> tuple[list[list[dict[str, Any]]], list[dict[str, Any]]]:
    """Blocks of each table's rows, and the BEGIN and END events."""
    written: list[list[pa.RecordBatch]] = [[], [], []]

    def fail(error: CdcError) -> None:
        raise error

    streams = [
        Stream(f"db.dbo.t{table}", split(rows(events, table), sizes), written[table].extend, fail) for table in range(3)
    ]
    told = [row for batch in number(streams, known, 7, database="db") for row in batch.to_pylist()]
    return [[row for batch in batches for row in batch.to_pylist()] for batches in written], told


@given(events_strategy, st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_blocks_count_within_the_transaction_and_the_table(events: list[Event], sizes: list[int]) -> None:
    written, _ = run(events, sizes)
    total: Counter[int] = Counter()
    within: Counter[tuple[int, int]] = Counter()
    expected: list[list[dict[str, Any] | None]] = [[], [], []]
    for commit, _order, table, tombstone in sorted(events):
        total[commit] += 1
        within[commit, table] += 1
        block = {"id": str(lsn(commit)), "total_order": total[commit], "data_collection_order": within[commit, table]}
        expected[table] += [block, None] if tombstone else [block]
    assert [[row["value"] and row["value"]["transaction"] for row in table] for table in written] == expected
    assert [[row["position"] for row in table] for table in written] == [
        [row["position"] for row in rows(events, table)] for table in range(3)
    ]


@given(events_strategy, st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_every_transaction_begins_and_ends_once(events: list[Event], sizes: list[int]) -> None:
    _, told = run(events, sizes)
    commits = sorted({event[0] for event in events})
    assert [row["key"]["id"] for row in told] == [str(lsn(commit)) for commit in commits for _ in range(2)]
    assert [row["value"]["status"] for row in told] == ["BEGIN", "END"] * len(commits)
    for commit, begin, end in zip(commits, told[::2], told[1::2], strict=True):
        counts = Counter(f"db.dbo.t{event[2]}" for event in events if event[0] == commit)
        assert begin["value"]["event_count"] is None
        assert begin["value"]["data_collections"] is None
        assert end["value"]["event_count"] == counts.total()
        assert {e["data_collection"]: e["event_count"] for e in end["value"]["data_collections"]} == dict(counts)
        assert begin["value"]["ts_ms"] == end["value"]["ts_ms"] == commit * 1000
    assert sorted(row["position"] for row in told) == [row["position"] for row in told]
    assert all(row["window_id"] == 7 and row["headers"] == [] for row in told)


def test_begin_sorts_before_and_end_behind_the_transaction() -> None:
    written, told = run([(1, 1, 0, False), (1, 2, 1, True)], [1])
    positions = [row["position"] for table in written for row in table]
    assert told[0]["position"] < min(positions)
    assert told[1]["position"] > max(positions)


def test_a_table_that_catches_up_gets_no_blocks_where_others_were_reported() -> None:
    written, told = run([(1, 1, 0, False), (2, 1, 0, False)], [5], known=lsn(1))
    assert [row["value"]["transaction"] is None for row in written[0]] == [True, False]
    assert [row["key"]["id"] for row in told] == [str(lsn(2))] * 2


def broken(error: CdcError) -> Iterator[pa.RecordBatch]:
    yield from split(rows([(1, 1, 0, False)], 0), [5])
    raise error


def test_trouble_of_one_table_stays_with_it() -> None:
    failures: list[CdcError] = []
    written: list[pa.RecordBatch] = []
    good = Stream(
        "db.dbo.t1", split(rows([(1, 2, 1, False), (3, 1, 1, False)], 1), [1]), written.extend, failures.append
    )
    bad = Stream("db.dbo.t0", broken(InvariantError("lone row 3")), lambda batches: None, failures.append)
    told = [row for batch in number([good, bad], ZERO_LSN, 1, database="db") for row in batch.to_pylist()]
    assert [str(failure) for failure in failures] == ["lone row 3"]
    assert sum(batch.num_rows for batch in written) == 2
    assert len(told) == 4


def test_what_may_be_repeated_is_raised() -> None:
    stream = Stream("db.dbo.t0", broken(ConnectionLostError("gone")), lambda batches: None, lambda error: None)
    with pytest.raises(ConnectionLostError):
        list(number([stream], ZERO_LSN, 1, database="db"))


def test_nothing_gives_nothing() -> None:
    assert run([], [1]) == ([[], [], []], [])
    assert TOPIC_SCHEMA.names == ["position", "key", "value", "headers", "window_id"]
