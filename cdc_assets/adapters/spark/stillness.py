"""Reports when a process of Spark on this machine is stopped while a job is waited for.

A JVM or a Python worker that is stopped (SIGSTOP, a frozen group of processes, a debugger) answers nothing and breaks nothing: the job
waits for as long as it is stopped. Executors of a cluster are not seen here; their heartbeats are watched by Spark.
"""

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from cdc_assets.core.processes import descendants_of, is_stopped

log = logging.getLogger(__name__)

_POLL_S = 5.0


@contextmanager
def warn_if_still() -> Iterator[None]:
    """A block that waits for a job; a process that is stopped is reported once."""
    done = threading.Event()
    threading.Thread(target=_watch, args=(done,), name="stillness", daemon=True).start()
    try:
        yield
    finally:
        done.set()


def _watch(done: threading.Event) -> None:
    known: set[int] = set()
    while not done.wait(_POLL_S):
        still = {number for number in descendants_of(os.getpid()) if is_stopped(number)}
        for number in sorted(still - known):
            log.warning(
                "Process %d of Spark is stopped while a job waits for it, by a signal or a debugger. Nothing is lost; "
                "nothing is read until it continues. Next: kill -CONT %d, or kill -KILL %d: the read is repeated.",
                number, number, number,
            )  # fmt: skip
        known = still
