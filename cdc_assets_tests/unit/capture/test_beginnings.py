"""A busy database holds up no other one by what it has in flight, nor by what a run asks it when it begins."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.ports import RecoveryFork
from cdc_assets.core.schema import TableSchema
from cdc_assets.core.steps import listening
from cdc_assets.errors import IncompleteReadError, LakeAwayError, LockTimeoutError
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.capture.refusing import Refusing, two
from cdc_assets_tests.unit.streaming.captures import make_capture
from cdc_assets_tests.unit.streaming.lake_reader import events_of
from cdc_assets_tests.unit.streaming.law import state_of
from cdc_assets_tests.unit.streaming.simulation import DATABASE
from cdc_assets_tests.unit.streaming.two_databases import OTHER

BUSY = LockTimeoutError("Lock request time out.")


def restore(server: Refusing, monkeypatch: pytest.MonkeyPatch, lost: Lsn) -> None:
    """Restore the first database to before an LSN, behind which it is again."""
    forks = {DATABASE: RecoveryFork("B", lost)}

    def fork_of(database: str, known: Lsn = ZERO_LSN) -> RecoveryFork | None:
        return forks.get(database, server.fork)

    monkeypatch.setattr(server, "recovery_fork", fork_of)
    server.idle_tick()


@pytest.mark.parametrize("step", ["round-planned", "round-written"])
@pytest.mark.parametrize("question", ["user_tables", "recovery_fork"])
def test_a_new_history_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, question: str) -> None:
    server, config, lines, _ = two(tmp_path)
    lost = server.commit((lines, "insert", 60, "lost"))
    make_capture(server, config).stream()
    new = server.create_other("new", rows=1)
    server.idle_tick()
    with cut_at(step), pytest.raises(PowerCutError):
        make_capture(server, config).snapshot([new])
    restore(server, monkeypatch, lost)
    server.__dict__["refusals"] = {question: {OTHER: BUSY}}
    assert make_capture(server, config).snapshot([lines]).tables == (lines,)
    server.__dict__["refusals"] = {}
    make_capture(server, config).stream()
    assert [event.key for event in events_of(config, new)] == [1]


def test_a_new_history_begins_beside_a_window_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, config, lines, other = two(tmp_path)
    lost = server.commit((lines, "insert", 60, "lost"))
    make_capture(server, config).stream()
    server.commit((other, "insert", 70, "a"))
    with cut_at("window-planned"), pytest.raises(PowerCutError):
        make_capture(server, config).stream()
    restore(server, monkeypatch, lost)
    server.__dict__["refusals"] = {"low_water_marks": {OTHER: BUSY}}
    assert make_capture(server, config).snapshot([lines]).tables == (lines,)
    server.__dict__["refusals"] = {}
    make_capture(server, config).stream()
    assert [event.key for event in events_of(config, other)] == [1, 2, 50, 70]


def test_others_are_read_while_a_new_history_cannot_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server, config, lines, other = two(tmp_path)
    lost = server.commit((lines, "insert", 60, "lost"))
    make_capture(server, config).stream()
    restore(server, monkeypatch, lost)
    lag = IncompleteReadError("It lags.")
    server.__dict__["refusals"] = {"max_captured_lsn": {DATABASE: lag}}
    done = make_capture(server, config).snapshot([lines, other])
    assert (done.tables, [failed.table for failed in done.failed]) == ((other,), [lines])
    server.__dict__["refusals"] |= {"user_tables": {OTHER: BUSY}}
    with pytest.raises(IncompleteReadError):
        make_capture(server, config).snapshot([lines])


@pytest.mark.parametrize("question", ["user_tables", "recovery_fork", "table_schemas"])
def test_a_round_whose_files_are_recorded_holds_up_no_other_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    server, config, lines, _ = two(tmp_path)
    new, ask, is_busy = server.create_other("new", rows=1), server.table_schemas, [question == "table_schemas"]

    def refuse(tables: Sequence[TableId], known: Lsn = ZERO_LSN) -> Mapping[TableId, TableSchema]:
        if is_busy[0] and new in tables:
            raise BUSY
        return ask(tables, known)

    server.idle_tick()
    with cut_at("round-written"), pytest.raises(PowerCutError):
        make_capture(server, config).snapshot([new])
    lsn = server.commit((lines, "insert", 51, "a"))
    monkeypatch.setattr(server, "table_schemas", refuse)
    server.__dict__["refusals"] = {} if is_busy[0] else {question: {OTHER: BUSY}}
    make_capture(server, config).stream()
    assert state_of(config).tables[lines].position == lsn
    server.__dict__["refusals"], is_busy[0] = {}, False
    make_capture(server, config).stream()
    assert [event.key for event in events_of(config, new)] == [1]


def test_nor_does_one_that_the_lake_has_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server, config, lines, _ = two(tmp_path, max_retries=3)
    made, new, ask = list[Lsn](), list[TableId](), server.table_schemas

    def refuse(tables: Sequence[TableId], known: Lsn = ZERO_LSN) -> Mapping[TableId, TableSchema]:
        if made and new[0] in tables:
            raise BUSY
        return ask(tables, known)

    def happen(step: str) -> None:
        if step == "window-planned" and not new:
            new.append(server.create_other("new", rows=1))
            server.idle_tick()
        if step == "round-written" and not made:
            made.append(server.commit((lines, "insert", 51, "a")))
            raise LakeAwayError("It restarts.")

    monkeypatch.setattr(server, "table_schemas", refuse)
    with listening(happen), suppress(LockTimeoutError):
        make_capture(server, config).stream()
    assert state_of(config).tables[lines].position == made[0]
    monkeypatch.undo()
    make_capture(server, config).stream()
    assert [event.key for event in events_of(config, new[0])] == [1]


@pytest.mark.parametrize("snapshots", [True, False])
def test_one_that_is_asked_for_its_instances_holds_up_no_other_one(tmp_path: Path, snapshots: bool) -> None:
    server, config, lines, other = two(tmp_path, max_retries=3)
    config = replace(config, snapshot=replace(config.snapshot, mode="when_needed"))
    make_capture(server, config).stream()
    new, lsn = server.create("new", rows=1), server.commit((lines, "insert", 51, "a"), (other, "insert", 51, "a"))
    server.idle_tick()
    server.__dict__["refusals"] = {"capture_instances": {OTHER: BUSY}}
    if snapshots:
        assert make_capture(server, config).snapshot().tables == (new,)
    make_capture(server, config).stream()
    assert state_of(config).tables[lines].position >= lsn
