"""One Spark job: a function called for each index below a number, each in a separate task.

On a classic session a task is an element of an RDD, in a partition of its own: no query is analysed, planned and compiled,
which halves the JVM's work for a job of small tasks. Spark Connect has no RDDs: there `spark.range(0, n, 1, n)` gives n
partitions of one row, and a user-defined function runs the task; it needs no pandas, as `mapInArrow` does in Spark 4.3.
"""

import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.types import BinaryType

from cdc_assets.adapters.spark.executors import context_of
from cdc_assets.adapters.spark.jvm import end_if_stopped
from cdc_assets.adapters.spark.stillness import warn_if_still
from cdc_assets.core.interruption import cancelled_by

_TAG = f"cdc-assets-{uuid4().hex}"
"""On each job of this process: a run that is to end, ends them all."""
_MOMENT_S = 1.0


def outcomes(session: SparkSession, execute: Callable[[int], bytes], count: int) -> list[bytes]:
    """What a function returns for each index below `count`."""
    context = context_of(session)
    if context is not None:
        return list(context.parallelize(range(count), count).map(execute).collect())
    function = udf(execute, BinaryType(), useArrow=False).asNondeterministic()
    rows = session.range(0, count, 1, count).select("id", function("id").alias("outcome")).collect()
    return [bytes(row["outcome"]) for row in sorted(rows, key=lambda row: row["id"])]


def map_indexes(session: SparkSession, function: Callable[[int], Any], count: int) -> list[Any]:
    """The same for plain values; a nested function is pickled by value, so that workers need no code of this
    package."""
    packed = outcomes(session, lambda index: pickle.dumps(function(index)), count)
    return [pickle.loads(outcome) for outcome in packed]  # noqa: S301 - our own probe wrote it


@contextmanager
def cancelled_with_run(session: SparkSession) -> Iterator[None]:
    """A block that waits for jobs of this thread. Others may use the session too, so ours are known by a tag; a JVM that is stopped
    does not even take that."""
    with warn_if_still(), cancelled_by(lambda: _end_own(session)), _tagged(session, _TAG):
        yield


@contextmanager
def cancelled_when(over: Event | None, session: SparkSession) -> Iterator[None]:
    """A block that waits for a job of this thread, which is cancelled once an event is set. Its tasks get a moment to end by
    themselves; but those that wait for a slot may wait for as long as a job of somebody else takes."""
    if over is None:
        yield
        return
    tag, left = f"{_TAG}-{uuid4().hex}", Event()

    def watch() -> None:
        while not left.wait(_MOMENT_S):
            if over.is_set():
                with suppress(Exception):  # the session has ended
                    _cancel(session, tag)

    with _tagged(session, tag):
        threading.Thread(target=watch, name="cancellation of a job", daemon=True).start()
        try:
            yield
        finally:
            left.set()


@contextmanager
def _tagged(session: SparkSession, tag: str) -> Iterator[None]:
    context = context_of(session)
    add, remove = (session.addTag, session.removeTag) if context is None else (context.addJobTag, context.removeJobTag)
    add(tag)
    try:
        yield
    finally:
        with suppress(Exception):  # the session has ended, and its tags with it
            remove(tag)


def cancel_own(session: SparkSession) -> None:
    """Cancel all jobs of this process that run by this package."""
    _cancel(session, _TAG)


def _cancel(session: SparkSession, tag: str) -> None:
    context = context_of(session)
    if context is None:
        session.interruptTag(tag)
    else:
        context.cancelJobsWithTag(tag)


def _end_own(session: SparkSession) -> None:
    """Cancel them when the run is to end; a JVM that is stopped cannot cancel, and one of somebody else does so when it continues."""
    if not end_if_stopped():
        cancel_own(session)
