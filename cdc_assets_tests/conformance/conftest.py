"""The server that both capture."""

from collections.abc import Iterator

import pytest

from mssql_standin.control import StandIn


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn(databases=("TestDB",)) as server:
        yield server
