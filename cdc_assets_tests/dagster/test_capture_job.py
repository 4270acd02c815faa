"""A server whose capture job stands still must not look healthy."""

import dagster as dg
import pytest

from cdc_assets.defs import watch
from cdc_assets.defs.captures import CaptureResource
from cdc_assets.defs.spark import SparkResource
from cdc_assets.defs.sqlserver import SqlServerCdcResource
from cdc_assets.overview.checks.sqlserver import CAPTURE_JOB, capture_job_result
from cdc_assets_tests.shop import Shop

WINDOWS = dg.AssetKey(["shop", "windows"])


@pytest.mark.long
def test_sensor_tells_when_the_agent_stops_and_when_it_runs_again(
    shop: Shop, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_IDLE_EVERY_S", 0.0)
    monkeypatch.setattr(watch, "_SHARE", 0.0)
    assert shop.snapshot(instance).success
    definitions = shop.definitions()
    (sensor,) = definitions.get_repository_def().sensor_defs
    resources = {
        "cdc_shop": CaptureResource(server=SqlServerCdcResource(config_file=str(shop.file)), spark=SparkResource())
    }

    def told() -> list[bool]:
        context = dg.build_sensor_context(
            instance=instance, resources=resources, repository_def=definitions.get_repository_def()
        )
        with shop.in_environment(), context:
            data = sensor.evaluate_tick(context)
        for event in data.asset_events:  # as the daemon does
            instance.report_runless_asset_event(event)
        assert not data.run_requests
        pages = [event for event in data.asset_events if isinstance(event, dg.AssetMaterialization)]
        assert [page.asset_key for page in pages] == ([WINDOWS] if data.asset_events else [])
        checks = [event for event in data.asset_events if isinstance(event, dg.AssetCheckEvaluation)]
        return [check.passed for check in checks if check.check_name == CAPTURE_JOB.name]

    assert told() == []
    shop.server.agent.stop()
    assert told() == [False]
    assert told() == []
    shop.server.agent.start()
    assert told() == [True]
    assert told() == []


@pytest.mark.long
def test_job_of_checks_names_the_stopped_agent(shop: Shop, instance: dg.DagsterInstance) -> None:
    assert shop.snapshot(instance).success
    shop.server.agent.stop()
    checks = shop.run("shop_headroom", instance).get_asset_check_evaluations()
    shop.server.agent.start()
    (found,) = [check for check in checks if check.check_name == CAPTURE_JOB.name]
    assert (found.passed, found.asset_key) == (False, WINDOWS)
    assert "SQL Server Agent is stopped" in str(found.description)


def test_where_nobody_asks_a_capture_job_it_is_not_known_to_work() -> None:
    """Of tables that have all stopped, and before the first snapshot."""
    found = capture_job_result([], streams=True)
    assert (found.passed, found.is_error) == (False, False)
    assert "Not known" in found.text
    found = capture_job_result([], streams=False)
    assert found.passed
    assert "reads no log" in found.text
