"""The report of a capture never says healthy while the lake lacks a change, or while somebody would have to act."""

import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

import pytest

from cdc_assets.config.settings import CaptureConfig, ColumnRule
from cdc_assets.core.capture_job import CaptureJob
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.ports import KeyRange, RecoveryFork
from cdc_assets.defs.page import page_of
from cdc_assets.errors import CdcDisabledError, CdcError, ConnectionLostError, DatabaseAwayError, LakeError, QueryError
from cdc_assets.ledger.signal_state import QueuedTable, SignalState
from cdc_assets.ledger.snapshot_state import SnapshotRun, SnapshotSlice, SnapshotTable
from cdc_assets.overview import CaptureOverview, CaptureReport, inspect_server, report_builder, report_of
from cdc_assets.overview.checks.check import Inspection
from cdc_assets.overview.checks.health import health_result
from cdc_assets.overview.checks.sqlserver import continuity_result
from cdc_assets.overview.report import LATE_S, DatabaseReport, Lag, Rates, TableReport, Trouble
from cdc_assets.overview.server import DatabaseFacts
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.streaming.captures import make_capture
from cdc_assets_tests.unit.streaming.lake_reader import rows_of_topic
from cdc_assets_tests.unit.streaming.simulation import DATABASE, START, SimulatedServer
from cdc_assets_tests.unit.streaming.tables import two_tables
from cdc_assets_tests.unit.streaming.two_databases import OTHER, TwoDatabases, config_of_two

ORDERS = TableId(DATABASE, "dbo", "orders")
LINES = TableId(DATABASE, "dbo", "lines")


class Broken(SimulatedServer):
    """A server some of whose parts do not work."""

    job: CaptureJob | None = None
    away: bool = False
    behind: timedelta | None = None
    is_forgetful: bool = False
    """Whether it knows the time of no commit."""

    def capture_job(self, database: str) -> CaptureJob:
        return self.job or super().capture_job(database)

    def server_time(self) -> datetime:
        if self.away:
            raise ConnectionLostError("The server does not answer.")
        return self.now + (self.behind or timedelta(0))

    def commit_times(self, database: str, lsns: Sequence[Lsn]) -> dict[Lsn, datetime]:
        return {} if self.is_forgetful else dict(super().commit_times(database, lsns))


Spoil = Callable[[Broken, Path], None]


def stop_agent(server: Broken, lake: Path) -> None:
    server.job = replace(server.capture_job(DATABASE), agent_running=False)


def stop_job(server: Broken, lake: Path) -> None:
    server.job = replace(server.capture_job(DATABASE), quiet_s=3600)


def disable_table(server: Broken, lake: Path) -> None:
    server.instances = [own for own in server.instances if own.table != ORDERS]
    server.change_tables.pop("dbo_orders", None)


def clean_up(server: Broken, lake: Path) -> None:
    server.commit((ORDERS, "insert", 91, "lost"))
    server.clean_up(server.tick())


def add_column(server: Broken, lake: Path) -> None:
    server.add_column(LINES, "added")


def take_away(server: Broken, lake: Path) -> None:
    server.away = True


def take_database_away(server: Broken, lake: Path) -> None:
    server.troubles[DATABASE] = DatabaseAwayError("it is offline")


def restore(server: Broken, lake: Path) -> None:
    server.fork = RecoveryFork("B", None)


def remove_topic(server: Broken, lake: Path) -> None:
    shutil.rmtree(next(lake.glob("*.lines")))


def remove_history(server: Broken, lake: Path) -> None:
    shutil.rmtree(lake / "shop.__schema_history")


def add_table(server: Broken, lake: Path) -> None:
    server.create("new", rows=1)


def fall_behind(server: Broken, lake: Path) -> None:
    server.commit((LINES, "insert", 92, "late"))
    server.behind = timedelta(seconds=2 * LATE_S)


def fall_behind_without_a_time(server: Broken, lake: Path) -> None:
    server.commit((LINES, "insert", 93, "late"))
    server.is_forgetful = True


def set_the_clock_back(server: Broken, lake: Path) -> None:
    server.job = replace(server.capture_job(DATABASE), quiet_s=-3000)


TROUBLES: tuple[Spoil, ...] = (
    stop_agent, stop_job, disable_table, clean_up, add_column, take_away, take_database_away, restore, remove_topic,
    remove_history, add_table, fall_behind, fall_behind_without_a_time, set_the_clock_back,
)  # fmt: skip
WORK = {"fall_behind"}
UNKNOWN = {"add_table", "take_away", "fall_behind_without_a_time", "set_the_clock_back"}
HIDES = {
    "take_away": {"stop_agent", "stop_job", "disable_table", "clean_up", "add_column", "restore"},
    "set_the_clock_back": {"stop_job"},
}
"""What is not known either, while nobody can tell the first."""
_MAX = int(os.environ.get("CDC_TROUBLES", "2"))
"""Troubles at the same time."""


@contextmanager
def opened(server: Broken) -> Iterator[Broken]:
    yield server


def streaming(folder: Path) -> tuple[Broken, object]:
    """A server and a lake that is complete to its newest transaction."""
    plain, config, lines, orders = two_tables(folder)
    plain.commit((lines, "insert", 50, "a"), (orders, "insert", 50, "a"))
    make_capture(plain, config).stream()
    plain.__class__ = Broken
    return plain, config


def test_capture_without_trouble_is_healthy(tmp_path: Path) -> None:
    server, config = streaming(tmp_path)
    report = inspect_server(config, lambda: opened(server), now=server.now).report  # type: ignore[arg-type, return-value]
    assert (report.headline, report.troubles, report.next_steps) == ("healthy", (), [])
    assert report.counts() == {"streaming": 2}
    [database] = report.databases
    assert database.complete_to == database.newest == server.transactions[-1]
    assert (database.lag.behind_s, database.committed) == (0.0, server.now)
    assert report.last_ddl is not None
    assert (report.last_ddl.kind, report.rates.by_operation["c"] > 0) == ("CREATE", True)
    read = json.loads(json.dumps(report.as_json()))
    assert (read["healthy"], read["databases"][0]["complete_to"]) == (True, str(server.transactions[-1]))


@pytest.mark.long
def test_no_combination_of_troubles_is_healthy(tmp_path: Path) -> None:
    """Each trouble, and each combination of two (of up to `CDC_TROUBLES`)."""
    lake, kept = tmp_path / "lake", tmp_path / "kept"
    whole, config = streaming(lake)
    lake.rename(kept)
    for count in range(1, _MAX + 1):
        for chosen in itertools.combinations(TROUBLES, count):
            server = deepcopy(whole)
            shutil.copytree(kept, lake)
            for spoil in chosen:
                spoil(server, lake)
            report = inspect_server(config, lambda server=server: opened(server)).report  # type: ignore[misc, arg-type]
            names = [spoil.__name__ for spoil in chosen]
            assert not report.healthy, names
            assert report.headline != "healthy", names
            known = set(names) - WORK - UNKNOWN - set().union(*(HIDES.get(name, set()) for name in names))
            assert report.health == ("in trouble" if known else "not known" if set(names) & UNKNOWN else "working"), (
                names
            )
            if report.health != "working":
                assert report.next_steps or "take_away" in names or "take_database_away" in names, names
            shutil.rmtree(lake)


def test_database_whose_tables_are_all_left_out_is_asked_because_a_new_one_may_wait_there(tmp_path: Path) -> None:
    server = TwoDatabases()
    lines, old = server.create("lines", rows=2), server.create_other("old", rows=2)
    server.commit((lines, "insert", 50, "x"), (old, "insert", 50, "x"))
    config = config_of_two(tmp_path)
    make_capture(server, config).snapshot([lines, old])
    config = replace(config, filters=replace(config.filters, table_exclude=("dbo.old",)))
    make_capture(server, config).stream()

    def seen() -> Inspection:
        return inspect_server(config, lambda: nullcontext(server), now=server.now)  # type: ignore[arg-type]

    assert seen().report.health == "healthy"
    assert {str(found.subject) for found in seen().found if found.check.of == "table"} == {str(lines)}, (
        "nothing is to be known of what is left out"
    )
    new = server.create_other("new", rows=3)
    server.commit((new, "insert", 51, "x"))
    assert seen().report.health == "working"
    server.troubles[OTHER] = DatabaseAwayError("Other is offline. Next: bring it up")
    assert (seen().report.health, seen().report.next_steps) == ("in trouble", ["bring it up"])


def test_stopped_table_is_named_with_the_next_step_and_its_worst_condition(tmp_path: Path) -> None:
    server, config = streaming(tmp_path)
    add_column(server, tmp_path)
    disable_table(server, tmp_path)
    report = inspect_server(config, lambda: opened(server)).report  # type: ignore[arg-type, return-value]
    assert {table.table.table: table.condition for table in report.tables} == {"lines": "drifted", "orders": "failed"}
    assert len(report.troubles) == len(report.next_steps) == 2
    assert "and 1 more" in report.headline


def test_server_that_is_away_leaves_what_the_lake_knows(tmp_path: Path) -> None:
    server, config = streaming(tmp_path)
    server.away = True
    report = inspect_server(config, lambda: opened(server)).report  # type: ignore[arg-type, return-value]
    assert report.counts() == {"streaming": 2}
    assert report.databases[0].complete_to == server.transactions[-1]
    assert "The server does not answer" in report.headline
    assert not report_of(CaptureOverview(config), datetime.now(UTC)).healthy, "nobody asked the server"  # type: ignore[arg-type]


def test_lake_that_cannot_be_read_is_the_report(tmp_path: Path) -> None:
    server, config = streaming(tmp_path)
    shutil.rmtree(tmp_path / "shop.__windows")
    report = inspect_server(config, lambda: opened(server)).report  # type: ignore[arg-type, return-value]
    assert (report.health, report.tables) == ("in trouble", ())
    assert "is gone or empty" in report.headline


def lsn(number: int) -> Lsn:
    return Lsn.from_int((0x2A << 48) + number)


@pytest.mark.parametrize(
    ("reached", "planned", "newest", "quiet", "expected"),
    [
        (3, None, 3, 4, (4.0, 0.0, 0.0)),  # all is read; the job may have left 4 s of the log unread
        (3, None, 3, 400, (70.0, 0.0, 0.0)),  # nothing is younger than the newest captured transaction
        (1, None, 3, 1, (1.0, 85.0, 0.0)),  # nobody has planned it: it is as late as the oldest of it is old
        (2, None, 3, 1, (1.0, 70.0, 0.0)),
        (1, 3, 3, 1, (1.0, 0.0, 85.0)),  # all of it is being written
        (1, 2, 3, 1, (1.0, 70.0, 15.0)),
        (1, None, 3, None, (70.0, 85.0, 0.0)),
        (9, None, 10, 1, (1.0, None, 0.0)),  # cleaned up meanwhile: not known, and not nothing
        (None, None, 3, 1, (1.0, None, None)),
        (3, None, 4, -4000, (None, None, 0.0)),  # the clock was set back by an hour after the commit that waits
        (3, 4, 5, 1, (1.0, None, None)),
    ],
)
def test_lag_is_split_by_cause(
    reached: int | None, planned: int | None, newest: int, quiet: int | None, expected: tuple[float | None, ...]
) -> None:
    ages = {1: 90, 2: 85, 3: 70, 4: -3600, 5: -3599}
    times = {lsn(number): START - timedelta(seconds=age) for number, age in ages.items()}
    unread, unplanned = (lsn(place + 1) if place and place < newest else None for place in (reached, planned))
    facts = DatabaseFacts(times=times, newest=lsn(newest), unread=unread, unplanned=unplanned, now=START)
    found = report_builder.lag_of(
        lsn(reached) if reached else None,
        lsn(planned) if planned else None,
        facts,
        CaptureJob(DATABASE, True, quiet),
    )
    assert (found.capture_job_s, found.poll_s, found.windows_s) == expected


def test_table_that_is_read_shows_percent_and_the_time_that_is_left() -> None:
    every = KeyRange("id", None, None)
    slices = [SnapshotSlice(LINES, 0, (0, 0), every, 100), SnapshotSlice(LINES, 1, (1, 1), every, 100),
              SnapshotSlice(ORDERS, 2, (0, 0), every, 200)]  # fmt: skip
    tables = tuple(SnapshotTable(table, 1, "x", lsn(1), (every,), whole=True) for table in (LINES, ORDERS))
    run = SnapshotRun(1, DATABASE, tables, tuple(slices), done=1)
    assert report_builder._progress(run, 10.0)[LINES] == (50.0, 10.0)
    assert report_builder._progress(run, 10.0)[ORDERS] == (0.0, 30.0)
    assert report_builder._progress(run, 0.0)[ORDERS] == (0.0, None)


def test_masked_key_of_the_queue_is_not_shown(tmp_path: Path) -> None:
    server, config = streaming(tmp_path)
    entry = QueuedTable(ORDERS, "s", maximum=("9",), last=("secret",), order=("id",))
    seen = CaptureOverview(config, server)  # type: ignore[arg-type]
    seen.state = replace(seen.state, signals={DATABASE: SignalState(queue=(entry,), paused=True)})
    [queued] = report_of(seen, datetime.now(UTC)).queue
    assert (queued.reached, queued.paused) == ("secret", True)
    rule = ColumnRule("mask", (".*id",), length=3)
    seen.config = replace(seen.config, events=replace(seen.config.events, column_rules=(rule,)))
    assert "secret" not in json.dumps(report_of(seen, datetime.now(UTC)).as_json())


def test_late_capture_is_working_and_names_how_far_it_is_behind() -> None:
    report = CaptureReport(
        "shop",
        START,
        databases=(DatabaseReport(DATABASE, lag=Lag(1.0, 50.0, 20.0)),),
        tables=(TableReport(ORDERS, "t", "streaming"),),
        rates=Rates(60, {"c": 1.5, "u": 0.5}),
    )
    assert (report.health, report.rates.rows) == ("working", 2.0)
    assert "70 s behind" in report.headline
    assert replace(report, databases=()).healthy
    assert not replace(report, tables=()).healthy, "nothing is captured"
    assert replace(report, troubles=(Trouble("x", "y. Next: do z"),)).next_steps == ["do z"]


def test_capture_of_which_nobody_can_tell_how_far_it_is_behind_is_not_healthy() -> None:
    """A table was just enabled and nothing is read since: its position is no commit, so the server has no time of it."""
    facts = DatabaseFacts(times={lsn(9): START - timedelta(hours=20)}, newest=lsn(9), now=START)
    found = report_builder.lag_of(lsn(1), None, facts, CaptureJob(DATABASE, True, 30))
    report = CaptureReport(
        "shop",
        START,
        databases=(DatabaseReport(DATABASE, lsn(1), lag=found, newest=lsn(9)),),
        tables=(TableReport(ORDERS, "t", "streaming", complete_to=lsn(1)),),
    )
    assert report.health == "working"
    assert f"not known how far {DATABASE} is behind" in report.headline


def test_what_waits_is_late_also_on_a_quiet_server_and_when_it_was_not_read_since_the_snapshot(tmp_path: Path) -> None:
    """Nothing reads: no other commit comes, and the position is that before the first one."""
    plain, config, lines, _ = two_tables(tmp_path)
    make_capture(plain, config).stream()
    plain.commit((lines, "insert", 50, "a"))
    plain.__class__ = Broken
    server: Broken = plain  # type: ignore[assignment]
    look_now = lambda: inspect_server(config, lambda: opened(server), now=server.now).report  # type: ignore[arg-type, return-value] # noqa: E731
    assert look_now().healthy
    server.behind = timedelta(seconds=LATE_S + 1)
    assert look_now().health == "working"
    assert "61 s behind what the server has captured" in look_now().headline


def test_table_that_nobody_reads_on_is_not_known_after_a_while(tmp_path: Path) -> None:
    """Its run is dead, or hangs: neither manifest nor server tells."""
    server, config = streaming(tmp_path)
    newest = CaptureOverview(config).rows()[-1]["at"]  # type: ignore[arg-type]

    def seen(seconds: float) -> CaptureReport:
        at = newest + timedelta(seconds=seconds)
        return inspect_server(config, lambda: opened(server), now=at).report  # type: ignore[arg-type, return-value]

    server.create("new", rows=1)
    waits = [seen(report_builder.STUCK_S + more) for more in (-1, 1)]
    assert [(report.health, health_result(report).passed) for report in waits] == [
        ("working", True),
        ("not known", False),
    ]
    assert "SalesDb.dbo.new are to be read" in waits[1].headline
    assert seen(-3600).health == "not known", "the clock was set back"
    with pytest.raises(PowerCutError), cut_at("round-complete"):
        make_capture(server, config).snapshot([LINES, ORDERS])  # type: ignore[arg-type]
    newest = CaptureOverview(config).rows()[-1]["at"]  # type: ignore[arg-type]
    reads = [seen(report_builder.STUCK_S + more) for more in (-1, 1)]
    assert [report.health for report in reads] == ["working", "not known"]


def test_table_that_waits_while_another_database_is_read_is_no_matter(tmp_path: Path) -> None:
    """Databases are snapshotted one after the other."""
    server = TwoDatabases()
    lines, other = server.create("lines", rows=2), server.create_other("other", rows=2)
    server.commit((lines, "insert", 50, "x"), (other, "insert", 50, "x"))
    config = config_of_two(tmp_path)
    make_capture(server, config).snapshot([lines, other])
    server.now += timedelta(seconds=2 * report_builder.STUCK_S)
    server.create_other("new", rows=2)
    with pytest.raises(PowerCutError), cut_at("round-complete"):
        make_capture(server, config).snapshot([lines])
    found = []
    for _ in range(2):
        found.append(report_of(CaptureOverview(config, server), server.now).health)  # type: ignore[arg-type]
        server.now += timedelta(seconds=2 * report_builder.STUCK_S)
    assert found == ["working", "not known"]


def test_busy_database_does_not_hide_that_nobody_reads_another_one(tmp_path: Path) -> None:
    server = TwoDatabases()
    lines, other = server.create("lines", rows=2), server.create_other("other", rows=2)
    server.commit((lines, "insert", 50, "x"), (other, "insert", 50, "x"))
    config = config_of_two(tmp_path)
    make_capture(server, config).snapshot([lines, other])
    make_capture(server, config).stream()
    server.now += timedelta(seconds=2 * LATE_S)
    server.commit((lines, "insert", 51, "x"), (other, "insert", 51, "x"))
    server.troubles[OTHER] = DatabaseAwayError("Other is offline.")
    make_capture(server, config).stream()
    del server.troubles[OTHER]
    with patch.object(server, "commit_times", lambda *_: {}):
        report = report_of(CaptureOverview(config, server), server.now)  # type: ignore[arg-type]
    assert report.health == "not known"
    assert f"{OTHER}: changes wait, and no run has read for" in report.headline


def test_unknown_lag_is_told_after_a_minute_without_a_window(tmp_path: Path) -> None:
    server, config = streaming(tmp_path)
    fall_behind_without_a_time(server, tmp_path)
    seen = CaptureOverview(config, server)  # type: ignore[arg-type]
    [soon, late] = [
        report_of(seen, seen.rows()[-1]["at"] + timedelta(seconds=seconds)) for seconds in (LATE_S - 1, LATE_S + 1)
    ]
    assert (soon.health, soon.unknown) == ("working", ())
    assert late.health == "not known"
    assert "changes wait, and no run has read for 1 min 1 s" in late.headline


def test_table_that_the_server_does_not_capture_changes_no_health(tmp_path: Path) -> None:
    server, config = streaming(tmp_path)
    server.create("plain", captured=False)
    report = inspect_server(config, lambda: opened(server), now=server.now).report  # type: ignore[arg-type, return-value]
    assert (report.health, report.counts()) == ("healthy", {"not captured": 1, "streaming": 2})
    assert "plain is not captured" in report.advice[0]
    alone = replace(report, tables=tuple(table for table in report.tables if table.condition == "not captured"))
    assert alone.headline == "not known: nothing is captured yet"
    server.create("late")
    report = inspect_server(config, lambda: opened(server), now=server.now).report  # type: ignore[arg-type, return-value]
    assert (report.health, "late is waiting: the active run, or the next one" in report.headline) == ("working", True)


def test_gap_that_is_ignored_is_told_until_a_snapshot_of_the_table_is_taken(tmp_path: Path) -> None:
    plain, config, lines, orders = two_tables(tmp_path, gap_policy="ignore")
    make_capture(plain, config).stream()
    position = CaptureOverview(config, plain).state.tables[orders].position
    clean_up(plain, tmp_path)  # type: ignore[arg-type]
    plain.commit((orders, "insert", 95, "kept"))
    assert make_capture(plain, config).stream().troubled == ()

    def look_now() -> CaptureReport:
        return report_of(CaptureOverview(config, plain), plain.now)

    report = look_now()
    state = CaptureOverview(config, plain).state.tables[orders]
    [table] = [table for table in report.tables if table.table == orders]
    [(after, until)] = table.ignored_gaps
    assert (after, table.condition, report.health) == (position, "streaming", "working")
    assert f"orders lacks changes after {after} up to {until} (gap.policy=ignore)" in report.headline
    assert f"lacks changes after {after}" in page_of(report)["tables"].value
    assert json.loads(json.dumps(report.as_json()))["tables"][1]["ignored_gaps"] == [[str(after), str(until)]]
    check = continuity_result(state)
    assert (check.passed, check.is_error, str(after) in check.text) == (
        False,
        False,
        True,
    )
    make_capture(plain, config).snapshot([lines, orders])
    assert look_now().headline == "healthy"
    assert CaptureOverview(config, plain).state.tables[orders].gaps == ((after, until),), "it is not forgotten"
    assert continuity_result(CaptureOverview(config, plain).state.tables[orders]).passed


def test_schema_history_that_is_gone_is_told_before_and_after_a_run_has_met_it(tmp_path: Path) -> None:
    server, config = streaming(tmp_path)
    remove_history(server, tmp_path)

    def trouble() -> str:
        report = inspect_server(config, lambda: opened(server), now=server.now).report  # type: ignore[arg-type, return-value]
        assert report.health == "in trouble"
        return "".join(map(str, report.troubles))

    assert "shop.__schema_history: is gone" in trouble()
    for _ in range(2):
        with pytest.raises(LakeError, match="schema history"):
            make_capture(server, config).stream()  # type: ignore[arg-type]
        assert "shop.__schema_history: is gone" in trouble()
        assert "snapshot.mode=recovery" in trouble()


def test_table_that_the_settings_include_again_is_not_complete_before_a_run(tmp_path: Path) -> None:
    plain, config, lines, orders = two_tables(tmp_path)
    less = replace(config, filters=replace(config.filters, table_exclude=("dbo.orders",)))
    make_capture(plain, less).stream()
    plain.commit((orders, "insert", 50, "a"), (lines, "insert", 50, "a"))
    make_capture(plain, less).stream()
    assert report_of(CaptureOverview(less, plain), plain.now).healthy
    report = report_of(CaptureOverview(config, plain), plain.now)
    assert (report.health, "orders is waiting: the settings include it again" in report.headline) == ("working", True)
    make_capture(plain, config).stream()
    assert report_of(CaptureOverview(config, plain), plain.now).healthy

    make_capture(plain, less).stream()
    clean_up(plain, tmp_path)  # type: ignore[arg-type]
    assert report_of(CaptureOverview(config, plain), plain.now).health == "in trouble", "its next change is gone"


@pytest.mark.parametrize("problem", [DatabaseAwayError("it is offline"), CdcDisabledError("capture is off")])
def test_database_of_which_nothing_is_captured_yet_is_in_trouble(tmp_path: Path, problem: CdcError) -> None:
    config, _, _, server = other_database(tmp_path)
    server.troubles[OTHER] = problem
    report = report_of(CaptureOverview(config, server), server.now)
    assert (report.health, str(report.troubles[0])) == ("in trouble", f"{OTHER}: {type(problem).__name__}: {problem}")


@pytest.mark.parametrize("step", ["snapshot-planned", "round-written", "round-complete"])
def test_database_that_is_away_in_its_first_snapshot_is_in_trouble_and_stops_no_other(
    tmp_path: Path, step: str
) -> None:
    config, lines, new, server = other_database(tmp_path)
    with cut_at(step), suppress(PowerCutError):
        make_capture(server, config).snapshot([new])
    server.troubles[OTHER] = DatabaseAwayError("it is offline")
    for _ in range(2):
        lsn = server.commit((lines, "insert", server._tick, "a"))
        summary = make_capture(server, config).stream()
        assert CaptureOverview(config, server).state.tables[lines].position == lsn
        assert list(summary.left_out) == [OTHER]
        report = report_of(CaptureOverview(config, server), server.now)
        assert (report.health, report.troubles[0].where) == ("in trouble", OTHER)
    server.troubles.clear()
    make_capture(server, config).snapshot()
    make_capture(server, config).stream()
    assert report_of(CaptureOverview(config, server), server.now).healthy
    assert {row["value"]["after"]["id"] for row in rows_of_topic(config, f"shop.{new}")} == {1, 2, 3}  # type: ignore[index]


def other_database(folder: Path) -> tuple[CaptureConfig, TableId, TableId, TwoDatabases]:
    """A capture of one database to which another one is added, of which nothing is captured yet."""
    server = TwoDatabases()
    lines = server.create("lines", rows=3)
    server.idle_tick()
    config = config_of_two(folder)
    make_capture(server, config).snapshot()
    new = server.create_other("new", rows=3)
    server.idle_tick()
    return config, lines, new, server


def test_new_table_that_cannot_be_read_is_told_until_it_is(tmp_path: Path) -> None:
    """Between two runs as well."""
    server, config = streaming(tmp_path)
    late = server.create("late", rows=3)

    def refuse(statement: str) -> None:
        if "late" in statement:
            raise QueryError("The SELECT permission was denied. Next: GRANT SELECT", 229)

    def condition() -> tuple[str, str, str]:
        report = inspect_server(config, lambda: opened(server), now=server.now).report  # type: ignore[arg-type, return-value]
        [table] = [entry for entry in report.tables if entry.table == late]
        return report.health, table.condition, table.reason

    assert condition()[:2] == ("working", "waiting")
    server.before_read = refuse
    for _ in range(2):
        make_capture(server, config).snapshot()  # type: ignore[arg-type]
        health, word, reason = condition()
        assert (health, word) == ("in trouble", "failed")
        assert "SELECT permission was denied. Next: GRANT SELECT" in reason
    server.before_read = lambda _: None
    make_capture(server, config).snapshot()  # type: ignore[arg-type]
    assert condition()[1:] == ("streaming", "")
    assert not CaptureOverview(config, server).state.unread  # type: ignore[arg-type]


def test_new_table_that_cannot_be_planned_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server, config = streaming(tmp_path)
    late = server.create("late", rows=3)

    def refuse(*_: object) -> None:
        raise QueryError("The index is damaged.", 8646)

    monkeypatch.setattr(server, "key_ranges", refuse)
    rows = 0
    for _ in range(2):
        assert make_capture(server, config).snapshot().failed  # type: ignore[arg-type]
        overview = CaptureOverview(config, server)  # type: ignore[arg-type]
        [table] = [entry for entry in overview.tables if entry.table == late]
        assert "The index is damaged." in table.reason
        rows += sum(row["event"] == "unread" for row in overview.rows())
    assert rows == 2, "the second run has found nothing new"
