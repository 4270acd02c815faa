"""What the sensor asks for: never twice, never beside a run at work, never in a rush after a failure."""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, patch

import dagster as dg
import pytest
from dagster import DagsterRunStatus

from cdc_assets.adapters.sqlserver.source import SqlServerSource, quick_source
from cdc_assets.capture.readings import OpenReadings
from cdc_assets.core import processes
from cdc_assets.core.processes import is_gone, own_process
from cdc_assets.core.seldom import Seldom
from cdc_assets.defs import runs, schedule, sensors
from cdc_assets.defs.names import Names
from cdc_assets.defs.process import process_tag
from cdc_assets.defs.runs import COMMITTED_TAG
from cdc_assets.defs.schedule import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    failures_in_a_row,
    growing_retry_time,
    pause_ends,
    retry_time,
    streaming_starts,
    terminated_until,
)
from cdc_assets.defs.sensors import HINDERED_TAG, NEW_TABLES_TAG, READINGS_TAG, RETRY_TAG
from cdc_assets.defs.spark import SparkResource
from cdc_assets.errors import PreflightError
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.hindrances import THE_RUN, RecordedHindrances
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.ledger.readings import open_databases
from cdc_assets.ledger.signal_state import QueuedTable, SignalState
from cdc_assets.overview import CaptureOverview, CaptureReport, report_of
from cdc_assets.overview.work import Work
from cdc_assets_tests.shop import TABLES, Shop, key, open_shop, tick
from mssql_standin import sample
from mssql_standin.control import StandIn


def test_first_tick_asks_for_the_snapshot_of_all_tables(shop: Shop, instance: dg.DagsterInstance) -> None:
    request = tick(shop, instance)
    assert request.job_name == "shop_snapshot"
    assert set(request.asset_selection) == {key(table, "snapshot") for table in TABLES}
    assert request.run_config["ops"]["shop_read_tables"]["config"]["due_only"] is True
    assert request.tags["dagster/asset_partition_range_end"] == "range_08_of_08"
    assert request.run_key == "shop:first:snapshot"


def test_repeated_tick_asks_with_the_same_key(shop: Shop, instance: dg.DagsterInstance) -> None:
    assert tick(shop, instance).run_key == tick(shop, instance).run_key


def test_run_at_work_is_left_alone(shop: Shop, instance: dg.DagsterInstance) -> None:
    job = shop.definitions().resolve_job_def("shop_changes")
    run = instance.create_run_for_job(job, status=DagsterRunStatus.STARTED)
    try:
        assert "is still running" in tick(shop, instance).skip_message
    finally:
        instance.delete_run(run.run_id)


@pytest.mark.parametrize(
    ("status", "ended"),
    [
        (DagsterRunStatus.STARTED, DagsterRunStatus.FAILURE),
        (DagsterRunStatus.CANCELING, DagsterRunStatus.CANCELED),
        (DagsterRunStatus.NOT_STARTED, DagsterRunStatus.NOT_STARTED),
    ],
)
def test_run_whose_process_is_gone_is_ended_and_makes_room(
    shop: Shop, instance: dg.DagsterInstance, status: DagsterRunStatus, ended: DagsterRunStatus
) -> None:
    process = subprocess.run(
        [sys.executable, "-c", "from cdc_assets.core.processes import own_process; print(own_process())"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    run = instance.create_run_for_job(shop.definitions().resolve_job_def("shop_changes"), status=status)
    instance.add_run_tags(run.run_id, process_tag(run.run_id, process))
    try:
        asked = tick(shop, instance)
        assert instance.get_run_by_id(run.run_id).status is ended  # type: ignore[union-attr]
        assert (ended is status) == ("is still running" in (getattr(asked, "skip_message", "") or ""))
    finally:
        instance.delete_run(run.run_id)


def test_run_that_never_named_its_process_is_ended_after_a_while(shop: Shop, instance: dg.DagsterInstance) -> None:
    run = instance.create_run_for_job(shop.definitions().resolve_job_def("shop_changes"))
    try:
        instance.report_dagster_event(dg.DagsterEvent("PIPELINE_START", run.job_name), run.run_id)
        assert "is still running" in tick(shop, instance).skip_message
        with patch.object(runs, "_SILENT_S", -1):
            assert "is still running" in tick(shop, instance).skip_message, "the code server would have told"
            with patch.object(runs, "_LOADED", time.time() + 1):
                tick(shop, instance)
        assert instance.get_run_by_id(run.run_id).status is DagsterRunStatus.FAILURE  # type: ignore[union-attr]
    finally:
        instance.delete_run(run.run_id)


def test_run_that_somebody_terminated_is_not_followed_at_once(shop: Shop, instance: dg.DagsterInstance) -> None:
    job = shop.definitions().resolve_job_def("shop_changes")
    run = instance.create_run_for_job(job, status=DagsterRunStatus.CANCELING)
    try:
        instance.report_run_canceled(run)
        assert "was terminated" in tick(shop, instance).skip_message
        with patch.object(schedule, "AFTER_TERMINATION", timedelta(0)):
            assert tick(shop, instance).job_name == "shop_snapshot"
    finally:
        instance.delete_run(run.run_id)


def test_process_that_lives_or_cannot_be_seen_is_not_gone() -> None:
    own = own_process()
    assert not is_gone(own)
    host, boot, number, start, _ = own.split("/")
    machine, container = "pid:[4026531836]", "pid:[4026532801]"
    for space in (machine, container):
        with patch.object(processes, "_space", return_value=space):
            assert not is_gone(own_process())
            assert not is_gone(f"another-host/{boot}/1/{start}/{space}")
            assert is_gone(f"{host}/{boot}/{number}/{int(start) + 1}/{space}"), "the number was given out again"
            assert not is_gone(f"{host}/{boot}/{number}/{int(start) + 1}/pid:[1]"), "another container of that name"
            restarted = f"{host}/another-boot/{number}/{start}/{space}"
            assert is_gone(restarted) == (space == machine), "or a container of that name on another machine"


@pytest.mark.spark
@pytest.mark.usefixtures("spark_resource")
def test_after_the_snapshot_only_news_start_a_run(shop: Shop, instance: dg.DagsterInstance) -> None:
    assert shop.snapshot(instance).success
    assert tick(shop, instance).skip_message == "Nothing new."
    shop.add_customers(1)
    request = tick(shop, instance)
    assert request.job_name == "shop_follow"
    assert request.run_key.endswith(request.tags["cdc/lsn"])
    assert request.run_key.startswith("shop:")
    assert shop.changes(instance).success
    assert tick(shop, instance).skip_message == "Nothing new."


def test_idle_tick_of_the_daemon_waits_for_a_change(shop: Shop, instance: dg.DagsterInstance) -> None:
    shop.changes(instance)
    with patch.object(schedule, "_may_wait", return_value=True), ThreadPoolExecutor(1) as others:
        later = others.submit(lambda: (time.sleep(1), shop.add_customers(1)))
        request = tick(shop, instance)
        later.result()
    assert request.job_name == "shop_follow"
    shop.changes(instance)


def test_idle_tick_asks_once_a_poll_and_ends_before_the_daemon_looks_again(
    shop: Shop, instance: dg.DagsterInstance
) -> None:
    shop.changes(instance)
    shop.write({"sensor.wait.ms": "2000", "poll.interval.ms": "200"})
    ask, began = Mock(return_value=None), time.monotonic()
    try:
        with (
            patch.object(schedule, "_may_wait", return_value=True),
            patch.object(SqlServerSource, "max_transaction_lsn", ask),
        ):
            assert tick(shop, instance).skip_message == "Nothing new."
    finally:
        shop.write({})
    assert 3 <= ask.call_count <= 11
    assert time.monotonic() - began < 20, "the daemon looks again after half a minute"


def test_one_capture_waits_at_a_time_and_none_outside_the_daemon(shop: Shop, instance: dg.DagsterInstance) -> None:
    shop.changes(instance)
    with patch.object(Work, "has_come", side_effect=AssertionError):
        assert tick(shop, instance).skip_message == "Nothing new."
        with patch.object(schedule, "_may_wait", return_value=True), schedule._TURN:
            assert tick(shop, instance).skip_message == "Nothing new."


@pytest.mark.spark
@pytest.mark.usefixtures("spark_resource")
def test_same_news_after_another_run_have_another_key(shop: Shop, instance: dg.DagsterInstance) -> None:
    shop.add_customers(1)
    first = tick(shop, instance).run_key
    job = shop.definitions().resolve_job_def("shop_changes")
    run = instance.create_run_for_job(job, status=DagsterRunStatus.FAILURE)
    try:
        assert tick(shop, instance).run_key != first
    finally:
        instance.delete_run(run.run_id)


def test_incremental_snapshot_of_a_killed_run_is_a_reason_to_start(shop: Shop, instance: dg.DagsterInstance) -> None:
    shop.changes(instance)
    assert tick(shop, instance).skip_message == "Nothing new."
    config, now = shop.config(), datetime.now(UTC)
    manifest = Manifest(TopicTables(Location.of(config.lake), config.name), "shop")
    table = next(iter(manifest.claim(now).tables))
    signals = SignalState(queue=(QueuedTable(table, "again"),))
    manifest.record_signals(now, {table.database: signals})
    assert tick(shop, instance).job_name == "shop_follow"
    manifest.record_signals(now, {table.database: replace(signals, paused=True)})
    assert tick(shop, instance).skip_message == "Nothing new."


def test_table_that_failed_is_tried_again_though_nothing_is_new(
    shop: Shop, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.changes(instance)
    config, now = shop.config(), datetime.now(UTC)
    manifest = Manifest(TopicTables(Location.of(config.lake), config.name), "shop")
    failed = next(state for state in manifest.claim(now).tables.values() if state.streams)
    manifest.mark(now, failed.table.database, [failed.stopped("It was not to be read.", again=True)])
    assert f"{failed.table} failed; the next attempt starts after" in tick(shop, instance).skip_message
    monkeypatch.setattr(schedule, "FIRST_PAUSE", timedelta())
    request = tick(shop, instance)
    assert (request.job_name, request.tags[RETRY_TAG]) == ("shop_follow", str(failed.table))
    assert shop.changes(instance).success
    assert tick(shop, instance).skip_message == "Nothing new."


def test_failure_whose_cause_is_over_is_a_reason_to_start_though_nothing_is_new(
    shop: Shop, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the page says until the next change that the last run failed."""
    shop.changes(instance)
    assert tick(shop, instance).skip_message == "Nothing new."
    manifest = shop.folder / "lake" / "shop.__windows"
    manifest.rename(shop.folder / "away")
    assert not shop.follow(instance).success
    (shop.folder / "away").rename(manifest)
    assert "The last run failed; the next starts after" in tick(shop, instance).skip_message
    monkeypatch.setattr(schedule, "FIRST_PAUSE", timedelta())
    request = tick(shop, instance)
    assert (request.job_name, request.tags[HINDERED_TAG]) == ("shop_follow", THE_RUN)
    assert shop.follow(instance).success
    assert tick(shop, instance).skip_message == "Nothing new."


def test_what_hindered_a_run_that_was_killed_is_a_reason_to_start_though_nothing_is_new(
    shop: Shop, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tick(shop, instance).skip_message == "Nothing new."
    denied = PreflightError("db:1433 denied access: SELECT on dbo_orders_CT. Next: grant it")
    hindrances = RecordedHindrances(Location.of(shop.config().lake), "shop")
    hindrances.write("stream", {"Database a": denied}, datetime.now(UTC))
    assert "Database a could not continue; the next attempt starts after" in tick(shop, instance).skip_message
    monkeypatch.setattr(schedule, "FIRST_PAUSE", timedelta())
    request = tick(shop, instance)
    assert (request.job_name, request.tags[HINDERED_TAG]) == ("shop_follow", "Database a")
    assert shop.follow(instance).success
    assert tick(shop, instance).skip_message == "Nothing new."


@pytest.mark.long
def test_reading_without_an_end_is_a_reason_to_start_while_nothing_is_committed(
    shop: Shop, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run of the snapshot did not wait for the capture job any longer, and mirrors publish nothing before that end."""
    shop.write({"mirror.enabled": "true"})
    monkeypatch.setattr(schedule, "FIRST_PAUSE", timedelta(minutes=10))  # the machine may be slow
    with monkeypatch.context() as patched:
        patched.setattr(OpenReadings, "find_end", lambda *_: None)
        assert shop.snapshot(instance, due_only=False).success
        assert shop.changes(instance).success
    mirrors = tick(shop, instance)
    assert mirrors.job_name == "shop_mirror"
    assert shop.run("shop_mirror", instance, tags=dict(mirrors.tags)).success, "it can make none of them"
    assert "has not passed the end of a snapshot" in tick(shop, instance).skip_message
    monkeypatch.setattr(schedule, "FIRST_PAUSE", timedelta())
    request = tick(shop, instance)
    assert (request.job_name, request.tags[READINGS_TAG]) == ("shop_follow", sample.DATABASE)
    assert shop.changes(instance).success
    assert tick(shop, instance).skip_message == "Nothing new."
    manifest = Manifest(TopicTables(Location.of(shop.config().lake), shop.config().name), "shop")
    assert not open_databases(manifest.read().readings)
    shop.write({})


def test_pause_before_failed_tables_are_tried_again_doubles() -> None:
    now = datetime.now(UTC)
    tried = record(DagsterRunStatus.SUCCESS, ended=now.timestamp())
    tried.dagster_run.tags[RETRY_TAG] = "a"
    other = record(DagsterRunStatus.SUCCESS, ended=now.timestamp())
    for records, pause in [([other], FIRST_PAUSE), ([tried, tried, other, tried], 4 * FIRST_PAUSE)]:
        assert growing_retry_time(records, RETRY_TAG, "a") == datetime.fromtimestamp(now.timestamp(), UTC) + pause
    assert (
        growing_retry_time([tried] * 10, RETRY_TAG, "a") == datetime.fromtimestamp(now.timestamp(), UTC) + LONGEST_PAUSE
    )
    assert growing_retry_time([], RETRY_TAG, "a") is None


def test_new_table_that_no_run_can_add_starts_fewer_and_fewer_runs() -> None:
    """A right is missing, and the code location is not loaded again, so that it is no table that waits for its snapshot."""
    nothing = dict.fromkeys(("pending_signals", "failed", "readings_without_end", "unheeded"), list)
    work = SimpleNamespace(
        waiting=lambda *_, **__: [],
        unread_databases=dict,
        signalled=lambda _: [],
        new_tables=lambda: ["SalesDb.dbo.late"],
        **nothing,
    )
    overview = SimpleNamespace(work=work, streams=True, hindrances={})
    resource: Any = SimpleNamespace(overview=lambda **_: nullcontext(overview))
    catalog: Any = SimpleNamespace(names=Names("shop"), keys=lambda _: {})
    tried = record(DagsterRunStatus.SUCCESS, ended=time.time() - 90)
    tried.dagster_run.tags[NEW_TABLES_TAG] = "SalesDb.dbo.late"

    def asked(*records: Any) -> Any:
        return sensors._request(catalog, resource, records, None, Seldom(0.0), "")

    assert asked(tried).tags == {NEW_TABLES_TAG: "SalesDb.dbo.late"}
    assert "SalesDb.dbo.late could not be added; the next attempt starts after" in asked(*[tried] * 5).skip_message
    other = record(DagsterRunStatus.SUCCESS, ended=time.time() - 60)
    assert asked(other).tags == {NEW_TABLES_TAG: "SalesDb.dbo.late"}
    assert "the next attempt starts after" in asked(*[other, tried] * 5).skip_message, "whatever else is read meanwhile"


def test_server_away_is_a_reason_not_a_failure(shop: Shop, instance: dg.DagsterInstance) -> None:
    shop.write({"database.port": "1", "connection.validation.timeout.ms": "1000"})
    try:
        assert "ConnectionLostError" in tick(shop, instance).skip_message
    finally:
        shop.write({})


# ---- after failures --------------------------------------------------------------------------------------------


def record(
    status: DagsterRunStatus, reason: str | None = None, ended: float | None = None, started: float | None = None
) -> Any:
    """As much of a run record as the rules read."""
    run = SimpleNamespace(status=status, tags={"dagster/failure_reason": reason} if reason else {}, run_id="0" * 36)
    return SimpleNamespace(dagster_run=run, start_time=started, end_time=ended)


FAILED = record(DagsterRunStatus.FAILURE, "STEP_FAILURE", 1000.0)
KILLED = record(DagsterRunStatus.FAILURE, None, 1000.0)
WITHOUT_RESOURCE = record(DagsterRunStatus.FAILURE, "RUN_EXCEPTION", 1000.0)
GOOD = record(DagsterRunStatus.SUCCESS)
COMMITTED = record(DagsterRunStatus.FAILURE, "STEP_FAILURE", 1000.0)
COMMITTED.dagster_run.tags[COMMITTED_TAG] = "3"


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([], 0),
        ([GOOD, FAILED], 0),
        ([FAILED], 1),
        ([WITHOUT_RESOURCE, FAILED], 2),
        ([FAILED, FAILED, GOOD, FAILED], 2),
        ([KILLED, KILLED], 0),
        ([COMMITTED], 0),
        ([FAILED, COMMITTED, FAILED], 1),
    ],
)
def test_failures_count_back_to_the_last_good_run(records: list[Any], expected: int) -> None:
    assert failures_in_a_row(records) == expected


def test_a_snapshot_run_that_found_nothing_to_read_counts_for_snapshots() -> None:
    empty = record(DagsterRunStatus.SUCCESS, ended=1000.0)
    empty.dagster_run.tags[COMMITTED_TAG] = "0"
    assert failures_in_a_row([empty, empty, FAILED, GOOD, empty], of_any_kind=True) == 3
    assert failures_in_a_row([empty, FAILED]) == 0


def test_streaming_waits_after_a_snapshot() -> None:
    now = datetime.now(UTC).timestamp()
    ended = record(DagsterRunStatus.SUCCESS, ended=now)
    ended.dagster_run.job_name = "shop_snapshot"
    starts = streaming_starts([ended, GOOD], "shop_snapshot", 60.0)
    assert starts == datetime.fromtimestamp(now + 60.0, UTC)
    assert streaming_starts([ended], "shop_snapshot", 0.0) is None
    assert streaming_starts([ended], "shop_changes", 60.0) is None
    ended.end_time = now - 61
    assert streaming_starts([ended], "shop_snapshot", 60.0) is None


def test_pause_doubles_up_to_its_limit_and_a_killed_run_needs_none() -> None:
    ended = datetime.fromtimestamp(datetime.now(UTC).timestamp(), UTC)
    failed = record(DagsterRunStatus.FAILURE, "STEP_FAILURE", ended.timestamp())
    assert pause_ends([failed]) == ended + FIRST_PAUSE
    assert pause_ends([failed] * 3) == ended + 4 * FIRST_PAUSE
    assert pause_ends([failed] * 10) == ended + LONGEST_PAUSE
    assert pause_ends([FAILED]) is None, "it is over"
    assert pause_ends([record(DagsterRunStatus.FAILURE, None, ended.timestamp())]) is None
    assert timedelta(seconds=1) < FIRST_PAUSE < LONGEST_PAUSE


def test_runs_that_are_killed_again_and_again_after_long_work_need_no_pause() -> None:
    """Such as by each deployment; the changes of the meantime would wait for up to a quarter of an hour."""
    ended = datetime.fromtimestamp(datetime.now(UTC).timestamp(), UTC)
    killed = {
        lasted: record(DagsterRunStatus.FAILURE, None, ended.timestamp(), ended.timestamp() - lasted)
        for lasted in (0, 20, 7200)
    }
    assert pause_ends([killed[0]] * 4) == ended + 2 * FIRST_PAUSE
    assert pause_ends([killed[20]] + [killed[0]] * 3) == ended + 2 * FIRST_PAUSE - timedelta(seconds=20)
    assert pause_ends([killed[7200]] * 10) is None
    assert pause_ends([killed[0]] * 10) == ended + timedelta(minutes=1), "they may have committed much"


def test_nothing_is_paused_for_a_day_if_the_clock_is_set_back_by_one() -> None:
    tomorrow = datetime.now(UTC).timestamp() + 86400
    failed = record(DagsterRunStatus.FAILURE, ended=tomorrow, reason="STEP_FAILURE")
    assert pause_ends([failed]) is None
    assert terminated_until([record(DagsterRunStatus.CANCELED, ended=tomorrow)]) is None
    read = record(DagsterRunStatus.SUCCESS, ended=tomorrow)
    read.dagster_run.job_name = "shop_snapshot"
    read.dagster_run.tags["cdc/what"] = "new"
    assert streaming_starts([read], "shop_snapshot", 60.0) is None
    assert retry_time([read], "cdc/what", "new") is None
    read.end_time = datetime.now(UTC).timestamp() + 1
    assert retry_time([read], "cdc/what", "new") is not None, "another machine's clock is a little ahead"


@pytest.mark.long
def test_capture_without_a_table_is_an_empty_location_until_one_is_enabled(
    tmp_path_factory: pytest.TempPathFactory, spark_resource: SparkResource
) -> None:
    with StandIn(databases=("SalesDb",)) as server, dg.DagsterInstance.ephemeral() as instance:
        early = Shop(server, tmp_path_factory.mktemp("early"))
        graph = early.definitions().resolve_asset_graph()
        about = graph.get(dg.AssetKey(["shop", "windows"])).description
        assert "No table is captured yet" in about
        assert "sp_cdc_enable_table" in about
        assert "Nothing new" in tick(early, instance).skip_message

        early.execute("CREATE TABLE dbo.orders (id int NOT NULL PRIMARY KEY)")
        early.execute("INSERT INTO dbo.orders VALUES (1)")
        with patch("cdc_assets.defs.sqlserver.SqlServerCdcResource.tables", lambda _: []):
            assert "Nothing new" in tick(early, instance).skip_message, "it is not enabled"
        early.execute(
            "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'orders', @role_name = NULL"
        )
        with patch(
            "cdc_assets.defs.sqlserver.SqlServerCdcResource.tables", lambda _: []
        ):  # the location is not loaded again
            request = tick(early, instance)
            assert (request.job_name, request.tags[NEW_TABLES_TAG]) == ("shop_follow", "SalesDb.dbo.orders")
            assert early.changes(instance, tags=request.tags).success
            assert "Nothing new" in tick(early, instance).skip_message
        assert [event["value"]["op"] for event in early.events("orders")] == ["r"]
        assert early.definitions().resolve_asset_graph().has(key("orders", "changes"))


@pytest.mark.long
def test_table_that_is_enabled_later_is_taken_in_though_nothing_changes(
    tmp_path_factory: pytest.TempPathFactory, spark_resource: SparkResource
) -> None:
    """The code location lists other tables, and is not loaded again; until it is enabled the table changes no health."""
    with open_shop(tmp_path_factory.mktemp("later")) as later, dg.DagsterInstance.ephemeral() as instance:
        assert later.snapshot(instance).success
        listed = later.definitions()

        def look() -> CaptureReport:
            with quick_source(later.config()) as source:
                return report_of(CaptureOverview(later.config(), source), datetime.now(UTC))

        with patch.object(later, "definitions", lambda: listed), later.in_environment():
            later.execute("CREATE TABLE dbo.late (id int NOT NULL PRIMARY KEY)")
            later.execute("INSERT INTO dbo.late VALUES (1)")
            report = look()
            assert (report.headline, report.counts()["not captured"]) == ("healthy", 1)
            assert any("dbo.late is not captured" in line and "sp_cdc_enable_table" in line for line in report.advice)
            later.execute(
                "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'late', @role_name = NULL"
            )
            assert (look().health, "dbo.late is waiting: the active run, or the next one" in look().headline) == (
                "working",
                True,
            )
            request = tick(later, instance)
            assert (request.job_name, request.tags[NEW_TABLES_TAG]) == ("shop_follow", "SalesDb.dbo.late")
            assert later.run(request.job_name, instance, tags=request.tags).success
            assert [event["value"]["op"] for event in later.events("late")] == ["r"]
            assert look().healthy
            assert tick(later, instance).skip_message == "Nothing new."
