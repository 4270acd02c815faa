"""How far a capture is behind, and that it is not healthy if it is late or if nobody can tell."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

import pytest

from cdc_assets.config.settings import ColumnRule
from cdc_assets.core.capture_job import CaptureJob
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.ports import KeyRange
from cdc_assets.errors import DatabaseAwayError
from cdc_assets.ledger.signal_state import QueuedTable, SignalState
from cdc_assets.ledger.snapshot_state import SnapshotRun, SnapshotSlice, SnapshotTable
from cdc_assets.overview import CaptureOverview, CaptureReport, inspect_server, report_of
from cdc_assets.overview.checks.health import health_result
from cdc_assets.overview.conditions import progress_of
from cdc_assets.overview.idle import STUCK_S
from cdc_assets.overview.lag import lag_of
from cdc_assets.overview.report import LATE_S, DatabaseReport, Lag, Rates, TableReport, Trouble
from cdc_assets.overview.server import DatabaseFacts
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.overview.broken import LINES, ORDERS, Broken, opened, streaming
from cdc_assets_tests.unit.streaming.captures import make_capture
from cdc_assets_tests.unit.streaming.simulation import DATABASE, START
from cdc_assets_tests.unit.streaming.tables import two_tables
from cdc_assets_tests.unit.streaming.two_databases import OTHER, TwoDatabases, config_of_two


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
    found = lag_of(
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
    assert progress_of(run, 10.0)[LINES] == (50.0, 10.0)
    assert progress_of(run, 10.0)[ORDERS] == (0.0, 30.0)
    assert progress_of(run, 0.0)[ORDERS] == (0.0, None)


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
    found = lag_of(lsn(1), None, facts, CaptureJob(DATABASE, True, 30))
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

    def look_now() -> CaptureReport:
        return inspect_server(config, lambda: opened(server), now=server.server_time()).report  # type: ignore[arg-type, return-value]

    assert look_now().healthy
    server.behind = timedelta(seconds=LATE_S + 1)
    assert look_now().health == "working"
    assert "61 s behind what the server has captured" in look_now().headline
    server.behind = timedelta(seconds=STUCK_S + 1)
    report = look_now()
    assert (report.health, health_result(report).passed) == ("not known", False)
    assert "changes have waited for 15 min 1 s, and nothing has been written of SalesDb" in report.headline


def test_table_that_nobody_reads_on_is_not_known_after_a_while(tmp_path: Path) -> None:
    """Its run is dead, or hangs: neither manifest nor server tells."""
    server, config = streaming(tmp_path)
    newest = CaptureOverview(config).rows()[-1]["at"]  # type: ignore[arg-type]

    def seen(seconds: float) -> CaptureReport:
        at = newest + timedelta(seconds=seconds)
        return inspect_server(config, lambda: opened(server), now=at).report  # type: ignore[arg-type, return-value]

    server.create("new", rows=1)
    waits = [seen(STUCK_S + more) for more in (-1, 1)]
    assert [(report.health, health_result(report).passed) for report in waits] == [
        ("working", True),
        ("not known", False),
    ]
    assert "SalesDb.dbo.new are to be read" in waits[1].headline
    assert seen(-3600).health == "not known", "the clock was set back"
    with pytest.raises(PowerCutError), cut_at("round-complete"):
        make_capture(server, config).snapshot([LINES, ORDERS])  # type: ignore[arg-type]
    newest = CaptureOverview(config).rows()[-1]["at"]  # type: ignore[arg-type]
    reads = [seen(STUCK_S + more) for more in (-1, 1)]
    assert [report.health for report in reads] == ["working", "not known"]


def test_table_that_waits_while_another_database_is_read_is_no_matter(tmp_path: Path) -> None:
    """Databases are snapshotted one after the other."""
    server = TwoDatabases()
    lines, other = server.create("lines", rows=2), server.create_other("other", rows=2)
    server.commit((lines, "insert", 50, "x"), (other, "insert", 50, "x"))
    config = config_of_two(tmp_path)
    make_capture(server, config).snapshot([lines, other])
    server.now += timedelta(seconds=2 * STUCK_S)
    server.create_other("new", rows=2)
    with pytest.raises(PowerCutError), cut_at("round-complete"):
        make_capture(server, config).snapshot([lines])
    found = []
    for _ in range(2):
        found.append(report_of(CaptureOverview(config, server), server.now).health)  # type: ignore[arg-type]
        server.now += timedelta(seconds=2 * STUCK_S)
    assert found == ["working", "not known"]


def test_changes_that_wait_while_another_database_is_read_are_no_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot may last for hours, and changes are read when it has ended."""
    server = TwoDatabases()
    lines, other = server.create("lines", rows=2), server.create_other("other", rows=2)
    server.commit((lines, "insert", 50, "x"), (other, "insert", 50, "x"))
    config = config_of_two(tmp_path)
    make_capture(server, config).snapshot([lines, other])
    make_capture(server, config).stream()
    server.commit((other, "insert", 51, "x"))
    committed = server.now
    monkeypatch.setattr(server, "commit_times", lambda _, lsns, *known: dict.fromkeys(lsns, committed))
    server.now += timedelta(seconds=2 * STUCK_S)
    with pytest.raises(PowerCutError), cut_at("round-complete"):
        make_capture(server, config).snapshot([lines])
    found = []
    for _ in range(2):
        found.append(report_of(CaptureOverview(config, server), server.now))  # type: ignore[arg-type]
        server.now += timedelta(seconds=2 * STUCK_S)
    assert [report.health for report in found] == ["working", "not known"]
    assert all(any(f"{OTHER} is " in late for late in report.late) for report in found)
    assert [OTHER in [one.where for one in report.unknown] for report in found] == [False, True]


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
