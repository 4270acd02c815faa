"""One Spark job: a function called for each index below a number, each in a separate task.

On a classic session a task is an element of an RDD, in a partition of its own: no query is analysed, planned and compiled,
which halves the JVM's work for a job of small tasks. Spark Connect has no RDDs: there `spark.range(0, n, 1, n)` gives n
partitions of one row, and a user-defined function runs the task; it needs no pandas, as `mapInArrow` does in Spark 4.3.
"""

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.types import BinaryType

from cdc_assets.adapters.spark.executors import context_of
from cdc_assets.adapters.spark.jvm import kill_if_stopped
from cdc_assets.adapters.spark.stillness import told_if_still
from cdc_assets.core.interruption import cancelled_by

_TAG = f"cdc-assets-{uuid4().hex}"
"""On each job of this process: a run that is asked to end, ends them all."""


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
    """A block that waits for jobs of this thread. Others may use the session too, so ours are known by a tag."""
    context = context_of(session)
    add, remove = (session.addTag, session.removeTag) if context is None else (context.addJobTag, context.removeJobTag)
    add(_TAG)
    try:
        with cancelled_by(lambda: _end_own(session)), told_if_still():
            yield
    finally:
        with suppress(Exception):  # the session has ended, and its tags with it
            remove(_TAG)


def cancel_own(session: SparkSession) -> None:
    """Cancel all jobs of this process that run by this package."""
    context = context_of(session)
    if context is None:
        session.interruptTag(_TAG)
    else:
        context.cancelJobsWithTag(_TAG)


def _end_own(session: SparkSession) -> None:
    """Cancel them when the run is to end; a JVM that is stopped cannot cancel."""
    kill_if_stopped()
    cancel_own(session)
