"""A fresh database for each test, and a source that looks at it."""

from collections.abc import Iterator
from typing import Any

import pytest

from cdc_assets.config.settings import ConnectionSettings
from cdc_assets.standin.control import StandIn
from resources import sqlserver_retry
from resources.sqlserver_source import SqlServerSource

DATABASE = "SourceDb"


def connection(server: StandIn, *databases: str, **changes: Any) -> ConnectionSettings:
    """Settings that reach the stand-in."""
    facts: dict[str, Any] = {
        "host": server.host,
        "port": server.port,
        "user": server.user,
        "password": server.password,
        "databases": databases,
        "encrypt": "no",
        "login_timeout_s": 5,
    }
    return ConnectionSettings(**facts | changes)


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries at once."""
    monkeypatch.setattr(sqlserver_retry, "FIRST_WAIT_S", 0.0)


@pytest.fixture
def server() -> Iterator[StandIn]:
    """A server with one database that has CDC on."""
    with StandIn(databases=(DATABASE,)) as started:
        yield started


@pytest.fixture
def source(server: StandIn) -> Iterator[SqlServerSource]:
    """The adapter under test."""
    with SqlServerSource(connection(server, DATABASE)) as opened:
        yield opened
