"""Two databases of one capture, one of which is turned off, goes offline or goes away: the other goes on."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.sqlserver.preflight import inspect
from cdc_assets.adapters.sqlserver.retry import ATTEMPTS
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.capture import loop
from cdc_assets.cli.main import app
from cdc_assets.config.settings import LakeSettings
from cdc_assets.core.steps import listening
from cdc_assets.errors import CdcDisabledError, DatabaseAwayError, LakeError, LoginError
from cdc_assets.lake.topics import TopicTables
from cdc_assets.overview import CaptureOverview, report_of
from cdc_assets.shared.progress import StreamSummary
from cdc_assets_tests.contract.two import HERE, THERE, Two, reasons, snapshot
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.streaming.law import state_of


@pytest.mark.long
def test_capture_turned_off_before_a_run_ends_the_tables_of_that_database(two: Two) -> None:
    two.server.execute("EXEC sys.sp_cdc_disable_db", database=THERE.database)
    two.insert(HERE)
    told = reasons(two.run())
    assert list(told) == [THERE]
    assert "sp_cdc_enable_db" in told[THERE]
    assert two.keys(HERE) == [1, 3]
    assert two.told() == [("DROP", "There")]
    assert state_of(two.config).tables[THERE].status == "failed"
    two.insert(HERE)
    two.run()
    assert two.told() == [("DROP", "There")]
    two.server.execute("EXEC sys.sp_cdc_enable_db", database=THERE.database)
    two.enable(THERE)
    two.insert(THERE)
    snapshot(two, THERE)
    two.insert(HERE, THERE)
    assert reasons(two.run()) == {}
    assert two.keys(THERE) == [2, 2, 5, 7]
    assert two.keys(HERE) == [1, 3, 4, 6]


def test_capture_turned_off_is_seen_from_outside_until_a_run_has_told_it(two: Two) -> None:
    two.run()
    two.server.execute("EXEC sys.sp_cdc_disable_db", database=THERE.database)
    with SqlServerSource(two.config.connection) as source:
        seen = CaptureOverview(two.config, source)
        assert (list(seen.problems()), list(seen.work.unread_databases())) == ([THERE.database], [THERE.database])
        assert [job.database for job in seen.capture_jobs() if "sp_cdc_enable_db" in job.trouble] == [THERE.database]
        two.run()
        seen = CaptureOverview(two.config, source)
        assert (list(seen.problems()), list(seen.work.unread_databases())) == ([], [])
        assert not [job for job in seen.capture_jobs() if job.trouble]


def test_capture_turned_off_while_a_window_is_in_flight(two: Two) -> None:
    two.insert(THERE)
    seen: list[str] = []

    def off(step: str) -> None:
        seen.append(step)
        if seen.count("history-written") == 1 and step == "history-written":
            two.server.execute("EXEC sys.sp_cdc_disable_db", database=THERE.database)
            two.insert(HERE)

    with listening(off):
        told = reasons(two.run())
    assert list(told) == [THERE]
    assert (two.keys(HERE), two.keys(THERE)) == ([1, 4], [2])
    two.run()
    assert two.told() == [("DROP", "There")]


@pytest.mark.long
@pytest.mark.parametrize("step", ["window-planned", "table-committed"])
def test_capture_turned_off_while_another_database_is_in_flight(two: Two, step: str) -> None:
    two.insert(HERE)

    with cut_at(step), pytest.raises(PowerCutError):
        two.run()
    two.server.execute("EXEC sys.sp_cdc_disable_db", database=THERE.database)
    for _ in range(2):
        two.insert(HERE)
        two.run()
        assert state_of(two.config).tables[THERE].status == "failed"
        assert two.told() == [("DROP", "There")]
    assert two.keys(HERE) == [1, 3, 4, 5]


@pytest.mark.parametrize("step", ["window-planned", "files-written", "table-committed", ""])
def test_database_that_is_offline_continues_where_it_stopped(two: Two, step: str) -> None:
    two.insert(THERE)

    if step:
        with cut_at(step), pytest.raises(PowerCutError):
            two.run()
    two.offline()
    two.insert(HERE)
    told = reasons(two.run())
    assert "offline" in told[THERE]
    assert two.keys(HERE) == [1, 4]
    assert state_of(two.config).tables[THERE].status == "healthy"
    two.online()
    two.insert(HERE, THERE)
    assert reasons(two.run()) == {}
    assert (two.keys(HERE), two.keys(THERE)) == ([1, 4, 5], [2, 3, 6])
    assert two.told() == []


class WakingClock(SystemClock):
    """Calls something at a wait, by default the third, and is set back by a day."""

    def __init__(self, wake: Callable[[], None], at: int = 3) -> None:
        self._wake, self._at, self._waits = wake, at, 0

    def now(self) -> datetime:
        return super().now() - timedelta(days=self._waits >= self._at)

    def sleep(self, seconds: float) -> None:
        self._waits += 1
        if self._waits == self._at:
            self._wake()
        super().sleep(seconds)


@pytest.mark.parametrize("step", ["window-planned", "history-written", "files-written", "table-committed", ""])
def test_database_that_comes_back_while_the_loop_runs(two: Two, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    monkeypatch.setattr(loop, "IDLE_CHECK", loop.IDLE_CHECK * 0)
    two.config = replace(two.config, streaming=replace(two.config.streaming, idle_timeout_s=1.5))
    two.insert(THERE, HERE)
    states: list[str] = []

    def away(name: str) -> None:
        if name == step and not states and state_of(two.config).in_flight(THERE.database):
            states.append("away")
            two.offline()

    def back() -> None:
        (left,) = two.server.execute("SELECT state_desc FROM sys.databases WHERE name = N'There'")
        states.append(str(left[0]))
        two.online()

    if not step:
        two.offline()
    with listening(away):
        assert reasons(two.run(clock=WakingClock(back))) == {}
    assert states[-1] == "OFFLINE"
    assert (two.keys(HERE), two.keys(THERE)) == ([1, 4], [2, 3])


def broken_while_asked(two: Two, change: Callable[[], None]) -> StreamSummary | None:
    """A run in which, once a window is planned, something changes and questions about databases break off at first."""
    asking = "cdc-assets: database */"
    armed: list[str] = []

    def arm(step: str) -> None:
        if step == "window-planned" and not armed:
            armed.append(step)
            change()
            two.server.faults.error(596, "The session is in the kill state.", matching=asking, times=ATTEMPTS)

    with listening(arm):
        summary = two.run()
    assert len([statement for statement in two.server.faults.struck if asking in str(statement)]) == ATTEMPTS
    return summary


def test_server_that_breaks_off_when_asked_why_a_database_cannot_be_read(two: Two) -> None:
    two.insert(HERE, THERE)
    assert "offline" in reasons(broken_while_asked(two, two.offline))[THERE]
    assert two.keys(HERE) == [1, 3]


def test_server_that_breaks_off_when_asked_whether_a_database_is_back(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "IDLE_CHECK", loop.IDLE_CHECK * 0)
    two.config = replace(two.config, streaming=replace(two.config.streaming, idle_timeout_s=3.0))
    two.insert(HERE, THERE)
    two.offline()
    assert reasons(broken_while_asked(two, two.online)) == {}
    assert (two.keys(HERE), two.keys(THERE)) == ([1, 3], [2, 4])


@pytest.mark.parametrize("name", ["There", "there"])
def test_database_that_is_gone_leaves_the_other_alone(two: Two, name: str) -> None:
    """Also if the settings write it otherwise than the server did."""
    two.config = replace(two.config, connection=replace(two.config.connection, databases=(HERE.database, name)))
    two.server.execute("DROP DATABASE [There]")
    two.insert(HERE)
    told = reasons(two.run())
    assert "not on" in told[THERE]
    assert two.keys(HERE) == [1, 3]
    with SqlServerSource(two.config.connection) as source:
        report = report_of(CaptureOverview(two.config, source), datetime.now(UTC))
    assert report.health == "in trouble"
    assert {table.table: table.condition for table in report.tables} == {HERE: "streaming", THERE: "failed"}


def test_doctor_tells_which_database_is_missing(two: Two) -> None:
    two.server.execute("DROP DATABASE [There]")
    with SqlServerSource(two.config.connection, require_cdc=False) as source:
        [found] = [result for result in inspect(source, two.config) if result.subject == "There"]
    assert found.blocking
    assert not found.ok
    assert "check database.names" in found.remedy


def test_a_capture_of_no_database_at_all_is_refused(two: Two) -> None:
    for table in (HERE, THERE):
        two.server.execute("EXEC sys.sp_cdc_disable_db", database=table.database)
    with pytest.raises(CdcDisabledError):
        two.run()
    assert sorted(two.told()) == [("DROP", "Here"), ("DROP", "There")]


def test_a_single_database_that_is_offline_is_waited_for(two: Two) -> None:
    two.config = replace(two.config, connection=replace(two.config.connection, databases=(THERE.database,)))
    two.offline()
    with pytest.raises(DatabaseAwayError):
        two.run()
    assert state_of(two.config).tables[THERE].status == "healthy"


@pytest.mark.parametrize("step", ["window-planned", "history-written", "files-written", "table-committed"])
def test_a_single_database_that_goes_offline_for_a_while_costs_nothing(two: Two, tmp_path: Path, step: str) -> None:
    connection = replace(two.config.connection, databases=(THERE.database,))
    two.config = replace(two.config, connection=connection, lake=LakeSettings(str(tmp_path / "alone")))
    two.run("snapshot")
    two.insert(THERE)
    left: list[str] = []

    def away(name: str) -> None:
        if name == step and not left:
            left.append("offline")
            two.offline()

    def back() -> None:
        left.append("back")
        two.online()

    with listening(away):
        assert reasons(two.run(clock=WakingClock(back, at=1))) == {}
    assert left == ["offline", "back"]
    assert two.keys(THERE) == [2, 3]


def test_a_database_that_never_was_captured_is_a_mistake(two: Two) -> None:
    names = (*two.config.connection.databases, "Nowhere")
    two.config = replace(two.config, connection=replace(two.config.connection, databases=names))
    with pytest.raises(LoginError, match="Nowhere"):
        two.run()


@pytest.mark.long
def test_table_half_of_whose_window_is_committed_when_its_database_goes_offline(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    def alter(statement: str, instance: str) -> None:
        two.server.execute(statement, database=THERE.database)
        two.enable(THERE, instance)

    streaming = replace(two.config.streaming, max_iteration_transactions=0)
    two.config = replace(two.config, streaming=streaming)
    alter("ALTER TABLE dbo.orders ADD note int", "second")
    two.server.execute("INSERT INTO dbo.orders VALUES (9, 1)", database=THERE.database)
    two.server.agent.drain()
    two.run()
    two.server.execute(
        "EXEC sys.sp_cdc_disable_table @source_schema = N'dbo', @source_name = N'orders', "
        "@capture_instance = N'dbo_orders'; INSERT INTO dbo.orders VALUES (10, 1); ALTER TABLE dbo.orders DROP COLUMN note",
        database=THERE.database,
    )
    alter("ALTER TABLE dbo.orders ADD note nvarchar(9)", "third")
    two.server.execute("INSERT INTO dbo.orders VALUES (11, N'x')", database=THERE.database)
    two.server.agent.drain()
    commit = TopicTables.commit

    def refuse_the_next_generation(tables: TopicTables, directory: str, *given: Any) -> bool:
        if directory.endswith("@2"):
            raise LakeError("The store refuses.")
        return commit(tables, directory, *given)

    monkeypatch.setattr(TopicTables, "commit", refuse_the_next_generation)
    with pytest.raises(LakeError, match="refuses"):
        two.run()
    monkeypatch.undo()
    assert two.keys(THERE) == [2, 9, 10]

    two.offline()
    two.insert(HERE)
    two.run()
    two.online()
    assert "two commits of a window" in reasons(two.run())[THERE]
    assert two.keys(THERE) == [2, 9, 10], "nothing comes twice"
    snapshot(two, THERE)
    two.server.execute("INSERT INTO dbo.orders VALUES (12, N'y')", database=THERE.database)
    two.server.agent.drain()
    assert reasons(two.run()) == {}
    assert two.keys(THERE) == [2, 9, 10, 2, 9, 10, 11, 12]


@pytest.mark.long
@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("step", ["window-planned", "table-committed", ""])
def test_database_that_is_named_no_more_stops_nothing_and_continues_when_it_is_named_again(
    two: Two, step: str, gone: bool
) -> None:
    two.insert(THERE)
    if step:
        with cut_at(step), pytest.raises(PowerCutError):
            two.run()
    named = two.config
    two.config = replace(named, connection=replace(named.connection, databases=(HERE.database,)))
    if gone:
        two.server.execute("DROP DATABASE [There]")
    two.insert(HERE)
    assert reasons(two.run()) == {}
    assert two.keys(HERE) == [1, 4]
    assert two.told() == []
    if not gone:
        two.config = named
        two.insert(THERE)
        assert reasons(two.run()) == {}
        assert two.keys(THERE) == [2, 3, 5]


def test_a_command_that_takes_snapshots_alone_tells_which_one_it_has_left_out(two: Two, tmp_path: Path) -> None:
    two.offline()
    connection, path = two.config.connection, tmp_path / "shop.json"
    given = {
        "topic.prefix": two.config.events.topic_prefix,
        "database.hostname": connection.host,
        "database.port": connection.port,
        "database.user": connection.user,
        "database.password": connection.password,
        "database.names": ",".join(connection.databases),
        "driver.encrypt": "no",
        "lake.path": two.config.lake.path,
    }
    path.write_text(json.dumps(given))
    done = CliRunner().invoke(app, ["capture", "--local", "--snapshot-only", "-c", str(path)])
    assert (done.exit_code, "There left out: DatabaseAwayError" in done.output) == (1, True), done.output
