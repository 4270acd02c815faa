"""A stand-in per test, and topics that were read and streamed once."""

from collections.abc import Iterator

import pytest

from cdc_assets_tests.unit.streaming.child import DATABASE
from cdc_assets_tests.unit.streaming.tables import SNAPSHOTTED, STARTED
from mssql_standin.control import StandIn


@pytest.fixture
def server() -> Iterator[StandIn]:
    """With one database that captures at once."""
    with StandIn(databases=(DATABASE,)) as server:
        server.agent.start()
        yield server


@pytest.fixture(scope="session")
def prepared(states: object, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Two tables that were read, and the same that streamed; rooms ask for them before a test patches anything."""
    SNAPSHOTTED.prepare(tmp_path_factory.mktemp("snapshotted"))
    STARTED.prepare(tmp_path_factory.mktemp("started"))
