"""The JVM of this process's classic session: whether it lives, how it goes, and what is queried of it that pyspark does not offer.

pyspark starts one JVM per process and keeps it for good, so that each later session of the process is made in it. It has no public
way to let go of one that was killed by the kernel or by a person. Nor has it one for a JVM that is to end before the process does: without that, each call fails with a refused connection for as long as the process lives. So only this module
knows where pyspark keeps it. Read at pyspark 4.3.0; `cdc_assets_tests/test_borrowed.py` keeps this list complete.

| name | why there is no public way |
|---|---|
| `SparkContext._gateway`, `_jvm` | the connection to the JVM, and whether there is one. They are set to None when the JVM is gone, which is all that pyspark lacks to start another one in the same process |
| `SparkContext._active_spark_context` | the context, if there is one: `getOrCreate` would make one |
| `SparkContext._lock` | held while a context is being made |
| `context._jsc` | Java's context: executors, and why they were lost; whether it is stopped |
| `session._jsparkSession` | to make a session the active one, where Spark looks data sources up |
"""

import io
import logging
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from typing import Any

from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.sql import SparkSession

from cdc_assets.core.processes import is_stopped

log = logging.getLogger(__name__)

LOST = (Py4JNetworkError, ConnectionError, EOFError)
"""Errors of a call to a JVM that is gone, besides a `Py4JError` that does not say why."""

WORKERS = "spark-workers"
"""Name of the thread whose job starts Spark's workers."""
_WORKERS_S = 2.0
_POLL_S = 0.01

_ours: set[int] = set()
"""Process ids of the JVMs that were started here."""


@contextmanager
def started_here() -> Iterator[None]:
    """A block that makes a session: the JVM that it starts, if there is none yet, is ours."""
    before = SparkContext._gateway
    try:
        yield
    finally:
        gateway = SparkContext._gateway
        if gateway is not None and gateway is not before and gateway.proc is not None:
            _ours.add(gateway.proc.pid)


def is_started() -> bool:
    """Whether this process has a JVM, with or without a session."""
    return SparkContext._gateway is not None


def has_context(*, waits: bool = True) -> bool:
    """Whether this process has a classic session that works, whoever has made it.

    Args:
        waits: whether one that is being made is waited for; pyspark holds its lock until it is there. Otherwise it does not count.
    """
    if not SparkContext._lock.acquire(blocking=waits):
        return False
    try:
        context = SparkContext._active_spark_context
        return context is not None and not has_ended(context)
    finally:
        SparkContext._lock.release()


def has_ended(context: SparkContext) -> bool:
    """Whether a context is stopped, or its JVM is gone. One whose JVM is stopped (SIGSTOP) has not: it is not asked, for it would not
    answer, and who has a job for it reports that."""
    gateway, java = SparkContext._gateway, context._jsc
    if java is None or (gateway is not None and not _lives(gateway)):  # a call would log a page of traces
        return True
    if gateway is not None and gateway.proc is not None and is_stopped(gateway.proc.pid):
        return False
    try:
        return bool(java.sc().isStopped())
    except (Py4JError, *LOST):
        return True


def scala_context(context: SparkContext) -> Any:
    """Spark's own context in the JVM, with what pyspark does not show of it."""
    return context._jsc.sc()


def activate(session: SparkSession) -> None:
    """Make a session the thread's active one."""
    sessions = session.sparkContext._gateway.jvm.org.apache.spark.sql.classic.SparkSession
    sessions.setActiveSession(session._jsparkSession)


def stop_spark(wait_s: float = 30) -> None:
    """End this process's classic session and its JVM, if there is one, and wait until it is gone; a JVM that does not end is killed.

    Without this the JVM ends a moment after the process. A Connect session is left alone: to stop it would close its id
    for good, for whoever shares it.
    """
    gateway = SparkContext._gateway
    if gateway is None or end_if_stopped():
        return
    context = SparkContext._active_spark_context
    if context is None or not _lives(gateway):
        _end(gateway, wait_s)
        return
    for thread in threading.enumerate():
        if thread.name == WORKERS:  # Spark writes a page of traces about tasks that end while it stops
            thread.join(_WORKERS_S)
    with _stopping(context):
        _end_process(gateway, wait_s)
    _end(gateway, wait_s)


@contextmanager
def _stopping(context: SparkContext) -> Iterator[None]:
    """A block that begins when the JVM has stopped a context, and in which the JVM is ended.

    After that, pyspark waits for its own server of accumulators, which polls once a second. It ends with the JVM; but its thread
    then prints a trace about its connection.
    """
    stopping = threading.Thread(target=_stop, args=(context,), name="spark-stop", daemon=True)
    stopping.start()
    while stopping.is_alive() and context._jsc is not None:
        stopping.join(_POLL_S)
    with redirect_stderr(io.StringIO()):  # not before, because what is said of a JVM that does not stop must be seen
        yield
        stopping.join()


def _stop(context: SparkContext) -> None:
    with suppress(Py4JError, *LOST):
        context.stop()


def forget_if_gone(patience_s: float = 0.0) -> bool:
    """Let the next session of this process start another JVM if its own has died; whether it had.

    Args:
        patience_s: a process that was killed breaks its connections a moment before it has ended; so long is waited for that.
    """
    gateway = SparkContext._gateway
    if gateway is None or _lives(gateway, patience_s):
        return False
    with SparkContext._lock:
        if SparkContext._gateway is not gateway:  # another thread has done this, and may have started another one
            return False
        log.warning("Spark's JVM (process %s) has ended; the next job starts another one.", _pid(gateway))
        _end(gateway, 0)
    return True


def end_if_stopped() -> bool:
    """Kill a JVM of ours that is stopped (SIGSTOP): whoever waits for its answer cannot end, and a call to it would wait too.

    Returns:
        Whether it is stopped and not ours: then it must not be called until it continues.
    """
    process: subprocess.Popen[bytes] | None = SparkContext._gateway.proc if SparkContext._gateway is not None else None
    if process is None or not is_stopped(process.pid):
        return False
    if process.pid not in _ours:
        return True
    log.warning("Killing Spark's JVM (process %s), which is stopped, because this run ends.", process.pid)
    process.kill()
    process.wait()
    return False


def _lives(gateway: Any, patience_s: float = 0.0) -> bool:
    """A JVM that others have started, as `spark-submit` does, ends this process when it ends."""
    process: subprocess.Popen[bytes] | None = gateway.proc
    if process is None:
        return True
    with suppress(subprocess.TimeoutExpired):
        process.wait(patience_s)
    return process.returncode is None


def _pid(gateway: Any) -> int | None:
    return gateway.proc.pid if gateway.proc is not None else None


def _end(gateway: Any, wait_s: float) -> None:
    """End a JVM, and have pyspark forget it with its context."""
    _end_process(gateway, wait_s)
    context = SparkContext._active_spark_context
    for _ in range(2):  # a first call that Java does not answer leaves the context half stopped
        if context is not None:
            _stop(context)
    SparkContext._gateway = SparkContext._jvm = None


def _end_process(gateway: Any, wait_s: float) -> None:
    process: subprocess.Popen[bytes] | None = gateway.proc
    if process is not None:
        if process.poll() is None:
            with suppress(*LOST, Py4JError):
                gateway.shutdown()
        with suppress(OSError):  # its pipe is broken
            if process.stdin is not None:
                process.stdin.close()  # it ends when nobody holds its input
        try:
            process.wait(wait_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
