"""A stand-in per test."""

from collections.abc import Iterator

import pytest

from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn


@pytest.fixture
def server() -> Iterator[StandIn]:
    """With one database that captures at once."""
    with StandIn(databases=(DATABASE,)) as server:
        server.agent.start()
        yield server
