"""The process that forks Spark's Python workers, without tracebacks when nobody listens to a worker any more.

A worker whose JVM has closed their socket ends with `BrokenPipeError` as it flushes what it has left: an idle worker when
its session is stopped, a busy one when a query has rows enough (`LIMIT`). Nothing is wrong then, and nothing is lost; but
Spark's own daemon prints the traceback, which looks like a failure at the end of a good run.

What tasks import is imported here once and shared by all workers, which are forked from this process.

Set by `spark.python.daemon.module`.
"""

import socket
from contextlib import suppress
from importlib import import_module

from pyspark import daemon

_worker = daemon.worker
_ENDED = 1

_OF_TASKS = (
    "cdc_assets.incremental.staging",
    "cdc_assets.snapshot.tasks",
    "cdc_assets.streaming.tasks",
    "cdc_assets.adapters.spark.runner",
)
"""What tasks import, but for the driver: a library of native code that may not outlive a fork."""


def worker(connection: socket.socket, authenticated: bool) -> int:
    """Serve tasks over a connection until the JVM closes it; returns the exit code."""
    try:
        return int(_worker(connection, authenticated))
    except BrokenPipeError:
        return _ENDED


if __name__ == "__main__":
    for name in _OF_TASKS:
        with suppress(ImportError):  # told by whoever needs it, with what else is missing
            import_module(name)
    daemon.worker = worker
    daemon.manager()
