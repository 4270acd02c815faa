"""Runs tasks in threads of this process, for small captures and machines without Java."""

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from os import cpu_count
from typing import TypeVar

from cdc_assets.core.jobs import Job
from cdc_assets.core.ran_on import RanOn

T = TypeVar("T")
R = TypeVar("R")


class LocalRunner:
    """A `core.ports.TaskRunner` over threads: reading, Arrow and Parquet release the interpreter lock.

    Args:
        parallelism: number of tasks that run at once; the number of CPU cores if None.
        why: why it is not Spark that runs the tasks.
    """

    may_start_twice = False

    def __init__(self, parallelism: int | None = None, why: str = "requested") -> None:
        self.parallelism = parallelism or cpu_count() or 1
        self._why = why

    def get_ready(self) -> None:
        """Threads need no time to start."""

    def run(self, function: Callable[[T], R], tasks: Sequence[T], job: Job) -> list[R]:
        """Results in the order of the tasks. After an error, waiting tasks do not start; it is raised when the running ones have ended."""
        job.note(RanOn(here=len(tasks), why=self._why))
        if len(tasks) == 1:
            return [function(tasks[0])]
        with ThreadPoolExecutor(self.parallelism) as pool:
            futures = [pool.submit(function, task) for task in tasks]
            wait(futures, return_when=FIRST_EXCEPTION)
            if any(future.done() and future.exception() for future in futures):
                for future in futures:
                    future.cancel()
        failed = next((future for future in futures if not future.cancelled() and future.exception()), None)
        if failed is not None:
            failed.result()
        return [future.result() for future in futures]
