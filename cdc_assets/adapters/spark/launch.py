"""Ends the JVM of a session that is being started when nobody needs it any more.

PySpark gives no handle of a JVM before it answers. But it is a child of this process, and its command line says what it is. When
it ends, pyspark's call fails and removes its files. A JVM that is not found, as where there is no `/proc`, ends by itself
when it finds this process gone, about a second later.

*Why none is left.* pyspark starts a JVM in a block of `starting` only. Whoever ends a start first says so, under the lock with which
a block begins: a block that begins later raises, and one that has begun is waited for, while each JVM that appears in it is ended.
A process that ends meanwhile would leave one that holds its output open. One that is stopped (SIGSTOP) hears no request to end, so it
is killed.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cdc_assets.core.interruption import Interrupted
from cdc_assets.core.processes import children_of, is_stopped

_SHELL = b"pyspark-shell"
"""What pyspark has each JVM run."""
_GRACE_S = 5.0
"""Seconds in which pyspark's call has failed whose JVM was ended; on a busy machine it may only have begun to start it."""
_POLL_S = 0.05


class Launch:
    """Starts of a session's JVM, one after the other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._before: frozenset[int] | None = None
        self._running = 0
        self._ended = False

    @property
    def is_ended(self) -> bool:
        """Whether nobody needs the session any more."""
        return self._ended

    def renew(self) -> None:
        """Somebody needs a session again."""
        with self._lock:
            self._ended = False

    @contextmanager
    def starting(self) -> Iterator[None]:
        """The block in which pyspark may start a JVM.

        Raises:
            Interrupted: nobody needs it.
        """
        with self._lock:
            if self._ended:
                raise Interrupted
            if self._before is None:
                self._before = _machines()
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1

    def end(self) -> None:
        """Let no JVM start, and end the one that has been; waits some seconds until it is gone."""
        with self._lock:
            self._ended = True
        until = time.monotonic() + _GRACE_S
        while (found := self._found()) is not None and time.monotonic() < until:
            for number in found:
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL if is_stopped(number) else signal.SIGTERM)
            time.sleep(_POLL_S)

    def _found(self) -> frozenset[int] | None:
        """JVMs that were started here and run; None if there is none and none can come."""
        with self._lock:
            running, before = self._running, self._before
        found = frozenset() if before is None else _machines() - before
        return found if found or running else None


def _machines() -> frozenset[int]:
    """Children of this process that are, or become, a JVM of pyspark."""
    return frozenset(number for number in children_of(os.getpid()) if _SHELL in _command(number))


def _command(number: int) -> bytes:
    try:
        return Path(f"/proc/{number}/cmdline").read_bytes()
    except OSError:
        return b""
