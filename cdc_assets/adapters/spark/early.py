"""Every job over rows runs on Spark; a small one runs in this process until the session is there.

| `spark.cdc.threads` | Spark | a job |
|---|---|---|
| `false` | local | on Spark; of one task of at most 20,000 change rows: in this process, until the session is there |
| `false` | a cluster, or Connect | on Spark, always |
| `true` | none | in threads of this process |

A session takes some seconds to start. So it is started in the background as soon as it is known that there is work
(`get_ready`), while tables are discovered and windows planned; its workers are started with it and import what tasks
need. The first change of an idle capture does not wait for that. Whatever else comes first waits for it, and a window that
begins when the session is there runs on it, whatever its size.

*Why it is right.* A task depends on its argument and the server only, and writes files that count only once they are
committed (`runner`): so it does not matter where it runs, and each job runs in one place. Tasks that wait for one another are never more
than run at once. A start that fails is an error of the next job, of a small one too: nothing continues in this process
because Spark is gone, so a run never leaves Spark out unseen. A start that ends because a run was to end is begun again by
the next run of the process. *A crash at any moment* is a crash of the run; it leaves some files that no commit names. A run that
ends while a session is being started ends the start (`launch`).
"""

import atexit
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from functools import cache
from typing import TypeVar
from weakref import WeakSet

from cdc_assets.adapters.spark.launch import Launch
from cdc_assets.adapters.spark.settings import SparkSettings
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.core.interruption import in_thread
from cdc_assets.core.jobs import Job
from cdc_assets.core.ports import TaskRunner

log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

EARLY_ROWS = 20_000
"""Change rows of a job that does not wait for a local session."""
_WARN_AFTER_S = 30.0
"""Seconds after which a job that waits for the session says so."""
_started: "WeakSet[EarlyRunner]" = WeakSet()
"""Runners that have begun a start in this process."""


@atexit.register
def _end_starts() -> None:
    """End what is under way when the process ends: a JVM that is left would hold its output open."""
    for runner in list(_started):
        runner.end_start()


def _never() -> bool:
    return False


class EarlyRunner:
    """A `core.ports.TaskRunner` on Spark that does not let a small job wait for a local session.

    Args:
        settings: which Spark.
        spark: makes the runner of its tasks, whose first job starts the session; called when there is work.
        is_there: whether the session is there, whoever has started it.
        launch: of the session's JVM.
    """

    def __init__(
        self,
        settings: SparkSettings,
        spark: Callable[[], TaskRunner],
        is_there: Callable[[], bool] = _never,
        launch: Launch | None = None,
    ) -> None:
        self._settings, self._spark, self._session_is_there = settings, cache(spark), is_there
        why = "spark.cdc.threads is true" if settings.threads else "a small job, before the session was there"
        self._threads = LocalRunner(settings.slots() or None, why)
        self._here = settings.threads or settings.local
        self._starts = threading.Lock()
        self._start: Future[None] | None = None
        self._awaited = False
        self._launch = launch or Launch()

    @property
    def parallelism(self) -> int:
        """About how many tasks run at once; on a cluster this may start the session."""
        return self._threads.parallelism if self._here else self._on_spark().parallelism

    @property
    def may_start_twice(self) -> bool:
        """Whether Spark may start a task again while it runs; a local one never does."""
        return not self._here and self._on_spark().may_start_twice

    def get_ready(self) -> None:
        """Start the session and its workers in the background, unless that was done. If it fails, so does the next job."""
        self._begun()

    def run(self, function: Callable[[T], R], tasks: Sequence[T], job: Job) -> list[R]:
        """Results in task order. The first error is raised after the others have stopped."""
        if not tasks:
            return []
        if self._settings.threads or self._is_early(len(tasks), job):
            return self._threads.run(function, tasks, job)
        return self._on_spark().run(function, tasks, job)

    def end_start(self) -> bool:
        """End a start that is under way or was interrupted; False if there is none. It waits until no JVM is left of it."""
        with self._starts:
            start = self._start
        if start is None or self._session_is_there() or (start.done() and not start.exception()):
            return False
        self._launch.end()
        return True

    def _is_early(self, tasks: int, job: Job) -> bool:
        if not self._settings.local or tasks > 1 or job.rows is None or job.rows > EARLY_ROWS:
            return False
        return not self._session_is_there() and not self._begun().done()

    def _begun(self) -> "Future[None]":
        """The start in the background."""
        with self._starts:
            if self._start is None or _is_interrupted(self._start):
                start = Future[None]()
                self._launch.renew()
                if self._settings.threads:
                    start.set_result(None)
                else:
                    _started.add(self)
                    threading.Thread(target=self._warm, args=(start,), name="spark-start", daemon=True).start()
                self._start = start  # not of a thread that could not be started: it would be waited for without end
            return self._start

    def _on_spark(self) -> TaskRunner:
        """Spark's runner, when the start in the background has ended; if it failed, later jobs start the session themselves."""
        start = self._begun()
        if not start.done() or start.exception():
            self._awaited = True
            try:
                in_thread(lambda: self._arrived(start))
            except Exception:
                with self._starts:
                    self._start = _ended()
                raise
        return self._spark()

    def _arrived(self, start: "Future[None]") -> None:
        """Wait for a start. It has no limit of its own: a cluster may be full, and the run can be ended."""
        if wait([start], _WARN_AFTER_S).not_done:
            cause = "this machine is busy" if self._settings.local else "it has a place for an application"
            log.warning(
                "Spark at %s has not started for %.0f s, and a job waits for it. Next: see whether %s, and whether its process on "
                "this machine is stopped.", self._settings.address, _WARN_AFTER_S, cause,
            )  # fmt: skip
        start.result()

    def _warm(self, start: "Future[None]") -> None:
        try:
            spark = self._spark()
            if not self._launch.is_ended:
                spark.run(str, range(spark.parallelism), Job("start"))
            start.set_result(None)
        except BaseException as error:  # noqa: BLE001 - raised where Spark is needed
            if not self._awaited and not self._launch.is_ended and isinstance(error, Exception):
                log.warning("Spark has not started, and the next job fails too: %s", error)
            start.set_exception(error)


def _is_interrupted(start: "Future[None]") -> bool:
    """Whether it ended because a run was to end, which later runs of the process were not."""
    return start.done() and start.exception() is not None and not isinstance(start.exception(), Exception)


def _ended() -> "Future[None]":
    ended = Future[None]()
    ended.set_result(None)
    return ended
