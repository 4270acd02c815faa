"""Positions of events in their sources' logs."""

import pytest

from cdc_assets.engine.positions import Source, is_behind, place_of

BINLOG: Source = {"connector": "mysql", "file": "bin.000009", "pos": 900, "row": 0, "snapshot": None, "gtid": None}
WAL: Source = {"connector": "postgresql", "sequence": '["100","90"]', "snapshot": "false"}
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
    first, second = place_of(earlier), place_of(later)
    assert first is not None
    assert second is not None
    assert is_behind(second, first)
    assert not is_behind(first, second)
    assert not is_behind(first, first)


def test_transactions_of_one_commit_number_are_not_taken_for_each_other() -> None:
    first, second = place_of(REDO), place_of({**REDO, "txId": "b", "scn": "140"})
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
        {**REDO, "commit_scn": None},
        {"connector": "db2", "commit_lsn": "1"},
        {},
    ],
)
def test_what_cannot_be_compared_is_never_dropped(source: Source) -> None:
    assert place_of(source) is None
