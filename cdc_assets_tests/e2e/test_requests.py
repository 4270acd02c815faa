"""What a person asks for in the launchpad, carried out by the sensor's runs, also if they are killed over it."""

from collections import Counter

import pytest

from cdc_assets.standin import sample
from cdc_assets_tests.e2e.conftest import Daemon
from cdc_assets_tests.e2e.killer import Killer

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


def requested(daemon: Daemon) -> bool:
    """Whether something is left to do for signals."""
    state = daemon.shop.view().state
    return bool(state.snapshots) or any(signals.unfinished for signals in state.signals.values())
