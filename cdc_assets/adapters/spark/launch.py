"""Ends the JVM of a session that is being started when nobody needs it any more.

PySpark gives no handle of a JVM before it answers. But it is a child of this process, and its command line tells what it is. When
it ends, pyspark's call fails and removes its files. A JVM that is not found, as where there is no `/proc`, ends by itself
when it finds this process gone, about a second later.
"""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from cdc_assets.core.processes import children_of

_SHELL = b"pyspark-shell"
"""What pyspark has each JVM run."""
_PATIENCE_S = 2.0
_LOOK_S = 0.05


class Launch:
    """The start of a session."""

    def __init__(self) -> None:
        self._before: frozenset[int] | None = None

    def begin(self) -> None:
        """Called before the start, and again if it is begun anew: what ran before the first time is not of it."""
        if self._before is None:
            self._before = _machines()

    def end(self) -> None:
        """End the JVM; waits a moment until it is gone."""
        until = time.monotonic() + _PATIENCE_S
        while self._before is not None and (found := _machines() - self._before) and time.monotonic() < until:
            for number in found:
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGTERM)
            time.sleep(_LOOK_S)


def _machines() -> frozenset[int]:
    """Children of this process that are, or become, a JVM of pyspark."""
    return frozenset(number for number in children_of(os.getpid()) if _SHELL in _command(number))


def _command(number: int) -> bytes:
    try:
        return Path(f"/proc/{number}/cmdline").read_bytes()
    except OSError:
        return b""
