"""Databases and tables of which nothing is captured yet are told."""

from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.errors import CdcDisabledError, CdcError, DatabaseAwayError, QueryError
from cdc_assets.overview import CaptureOverview, inspect_server, report_of
from cdc_assets.overview.checks.check import Inspection
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.overview.broken import opened, streaming
from cdc_assets_tests.unit.streaming.captures import make_capture
from cdc_assets_tests.unit.streaming.lake_reader import rows_of_topic
from cdc_assets_tests.unit.streaming.two_databases import OTHER, TwoDatabases, config_of_two


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


def test_database_that_is_removed_from_the_settings_is_not_streamed_before_a_run_has_recorded_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody reads its changes, and if nothing else is new, no run comes."""
    server = TwoDatabases()
    lines, other = server.create("lines", rows=2), server.create_other("other", rows=2)
    server.commit((lines, "insert", 50, "x"), (other, "insert", 50, "x"))
    config = config_of_two(tmp_path)
    make_capture(server, config).snapshot([lines, other])
    server.commit((other, "insert", 51, "x"))
    less = replace(config, connection=replace(config.connection, databases=(lines.database,)))
    monkeypatch.setattr(server, "databases", lambda: [lines.database])
    server.troubles[OTHER] = DatabaseAwayError("it was dropped")
    for _ in range(2):
        report = report_of(CaptureOverview(less, server), server.now)
        assert {table.table: table.condition for table in report.tables} == {lines: "streaming", other: "excluded"}
        assert report.healthy
        make_capture(server, less).stream()


@pytest.mark.parametrize("problem", [DatabaseAwayError("it is offline"), CdcDisabledError("capture is off")])
def test_database_of_which_nothing_is_captured_yet_is_in_trouble(tmp_path: Path, problem: CdcError) -> None:
    config, _, _, server = other_database(tmp_path)
    server.troubles[OTHER] = problem
    report = report_of(CaptureOverview(config, server), server.now)
    assert (report.health, str(report.troubles[0])) == ("in trouble", f"{OTHER}: {type(problem).__name__}: {problem}")


@pytest.mark.long
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
