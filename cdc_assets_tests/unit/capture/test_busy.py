"""A database that is busy, or whose replica lags, for long stops no other one."""

import copy
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.ports import RecoveryFork
from cdc_assets.core.schema import TableSchema
from cdc_assets.core.steps import listening
from cdc_assets.errors import CdcError, DatabaseAwayError, IncompleteReadError, LockTimeoutError
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.capture.refusing import Refusing, two
from cdc_assets_tests.unit.streaming.captures import make_capture
from cdc_assets_tests.unit.streaming.lake_reader import events_of
from cdc_assets_tests.unit.streaming.law import state_of
from cdc_assets_tests.unit.streaming.simulation import DATABASE
from cdc_assets_tests.unit.streaming.two_databases import OTHER, config_of_two

BUSY = [LockTimeoutError("Lock request time out."), IncompleteReadError("It lags.")]
QUESTIONS = [
    "user_tables",
    "recovery_fork",
    "capture_instances",
    "max_transaction_lsn",
    "low_water_marks",
    "active_instances",
]


@pytest.mark.combinations
@pytest.mark.parametrize("step", ["", "window-planned", "table-committed", "files-written"])
@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("error", BUSY)
@pytest.mark.parametrize("both", [True, False])
def test_the_others_go_on(tmp_path: Path, error: CdcError, question: str, step: str, both: bool) -> None:
    server, config, lines, other = two(tmp_path, max_retries=3)
    if not both:
        make_capture(server, config).stream()
        server.commit((other, "insert", 60, "a"))
    if step:
        with cut_at(step), pytest.raises(PowerCutError):
            make_capture(server, config).stream()
    server.__dict__["refusals"] = {question: {OTHER: error}}
    lsn = server.commit((lines, "insert", 51, "a"), (other, "insert", 51, "a"))
    for _ in range(2):
        with suppress(CdcError):
            make_capture(server, config).stream()
    assert state_of(config).tables[lines].position == lsn
    server.__dict__["refusals"] = {}
    make_capture(server, config).stream()
    assert state_of(config).tables[other].position == lsn
    for table in (lines, other):
        assert [event.key for event in events_of(config, table)] == [
            1,
            2,
            50,
            *[60] * (table == other and not both),
            51,
        ]


@pytest.mark.parametrize("question", ["recovery_fork", "low_water_marks"])
def test_so_they_do_if_it_gets_busy_in_the_middle_of_its_window(tmp_path: Path, question: str) -> None:
    server, config, lines, other = two(tmp_path, max_retries=3)
    make_capture(server, config).stream()
    server.commit((other, "insert", 60, "a"))
    made: list[Lsn] = []

    def refuse(step: str) -> None:
        if step == "window-planned" and not made:
            server.__dict__["refusals"] = {question: {OTHER: BUSY[0]}}
            made.append(server.commit((lines, "insert", 51, "a")))

    with listening(refuse), pytest.raises(LockTimeoutError):
        make_capture(server, config).stream()
    assert state_of(config).tables[lines].position == made[0]
    server.__dict__["refusals"] = {}
    make_capture(server, config).stream()
    assert [event.key for event in events_of(config, other)] == [1, 2, 50, 60]


@pytest.mark.parametrize("question", ["recovery_fork", "max_captured_lsn"])
@pytest.mark.parametrize("error", BUSY)
def test_new_tables_of_the_others_are_read(tmp_path: Path, error: CdcError, question: str) -> None:
    server, config, _, _ = two(tmp_path)
    new, beside = server.create("new", rows=1), server.create_other("beside", rows=1)
    server.idle_tick()
    server.__dict__["refusals"] = {question: {DATABASE: error}}
    assert make_capture(server, config).snapshot([new, beside]).tables == (beside,)
    server.__dict__["refusals"] = {}
    assert make_capture(server, config).snapshot().tables == (new,)


def test_rows_that_were_read_of_it_are_not_read_again(tmp_path: Path) -> None:
    server, config, _, _ = two(tmp_path)
    new, beside = server.create("new", rows=1), server.create_other("beside", rows=1)
    server.idle_tick()
    with cut_at("round-complete"), pytest.raises(PowerCutError):
        make_capture(server, config).snapshot([new])
    begun = state_of(config).snapshots[DATABASE]
    server.__dict__["refusals"] = {"recovery_fork": {DATABASE: BUSY[0]}}
    assert make_capture(server, config).snapshot([beside]).tables == (beside,)
    assert state_of(config).snapshots[DATABASE] == begun
    server.__dict__["refusals"] = {}
    assert make_capture(server, config).snapshot().tables == (new,)
    assert [event.key for event in events_of(config, new)] == [1]


@pytest.mark.parametrize("streams", [True, False])
def test_a_round_that_waits_holds_up_no_window(tmp_path: Path, streams: bool) -> None:
    server, config, lines, _ = two(tmp_path, max_retries=3)
    capture, made, new = make_capture(server, config), list[Lsn](), list[TableId]()

    def happen(step: str) -> None:
        if step == "window-planned" and not new:  # a table that is enabled while a run streams is read by it
            new.append(server.create_other("beside", rows=1))
            server.idle_tick()
        if step == "round-planned" and not made:
            server.__dict__["refusals"] = {"recovery_fork": {OTHER: BUSY[0]}}
            made.append(server.commit((lines, "insert", 51, "a")))

    if not streams:
        happen("window-planned")
    with listening(happen), suppress(LockTimeoutError):
        if not streams:
            capture.snapshot()
        capture.stream()
    assert state_of(config).tables[lines].position == made[0]
    server.__dict__["refusals"] = {}
    assert make_capture(server, config).snapshot().tables == tuple(new)
    assert [event.key for event in events_of(config, new[0])] == [1]


@pytest.mark.parametrize("step", ["snapshot-planned", "round-planned", "round-complete"])
def test_a_snapshot_that_cannot_go_on_holds_up_no_other_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    server, config, lines, _ = two(tmp_path)
    new, ask = server.create_other("new", rows=1), server.table_schemas
    server.idle_tick()
    with cut_at(step), pytest.raises(PowerCutError):
        make_capture(server, config).snapshot([new])
    begun, lsn = state_of(config).snapshots, server.commit((lines, "insert", 51, "a"))

    def refuse(tables: Sequence[TableId], known: Lsn = ZERO_LSN) -> Mapping[TableId, TableSchema]:
        if any(table.database == OTHER for table in tables):
            raise BUSY[0]
        return ask(tables, known)

    monkeypatch.setattr(server, "table_schemas", refuse)
    capture = make_capture(server, config)
    assert [trouble.table for trouble in capture.snapshot().failed] == [new]
    capture.stream()
    assert (state_of(config).tables[lines].position, state_of(config).snapshots) == (lsn, begun)
    monkeypatch.setattr(server, "table_schemas", ask)
    make_capture(server, config).stream()
    assert [event.key for event in events_of(config, new)] == [1]


def test_a_run_that_has_nothing_else_to_stream_is_retried(tmp_path: Path) -> None:
    server, config = Refusing(), config_of_two(tmp_path)
    other = server.create_other("other", rows=1)
    server.idle_tick()
    make_capture(server, config).snapshot()
    server.commit((other, "insert", 50, "a"))
    server.__dict__["refusals"] = {"user_tables": {OTHER: BUSY[0]}}
    with pytest.raises(LockTimeoutError):
        make_capture(server, config).stream()


def test_a_snapshot_goes_on_from_no_server_that_did_not_follow_a_forced_failover(tmp_path: Path) -> None:
    """Its database is busy when the run begins, which has asked nothing about its forks when it is back."""
    server, config, _, _ = two(tmp_path, idle_timeout_s=60.0)
    new = server.create_other("new", rows=1)
    server.idle_tick()
    former = copy.deepcopy(server)
    former.rows[new][2] = {"id": 2, "note": "lost"}
    server.fork = RecoveryFork("B", server.tick())
    make_capture(server, config).stream()
    with cut_at("snapshot-planned"), pytest.raises(PowerCutError):
        make_capture(server, config).snapshot([new])

    def follow(statement: str) -> None:
        statements.append(statement)
        if len(statements) == 3:
            former.fork, former.rows = server.fork, server.rows

    statements = list[str]()
    former.before_read, server.routed = follow, former
    server.left = {}  # of a new process
    server.__dict__["refusals"] = {"user_tables": {OTHER: BUSY[0]}}
    make_capture(server, config).stream()
    assert [event.key for event in events_of(config, new)] == [1]


def test_it_is_tried_less_often_the_longer_it_lasts(tmp_path: Path) -> None:
    server, config, lines, other = two(tmp_path, max_duration_s=30.0, idle_timeout_s=0.0)

    def refuse(statement: str) -> None:
        if "other_other" in statement:
            raise BUSY[1]

    server.before_read = refuse
    lsn = server.commit((lines, "insert", 60, "a"), (other, "insert", 60, "a"))
    before = state_of(config).next_window
    make_capture(server, config).stream()
    assert state_of(config).tables[lines].position == lsn
    assert 3 < state_of(config).next_window - before < 12
    server.before_read = lambda _: None
    make_capture(server, config).stream()
    assert [event.key for event in events_of(config, other)] == [1, 2, 50, 60]


def test_if_no_other_one_goes_on_it_is_tried_as_often_as_ever(tmp_path: Path) -> None:
    """The whole server was away, and is back after a while."""
    server, config, lines, _ = two(tmp_path, max_duration_s=100.0, idle_timeout_s=0.0)
    asked: list[float] = []

    def pass_time(slept: float) -> None:
        databases = (DATABASE, OTHER) if slept < 60.0 else ()
        server.__dict__["refusals"] = {"max_transaction_lsn": dict.fromkeys(databases, BUSY[1])}
        asked.extend([slept] * (slept >= 60.0))

    pass_time(0.0)
    server.meanwhile = pass_time
    make_capture(server, config).stream()
    assert asked[0] < 62.0
    assert [event.key for event in events_of(config, lines)] == [1, 2, 50]


def test_one_that_waits_for_long_holds_up_no_run_that_is_to_end(tmp_path: Path) -> None:
    """The other one, beside which it has waited longer and longer, is left out."""
    server, config, _, _ = two(tmp_path, max_duration_s=130.0, idle_timeout_s=0.0, retry_wait_s=10.0)
    refused: dict[str, CdcError] = {OTHER: BUSY[1]}
    server.__dict__["refusals"] = {"max_transaction_lsn": refused}
    capture = make_capture(server, config)
    clock, times = capture.parts.ledger.clock, list[float]()

    def pass_time(slept: float) -> None:
        if slept >= 60.0:
            refused[DATABASE] = server.troubles[DATABASE] = DatabaseAwayError("It is offline.")

    def should_yield() -> bool:
        times.append(clock.elapsed().total_seconds())
        return times[-1] >= 62.0

    server.meanwhile = pass_time
    capture.stream(should_yield=should_yield)
    assert max(after - before for before, after in pairwise(times)) <= 10.0
