"""Limits the time for which a server may be silent while a thread waits for it.

The limit applies to silence, not to the whole read: each batch and each received byte restarts it, so long and slow
reads continue. When a connection is silent for too long its socket is shut down, which returns the waiting thread with
an error (`cdc_assets.adapters.sqlserver.tcp_connection`); no waiting thread is left behind. One thread per process supervises all
waits, and runs only when a limit is reached. It can run because the drivers let other threads run
while they wait, inside a large fetch too (measured: in one of 8 s no thread waited longer than 0.07 s). The exception
is a large value (`varchar(max)` and the like): mssql-python holds the interpreter's lock until its bytes are there, so
silence in the middle of one is ended by TCP keep-alive only.

A socket that is not found, as in a process that has no descriptor left, is searched for again after the same time.
"""

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf

from cdc_assets.adapters.sqlserver.tcp_connection import TcpConnection
from cdc_assets.errors import ConnectionLostError

log = logging.getLogger(__name__)

GRACE_S = 5.0
"""Seconds added to the drivers' own time-out: their error is more precise, if the server answers their request to
cancel."""


@contextmanager
def bounded(tcp: TcpConnection, limit_s: float, server: str) -> Iterator[None]:
    """Close the connection if the server is silent for `limit_s` and a margin while the block waits for it.

    Args:
        limit_s: time limit in seconds, usually `database.query.timeout.ms`; 0 sets no limit.
        server: name of the server, for messages.

    Raises:
        ConnectionLostError: in place of the driver's error, if the connection was closed.
    """
    if limit_s <= 0:
        yield
        return
    wait = _Wait(tcp, limit_s + GRACE_S, server)
    _watchdog.add(wait)
    try:
        yield
    except Exception as error:
        if wait.given_up:
            raise ConnectionLostError(wait.given_up) from error
        raise
    finally:
        _watchdog.remove(wait)
    if wait.given_up:  # a driver may return the rows received so far, as if there were no error
        raise ConnectionLostError(wait.given_up)


class _Wait:
    def __init__(self, tcp: TcpConnection, limit_s: float, server: str) -> None:
        self._tcp, self._limit_s, self._server = tcp, limit_s, server
        self._began = time.monotonic()
        self.deadline = self._began + limit_s
        self.given_up = ""
        """Reason for closing the connection."""

    def check(self) -> None:
        """Handle the deadline: move it if the server has sent something since, otherwise close the connection."""
        now = time.monotonic()
        known_s = self._tcp.silent_s()
        silent_s = now - self._began if known_s is None else min(now - self._began, known_s)
        if silent_s < self._limit_s:
            self.deadline = now + self._limit_s - silent_s
            return
        self.deadline = inf
        self.given_up = (  # before the cut, which returns the waiting thread
            f"{self._server} was silent for {silent_s:.0f} s on an open connection, so the connection was closed. It is "
            "reopened. Next: if this happens again, look for a server that hangs or a network path that drops "
            "packets (firewall, VPN, load balancer); database.query.timeout.ms limits the wait"
        )
        if not self._tcp.cut():
            self.given_up, self.deadline = "", now + self._limit_s
            log.error(
                "%s has been silent for %.0f s, and its socket was not found: the wait continues. "
                "Next: if it lasts, end this process and start it again; it resumes at its position",
                self._server,
                silent_s,
            )
            return
        log.warning("%s", self.given_up)


class _Watchdog:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waits: set[_Wait] = set()
        self._wakes = inf
        self._thread: threading.Thread | None = None

    def add(self, wait: _Wait) -> None:
        with self._changed:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="cdc-assets watchdog", daemon=True)
                thread.start()  # where no thread is left, this wait fails, and the next one begins here again
                self._thread = thread
            elif wait.deadline < self._wakes:
                self._changed.notify()
            self._waits.add(wait)

    def remove(self, wait: _Wait) -> None:
        """End the supervision of a wait; its connection is not cut from now on."""
        with self._changed:
            self._waits.discard(wait)

    def _run(self) -> None:
        with self._changed:
            while True:
                for wait in [wait for wait in self._waits if wait.deadline <= time.monotonic()]:
                    wait.check()
                self._wakes = min((wait.deadline for wait in self._waits), default=inf)
                self._changed.wait(None if self._wakes == inf else max(0.0, self._wakes - time.monotonic()))


_watchdog = _Watchdog()


def _reset() -> None:
    """Reset after a fork: threads do not survive it, and the child has none of the parent's waits."""
    global _watchdog
    _watchdog = _Watchdog()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset)
