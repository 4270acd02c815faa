"""The jobs of one capture, on a runner that others share."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from cdc_assets.core.jobs import Job
from cdc_assets.core.ports import TaskRunner
from cdc_assets.core.ran_on import JobAccount

T = TypeVar("T")
R = TypeVar("R")


class CaptureRunner:
    """A `core.ports.TaskRunner` whose jobs say which capture they are of, and are counted apart from those of others.

    Args:
        runner: runs them.
        capture: name of the capture.
        account: where they are counted; with those of others who have it too.
    """

    def __init__(self, runner: TaskRunner, capture: str, account: JobAccount | None = None) -> None:
        self._runner, self._capture = runner, capture
        self.account = account or JobAccount()
        """Where its jobs ran that came to an end."""

    @property
    def parallelism(self) -> int:
        """Approximate number of tasks that run at once; may start an engine."""
        return self._runner.parallelism

    @property
    def may_start_twice(self) -> bool:
        """Whether a task may be started again while it runs; may start an engine."""
        return self._runner.may_start_twice

    def get_ready(self) -> None:
        """Have an engine start beside what comes first."""
        self._runner.get_ready()

    def run(self, function: Callable[[T], R], tasks: Sequence[T], job: Job) -> list[R]:
        """Results in task order. The first error is raised after the others have stopped."""
        return self._runner.run(function, tasks, replace(job, capture=self._capture, account=self.account))
