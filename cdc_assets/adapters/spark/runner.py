"""Spark as the runner of tasks: one job per call, one task per item.

A task is a pickled function and its argument. On a classic session it is an
element of an RDD, each in a partition of its own: no query is analysed, planned
and compiled, which halves the JVM's work for a job of small tasks. Spark Connect
has no RDDs: there `spark.range(0, n, 1, n)` gives n partitions of one row, and a
user-defined function runs the task; it needs no pandas, as `mapInArrow` does in
Spark 4.3. The rows themselves never pass through the JVM: a task reads and
writes them with Arrow and returns a small description.

*Why errors come back as data.* A Python exception inside a task reaches the
driver as text in a `PythonException`: its class, and with it the answer to "may
I repeat this?", is lost. So a task catches, sends the exception's class,
arguments and attributes, and the driver raises the same error with the worker's
traceback as a note. A worker that dies (killed, out of memory) still fails the
Spark job; that becomes a retryable error.

*Repeating.* Nothing is tried again here: for Spark a task that failed has succeeded,
with an error as its result. Whoever knows what the least is that must be done again
repeats that: the session a statement, a snapshot's task one table, the loop a window.
A cluster may run a task twice all the same, after a lost executor; that is harmless,
for what tasks write counts only once the driver commits it.
"""

import pickle
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from uuid import uuid4

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.types import BinaryType

from cdc_assets.core.interruption import cancelled_by
from cdc_assets.errors import RetryableError

T = TypeVar("T")
R = TypeVar("R")


class SparkTaskError(RetryableError):
    """A Spark job broke outside our code: a worker died, an executor was lost."""


class SparkTaskRunner:
    """`core.ports.TaskRunner` on a Spark session.

    Args:
        session: gives the session; called on the first job, so that an idle run never starts a JVM.
        parallelism: about how many tasks run at once.
    """

    def __init__(self, session: Callable[[], SparkSession], parallelism: int) -> None:
        self._session = session
        self.parallelism = parallelism

    def run(self, function: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
        """Run `function` on every task, as one Spark job.

        Raises:
            CdcError: what the first failing task (in task order) raised; no task is left running.
            SparkTaskError: the job broke outside the function.
            Interrupted: the run was asked to end; its jobs were cancelled.
        """
        if not tasks:
            return []
        payload = cloudpickle.dumps((function, list(tasks)))  # together: tasks share the plans of their tables
        try:
            session = self._session()
            with _cancelled(session):
                outcomes = _outcomes(session, lambda index: _carry_out(payload, index), len(tasks))
        except (PySparkException, Py4JError) as error:
            raise SparkTaskError(
                f"A Spark job of {len(tasks)} tasks broke: {_summary(error)}. "
                "Next: look for a killed Python worker or lost executor in Spark's log; the window is repeated."
            ) from error
        return [_result(outcome) for outcome in outcomes]


def _outcomes(session: SparkSession, execute: Callable[[int], bytes], count: int) -> list[bytes]:
    """What a function returns for each index below `count`, each in a task of its own."""
    context = getattr(session, "sparkContext", None)
    if context is not None:
        return list(context.parallelize(range(count), count).map(execute).collect())
    function = udf(execute, BinaryType(), useArrow=False).asNondeterministic()
    rows = session.range(0, count, 1, count).select("id", function("id").alias("outcome")).collect()
    return [bytes(row["outcome"]) for row in sorted(rows, key=lambda row: row["id"])]


@contextmanager
def _cancelled(session: SparkSession) -> Iterator[None]:
    """A block that waits for jobs. On Connect others may share the session, so there they are told by a tag."""
    context = getattr(session, "sparkContext", None)
    if context is not None:
        with cancelled_by(context.cancelAllJobs):
            yield
        return
    tag = f"cdc-assets-{uuid4().hex}"
    session.addTag(tag)
    try:
        with cancelled_by(lambda: session.interruptTag(tag)):
            yield
    finally:
        session.removeTag(tag)


def _summary(error: Exception) -> str:
    """The telling line of a JVM error: the deepest cause that it names first, else its own first line."""
    lines = str(error).splitlines() or [type(error).__name__]
    causes = [line.partition("Exception: ")[2] for line in lines if "SparkException: " in line]
    return (causes[-1] if causes else lines[0]).rstrip(".")


def _carry_out(payload: bytes, index: int) -> bytes:
    """In the worker: run one task, and pack what came of it."""
    function, tasks = pickle.loads(payload)  # noqa: S301 - our own driver wrote it
    try:
        return bytes(cloudpickle.dumps((function(tasks[index]), None)))
    except Exception as error:  # noqa: BLE001 - the driver raises it again
        return _packed(error)


def _packed(error: Exception) -> bytes:
    """An error as bytes; its own pickling is not used, for that calls `__init__` with the wrong arguments."""
    text = "".join(traceback.format_exception(error))
    try:
        return bytes(cloudpickle.dumps((None, (type(error), error.args, dict(vars(error)), text))))
    except Exception:  # noqa: BLE001 - what cannot be pickled travels as text
        return bytes(cloudpickle.dumps((None, (RuntimeError, (f"{type(error).__name__}: {error}",), {}, text))))


def _result(outcome: bytes) -> Any:
    """In the driver: the task's result, or its error raised again with the worker's traceback as a note."""
    result, failure = pickle.loads(outcome)  # noqa: S301 - our own worker wrote it
    if failure is None:
        return result
    kind, arguments, attributes, text = failure
    error: Exception = kind.__new__(kind, *arguments)
    error.args = arguments
    vars(error).update(attributes)
    error.add_note("In a Spark task:\n" + text)
    raise error
