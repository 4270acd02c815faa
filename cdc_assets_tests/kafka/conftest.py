"""One broker, and Kafka's classes, for the tests of a module."""

from collections.abc import Iterator

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from cdc_assets_tests.kafka.broker import Broker, jars
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("kafka") / "broker") as running:
        yield running


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn(databases=(DATABASE,)) as server:
        yield server


@pytest.fixture(scope="module")
def java() -> Iterator[JavaGateway]:
    """Kafka's own classes."""
    port, token, process = launch_gateway(classpath=jars(), die_on_exit=True, enable_auth=True, return_proc=True)
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    yield gateway
    gateway.shutdown()
    process.stdin.close()  # at which it ends
    process.wait(60)
