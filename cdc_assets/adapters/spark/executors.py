"""The executors of a session: number of parallel tasks, and detection of missing executors.

A cluster without executors gives no error: a job waits for ever. The cluster may be full; its executors may fail to
reach the driver and end unnoticed by it; or they may start and end again and again. So a watch runs during each job and cancels it
when no executor has worked within `spark.cdc.executor.timeout`. It waits twice as long while a new one is registered, which may be
the first that works. On Connect, which shows no executors, tasks must run.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.functions import spark_partition_id

from cdc_assets.adapters.spark.connect import Progress
from cdc_assets.adapters.spark.failures import SparkTaskError
from cdc_assets.adapters.spark.jvm import scala_context
from cdc_assets.core.interruption import sleep
from cdc_assets.errors import CdcError, EngineError

_POLL_S = 0.5
_STAYS_S = 10.0
"""Seconds after which an executor counts as working."""
_QUIET_S, _LONGEST_WAIT_S = 1.0, 10.0
"""Seconds without a new executor after which all are assumed to be there, and maximum seconds to wait."""
_ROWS = 100_000
"""Greater than the number of cores of any cluster."""


def context_of(session: SparkSession) -> SparkContext | None:
    """The session's context; None on Spark Connect."""
    return getattr(session, "sparkContext", None)


def count(context: SparkContext) -> int:
    """Number of currently registered executors, without the driver."""
    return len(_members(context)) - 1


def _members(context: SparkContext) -> frozenset[str]:
    """Addresses of the currently registered executors, and of the driver."""
    return frozenset(scala_context(context).getExecutorMemoryStatus().keySet().mkString(" ").split())


def wait_for_executors(context: SparkContext) -> int:
    """Number of executors once no more of them register; for a session that has just started."""
    known, since, until = count(context), time.monotonic(), time.monotonic() + _LONGEST_WAIT_S
    while time.monotonic() < min(until, since + _QUIET_S):
        sleep(_POLL_S)
        if (now := count(context)) != known:
            known, since = now, time.monotonic()
    return known


def slots(session: SparkSession) -> int:
    """Number of tasks that run at once on the registered executors, or on those that dynamic allocation may start.

    If that has no limit, it is twice as many as are registered: Spark starts executors for waiting tasks only.
    A Connect client cannot see executors, so a job that runs only in the JVM counts the slots.
    """
    context = context_of(session)
    if context is None:
        return len(session.range(_ROWS).select(spark_partition_id()).distinct().collect())
    conf, now = context.getConf(), int(context.defaultParallelism)
    each = int(conf.get("spark.task.cpus", "1") or 1)
    if str(conf.get("spark.dynamicAllocation.enabled", "false")).lower() == "true":
        executors = max(1, count(context))
        cores = conf.get("spark.executor.cores", "") or now // executors
        now = max(now, int(conf.get("spark.dynamicAllocation.maxExecutors", "") or 2 * executors) * int(cores))
    return max(1, now // each)


class ExecutorWatch:
    """Cancels jobs that wait for missing executors.

    Args:
        session: session of the jobs.
        timeout_s: maximum wait in seconds.
        where: address of the master or the Connect server, for messages.
        cancel: cancels them.
    """

    def __init__(self, session: SparkSession, timeout_s: float, where: str, cancel: Callable[[], None]) -> None:
        self._session, self._context = session, context_of(session)
        self._progress = Progress(session) if self._context is None else None
        self._timeout_s, self._where, self._cancel = timeout_s, where, cancel
        self._seen = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch a block that waits for a job.

        Raises:
            EngineError: there was no executor for too long, and there has never been one.
            SparkTaskError: all executors were lost, and none came back for too long.
        """
        done, expired = threading.Event(), threading.Event()
        threading.Thread(target=self._watch, args=(done, expired), name="executor-watch", daemon=True).start()
        try:
            yield
            self._seen = True
        except Exception as error:
            if expired.is_set():
                raise self._reason() from error
            raise
        finally:
            done.set()

    def _watch(self, done: threading.Event, expired: threading.Event) -> None:
        served = time.monotonic()
        since: dict[str, float] = {}
        while not done.wait(_POLL_S):
            with suppress(Exception):  # a session may end meanwhile; then its job fails by itself
                now, patience = time.monotonic(), self._timeout_s
                if self._progress is not None:
                    stay = self._progress.running or (self._seen and not self._progress.reported)
                else:
                    since = {member: since.get(member, now) for member in _members(self._context)}
                    stay = sum(now - first >= _STAYS_S for first in since.values()) > 1  # the driver is one of them
                    patience *= 2 if len(since) > 1 else 1
                served, self._seen = now if stay else served, self._seen or stay
                if now - served >= patience:
                    expired.set()
                    self._cancel()

    def _reason(self) -> CdcError:
        if self._context is None:
            return (SparkTaskError if self._seen else EngineError)(
                f"Spark Connect at {self._where} ran no task for {self._timeout_s:g} s: its cluster is full or has no "
                "executors. Next: look at the server's page of executors; spark.cdc.executor.timeout sets the wait."
            )
        conf = self._context.getConf()
        driver = f"{conf.get('spark.driver.host')}:{conf.get('spark.driver.port')}"
        if left := _left(self._context):
            driver += f" and stayed; the last one left with: {left}"
        if self._seen:
            return SparkTaskError(
                f"Spark at {self._where} has lost its executors, and none came back within {self._timeout_s:g} s. "
                "Next: look at the cluster's workers; the read is repeated."
            )
        return EngineError(
            f"No executor of {self._where} registered within {self._timeout_s:g} s with the driver at {driver}. Either the "
            "cluster has no cores or memory free (spark.executor.cores, spark.executor.memory, spark.cores.max), or its "
            "executors cannot reach that address and end again (spark.driver.host, spark.driver.port, a firewall). Next: look "
            "at the master's page and at an executor's stderr; spark.cdc.executor.timeout sets the wait."
        )


def _left(context: SparkContext) -> str:
    """The cluster's reason for the loss of the last executor that was lost."""
    with suppress(Py4JError):
        known = scala_context(context).statusStore().executorList(False)
        reasons = [known.apply(number).removeReason() for number in range(known.size())]
        return next((str(reason.get()) for reason in reversed(reasons) if reason.isDefined()), "")
    return ""
