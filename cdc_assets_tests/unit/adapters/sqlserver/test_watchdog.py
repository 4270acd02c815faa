"""The watchdog over waits for a server, in a process that has trouble of its own."""

import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cdc_assets.adapters.sqlserver import watchdog
from cdc_assets.adapters.sqlserver.tcp_connection import TcpConnection
from cdc_assets.adapters.sqlserver.watchdog import bounded
from cdc_assets.errors import ConnectionLostError

LIMIT_S = 0.3


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "GRACE_S", 0.0)


@contextmanager
def silent() -> Iterator[tuple[TcpConnection, socket.socket]]:
    """A connection to somebody who says nothing, marked as the drivers mark theirs."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as own:
        tcp, options = TcpConnection({}), (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL)
        for option, seconds in zip(options, tcp.keywords().values(), strict=True):
            own.setsockopt(socket.IPPROTO_TCP, option, int(seconds))
        own.settimeout(20)  # without a watchdog
        yield tcp, own


def wait_for_nothing() -> None:
    with silent() as (tcp, own), pytest.raises(ConnectionLostError, match="was silent"), bounded(tcp, LIMIT_S, "it"):
        own.recv(1)


def test_silence_is_ended_by_a_process_that_had_no_descriptors_left_for_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    def restore() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    with silent() as (tcp, own):
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))  # no further one is given
        later = threading.Timer(2 * LIMIT_S, restore)
        later.start()
        try:
            with pytest.raises(ConnectionLostError, match="was silent"), bounded(tcp, LIMIT_S, "it"):
                own.recv(1)
        finally:
            later.join()
            restore()
    assert "its socket was not found" in caplog.text
    wait_for_nothing()


def test_silence_is_ended_by_a_process_that_had_no_thread_left_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(watchdog, "_watchdog", watchdog._Watchdog())
    with monkeypatch.context() as without, silent() as (tcp, _):
        without.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"), bounded(tcp, LIMIT_S, "it"):
            raise AssertionError("begun")
    wait_for_nothing()
    assert not tcp.ended, "the wait that failed is not watched"
