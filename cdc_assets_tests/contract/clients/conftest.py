"""A connection of every client stack."""

from collections.abc import Callable, Iterator

import pytest

from cdc_assets_tests.contract.clients.stacks import STACKS, Client, Server

Connect = Callable[..., Client]


@pytest.fixture(params=list(STACKS))
def stack(request: pytest.FixtureRequest) -> str:
    """Every stack in turn."""
    name: str = request.param
    return name


@pytest.fixture
def connect(stack: str, server: Server, database: str) -> Iterator[Connect]:
    """Opens connections of one stack: `connect(autocommit=True)`; closes them."""
    opened = list[Client]()

    def open_(autocommit: bool = True) -> Client:
        opened.append(STACKS[stack](server, database, autocommit))
        return opened[-1]

    yield open_
    for client in opened:
        client.close()


@pytest.fixture
def client(connect: Connect) -> Client:
    """A connection with autocommit on."""
    return connect()


@pytest.fixture
def odbc(server: Server, database: str) -> Iterator[Client]:
    """A connection of pyodbc with Microsoft's driver, for what is about the server rather than the stack."""
    client = STACKS["odbc18"](server, database)
    yield client
    client.close()
