"""A database that refuses the login stops no other one."""

from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.core.lsn import ZERO_LSN
from cdc_assets.core.ports import RecoveryFork
from cdc_assets.errors import CdcDisabledError, CdcError, CredentialsError, LoginError, ObjectDeniedError
from cdc_assets.overview import CaptureOverview, inspect_server
from cdc_assets.snapshot.run import Snapshotter
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.capture.refusing import Refusing, two
from cdc_assets_tests.unit.streaming.captures import make_capture
from cdc_assets_tests.unit.streaming.lake_reader import events_of
from cdc_assets_tests.unit.streaming.law import state_of
from cdc_assets_tests.unit.streaming.simulation import DATABASE
from cdc_assets_tests.unit.streaming.tables import told
from cdc_assets_tests.unit.streaming.two_databases import OTHER

QUESTIONS = ["user_tables", "capture_instances", "max_transaction_lsn", "low_water_marks", "max_captured_lsn"]


def refuse(server: Refusing, database: str, error: CdcError | None) -> None:
    refused = {
        question: {database: error} for question in QUESTIONS if question != "user_tables" or type(error) is LoginError
    }
    server.__dict__["refusals"] = refused if error else {}


@pytest.mark.combinations
@pytest.mark.parametrize("step", ["", "window-planned", "table-committed"])
@pytest.mark.parametrize("error", [LoginError("No user."), ObjectDeniedError("SELECT was denied.")])
def test_the_others_go_on_and_it_continues_when_it_answers(tmp_path: Path, error: CdcError, step: str) -> None:
    server, config, lines, other = two(tmp_path)
    if step:
        with cut_at(step), pytest.raises(PowerCutError):
            make_capture(server, config).stream()
    refuse(server, OTHER, error)
    lsn = server.commit((lines, "insert", 51, "a"), (other, "insert", 51, "a"))
    for _ in range(2):
        with suppress(CdcError):
            troubled = make_capture(server, config).stream().troubled
    assert state_of(config).tables[lines].position == lsn
    assert [trouble.table for trouble in troubled] == [other]
    refuse(server, OTHER, None)
    assert make_capture(server, config).stream().troubled == ()
    assert state_of(config).tables[other].position == lsn
    for table in (lines, other):
        assert [event.key for event in events_of(config, table)] == [1, 2, 50, 51]


def test_so_they_do_if_positions_are_compared_with_the_server(tmp_path: Path) -> None:
    server, config, lines, other = two(tmp_path, mode="when_needed")
    refuse(server, OTHER, ObjectDeniedError("SELECT was denied."))
    lsn = server.commit((lines, "insert", 51, "a"))
    [trouble] = make_capture(server, config).stream().troubled
    assert (trouble.table, state_of(config).tables[lines].position) == (other, lsn)


@pytest.mark.parametrize("error", [LoginError("No user."), ObjectDeniedError("SELECT was denied.")])
def test_new_tables_of_the_others_are_read_and_its_own_are_told(tmp_path: Path, error: CdcError) -> None:
    server, config, _, _ = two(tmp_path)
    new, beside = server.create("new", rows=1), server.create_other("beside", rows=1)
    server.idle_tick()
    refuse(server, DATABASE, error)
    capture = make_capture(server, config)
    assert capture.snapshot([new, beside]).tables == (beside,)
    [trouble] = make_capture(server, config).snapshot([new, beside]).failed
    assert (trouble.table, str(error) in trouble.reason) == (new, True)
    later = server.create_other("later", rows=1)
    server.idle_tick()
    assert make_capture(server, config).snapshot().tables == (later,)
    refuse(server, DATABASE, None)
    assert make_capture(server, config).snapshot().tables == (new,)


def test_one_that_was_restored_without_change_data_capture_meanwhile_does_not_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, config, lines, _ = two(tmp_path)
    new = server.create("new", rows=1)
    server.idle_tick()

    def restored(*_: Any) -> None:
        server.fork = RecoveryFork("B", ZERO_LSN.next())
        raise CdcDisabledError("Change data capture is off.")

    monkeypatch.setattr(Snapshotter, "run", restored)
    [trouble] = make_capture(server, config).snapshot([new]).failed
    assert (trouble.table, "was restored to an earlier moment" in trouble.reason) == (new, True)
    state = state_of(config)
    assert state.log(DATABASE).restored
    assert ("DROP", lines.table) not in told(config)


def test_so_are_those_whose_rows_are_not_read(tmp_path: Path) -> None:
    server, config, _, _ = two(tmp_path, mode="no_data")
    _, beside = server.create("new", rows=1), server.create_other("beside", rows=1)
    server.idle_tick()
    refuse(server, DATABASE, ObjectDeniedError("SELECT was denied."))
    make_capture(server, config).stream()
    lsn = server.commit((beside, "insert", 51, "a"))
    make_capture(server, config).stream()
    assert state_of(config).tables[beside].position == lsn


def test_a_run_that_ends_when_all_is_there_goes_on_without_it(tmp_path: Path) -> None:
    server, config, lines, other = two(tmp_path)
    refuse(server, OTHER, ObjectDeniedError("SELECT was denied."))
    capture = make_capture(server, config)
    until = capture.until_now()
    [trouble] = capture.stream(should_yield=until.should_end).troubled
    assert trouble.table == other
    assert f"{OTHER} could not be read: SELECT was denied." in until.missing()
    assert until.targets()[lines] == state_of(config).tables[lines].position


@pytest.mark.parametrize("error", [LoginError("No user."), ObjectDeniedError("SELECT was denied.")])
def test_its_page_says_so_and_runs_are_started_for_the_others(tmp_path: Path, error: CdcError) -> None:
    server, config, lines, other = two(tmp_path)
    make_capture(server, config).stream()
    refuse(server, OTHER, error)
    server.commit((lines, "insert", 51, "a"), (other, "insert", 51, "a"))
    report = inspect_server(config, lambda: nullcontext(server), now=server.now).report
    assert (report.health, report.troubles[0].where) == ("in trouble", OTHER)
    assert {table.table: table.condition for table in report.tables} == {lines: "streaming", other: "failed"}
    assert list(CaptureOverview(config, server).work.unread_databases()) == [DATABASE]


def test_a_wrong_password_ends_the_run(tmp_path: Path) -> None:
    server, config, _, _ = two(tmp_path)
    refuse(server, DATABASE, CredentialsError("Wrong password."))
    with pytest.raises(CredentialsError):
        make_capture(server, config).stream()
