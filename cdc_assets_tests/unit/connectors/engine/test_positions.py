"""Positions of events in their sources' logs."""

import json

import pyarrow as pa
import pytest

from cdc_assets.connectors.engine.positions import Repetitions, Source, is_behind, last_position, position_of, start_of

BINLOG: Source = {"connector": "mysql", "file": "bin.000009", "pos": 900, "row": 0, "snapshot": None, "gtid": None}
WAL: Source = {"connector": "postgresql", "sequence": '["100","90"]', "snapshot": "false", "txId": 7}
REDO: Source = {
    "connector": "oracle",
    "commit_scn": "200",
    "scn": "150",
    "rs_id": "0x1",
    "ssn": 0,
    "txId": "a",
    "snapshot": None,
}


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        (BINLOG, {**BINLOG, "row": 1}),
        (BINLOG, {**BINLOG, "pos": 1000}),
        (BINLOG, {**BINLOG, "file": "bin.000010", "pos": 4}),
        (WAL, {**WAL, "sequence": '["100","95"]'}),
        (WAL, {**WAL, "sequence": '["120","80"]'}),
        ({**WAL, "sequence": '[null,"90"]'}, WAL),
        (REDO, {**REDO, "commit_scn": "201", "scn": "140"}),
        (REDO, {**REDO, "ssn": 1}),
    ],
)
def test_order(earlier: Source, later: Source) -> None:
    first, second = position_of(earlier), position_of(later)
    assert first is not None
    assert second is not None
    assert is_behind(second, first)
    assert not is_behind(first, second)
    assert not is_behind(first, first)


def test_transactions_of_one_commit_number_are_not_taken_for_each_other() -> None:
    first, second = position_of(REDO), position_of({**REDO, "txId": "b", "scn": "140"})
    assert first is not None
    assert second is not None
    assert is_behind(second, first)
    assert is_behind(first, second)


@pytest.mark.parametrize(
    "source",
    [
        {**BINLOG, "snapshot": "true"},
        {**BINLOG, "snapshot": "incremental"},
        {**BINLOG, "gtid": "a:1"},
        {**BINLOG, "file": ""},
        {**WAL, "sequence": None},
        {**WAL, "txId": None},
        {**REDO, "commit_scn": None},
        {"connector": "db2", "commit_lsn": "1"},
        {},
    ],
)
def test_what_cannot_be_compared_is_never_dropped(source: Source) -> None:
    assert position_of(source) is None


def chunk(*sources: Source | None) -> pa.Table:
    """Events with these source blocks, or tombstones."""
    values = [None if source is None else {"source": source} for source in sources]
    return pa.table({"n": list(range(len(sources))), "value": pa.array(values)})


def at(pos: int, snapshot: str | None = None, file: str = "bin.000009") -> Source:
    return {**BINLOG, "pos": pos, "snapshot": snapshot, "file": file}


def kept(recorded: Source, *sources: Source | None, start: Source | None = None) -> list[int]:
    """Places of the events that are not taken for repetitions."""
    offsets = [] if start is None else [{"file": start["file"], "pos": start["pos"]}]
    [table] = Repetitions(position_of(recorded), offsets).drop([chunk(*sources)])
    found: list[int] = table.column("n").to_pylist()
    return found


def test_repetitions_are_dropped_with_their_tombstones() -> None:
    assert kept(at(900), at(800), None, at(900), None, at(1000), None) == [4, 5]


def test_rows_of_an_incremental_snapshot_among_them_are_kept() -> None:
    assert kept(at(900), at(800), at(880, "incremental"), at(900), at(1000)) == [1, 3]


def test_nothing_is_dropped_behind_a_snapshot_of_whole_tables() -> None:
    """Of another server perhaps, whose log begins again."""
    assert kept(at(900), at(4, "last", "bin.000001"), at(50, None, "bin.000001")) == [0, 1]


def test_what_stands_before_the_start_is_no_repetition() -> None:
    assert kept(at(900), at(50, None, "bin.000001"), at(60, None, "bin.000001"), start=at(700)) == [0, 1]
    assert kept(at(900), at(700), at(1000), start=at(700)) == [1]


def test_a_transaction_before_which_no_commit_is_known_is_new_behind_one_that_had_some() -> None:
    """The first behind a snapshot, with which the connector has started over; one that is repeated has what it had."""

    def wal(before: int | None, own: int) -> Source:
        return {**WAL, "sequence": json.dumps([before and str(before), str(own)])}

    assert kept(wal(1000, 1100), wal(None, 6000), wal(None, 6010), wal(6020, 6030)) == [0, 1, 2]
    assert kept(wal(1000, 1100), wal(1000, 1050), wal(1000, 1100), wal(1150, 1200)) == [2]
    assert kept(wal(None, 6000), wal(None, 5990), wal(None, 6000), wal(None, 6010)) == [2]


def test_the_start_that_an_offset_gives() -> None:
    assert start_of("mysql", {"file": "bin.000009", "pos": 7}) == (9, 7)
    assert start_of("postgresql", {"lsn_commit": 12}) == (12,)
    assert start_of("postgresql", {"lsn_commit": None}) == ()
    assert start_of("oracle", {"scn": "9"}) == ()


def test_the_last_position_is_that_of_the_last_streamed_event() -> None:
    assert last_position([chunk(at(800), at(850), at(4000, "incremental"), None)]) == position_of(at(850))
    assert last_position([chunk(at(800), None), chunk(at(700, "true"))]) == position_of(at(800))
    assert last_position([chunk(at(700, "true"), at(800, "last"))]) is None


def test_the_last_position_is_that_of_the_event_that_was_sent_last() -> None:
    """Two transactions of Oracle that commit at one SCN have no order but that in which they are sent."""

    def sent(n: int, transaction: str) -> pa.Table:
        return pa.table({"n": [n], "value": pa.array([{"source": {**REDO, "txId": transaction}}])})

    assert last_position([sent(0, "b"), sent(1, "a")]) == position_of({**REDO, "txId": "a"})


def test_a_chunk_may_have_no_source_blocks() -> None:
    beats = pa.table({"n": [0], "value": pa.array([{"ts_ms": 1}])})
    assert last_position([beats, pa.table({"n": [1]})]) is None
