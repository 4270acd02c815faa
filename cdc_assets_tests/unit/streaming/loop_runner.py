"""Tasks that run one after the other."""

from collections.abc import Callable, Sequence

from cdc_assets.core.jobs import Job
from cdc_assets.core.ran_on import RanOn


class LoopRunner:
    """`core.ports.TaskRunner` that runs tasks one after the other in this process."""

    may_start_twice = False

    def __init__(self, parallelism: int = 2) -> None:
        self.parallelism = parallelism

    def get_ready(self) -> None:
        pass

    def run(self, function: Callable[..., object], tasks: Sequence[object], job: Job) -> list:  # type: ignore[type-arg]
        job.note(RanOn(here=len(tasks), why="a simulation"))
        return [function(task) for task in tasks]
