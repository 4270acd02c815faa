"""One broker for the tests of a module."""

from collections.abc import Iterator

import pytest

from cdc_assets.standin.control import StandIn
from cdc_assets_tests.kafka.broker import Broker
from cdc_assets_tests.unit.streaming.child import DATABASE


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("kafka") / "broker") as running:
        yield running


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn(databases=(DATABASE,)) as server:
        yield server
