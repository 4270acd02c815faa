"""A server that falls silent on an open connection, wherever it happens: given up in time, told, and tried again.

A proxy between driver and server stops forwarding without closing anything. TCP's own keep-alive cannot see it, for the
proxy's system goes on acknowledging.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.adapters.sqlserver import bulk_sessions, tcp_connection, watchdog
from cdc_assets.adapters.sqlserver import retry as sqlserver_retry
from cdc_assets.adapters.sqlserver.bulk import MssqlBulkSource
from cdc_assets.adapters.sqlserver.bulk_sessions import POOL
from cdc_assets.adapters.sqlserver.locks import locked
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.adapters.sqlserver.tcp_connection import TcpConnection
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.config.settings import ConnectionSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.errors import CdcError, ConnectionLostError, RetryableError
from cdc_assets_tests.contract.source.conftest import DATABASE, connection
from cdc_assets_tests.contract.source.proxy import Proxy, proxy
from cdc_assets_tests.jobs import JOB
from mssql_standin.control import StandIn

pytestmark = pytest.mark.contract
ROWS = 1000
WIDE = "SELECT id, REPLICATE(N'x', 200) AS padding FROM dbo.t"
"""About half a megabyte."""
ENOUGH_S = 30.0
"""Every wait below ends within a few seconds; without a bound it takes minutes or never ends."""


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(watchdog, "GRACE_S", 0.5)
    POOL.clear()
    yield
    POOL.clear()


@pytest.fixture
def forwarder(standin: StandIn) -> Iterator[Proxy]:
    """The way to the server, with a table there."""
    standin.execute("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)", database=DATABASE)
    for start in range(0, ROWS, 500):
        standin.execute(
            "INSERT INTO dbo.t VALUES " + ", ".join(f"({n})" for n in range(start, start + 500)), database=DATABASE
        )
    with proxy((standin.host, standin.port)) as opened:
        yield opened


def settings(standin: StandIn, forwarder: Proxy, **changes: Any) -> ConnectionSettings:
    return replace(
        connection(standin, DATABASE),
        host="127.0.0.1",
        port=forwarder.port,
        query_timeout_s=1,
        login_timeout_s=2,
        **changes,
    )


def reader(standin: StandIn, forwarder: Proxy, **changes: Any) -> MssqlBulkSource:
    return MssqlBulkSource(settings(standin, forwarder, **changes), batch_rows=100)


def test_other_threads_run_while_a_batch_arrives_slowly(standin: StandIn, forwarder: Proxy) -> None:
    """The watchdog, a request to end and the run's own signs of life need them: the driver must not keep them from running."""
    statement = "SELECT id, CAST(REPLICATE(N'x', 200) AS nvarchar(200)) AS padding FROM dbo.t"
    bulk = MssqlBulkSource(settings(standin, forwarder), batch_rows=ROWS)
    (whole,) = bulk.read(statement)  # one call of the driver's
    forwarder.pause_s = 0.002
    turns, ended = 0, threading.Event()

    def other() -> None:
        nonlocal turns
        while not ended.wait(0.01):
            turns += 1

    thread = threading.Thread(target=other)
    began = time.monotonic()
    thread.start()
    (slow,) = bulk.read(statement)
    waited_s = time.monotonic() - began
    ended.set()
    thread.join()
    assert slow.equals(whole)
    assert waited_s > 1
    assert turns > 20, f"{turns} in {waited_s:.1f} s"


def fails_in_time(action: Callable[[], object], kind: type[CdcError] = RetryableError) -> CdcError:
    began = time.monotonic()
    with pytest.raises(kind) as error:
        action()
    assert time.monotonic() - began < ENOUGH_S
    return error.value


def sockets() -> int:
    return sum(number.is_socket() for number in Path("/proc/self/fd").iterdir())


def test_in_the_middle_of_rows(standin: StandIn, forwarder: Proxy, caplog: pytest.LogCaptureFixture) -> None:
    forwarder.answer_bytes = 150_000  # from the beginning: what has arrived before cannot be held back
    batches = reader(standin, forwarder).read(WIDE)
    next(batches)
    with caplog.at_level(logging.WARNING):
        error = fails_in_time(lambda: list(batches), ConnectionLostError)
    assert "was silent for" in str(error)
    assert "database.query.timeout.ms" in str(error)
    assert "was silent for" in caplog.text


def test_before_the_first_row_is_tried_again(standin: StandIn, forwarder: Proxy) -> None:
    forwarder.answer_bytes, forwarder.until = 3000, 1  # the login passes, the rows do not
    assert sum(batch.num_rows for batch in reader(standin, forwarder).read(WIDE)) == ROWS
    assert forwarder.accepted == 2


def test_an_idle_session_that_is_open_on_one_side_alone_is_not_read_from(
    standin: StandIn, forwarder: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_sessions, "CHECKED_S", 0.0)
    patient = replace(settings(standin, forwarder), query_timeout_s=300)
    bulk = MssqlBulkSource(patient, batch_rows=100)
    for _ in range(2):
        assert sum(batch.num_rows for batch in bulk.read(WIDE)) == ROWS
    assert forwarder.accepted == 1
    forwarder.answer_bytes, forwarder.until = 0, 1
    began = time.monotonic()
    assert sum(batch.num_rows for batch in bulk.read(WIDE)) == ROWS
    assert time.monotonic() - began < ENOUGH_S
    assert forwarder.accepted == 2


@pytest.mark.parametrize("let_through", [0, 50], ids=["prelogin", "login"])
def test_while_it_logs_in(standin: StandIn, forwarder: Proxy, let_through: int) -> None:
    forwarder.answer_bytes = let_through
    bulk = reader(standin, forwarder)
    fails_in_time(lambda: bulk._begin("SELECT 1", ()), ConnectionLostError)


def test_a_read_that_is_left_early_waits_for_nobody(standin: StandIn, forwarder: Proxy) -> None:
    patient = replace(settings(standin, forwarder), query_timeout_s=300)
    batches = MssqlBulkSource(patient, batch_rows=100).read(WIDE)
    next(batches)
    forwarder.answer_bytes = 0
    began = time.monotonic()
    batches.close()
    assert time.monotonic() - began < ENOUGH_S
    assert forwarder.closed_by_client.acquire(timeout=ENOUGH_S), "the server must learn of it"


def test_in_a_transaction_and_at_its_end(standin: StandIn, forwarder: Proxy) -> None:
    standin.execute(f"ALTER DATABASE {DATABASE} SET ALLOW_SNAPSHOT_ISOLATION ON")
    forwarder.answer_bytes = 150_000  # from the beginning: what has arrived before cannot be held back

    def read() -> None:
        with reader(standin, forwarder).transaction() as transaction:
            transaction.pin(TableId(DATABASE, "dbo", "t"))
            batches = transaction.read(WIDE)
            next(batches)
            list(batches)

    fails_in_time(read, ConnectionLostError)


def test_many_threads_at_once_leave_nothing_behind(
    standin: StandIn, forwarder: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlserver_retry, "ATTEMPTS", 1)
    forwarder.answer_bytes = 100_000
    before, threads = sockets(), threading.active_count()
    bulk = reader(standin, forwarder)
    fails_in_time(lambda: LocalRunner(12).run(lambda _: list(bulk.read(WIDE)), range(12), JOB), ConnectionLostError)
    forwarder.close()
    POOL.clear()
    patience = time.monotonic() + ENOUGH_S
    while (sockets() > before + 1 or threading.active_count() > threads + 1) and time.monotonic() < patience:
        time.sleep(0.05)  # the server's own threads end, and close its sockets
    assert sockets() <= before + 1
    assert threading.active_count() <= threads + 1, "but for the watchdog"


def test_no_break_of_the_connection_looks_like_the_end_of_the_rows(standin: StandIn, forwarder: Proxy) -> None:
    """Packets have 4,096 bytes; where one ends with a row, the driver says that there are no more."""
    forwarder.then_close = True
    bulk = reader(standin, forwarder)
    for packet in range(1, 101):
        POOL.clear()
        forwarder.answer_bytes = None
        batches = bulk.read("SELECT 1 AS one")
        list(batches)
        forwarder.answer_bytes, forwarder.until = packet * 4096 + 200, forwarder.accepted
        batches, seen = bulk.read(WIDE), 0
        with suppress(ConnectionLostError):
            seen = sum(batch.num_rows for batch in batches)
            assert seen == ROWS, f"rows lost without a word, after packet {packet}"


def test_slow_is_not_silent(standin: StandIn, forwarder: Proxy) -> None:
    """A batch takes longer than the limit, but bytes arrive all the time."""
    bulk = MssqlBulkSource(settings(standin, forwarder), batch_rows=ROWS)
    list(bulk.read("SELECT 1 AS one"))
    forwarder.pause_s = 0.006
    began = time.monotonic()
    assert sum(batch.num_rows for batch in bulk.read(WIDE)) == ROWS
    assert time.monotonic() - began > 2 * 1.5, "it was not slow: the test proves nothing"


def test_a_slow_consumer_is_not_a_silent_server(standin: StandIn, forwarder: Proxy) -> None:
    seen = 0
    for number, batch in enumerate(reader(standin, forwarder).read(WIDE)):
        seen += batch.num_rows
        if number == 1:
            time.sleep(2.5)
    assert seen == ROWS


def test_a_control_statement_is_tried_again_on_a_new_line(standin: StandIn, forwarder: Proxy) -> None:
    with SqlServerSource(settings(standin, forwarder)) as source:
        source.databases()
        forwarder.answer_bytes, forwarder.until = 0, forwarder.accepted
        assert source.server_time()
        assert forwarder.accepted > forwarder.until


def test_the_rows_of_a_control_statement(standin: StandIn, forwarder: Proxy) -> None:
    with SqlServerSource(settings(standin, forwarder)) as source:
        source.databases()
        forwarder.answer_bytes, forwarder.until = 20_000, forwarder.accepted
        assert len(source.session.rows(WIDE)) == ROWS


def test_while_locks_are_held_and_at_their_end(standin: StandIn, forwarder: Proxy) -> None:
    def hold() -> None:
        with locked(settings(standin, forwarder), [TableId(DATABASE, "dbo", "t")], 1000) as held:
            forwarder.answer_bytes = 0
            held.check()

    fails_in_time(hold, RetryableError)


def test_keep_alive_times_are_those_that_are_meant(standin: StandIn, forwarder: Proxy) -> None:
    given = settings(standin, forwarder, extra=(("KeepAlive", "45"),))
    own = TcpConnection.of(given)
    with SqlServerSource(given) as source:
        source.databases()
        assert source.session._link is not None
        with source.session._link.tcp._socket() as found:
            assert found is not None
            options = (tcp_connection.socket.TCP_KEEPIDLE, tcp_connection.socket.TCP_KEEPINTVL)
            assert [found.getsockopt(6, option) for option in options] == [45, 1]
            assert found.getsockopt(6, tcp_connection.socket.TCP_USER_TIMEOUT) == 54_000
    assert own.keywords() != TcpConnection.of(given).keywords(), "no two connections have the same mark"


def test_zero_sets_no_limit(standin: StandIn, forwarder: Proxy) -> None:
    bulk = MssqlBulkSource(replace(settings(standin, forwarder), query_timeout_s=0), batch_rows=100)
    forwarder.pause_s = 0.0
    assert sum(batch.num_rows for batch in bulk.read("WAITFOR DELAY '00:00:02'; " + WIDE)) == ROWS
