"""What a person asks for in the launchpad, carried out by the sensor's runs, also if they are killed over it."""

from collections import Counter

import pytest

from cdc_assets_tests.e2e.conftest import Daemon
from cdc_assets_tests.e2e.killer import Killer
from mssql_standin import sample

pytestmark = pytest.mark.timeout(600)

TABLE = f"{sample.DATABASE}.dbo.products"
CHAIN = ["signals-recorded", "snapshot-planned", "round-written", "snapshot-complete"]
"""Steps of a blocking snapshot that a request asks for."""


@pytest.fixture
def killer(daemon: Daemon) -> Killer:
    """For one test."""
    return Killer.at_rest(daemon)


def reads(daemon: Daemon) -> Counter[str]:
    """READ events of products by key."""
    events = [event for event in daemon.shop.events("products") if event["value"]]
    return Counter(str(event["key"]) for event in events if event["value"]["op"] == "r")


def test_request_of_the_launchpad_is_carried_out_once_whatever_is_killed(daemon: Daemon, killer: Killer) -> None:
    before = reads(daemon)
    killer.light(CHAIN[0])
    config = {"ops": {"shop_ask": {"config": {"tables": [TABLE], "snapshot": "blocking"}}}}
    asked = daemon.launch("shop_signal", config)
    killer.kill_at(CHAIN)
    daemon.wait_until(lambda: daemon.idle() and not requested(daemon), "the request is carried out")
    killer.assert_whole()
    assert reads(daemon) - before == Counter(before.keys())
    assert any(asked in signals.handled for signals in daemon.shop.view().state.signals.values())


def test_a_run_that_is_executed_again_is_not_taken_for_dead(daemon: Daemon) -> None:
    def followed() -> list[str]:
        runs = daemon.instance.get_runs() if daemon.idle() else ()
        return [run.run_id for run in runs if run.job_name == "shop_follow" and run.is_success]

    daemon.shop.execute("UPDATE dbo.products SET stock = stock + 1")
    daemon.wait_until(lambda: bool(followed()), "a run has followed the log")
    again = daemon.execute_again(followed()[0])

    def ended() -> bool:
        run = daemon.instance.get_run_by_id(again)
        return run is not None and run.is_finished

    daemon.wait_until(ended, "it has ended")
    run = daemon.instance.get_run_by_id(again)
    assert run is not None
    assert run.is_success, "the sensor looked at it all the time"


def requested(daemon: Daemon) -> bool:
    """Whether something is left to do for signals."""
    state = daemon.shop.view().state
    return bool(state.snapshots) or any(signals.unfinished for signals in state.signals.values())
