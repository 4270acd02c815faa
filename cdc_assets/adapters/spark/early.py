"""Tasks begin in threads of this process and move to Spark when there is work enough for it.

To start a session takes as much processor time as to write a million rows to the lake. So tasks begin at once in threads.
Only if they have worked for about as long as a start takes, and more is to be done, is Spark started in the background
while they continue (the ski-rental rule: at most twice the cost of the better choice). Then Spark runs the tasks that were
not begun, and all later jobs of several tasks. So little work never pays for a start, and much work loses one start at most.

| Spark is | a job of one task | a job of several |
|---|---|---|
| local | in this process | in threads; Spark, once it has been started for much work |
| a cluster, or Connect | in this process, if no session is there | Spark |

A cluster is there for several tasks; a single one is as fast in this process, and an idle capture then holds no executors.
If this process lacks what executors have, such as a network path, `spark.cdc.threads` set to false leaves all to Spark.

*Why it is right.* A task depends on its argument and the server alone, and writes files that count only once they are
committed (`runner`): so it does not matter where it runs, and each is given to threads or to Spark, once. Tasks that wait
for one another are never more than run at once, and as many begin at once in threads. *A crash at any moment* is
a crash of the run; it leaves some files that no commit names.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar

from cdc_assets.adapters.spark.settings import SparkSettings
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.core.interruption import Interrupted
from cdc_assets.core.jobs import Job
from cdc_assets.core.ports import TaskRunner

log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

START_AFTER_S = 2.0
"""Seconds for which threads work before Spark is worth its start."""
_FORGET_S = 5.0
"""After so long without a job the work before it no longer counts."""
_LOOK_S = 0.05


class EarlyRunner:
    """A `core.ports.TaskRunner` that needs Spark only for much work.

    Args:
        settings: which Spark.
        spark: makes the runner of its tasks, whose first job starts the session; called when there is one.
        start_after_s: seconds for which threads work before Spark is started.
    """

    def __init__(
        self, settings: SparkSettings, spark: Callable[[], TaskRunner], start_after_s: float = START_AFTER_S
    ) -> None:
        self._settings, self._spark, self._start_after_s = settings, cache(spark), start_after_s
        self._worked_s, self._ended = 0.0, 0.0
        self._starting, self._ready = threading.Lock(), threading.Event()
        self._logged = False

    @property
    def parallelism(self) -> int:
        """About how many tasks run at once; on a cluster this may start the session."""
        return self._spark().parallelism if not self._settings.local else max(1, self._settings.slots())

    @property
    def may_start_twice(self) -> bool:
        """Whether Spark may start a task again while it runs; a local one never does."""
        return not self._settings.local and self._spark().may_start_twice

    def run(self, function: Callable[[T], R], tasks: Sequence[T], job: Job) -> list[R]:
        """Results in task order. The first error is raised after the others have stopped."""
        if not self._settings.threads:
            return self._spark().run(function, tasks, job)
        if self._settings.local and len(tasks) > 1 and not self._ready.is_set():
            return self._begin_in_threads(function, tasks, job)
        if len(tasks) > 1 or (self._ready.is_set() and not self._settings.local):
            self._ready.set()
            return self._spark().run(function, tasks, job)
        self._tell()
        return LocalRunner(1).run(function, tasks, job)

    def _begin_in_threads(self, function: Callable[[T], R], tasks: Sequence[T], job: Job) -> list[R]:
        begun = time.monotonic()
        self._tell()
        if begun - self._ended > _FORGET_S:
            self._worked_s = 0.0
        try:
            return _Started(self, function, tasks, job).results(begun)
        finally:
            self._ended = time.monotonic()
            self._worked_s += self._ended - begun

    def ready(self, begun: float, waiting: int) -> bool:
        """Whether Spark takes tasks; starts it if it is worth it.

        Args:
            begun: when the job began.
            waiting: tasks that nobody has begun.
        """
        worked = self._worked_s + time.monotonic() - begun
        if worked >= self._start_after_s and self._starting.acquire(blocking=False):  # and never given back
            log.info("%d tasks wait after %.1f s of work in threads: Spark is started beside them.", waiting, worked)
            threading.Thread(target=self._start, name="spark-start", daemon=True).start()
        return self._ready.is_set()

    def take(self, function: Callable[[T], R], tasks: Sequence[T], job: Job) -> list[R]:
        """Let Spark run tasks."""
        log.info("Spark takes over: %d tasks go to it.", len(tasks))
        return self._spark().run(function, tasks, job)

    def _start(self) -> None:
        """Start the session, its workers and their imports by an empty job. If that fails, the next job fails too and reports it."""
        with suppress(Exception, Interrupted):
            self._spark().run(_nothing, range(self.parallelism), Job("start"))
        self._ready.set()

    def _tell(self) -> None:
        if not self._logged:
            self._logged = True
            wait_s, local = self._start_after_s, self._settings.local
            then = f"they have worked for {wait_s:g} s and more is to be done" if local else "a job has several tasks"
            log.info("Tasks run in this process; Spark is started when %s (spark.cdc.threads).", then)


def _nothing(_: int) -> None:
    """What a job does that only starts Spark."""


class _Started:
    """One job that begins in threads.

    Args:
        runner: says when Spark takes the rest.
        function: what is run.
        tasks: its arguments.
        job: what it is for.
    """

    def __init__(self, runner: EarlyRunner, function: Callable[[Any], Any], tasks: Sequence[Any], job: Job) -> None:
        self._runner, self._function, self._tasks, self._job = runner, function, tasks, job
        self._waiting = list(range(len(tasks)))
        self._parts: dict[Future[list[Any]], Sequence[int]] = {}

    def results(self, begun: float) -> list[Any]:
        """Run it."""
        threads = self._runner.parallelism
        running: set[Future[list[Any]]] = set()
        with ThreadPoolExecutor(threads + 1) as pool:
            while self._waiting or running:
                if self._waiting and self._runner.ready(begun, len(self._waiting)):
                    running.add(self._submit(pool, self._runner.take, len(self._waiting)))
                while self._waiting and len(running) < threads:
                    running.add(self._submit(pool, LocalRunner(1).run, 1))
                done, running = wait(running, _LOOK_S if self._waiting else None, FIRST_COMPLETED)
                if any(future.exception() for future in done):
                    self._waiting.clear()  # they never start
        outcomes: dict[int, Any] = {}
        for future, numbers in sorted(self._parts.items(), key=lambda part: part[1][0]):
            outcomes.update(zip(numbers, future.result(), strict=True))
        return [outcomes[number] for number in range(len(self._tasks))]

    def _submit(self, pool: ThreadPoolExecutor, run: Callable[..., list[Any]], count: int) -> Future[list[Any]]:
        numbers, self._waiting = self._waiting[:count], self._waiting[count:]
        future = pool.submit(run, self._function, [self._tasks[number] for number in numbers], self._job)
        self._parts[future] = numbers
        return future
