"""Runs tasks one after the other in this process: where there is no Spark, or one small task."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from cdc_assets.core.jobs import Job

T = TypeVar("T")
R = TypeVar("R")


class OneByOne:
    """A `core.ports.TaskRunner` without any parallel work."""

    parallelism, may_start_twice = 1, False

    def get_ready(self) -> None:
        """Nothing is to be started."""

    def run(self, function: Callable[[T], R], tasks: Sequence[T], job: Job) -> list[R]:
        """Results in the order of the tasks; the first error is raised."""
        return [function(task) for task in tasks]
