"""The check `health` fails for whatever the page tells that no other check does, and in the same words."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from typer.testing import CliRunner

from cdc_assets.cli.main import app
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.defs import queue
from cdc_assets.defs.build import build_definitions
from cdc_assets.defs.checks.events import event_of
from cdc_assets.defs.checks.shown import verdict_of
from cdc_assets.defs.page import differs
from cdc_assets.defs.run_troubles import troubles_of_runs
from cdc_assets.defs.runs import CaptureRuns
from cdc_assets.errors import PreflightError
from cdc_assets.lake.location import Location
from cdc_assets.ledger.hindrances import RecordedHindrances
from cdc_assets.overview import CaptureReport
from cdc_assets.overview.checks.health import HEALTH, health_result
from cdc_assets.overview.report import DatabaseReport, Lag, TableReport, Trouble
from cdc_assets_tests.shop import Shop

ORDERS = TableId("SalesDb", "dbo", "orders")
WINDOWS = dg.AssetKey(["shop", "windows"])
NOW = datetime(2026, 1, 1, tzinfo=UTC)
STREAMING = TableReport(ORDERS, "shop.SalesDb.dbo.orders", "streaming")


def checked(shop: Shop, instance: dg.DagsterInstance) -> dict[str, dg.AssetCheckEvaluation]:
    """Results of the checks of the whole capture, as the half-hourly job finds them."""
    found = shop.run("shop_headroom", instance).get_asset_check_evaluations()
    return {check.check_name: check for check in found if check.asset_key == WINDOWS}


def failing(found: dict[str, dg.AssetCheckEvaluation]) -> list[str]:
    """Names of those that do not pass."""
    return sorted(name for name, check in found.items() if not check.passed)


@pytest.mark.long
def test_what_a_run_was_refused_fails_it(shop: Shop, instance: dg.DagsterInstance) -> None:
    assert shop.snapshot(instance).success
    assert failing(checked(shop, instance)) == []
    denied = PreflightError("db:1433 denied access: SELECT on dbo_orders_CT. Next: grant it")
    hindrances = RecordedHindrances(Location.of(shop.config().lake), "shop")
    hindrances.write("stream", {"SalesDb": denied}, NOW)
    found = checked(shop, instance)
    assert failing(found) == [HEALTH.name]
    assert "denied access: SELECT on dbo_orders_CT. Next: grant it" in (found[HEALTH.name].description or "")
    assert found[HEALTH.name].severity is dg.AssetCheckSeverity.ERROR
    hindrances.write("stream", {}, NOW)
    assert failing(checked(shop, instance)) == []


@pytest.mark.long
def test_what_the_sensor_knows_of_runs_fails_it(
    shop: Shop, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the job would say every half hour that all is well, and the sensor that it is not."""
    assert shop.snapshot(instance).success
    monkeypatch.setattr(queue, "_SOON_S", -1.0)
    made = shop.definitions().resolve_job_def("shop_changes")
    origin = RemoteJobOrigin(
        RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("cdc_assets"), "__repository__"), "shop_changes"
    )
    waiting = instance.create_run_for_job(made, status=dg.DagsterRunStatus.QUEUED, remote_job_origin=origin)
    found = checked(shop, instance)
    assert failing(found) == [HEALTH.name]
    assert f"run {waiting.run_id[:8]} of shop_changes has waited" in (found[HEALTH.name].description or "")
    instance.delete_run(waiting.run_id)
    assert failing(checked(shop, instance)) == []


@pytest.mark.long
def test_why_the_last_run_failed_is_told(shop: Shop, instance: dg.DagsterInstance) -> None:
    """Else whoever reads the page learns that something is wrong, and not what."""
    assert shop.snapshot(instance).success
    manifest = shop.folder / "lake" / "shop.__windows"
    manifest.rename(shop.folder / "away")
    assert not shop.follow(instance).success
    (shop.folder / "away").rename(manifest)
    runs = CaptureRuns(frozenset({"shop_follow"}), frozenset())
    (told,) = troubles_of_runs(instance, runs, is_reported=False)
    assert told.where == "the last run"
    assert re.search(r"failed: The manifest .*__windows is gone or empty.*Next: restore", told.what)
    assert shop.follow(instance).success
    assert not [*troubles_of_runs(instance, runs, is_reported=False)]


def troubles_after(job: dg.JobDefinition) -> list[Trouble]:
    """What is reported of runs after one that fails, in an instance of its own."""
    with dg.DagsterInstance.ephemeral() as instance:
        assert not job.execute_in_process(instance=instance, raise_on_error=False).success
        return [*troubles_of_runs(instance, CaptureRuns(frozenset({job.name}), frozenset()), is_reported=False)]


def test_why_the_last_run_failed_is_told_in_the_words_of_another_library() -> None:
    """And not in Dagster's, that it was tried often enough."""

    @dg.op
    def read(context: dg.OpExecutionContext) -> None:
        try:
            raise OSError("No space left on device")
        except OSError as error:
            raise dg.RetryRequested(0) from error

    @dg.job(name="shop_follow")
    def follow() -> None:
        read()

    (told,) = troubles_after(follow)
    assert re.search("failed: OSError: No space left on device. Next: follow the error of that run$", told.what)


def test_why_the_last_run_could_not_begin_is_told() -> None:
    """Its process has not ended by itself."""

    @dg.resource
    def spark() -> None:
        raise ValueError("no jars")

    @dg.op(required_resource_keys={"spark"})
    def read() -> None: ...

    @dg.job(name="shop_follow", resource_defs={"spark": spark})
    def follow() -> None:
        read()

    (told,) = troubles_after(follow)
    assert re.search("failed: ValueError: no jars. Next: follow the error of that run$", told.what)


@pytest.mark.long
def test_mirrors_that_nobody_ever_made_fail_it(shop: Shop, instance: dg.DagsterInstance) -> None:
    assert shop.snapshot(instance).success
    shop.write({"mirror.enabled": "true", "mirror.late.ms": "1"})
    found = checked(shop, instance)
    assert failing(found) == [HEALTH.name]
    assert "none was ever made" in (found[HEALTH.name].description or "")
    doctor = CliRunner().invoke(app, ["doctor", "--json", "-c", str(shop.file)], env=dict(shop.environment))
    (told,) = [check for check in json.loads(doctor.stdout)["checks"] if check["check"] == "following"]
    assert "none was ever made" in told["actual"]
    assert "cdc-assets mirror" in told["remedy"]
    assert not told["ok"]


@pytest.mark.long
def test_mirror_that_cannot_follow_fails_it(shop: Shop, instance: dg.DagsterInstance) -> None:
    shop.write({"mirror.enabled": "true"})
    assert shop.run("shop_mirror", instance).success
    assert failing(checked(shop, instance)) == []
    why = PreflightError("Its file is gone. Next: make it anew")
    RecordedHindrances(Location.of(shop.config().lake), "shop").write("mirrors", {"shop.SalesDb.dbo.orders": why}, NOW)
    found = checked(shop, instance)
    assert failing(found) == [HEALTH.name]
    assert re.search(
        "the mirror of .*orders: it cannot follow its topic: .*Its file is gone", found[HEALTH.name].description or ""
    )


def test_capture_whose_configuration_is_broken_has_it(shop: Shop) -> None:
    other = shop.file.with_name("other.json")
    other.write_text(
        json.dumps(shop.properties | {"name": "other", "topic.prefix": "other", "poll.interval.ms": "soon"})
    )
    with shop.in_environment():
        definitions = build_definitions(shop.file, other)
    key = dg.AssetCheckKey(dg.AssetKey(["other", "windows"]), HEALTH.name)
    assert key in definitions.resolve_asset_graph().asset_check_keys


def test_it_passes_while_a_snapshot_is_read_and_not_while_changes_are_late() -> None:
    read = CaptureReport("shop", NOW, tables=(replace(STREAMING, condition="snapshotting"),))
    assert (read.health, health_result(read).passed) == ("working", True)
    late = Lag(0.0, 61.0, 0.0)
    database = DatabaseReport("SalesDb", Lsn.parse("00000001:00000001:0001"), NOW, NOW, None, late)
    result = health_result(CaptureReport("shop", NOW, databases=(database,), tables=(STREAMING,)))
    assert (result.passed, result.is_error) == (False, False)
    assert result.text == "SalesDb is 61 s behind what the server has captured"


def test_nothing_that_is_captured_is_not_known() -> None:
    result = health_result(CaptureReport("shop", NOW))
    assert (result.passed, result.text) == (False, "nothing is captured yet")


def test_table_that_has_stopped_is_named_where_no_trouble_is() -> None:
    stopped = replace(STREAMING, condition="failed", reason="It is tried again by itself")
    result = health_result(CaptureReport("shop", NOW, tables=(stopped,)))
    assert (result.passed, result.is_error) == (False, True)
    assert result.text == "SalesDb.dbo.orders: It is tried again by itself"


def test_numbers_that_change_all_the_time_are_no_other_result() -> None:
    """Each result is a record in Dagster's storage, which is never pruned."""

    def told(seconds: int) -> dg.AssetCheckEvaluation:
        troubles = tuple(Trouble("SalesDb", f"nothing came for {seconds} s") for _ in range(30))
        report = CaptureReport("shop", NOW + timedelta(seconds=seconds), troubles, tables=(STREAMING,))
        return event_of(HEALTH, health_result(report), WINDOWS)

    assert verdict_of(told(5)) == verdict_of(told(60))
    assert (told(5).description or "").endswith("And 10 more.")


def test_tables_whose_names_differ_by_digits_alone_are_told_apart() -> None:
    """Only numbers that change all the time make no news: else a trouble of one table would hide that of another."""

    def report(table: str, what: str) -> CaptureReport:
        return CaptureReport("shop", NOW, troubles=(Trouble("SalesDb", f"dbo.{table}: {what}"),))

    def verdict(found: CaptureReport) -> tuple[bool, str | None]:
        return verdict_of(event_of(HEALTH, health_result(found), WINDOWS))

    first, second = report("orders_2023", "late by 61 s"), report("orders_2024", "late by 61 s")
    assert differs(first, second)
    assert verdict(first) != verdict(second)
    older = report("orders_2023", "late by 75 s")
    assert not differs(first, older)
    assert verdict(first) == verdict(older)
