"""A run that is asked to end does not wait for the server."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from cdc_assets.adapters.sqlserver.bulk import MssqlBulkSource
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.interruption import Interrupted, listening
from cdc_assets_tests.contract.source.conftest import DATABASE, connection
from mssql_standin.control import StandIn

pytestmark = pytest.mark.contract
TABLE = TableId(DATABASE, "dbo", "t")
READ = "SELECT id FROM dbo.t WITH (TABLOCK, HOLDLOCK)"


@pytest.fixture
def locked(standin: StandIn) -> Iterator[StandIn]:
    """With a table that nobody can read: its rows are changed by a transaction that does not end."""
    standin.execute("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)", database=DATABASE)
    with standin.connect(DATABASE, autocommit=False) as writer:
        writer.execute("INSERT INTO dbo.t VALUES (1)")
        yield standin
        writer.rollback()


def lock(source: SqlServerSource, _: MssqlBulkSource) -> None:
    """A shared lock on the table, waited for without end."""
    with source.lock_tables([TABLE], -1):
        pass


WAITS: dict[str, Callable[[SqlServerSource, MssqlBulkSource], object]] = {
    "statement": lambda source, _: source.session.rows(READ),
    "table lock": lock,
    "rows": lambda _, bulk: list(bulk.read(READ)),
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_wait_for_a_lock_is_given_up(
    locked: StandIn, wait: Callable[[SqlServerSource, MssqlBulkSource], object]
) -> None:
    settings = connection(locked, DATABASE)
    started = time.monotonic()
    with SqlServerSource(settings) as source:
        source.session.rows("SELECT 1")
        threading.Thread(target=end_once_it_waits, args=(locked,)).start()
        with pytest.raises(Interrupted), listening():
            wait(source, MssqlBulkSource(settings))
    assert time.monotonic() - started < 20


def end_once_it_waits(server: StandIn) -> None:
    """As Dagster's own thread does."""
    while not server.execute("SELECT 1 FROM sys.dm_exec_requests WHERE blocking_session_id <> 0"):
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGINT)


def test_server_that_does_not_answer_a_login_is_not_waited_for(standin: StandIn) -> None:
    standin.faults.hang(times=100)
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
    started = time.monotonic()
    with pytest.raises(Interrupted), listening(), SqlServerSource(connection(standin, DATABASE)) as source:
        source.databases()
    assert time.monotonic() - started < 20
