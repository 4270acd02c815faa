"""What the alert sensor tells: each failed run once, each check when its verdict changes."""

from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin

from cdc_assets.defs.alerts import Alert, alert_sensor


class World:
    """A code location with one asset whose check and whose run can be broken."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.instance, self.alerts, self.cursor = instance, [], ""
        self.healthy, self.fails, self.deaf = True, False, False
        world = self

        @dg.asset(check_specs=[dg.AssetCheckSpec("whole", asset="orders")])
        def orders() -> Iterator[object]:
            if world.fails:
                raise dg.Failure("The disk is full. Next: free space.")
            yield dg.MaterializeResult()
            yield dg.AssetCheckResult(passed=world.healthy, check_name="whole", description="3 rows are lost")

        self.sensor = alert_sensor(self.hear)
        self.definitions = dg.Definitions(
            assets=[orders], jobs=[dg.define_asset_job("daily", [orders])], sensors=[self.sensor]
        )

    def hear(self, alert: Alert) -> None:
        if self.deaf:
            raise ConnectionError("no answer")
        self.alerts.append(alert)

    def run(self, *, job: str = "daily") -> None:
        self.definitions.resolve_job_def(job).execute_in_process(instance=self.instance, raise_on_error=False)

    def tick(self) -> list[tuple[str, str]]:
        """What one evaluation tells."""
        self.alerts.clear()
        repository = self.definitions.get_repository_def()
        of: Any = {"repository_def": repository, "repository_name": repository.name}
        with dg.build_sensor_context(self.instance, self.cursor or None, **of) as context:
            self.sensor(context)
            self.cursor = context.cursor or ""
        return [(alert.kind, alert.subject) for alert in self.alerts]


@pytest.fixture
def world() -> Iterator[World]:
    with dg.instance_for_test() as instance:
        yield World(instance)


def test_failed_run_is_told_once_with_its_reason(world: World) -> None:
    world.fails = True
    world.run()
    assert world.tick() == [], "what failed before is history"
    world.run()
    assert world.tick() == [("run failed", "daily")]
    assert (
        str(world.alerts[0])
        == "daily: run failed. The disk is full. Next: free space. Runbook: docs/runbook/run-failed.md"
    )
    assert world.tick() == []


@pytest.mark.long
def test_check_is_told_when_its_verdict_changes(world: World) -> None:
    heard = []
    for healthy in (True, False, False, True, True, False):
        world.healthy = healthy
        world.run()
        heard.append(world.tick())
    failed, passed = [("check failed", "orders whole")], [("check passed", "orders whole")]
    assert heard == [[], failed, [], passed, [], failed]
    assert world.alerts[0].text == "3 rows are lost"


@pytest.mark.long
def test_check_that_fails_already_at_the_first_evaluation_is_told(world: World) -> None:
    world.healthy = False
    world.run()
    assert world.tick() == [("check failed", "orders whole")]


def test_what_could_not_be_sent_is_sent_again(world: World) -> None:
    world.tick()
    world.fails = True
    world.run()
    world.deaf = True
    with pytest.raises(ConnectionError):
        world.tick()
    world.deaf = False
    assert world.tick() == [("run failed", "daily")]


def test_runs_of_other_code_locations_are_not_told(world: World) -> None:
    world.tick()

    @dg.job
    def elsewhere() -> None:
        broken()

    assert not elsewhere.execute_in_process(instance=world.instance, raise_on_error=False).success
    assert world.tick() == []


def test_runs_of_a_job_of_the_same_name_elsewhere_are_not_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each code location without a job of its own has `__ASSET_JOB`."""
    here, elsewhere = (RegisteredCodeLocationOrigin(name) for name in ("here", "elsewhere"))
    monkeypatch.setattr(dg.SensorEvaluationContext, "code_location_origin", here)
    world.tick()
    daily = world.definitions.resolve_job_def("daily")
    for location in (elsewhere, here):
        origin = RemoteJobOrigin(RemoteRepositoryOrigin(location, "__repository__"), "daily")
        run = world.instance.create_run_for_job(daily, remote_job_origin=origin)
        world.instance.report_run_failed(run, f"It ran {location.location_name}.")
    assert world.tick() == [("run failed", "daily")]
    assert "It ran here." in world.alerts[0].text


@dg.op
def broken() -> None:
    raise ValueError("broken")
