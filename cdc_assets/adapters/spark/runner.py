"""Spark as the runner of tasks: one job per call, one task per item.

A task is a pickled function and its argument (`jobs` says how it gets to a worker).
The rows themselves never pass through the JVM: a task reads and writes them with
Arrow and returns a small description.

*Why errors come back as data.* A Python exception inside a task reaches the driver as text in a `PythonException`: its
class, and so whether it may be retried, is lost. So a task catches, sends the exception's class, arguments and
attributes, and the driver raises the same error with the worker's traceback as a note. A worker that dies (killed, out
of memory) still fails the Spark job; that becomes a retryable error (`failures`).

*Repeating.* Nothing is retried here: for Spark a failed task has succeeded with an error as its result. Each retry
happens at the level with the least work to repeat: the session repeats a statement, a snapshot's task one table, the
loop a window. A cluster may still run a task twice, after a lost executor; that is harmless, because written files
count only once the driver commits them. Nothing starts a task twice at once: to Spark's speculation, a second copy that gives up
at once would be the faster one. So sessions of ours do not speculate, and where another one does, tasks that wait for one another
are refused (`may_start_twice`).
"""

import logging
import pickle
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from typing import Any, TypeVar

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from cdc_assets.adapters.spark.executors import context_of
from cdc_assets.adapters.spark.failures import JOB_ERRORS, job_error
from cdc_assets.adapters.spark.jobs import cancelled_when, cancelled_with_run, outcomes
from cdc_assets.adapters.spark.sight import TaskLocation, application_of, named, own_location
from cdc_assets.core.jobs import Job
from cdc_assets.core.ran_on import RanOn

log = logging.getLogger(__name__)

SPECULATION = "spark.speculation"
T = TypeVar("T")
R = TypeVar("R")


@contextmanager
def _watched() -> Iterator[None]:
    try:
        yield
    except JOB_ERRORS as error:
        raise job_error(error, "its address") from None


class SparkTaskRunner:
    """`core.ports.TaskRunner` on a Spark session.

    Args:
        session: function that returns the session; called at the first job, so that an idle run never starts a JVM.
        parallelism: function that returns the approximate number of parallel tasks; called only when needed, because it
            may start the session.
        watched: context manager for a block that waits for a job; translates the job's failure.
        address: of the Connect server, if it is a session of one.
    """

    def __init__(
        self,
        session: Callable[[], SparkSession],
        parallelism: Callable[[], int],
        watched: Callable[[], AbstractContextManager[None]] = _watched,
        address: str = "Spark Connect",
    ) -> None:
        self._session, self._parallelism, self._watched = session, parallelism, watched
        self._address = address

    @property
    def parallelism(self) -> int:
        """Approximate number of tasks that currently run at once."""
        return self._parallelism()

    @property
    def may_start_twice(self) -> bool:
        """Whether the session starts a slow task again beside itself; never one that was started here (`session`)."""
        session = self._session()
        context = context_of(session)
        with self._watched():
            found = session.conf.get(SPECULATION, "false") if context is None else context.getConf().get(SPECULATION)
        return bool(found == "true")

    def get_ready(self) -> None:
        """The first job starts the session; `early` has one start beside other work."""

    def run(self, function: Callable[[T], R], tasks: Sequence[T], job: Job) -> list[R]:
        """Run `function` on every task, as one Spark job.

        Raises:
            CdcError: error of the first failed task (in task order); no task is left running.
            EngineError: Spark's setup cannot run tasks.
            SparkTaskError: the job failed outside the function.
            Interrupted: the run was to end; its jobs were cancelled.
        """
        if not tasks:
            return []
        payload = cloudpickle.dumps((function, list(tasks)))  # together: tasks share the plans of their tables
        session = self._session()
        with self._watched(), cancelled_with_run(session):
            application = application_of(session, self._address)
            with named(session, job), cancelled_when(job.over, session):
                packed = outcomes(session, lambda index: _carry_out(payload, index), len(tasks))
        done = [pickle.loads(outcome) for outcome in packed]  # noqa: S301 - our own workers wrote them
        self._note(job, application, [location for location, _, _ in done])
        return [_result(result, failure) for _, result, failure in done]

    def _note(self, job: Job, application: RanOn, locations: Sequence[TaskLocation]) -> None:
        own, processes = own_location(), {(location.host, location.process) for location in locations}
        here = sum((location.host, location.process) == (own.host, own.process) for location in locations)
        why = "Spark has no processes of its own there" if here else ""
        job.note(replace(application, jobs=1, tasks=len(locations) - here, here=here, why=why))
        if any(location.attempt for location in locations):
            log.info("%s: Spark has started some of its tasks again, because an executor or a worker was lost.", job)
        log.debug("%s: stage %d, %d tasks in %s", job, locations[0].stage, len(locations), sorted(processes))


def _carry_out(payload: bytes, index: int) -> bytes:
    """In the worker: run one task; where it ran, and its result or error."""
    function, tasks = pickle.loads(payload)  # noqa: S301 - our own driver wrote it
    try:
        return bytes(cloudpickle.dumps((own_location(), function(tasks[index]), None)))
    except Exception as error:  # noqa: BLE001 - the driver raises it again
        return _packed(error)


def _packed(error: Exception) -> bytes:
    """An error as bytes; its own pickling is not used, because that calls `__init__` with the wrong arguments."""
    text, location = "".join(traceback.format_exception(error)), own_location()
    with suppress(Exception):  # what cannot be pickled, or not be read again, travels as text
        packed = bytes(cloudpickle.dumps((location, None, (type(error), error.args, error.__getstate__(), text))))
        _, _, (*failure, _) = pickle.loads(packed)  # noqa: S301 - as the driver will
        _unpacked(*failure)
        return packed
    return bytes(cloudpickle.dumps((location, None, (RuntimeError, (f"{type(error).__name__}: {error}",), None, text))))


def _result(result: Any, failure: tuple[Any, ...] | None) -> Any:
    """In the driver: the task's result, or its error raised again with the worker's traceback as a note."""
    if failure is None:
        return result
    *parts, text = failure
    error = _unpacked(*parts)
    error.add_note("In a Spark task:\n" + text)
    raise error


def _unpacked(kind: type[Exception], arguments: tuple[Any, ...], attributes: dict[str, Any] | None) -> Exception:
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    error.__setstate__(attributes)
    return error
