"""Somebody looks, always: whatever Dagster's runs are doing, and whatever hinders the sensor, the page says what is wrong."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from time import monotonic, time
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import dagster as dg
import pytest
from dagster import DagsterRunStatus
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationPlanned
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin

from cdc_assets.core import asking
from cdc_assets.core.processes import own_process
from cdc_assets.defs import queue, run_troubles, seen, server_view, ticks, watch
from cdc_assets.defs.captures import CaptureResource
from cdc_assets.defs.checks.shown import recorded_verdict
from cdc_assets.defs.process import process_tag
from cdc_assets.defs.runs import ACTIVE, CaptureRuns
from cdc_assets.defs.seen import note_seen, was_just_seen
from cdc_assets.defs.spark import SparkResource
from cdc_assets.defs.sqlserver import SqlServerCdcResource
from cdc_assets.errors import LakeError, LoginError
from cdc_assets.overview import report
from cdc_assets_tests.shop import Shop, key
from mssql_standin import sample

WINDOWS = dg.AssetKey(["shop", "windows"])
_ORIGIN = RemoteJobOrigin(
    RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("cdc_assets"), "__repository__"), "shop_changes"
)
"""Dagster asks it of runs in the queue."""


@pytest.fixture(autouse=True)
def at_each_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look is always due."""
    monkeypatch.setattr(watch, "_IDLE_EVERY_S", 0.0)
    monkeypatch.setattr(watch, "_SHARE", 0.0)


@pytest.fixture(scope="module", autouse=True)
def snapshotted(shop: Shop, instance: dg.DagsterInstance) -> None:
    """The shop is healthy."""
    assert shop.snapshot(instance).success
    assert shop.changes(instance).success


class Ticks:
    """The ticks of one code location; what they tell is recorded as the daemon does it."""

    def __init__(self, shop: Shop, instance: dg.DagsterInstance) -> None:
        self._shop, self._instance = shop, instance
        self.definitions = shop.definitions()
        (self._sensor,) = self.definitions.get_repository_def().sensor_defs

    def tick(self) -> Any:
        """One tick."""
        server = SqlServerCdcResource(config_file=str(self._shop.file))
        context = dg.build_sensor_context(
            instance=self._instance,
            resources={"cdc_shop": CaptureResource(server=server, spark=SparkResource())},
            repository_def=self.definitions.get_repository_def(),
        )
        with self._shop.in_environment(), context:
            data = self._sensor.evaluate_tick(context)
        for event in data.asset_events:
            self._instance.report_runless_asset_event(event)
        return data

    def page(self) -> str:
        """What the page says after a tick."""
        self.tick()
        return shown(self._instance)

    @contextmanager
    def run(self, status: DagsterRunStatus, name: str = "shop_changes") -> Iterator[str]:
        """A run of the capture that does nothing."""
        job = self.definitions.resolve_job_def(name)
        run = self._instance.create_run_for_job(job, status=status, remote_job_origin=_ORIGIN)
        self._instance.add_run_tags(run.run_id, process_tag(run.run_id, own_process()))
        try:
            yield run.run_id
        finally:
            self._instance.delete_run(run.run_id)


@pytest.fixture
def location(shop: Shop, instance: dg.DagsterInstance) -> Ticks:
    """A code location that was just loaded."""
    return Ticks(shop, instance)


def shown(instance: dg.DagsterInstance) -> str:
    """The health on the page that Dagster shows."""
    event = instance.get_latest_materialization_event(WINDOWS)
    assert event is not None
    assert event.asset_materialization is not None
    return str(event.asset_materialization.metadata["health"].value)


def record_of(instance: dg.DagsterInstance, check: dg.AssetCheckKey) -> Any:
    """The newest record of a check."""
    return instance.event_log_storage.get_latest_asset_check_execution_by_key([check])[check]


def is_green(instance: dg.DagsterInstance, check: str, asset: dg.AssetKey = WINDOWS) -> bool:
    """Whether the newest result of a check has passed."""
    record = record_of(instance, dg.AssetCheckKey(asset, check))
    assert record.evaluation is not None
    return bool(record.evaluation.passed)


@pytest.mark.long
def test_ticks_take_turns_among_the_topics(location: Ticks, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one has compared with its mark, the next one leaves to a later one; what lacks something is not forgotten."""
    given: list[Any] = []
    inside = server_view.inspect_server

    def noted(*settings: Any, turns: Any, **more: Any) -> Any:
        given.append(turns)
        return inside(*settings, turns=turns, **more)

    monkeypatch.setattr(server_view, "inspect_server", noted)
    for _ in range(2):
        location.tick()
    first, second = given
    assert first is second


@pytest.mark.long
@pytest.mark.parametrize("status", ACTIVE)
def test_sensor_looks_beside_a_run_that_does_not(
    shop: Shop, instance: dg.DagsterInstance, location: Ticks, status: DagsterRunStatus
) -> None:
    with location.run(status), patch.object(seen, "FRESH_S", -1.0):
        assert location.page() == "healthy"
        shop.server.agent.stop()
        try:
            assert "SQL Server Agent is stopped" in location.page()
            assert not is_green(instance, "capture_job")
        finally:
            shop.server.agent.start()
        assert location.page() == "healthy"
        assert is_green(instance, "capture_job")


@pytest.mark.long
def test_sensor_leaves_the_page_to_a_run_that_has_just_told_it(
    shop: Shop, instance: dg.DagsterInstance, location: Ticks
) -> None:
    with location.run(DagsterRunStatus.STARTED):
        shop.server.agent.stop()
        try:
            note_seen(instance, WINDOWS)
            assert was_just_seen(instance, WINDOWS)
            assert location.tick().asset_events == []
            for set_by in (-3600.0, 3600.0):
                with patch("time.time", return_value=datetime.now(UTC).timestamp() + set_by):
                    assert not was_just_seen(instance, WINDOWS), "a clock was set"
            with patch.object(seen, "FRESH_S", -1.0):
                assert "SQL Server Agent is stopped" in location.page()
        finally:
            shop.server.agent.start()
    assert location.page() == "healthy"


@pytest.mark.long
def test_half_hourly_checks_are_left_out_only_if_a_run_looks(
    shop: Shop, instance: dg.DagsterInstance, location: Ticks
) -> None:
    (schedule,) = location.definitions.get_repository_def().schedule_defs
    server = SqlServerCdcResource(config_file=str(shop.file))
    resources = {"cdc_shop": CaptureResource(server=server, spark=SparkResource())}

    def asked() -> int:
        with (
            shop.in_environment(),
            patch.object(dg.ScheduleEvaluationContext, "instance", instance),
            dg.build_schedule_context(resources=resources, scheduled_execution_time=datetime.now(UTC)) as context,
        ):
            return len(schedule.evaluate_tick(context).run_requests or [])

    with location.run(DagsterRunStatus.STARTED):
        note_seen(instance, WINDOWS)
        assert asked() == 0
        with patch.object(seen, "FRESH_S", -1.0):
            assert asked() == 1


@pytest.mark.long
def test_run_that_waits_for_long_is_a_trouble_that_says_for_what(
    instance: dg.DagsterInstance, location: Ticks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seen, "FRESH_S", -1.0)
    with location.run(DagsterRunStatus.QUEUED) as waiting:
        assert location.page() == "healthy", "it waits for a moment"
        monkeypatch.setattr(queue, "_SOON_S", -1.0)
        assert f"run {waiting[:8]} of shop_changes has waited" in location.page()
        assert "Dagster's daemon has not taken it" in location.page()
        monkeypatch.setattr(queue, "max_runs", lambda _: 0)
        assert "max_concurrent_runs" in location.page()
        with location.run(DagsterRunStatus.STARTED) as holder:
            assert f"{holder[:8]} of shop_changes holds the pool" in location.page()
    with location.run(DagsterRunStatus.NOT_STARTED):
        assert "Dagster has not started it" in location.page()
    assert location.page() == "healthy"


@pytest.mark.long
@pytest.mark.parametrize("status", [DagsterRunStatus.STARTING, DagsterRunStatus.STARTED])
def test_run_that_reports_nothing_is_named_while_there_is_something_to_do(
    shop: Shop, instance: dg.DagsterInstance, location: Ticks, monkeypatch: pytest.MonkeyPatch, status: DagsterRunStatus
) -> None:
    """Its process hangs, or its launcher has lost it; the sensor waits for it."""
    monkeypatch.setattr(seen, "FRESH_S", -1.0)
    monkeypatch.setattr(report, "LATE_S", -1.0)
    with location.run(status) as silent:
        assert location.page().startswith("working"), "it may be about to report"
        for module in (run_troubles, seen):
            monkeypatch.setattr(module, "SILENT_S", -1.0)
        expected = f"in trouble: the run at work: {silent[:8]} of shop_changes has been {status.value} since"
        assert location.page().startswith(expected)
        found = {check.check_name: check for check in shop.run("shop_headroom", instance).get_asset_check_evaluations()}
        assert f"{silent[:8]} of shop_changes" in (found["health"].description or "")
        monkeypatch.setattr(report, "LATE_S", 60.0)
        assert location.page() == "healthy", "nobody waits for it"
    monkeypatch.setattr(report, "LATE_S", -1.0)
    assert location.page().startswith("working"), "it has ended"


@pytest.mark.long
def test_run_that_waits_while_the_clock_is_set_back_is_told(location: Ticks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen, "FRESH_S", -1.0)
    with location.run(DagsterRunStatus.QUEUED) as waiting:
        monkeypatch.setattr(queue, "time", SimpleNamespace(time=lambda: time() - 3600))
        assert f"run {waiting[:8]} of shop_changes has waited since before the clock was set back" in location.page()


@pytest.mark.long
def test_run_that_waits_behind_a_stream_is_told_by_the_stream(
    shop: Shop, instance: dg.DagsterInstance, location: Ticks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It makes no way for it where no more runs may be at work anyway, and the sensor leaves the page to it."""
    monkeypatch.setattr(queue, "_SOON_S", -1.0)
    monkeypatch.setattr(queue, "max_runs", lambda _: 0)
    monkeypatch.setattr(watch, "_FIRST_S", 0.0)
    monkeypatch.setattr(watch, "_RUN_EVERY_S", 0.1)
    shop.write({"stream.idle.timeout.ms": "3000"})
    try:
        with location.run(DagsterRunStatus.QUEUED) as waiting:
            result = shop.follow(instance)
            assert result.success
    finally:
        shop.write({})
    records = instance.fetch_materializations(WINDOWS, limit=20).records
    pages = [found.asset_materialization for found in records if found.run_id == result.run_id]
    told = [str(page.metadata["health"].value) for page in pages if page is not None]
    trouble = f"in trouble: Dagster's queue: run {waiting[:8]} of shop_changes has waited"
    assert told
    assert all(text.startswith(trouble) for text in told), told
    assert location.page() == "healthy"


def test_stream_makes_way_only_if_there_is_room_for_another_run(
    instance: dg.DagsterInstance, location: Ticks, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = CaptureRuns(frozenset({"shop_changes"}), frozenset())
    monkeypatch.setattr(queue, "_CHECK_EVERY_S", 0.0)
    waits = queue.somebody_waits(runs, instance, "its own")
    with location.run(DagsterRunStatus.STARTED):
        assert not waits()
        with location.run(DagsterRunStatus.QUEUED):
            assert waits()
            assert not queue.somebody_waits(runs.of("__repository__@elsewhere"), instance, "its own")()
            monkeypatch.setattr(queue, "max_runs", lambda _: 1)
            assert not waits()


def test_stream_leaves_its_place_to_the_oldest_run_that_waits(
    instance: dg.DagsterInstance, location: Ticks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where as many runs are active as may be: else who asks for a snapshot waits until the stream has ended by itself, in half a day."""
    monkeypatch.setattr(queue, "_CHECK_EVERY_S", 0.0)
    monkeypatch.setattr(queue, "max_runs", lambda _: 1)
    snapshots, changes = (CaptureRuns(frozenset({job}), frozenset()) for job in ("shop_snapshot", "shop_changes"))
    with location.run(DagsterRunStatus.STARTED) as own:
        waits = [queue.somebody_waits(runs, instance, own) for runs in (snapshots, changes)]
        assert [found() for found in waits] == [False, False]
        with location.run(DagsterRunStatus.QUEUED, "shop_snapshot"), location.run(DagsterRunStatus.QUEUED):
            assert [found() for found in waits] == [True, False]
            monkeypatch.setattr(queue, "max_runs", lambda _: 2)
            assert [found() for found in waits] == [True, True]


@pytest.mark.parametrize("limit", ["pool", {}, {"value": "a"}, {"value": {"applyLimitPerUniqueValue": True}}])
def test_stream_makes_way_for_nobody_who_waits_for_something_else(limit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(name: str, *pools: str, team: str = "a") -> Any:
        own = SimpleNamespace(all_pools=set(pools) if limit == "pool" else set())
        return SimpleNamespace(run_id=name, run_op_concurrency=own, tags={} if limit == "pool" else {"team": team})

    monkeypatch.setattr(queue, "_CHECK_EVERY_S", 0.0)
    waiting, other = run("waiting", "cdc_shop", "licences"), run("other", "licences")
    working = [run("own", "cdc_shop"), other]
    limits = [SimpleNamespace(name=name, limit=1) for name in ("cdc_shop", "licences")]
    of_tags = [] if limit == "pool" else [{"key": "team", "limit": 1, **limit}, {"key": "none", "limit": 0}]
    config = SimpleNamespace(
        pool_config=SimpleNamespace(pool_granularity=SimpleNamespace(value="run")),
        run_queue_config=SimpleNamespace(max_concurrent_runs=8, tag_concurrency_limits=of_tags),
    )
    instance: Any = SimpleNamespace(
        get_runs=lambda _: working,
        get_concurrency_config=lambda: config,
        event_log_storage=SimpleNamespace(get_pool_limits=lambda: limits),
    )
    runs: Any = SimpleNamespace(waiting=lambda _: [waiting])
    waits = queue.somebody_waits(runs, instance, "own")
    assert not waits(), "nobody would stream, and it would wait on"
    working[1] = run("other", team="b")
    assert waits() is (limit != {})
    working.remove(working[1])
    assert waits()


@pytest.mark.long
def test_error_of_the_tick_is_raised_when_the_page_tells_it(
    shop: Shop, instance: dg.DagsterInstance, location: Ticks
) -> None:
    """The login is refused: everything that asks the server is."""
    refused = patch(
        "cdc_assets.adapters.sqlserver.session.connect",
        side_effect=LoginError("The password has expired. Next: set a new one."),
    )
    assert location.page() == "healthy"
    with refused, pytest.raises(LoginError):
        location.tick()
    assert shown(instance).startswith("in trouble: the sensor: it cannot find out")
    assert not is_green(instance, "capture_job")
    assert location.page() == "healthy"
    assert is_green(instance, "capture_job")


@pytest.mark.parametrize("broken", ["{", '{"connector.class": "a"}'])
def test_settings_that_were_broken_are_told(
    shop: Shop, instance: dg.DagsterInstance, location: Ticks, broken: str
) -> None:
    shop.file.write_text(broken)
    try:
        with pytest.raises(Exception, match=r"shop\.json|connector\.class|not valid"):
            location.tick()
        assert shown(instance).startswith("in trouble: the sensor: it cannot find out")
    finally:
        shop.write({})
    assert location.page() == "healthy"


def test_lake_that_is_gone_is_told(shop: Shop, instance: dg.DagsterInstance, location: Ticks) -> None:
    manifest, away = shop.folder / "lake" / "shop.__windows", shop.folder / "away"
    manifest.rename(away)
    try:
        with pytest.raises(LakeError, match="is gone or empty"):
            location.tick()
        assert shown(instance).startswith("in trouble: the lake: ")
    finally:
        away.rename(manifest)
    assert location.page() == "healthy"


@pytest.mark.long
def test_check_of_a_table_fails_for_what_no_run_has_recorded(
    shop: Shop, instance: dg.DagsterInstance, location: Ticks
) -> None:
    topic, away = shop.folder / "lake" / f"shop.{sample.DATABASE}.dbo.orders", shop.folder / "away"
    changes = key("orders", "changes")
    assert location.page() == "healthy"
    topic.rename(away)
    try:
        assert "orders" in location.page()
        assert not is_green(instance, "lsn_continuity", changes)
    finally:
        away.rename(topic)
    assert location.page() == "healthy"
    assert is_green(instance, "lsn_continuity", changes)


@pytest.mark.long
def test_what_the_half_hourly_job_met_for_a_moment_is_corrected(
    shop: Shop, instance: dg.DagsterInstance, location: Ticks
) -> None:
    """The server is away while the job asks it, and back before the sensor looks; no page has said so."""
    names = ("health", "capture_job", "retention_headroom")
    assert location.page() == "healthy"
    shop.write({"database.port": "1", "connection.validation.timeout.ms": "1000"})
    try:
        result = shop.run("shop_headroom", instance)
    finally:
        shop.write({})
    assert result.success
    found = {check.check_name: check for check in result.get_asset_check_evaluations()}
    assert not any(found[name].passed for name in names)
    assert (found["capture_job"].description or "").startswith("Not known: ")
    assert location.page() == "healthy"
    assert all(is_green(instance, name) for name in names)


def test_check_that_a_killed_job_has_left_open_is_told(
    shop: Shop, instance: dg.DagsterInstance, location: Ticks
) -> None:
    own = dg.AssetCheckKey(WINDOWS, "capture_job")
    assert location.page() == "healthy"
    with location.run(DagsterRunStatus.STARTED, "shop_headroom") as killed:
        planned = AssetCheckEvaluationPlanned(asset_key=own.asset_key, check_name=own.name)
        kind = dg.DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED.value
        instance.report_dagster_event(dg.DagsterEvent(kind, "shop_headroom", event_specific_data=planned), killed)
        location.tick()
        assert recorded_verdict(record_of(instance, own)) is None, "the job is at work"
        run = instance.get_run_by_id(killed)
        assert run is not None
        instance.report_run_failed(run)
        location.tick()
        assert is_green(instance, own.name)


@pytest.mark.long
def test_bug_of_a_tick_does_not_hide_the_page(shop: Shop, instance: dg.DagsterInstance, location: Ticks) -> None:
    with patch.object(ticks.Asking, "ask", side_effect=ZeroDivisionError("a bug")), pytest.raises(ZeroDivisionError):
        location.tick()
    assert "ZeroDivisionError: a bug" in shown(instance)
    assert location.page() == "healthy"


@pytest.mark.long
@pytest.mark.parametrize("value", ['{"version": 2, "address": "/lake"}', "[1, 2, 3]", "no JSON"])
def test_lake_of_which_dagster_has_an_unreadable_value_does_not_hide_the_page(
    shop: Shop, instance: dg.DagsterInstance, location: Ticks, value: str
) -> None:
    """Another version has stored it: every tick failed before there was a page, also in a process that knows the lake."""
    name, known = f"cdc_assets/lake/{WINDOWS.to_user_string()}", "cdc_assets.defs.known_lake.known_record"
    assert location.page() == "healthy"
    instance.run_storage.set_cursor_values({name: value})
    with patch(known, return_value=None), pytest.raises(LakeError, match="expected the address of the record"):
        location.tick()
    assert shown(instance).startswith("in trouble: the sensor: it cannot find out")
    assert location.page() == "healthy"
    assert instance.run_storage.get_cursor_values({name})[name] != value, "replaced"


@pytest.mark.long
def test_tick_ends_though_nothing_answers(
    shop: Shop, instance: dg.DagsterInstance, location: Ticks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every question hangs; the next ticks ask nothing anew, and their answer is the first one's."""
    goes_on, asked, connect = threading.Event(), [], SqlServerCdcResource.quick_source

    def hang(*given: Any, **named: Any) -> Any:
        asked.append(given)
        assert goes_on.wait(60)
        return connect(*given, **named)

    assert location.page() == "healthy"
    limits = [(ticks, "_SOON_S"), (ticks, "_RETRY_AFTER_S"), (asking, "_OVERDUE_S"), (watch, "_GRACE_S")]
    for module, name in limits:
        monkeypatch.setattr(module, name, 0.1)
    monkeypatch.setattr(ticks, "_GRACE_S", 8.0)
    with (
        shop.in_environment(),
        patch.object(SqlServerCdcResource, "quick_source", hang),
    ):  # questions outlast their ticks
        began = monotonic()
        assert "no answer from the server" in location.tick().skip_message
        assert not is_green(instance, "capture_job"), "the look beside the tick is late, too"
        assert "no answer from the server" in location.tick().skip_message
        assert monotonic() - began < 30
        assert shown(instance).startswith("in trouble: the sensor: it cannot find out")
        assert len(asked) == 2, "the tick and the look"
        goes_on.set()
        monkeypatch.setattr(ticks, "_RETRY_AFTER_S", 60.0)
        monkeypatch.setattr(watch, "_GRACE_S", 60.0)
        assert location.tick().skip_message == "Nothing new."
    assert location.page() == "healthy"
