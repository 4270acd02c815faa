"""Runs tasks one after the other in this process: where there is no Spark, or one small task."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from cdc_assets.core.jobs import Job
from cdc_assets.core.ran_on import RanOn

T = TypeVar("T")
R = TypeVar("R")


class OneByOne:
    """A `core.ports.TaskRunner` without any parallel work.

    Args:
        why: why it is not Spark that runs the tasks.
    """

    parallelism, may_start_twice = 1, False

    def __init__(self, why: str = "requested") -> None:
        self._why = why

    def get_ready(self) -> None:
        """Nothing is to be started."""

    def run(self, function: Callable[[T], R], tasks: Sequence[T], job: Job) -> list[R]:
        """Results in the order of the tasks; the first error is raised."""
        job.note(RanOn(here=len(tasks), why=self._why))
        return [function(task) for task in tasks]
