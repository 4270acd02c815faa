"""An engine with one database, and clients of it."""

from collections.abc import Callable, Iterator

import pytest

from mssql_standin.engine.server import Engine
from tests.engine.collect import Client, open_client


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine(None, "sa", "secret")
    open_client(engine, "master").do("CREATE DATABASE D; ALTER DATABASE D SET ALLOW_SNAPSHOT_ISOLATION ON")
    yield engine
    engine.close()


@pytest.fixture
def connect(engine: Engine) -> Callable[[], Client]:
    return lambda: open_client(engine)


@pytest.fixture
def client(connect: Callable[[], Client]) -> Client:
    return connect()
