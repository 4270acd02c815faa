"""A limit on how long a server may say nothing while somebody waits for it.

The limit is on silence and not on the whole: it begins anew with each batch, and with each byte that arrives meanwhile,
so a long read and a slow one go on, however long they take. A connection that is silent for too long is given up by an
end of its socket, which brings the waiting thread back with an error (`cdc_assets.adapters.sqlserver.line`); nothing is left
behind that waits. One thread per process looks after all waits, and only when a limit is reached.
"""

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf

from cdc_assets.adapters.sqlserver.line import Line
from cdc_assets.errors import ConnectionLostError

log = logging.getLogger(__name__)

GRACE_S = 5.0
"""Beyond the drivers' own time-out: they tell more, if the server answers their request to cancel."""


@contextmanager
def bounded(line: Line, limit_s: float, server: str) -> Iterator[None]:
    """Give the connection up if the server is silent for `limit_s` and some seconds while the block waits for it.

    Args:
        limit_s: `database.query.timeout.ms`, or what stands for it; 0 sets no limit.
        server: for the message.

    Raises:
        ConnectionLostError: in place of the driver's answer, if the connection was given up.
    """
    if limit_s <= 0:
        yield
        return
    wait = _Wait(line, limit_s + GRACE_S, server)
    _watchdog.add(wait)
    try:
        yield
    except Exception as error:
        if wait.given_up:
            raise ConnectionLostError(wait.given_up) from error
        raise
    finally:
        _watchdog.remove(wait)
    if wait.given_up:  # a driver may hand out what it had until then, as if all were well
        raise ConnectionLostError(wait.given_up)


class _Wait:
    def __init__(self, line: Line, limit_s: float, server: str) -> None:
        self._line, self._limit_s, self._server = line, limit_s, server
        self._began = time.monotonic()
        self.deadline = self._began + limit_s
        self.given_up = ""
        """Why the connection was given up."""

    def look(self) -> None:
        """The deadline has come: move it if the server has spoken meanwhile, else give the connection up."""
        now = time.monotonic()
        known_s = self._line.silent_s()
        silent_s = now - self._began if known_s is None else min(now - self._began, known_s)
        if silent_s < self._limit_s:
            self.deadline = now + self._limit_s - silent_s
            return
        self.deadline = inf
        self.given_up = (  # before the cut, which brings the waiting thread back
            f"{self._server} has said nothing for {silent_s:.0f} s on a connection that is open; it was given up. "
            "Next: it is opened again; if this comes back, look for a server that hangs or a network path that drops "
            "packets (firewall, VPN, load balancer); database.query.timeout.ms sets the limit"
        )
        if not self._line.cut():
            self.given_up = ""
            log.error(
                "%s has said nothing for %.0f s, and its socket was not found: the wait goes on. "
                "Next: end this process if it lasts; it goes on where it stopped",
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
            self._waits.add(wait)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="cdc-assets watchdog", daemon=True)
                self._thread.start()
            elif wait.deadline < self._wakes:
                self._changed.notify()

    def remove(self, wait: _Wait) -> None:
        """From now on its connection is not touched: who has it next is not cut off."""
        with self._changed:
            self._waits.discard(wait)

    def _run(self) -> None:
        with self._changed:
            while True:
                for wait in [wait for wait in self._waits if wait.deadline <= time.monotonic()]:
                    wait.look()
                self._wakes = min((wait.deadline for wait in self._waits), default=inf)
                self._changed.wait(None if self._wakes == inf else max(0.0, self._wakes - time.monotonic()))


_watchdog = _Watchdog()


def _begin_anew() -> None:
    """Threads do not survive a fork, and what the parent waits for is not the child's."""
    global _watchdog
    _watchdog = _Watchdog()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
