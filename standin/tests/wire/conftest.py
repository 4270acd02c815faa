"""A scripted engine behind a real listener."""

from collections.abc import Iterator

import pytest

from mssql_standin import drivers
from mssql_standin.wire.server import TdsServer
from tests.wire.scripted import ScriptedEngine


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture
def server(engine: ScriptedEngine) -> Iterator[TdsServer]:
    with TdsServer(engine) as server:
        yield server


def odbc(server: TdsServer, encrypt: str = "no", driver: str = "odbc18") -> str:
    """Connection string for pyodbc."""
    return drivers.connection_string(driver, "127.0.0.1", server.port, "sa", "secret", "", encrypt, None)


@pytest.fixture(params=["odbc18", "freetds"])
def connection_string(server: TdsServer, request: pytest.FixtureRequest) -> str:
    return odbc(server, driver=request.param)
