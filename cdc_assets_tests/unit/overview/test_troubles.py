"""The report of a capture never says healthy while the lake lacks a change, or while somebody would have to act."""

import itertools
import json
import os
import shutil
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cdc_assets.core.ports import RecoveryFork
from cdc_assets.defs.page import page_of
from cdc_assets.errors import DatabaseAwayError, LakeError
from cdc_assets.overview import CaptureOverview, CaptureReport, inspect_server, report_of
from cdc_assets.overview.checks.sqlserver import continuity_result
from cdc_assets.overview.report import LATE_S
from cdc_assets_tests.unit.overview.broken import LINES, ORDERS, Broken, opened, streaming
from cdc_assets_tests.unit.streaming.captures import make_capture, make_config
from cdc_assets_tests.unit.streaming.simulation import DATABASE
from cdc_assets_tests.unit.streaming.tables import two_tables

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


def test_capture_of_which_no_run_has_begun_is_not_known(tmp_path: Path) -> None:
    """Such as one whose every run ends before it could write: nobody would be told otherwise."""
    shop = Broken()
    shop.create("orders", rows=3)
    shop.idle_tick()
    config = make_config(str(tmp_path))
    report = inspect_server(config, lambda: opened(shop), now=shop.now).report  # type: ignore[arg-type, return-value]
    assert (report.health, [table.condition for table in report.tables]) == ("not known", ["waiting"])
    assert "nothing has been written" in report.headline
    assert report.next_steps == ["see whether a run works, and its log; else start one"]
    make_capture(shop, config).snapshot()
    shop.idle_tick()
    assert inspect_server(config, lambda: opened(shop), now=shop.now).report.healthy  # type: ignore[arg-type, return-value]


def test_server_that_cannot_be_queried_is_named_as_the_place(tmp_path: Path) -> None:
    """Also one that answers, and refuses the login."""
    server, config = streaming(tmp_path)
    server.away = True
    report = inspect_server(config, lambda: opened(server), now=server.now).report  # type: ignore[arg-type, return-value]
    assert report.unknown[0].where == "The server"
    assert report.headline.startswith("not known: The server cannot be queried, so changes")


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
    assert (
        f"orders lacks changes after {after} up to {until} (gap.policy=ignore, or not all rows are read)"
        in report.headline
    )
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
