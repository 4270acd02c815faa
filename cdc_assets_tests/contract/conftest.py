"""The counterpart of the contract tests: the stand-in, or the server of CDC_TEST_SQLSERVER."""

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc_assets_tests.contract.real import RealServer
from cdc_assets_tests.contract.two import HERE, THERE, Two
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn

FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything below this folder is a contract test."""
    for item in items:
        if item.path.is_relative_to(FOLDER):
            item.add_marker(pytest.mark.contract)


@pytest.fixture(scope="session")
def server() -> Iterator[StandIn | RealServer]:
    """The counterpart: host, port, user, password, connection_string(database, driver), execute(…, database=)."""
    given = os.environ.get("CDC_TEST_SQLSERVER")
    if given:
        yield RealServer(given)
        return
    with StandIn() as standin:
        yield standin


@pytest.fixture
def fresh_server() -> Iterator[StandIn]:
    """A stand-in of the test's own, with one empty database."""
    with StandIn(databases=(DATABASE,)) as server:
        yield server


@pytest.fixture
def standin(server: StandIn | RealServer) -> Iterator[StandIn]:
    """The stand-in with its control; injected faults do not outlive the test."""
    if not isinstance(server, StandIn):
        pytest.skip("the test steers the server, which only the stand-in allows")
    yield server
    server.faults.clear()


@pytest.fixture(scope="session")
def database(server: StandIn | RealServer) -> Iterator[str]:
    """A database of its own for this run, without change data capture."""
    name = f"contract_{secrets.token_hex(4)}"
    server.execute(f"CREATE DATABASE [{name}]")
    yield name
    if isinstance(server, RealServer):
        server.drop(name)


@pytest.fixture
def table(server: StandIn | RealServer, database: str) -> Iterator[str]:
    """A name for a table; what the test creates under it is dropped."""
    name = f"dbo.t_{secrets.token_hex(4)}"
    yield name
    server.execute(f"IF OBJECT_ID(N'{name}') IS NOT NULL DROP TABLE {name}", database=database)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    """A stand-in with two databases, and a capture of both."""
    with StandIn(databases=(HERE.database, THERE.database)) as server:
        yield Two(server, str(tmp_path))
