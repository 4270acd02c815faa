"""The process that forks Spark's Python workers, without tracebacks when nobody listens to a worker any more.

A worker whose JVM has closed their socket ends with `BrokenPipeError` as it flushes what it has left: an idle worker when
its session is stopped, a busy one when a query has rows enough (`LIMIT`). Nothing is wrong then, and nothing is lost; but
Spark's own daemon prints the traceback, which looks like a failure at the end of a good run.

Set by `spark.python.daemon.module`.
"""

import socket

from pyspark import daemon

_worker = daemon.worker
_ENDED = 1


def worker(connection: socket.socket, authenticated: bool) -> int:
    """Serve tasks over a connection until the JVM closes it; returns the exit code."""
    try:
        return int(_worker(connection, authenticated))
    except BrokenPipeError:
        return _ENDED


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
