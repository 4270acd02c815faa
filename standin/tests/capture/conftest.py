"""A harness server and session, and the real engine with a database `shop`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mssql_standin.engine.server import Engine
from tests.capture.client import Client
from tests.capture.harness import Server, Session


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server whose Agent stops at the end."""
    made = Server(tmp_path)
    yield made
    made.agent.stop()


@pytest.fixture
def session(server: Server) -> Session:
    """A session in `shop`."""
    return server.session()


@pytest.fixture
def engine() -> Iterator[Engine]:
    """The engine with an empty database `shop`, enabled for capture."""
    made = Engine()
    Client(made).run("CREATE DATABASE shop")
    Client(made, "shop").run("EXEC sys.sp_cdc_enable_db")
    yield made
    made.close()


@pytest.fixture
def client(engine: Engine) -> Client:
    """A session in `shop`."""
    return Client(engine, "shop")
