"""A connection through any driver: whatever that raises is an error of ours, without the password."""

import struct

import pytest

from cdc_assets.config.engine import engine_config
from cdc_assets.connectors.databases.session import DriverSession
from cdc_assets.errors import ConnectionLostError, QueryError


class DriverError(Exception):
    """A driver's own class."""


class Connection:
    """Fails at each statement."""

    is_lost = False

    def __init__(self, error: Exception) -> None:
        self._error = error

    def cursor(self) -> "Connection":
        return self

    def execute(self, statement: str) -> None:
        raise self._error

    def close(self) -> None:
        pass


def session(connect: object) -> DriverSession:
    mysql = {"connector.class": "io.debezium.connector.mysql.MySqlConnector", "topic.prefix": "shop", "lake.path": "x"}
    return DriverSession(
        engine_config(mysql | {"database.password": "a secret"}),
        connect,  # type: ignore[arg-type]
        DriverError,
        refused=lambda _: False,
        lost=lambda connection: connection.is_lost,
    )


ERRORS = [
    DriverError("a secret"),
    RuntimeError("'cryptography' lacks a secret"),
    struct.error("a secret"),
    AttributeError("a secret"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_whatever_a_driver_raises_is_told_without_the_password(error: Exception) -> None:
    def connect() -> Connection:
        raise error

    with pytest.raises(ConnectionLostError, match=r"cannot be reached: .*\*\*\*"):
        session(connect)
    made = Connection(error)
    found = session(lambda: made)
    with pytest.raises(QueryError, match=r"\*\*\*"):
        found.rows("SELECT 1")
    made.is_lost = True
    with pytest.raises(ConnectionLostError, match=r"does not answer any more: .*\*\*\*"):
        found.rows("SELECT 1")
