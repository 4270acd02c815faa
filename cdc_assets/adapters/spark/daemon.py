"""The process that forks Spark's Python workers, without tracebacks when the JVM has closed a worker's connection.

A worker whose JVM has closed their socket ends with `BrokenPipeError` as it flushes its output: an idle worker when its
session is stopped, a busy one when a query has enough rows (`LIMIT`). This is not an error, and nothing is lost; but
Spark's own daemon prints the traceback, which looks like a failure at the end of a good run.

What tasks import is imported here once and shared by all workers, which are forked from this process. Spark's daemon has a
worker look through all that it holds for garbage after each task, which cost more than a small task's own work; so what was
imported is put out of the collector's reach, and stays shared between the processes. That is done here before the forks, and in a
worker after each task that imported more. What else a task leaves behind is collected as before.

Spark puts archives of its Python modules in front of the installed ones (`installed`), and no compiled module is kept for an
archive: to compile them took half of the time in which this process was there.

Set by `spark.python.daemon.module`.
"""

import gc
import socket
import sys
from contextlib import suppress
from importlib import import_module

from cdc_assets.adapters.spark.installed import prefer_installed
from cdc_assets.core.process_settings import set_up_process

prefer_installed(sys.path)

from pyspark import daemon  # noqa: E402 - found by what is said above

_worker = daemon.worker
_ENDED = 1
_known = 0
"""Modules that were imported when all objects were last put out of the collector's reach."""

_OF_TASKS = (
    "cdc_assets.adapters.spark.runner",
    "cdc_assets.incremental.staging",
    "cdc_assets.lake.joining",
    "cdc_assets.lake.positions",
    "cdc_assets.mirror.tasks",
    "cdc_assets.mirror.upkeep",
    "cdc_assets.reconcile.tasks",
    "cdc_assets.retention.tasks",
    "cdc_assets.snapshot.tasks",
    "cdc_assets.streaming.tasks",
    "pyspark.worker",
)
"""Modules that tasks of all kinds import, except for the database driver, a native library that may not survive a fork."""


def worker(connection: socket.socket, authenticated: bool) -> int:
    """Serve tasks over a connection until the JVM closes it; returns the exit code."""
    global _known
    if len(sys.modules) != _known:  # the garbage of the task before was collected: what is left is imported or kept
        gc.freeze()
        _known = len(sys.modules)
    try:
        return int(_worker(connection, authenticated))
    except BrokenPipeError:
        return _ENDED


if __name__ == "__main__":
    set_up_process()  # an executor may not have the driver's environment
    for name in _OF_TASKS:
        with suppress(ImportError):  # reported by the code that needs it, with the other missing modules
            import_module(name)
    gc.collect()
    gc.freeze()
    daemon.worker = worker
    daemon.manager()
