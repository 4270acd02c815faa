"""In which processes tasks ran: no row of a benchmark says Spark if a task's process was the driver's, and none says threads if one was not.

A `Witness` stands in front of a task runner and has each task tell the id of its process beside its result. In a command's process
`benchmarks.command` puts it there, and leaves what it saw in a file. Workers import this module, so it imports nothing.
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any


class Witness:
    """A task runner that counts tasks by the process in which they ran.

    Args:
        runner: does the work.
        saw: called after each job with its numbers of tasks by process id.
    """

    def __init__(self, runner: Any, saw: Callable[[Mapping[int, int]], None]) -> None:
        self._runner, self._saw = runner, saw

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any], *job: Any) -> list[Any]:
        """Run `function` on every task."""
        found = self._runner.run(partial(_located, function), tasks, *job)
        self._saw(Counter(process for process, _ in found))
        return [result for _, result in found]


def _located(function: Callable[[Any], Any], task: Any) -> tuple[int, Any]:
    """In the task's process: its id and the result."""
    return os.getpid(), function(task)


def noted(seen: Mapping[int, int]) -> str:
    """What a driver's process saw, as a line for `Kind.require`."""
    return json.dumps({"driver": os.getpid(), "ran": seen})


@dataclass(frozen=True, slots=True)
class Kind:
    """A way to run tasks, by which a row of a table is named.

    Args:
        name: in tables.
        on_spark: whether tasks run in workers of Spark; else in threads of the driver's process; None if no row says.
        arguments: of the command `capture`.
        spark: content of its Spark file.
    """

    name: str
    on_spark: bool | None
    arguments: tuple[str, ...] = ()
    spark: str = ""

    def require(self, lines: Iterable[str]) -> None:
        """Refuse a row of this name unless every task ran where the name says.

        Args:
            lines: of `noted`.

        Raises:
            RuntimeError: one did not, or there was none.
        """
        tasks, there = _counted(lines)
        if self.on_spark is not None and not self._holds(tasks, there):
            raise RuntimeError(
                f"No row {self.name!r} is written: {there} of {tasks} tasks ran in the driver's process, expected "
                f"{'none of at least one' if self.on_spark else 'all of at least one'}. Next: see what the runner decided"
            )

    def holds(self, lines: Iterable[str]) -> bool:
        """Whether there were tasks, and all ran where the name says."""
        return self._holds(*_counted(lines))

    def _holds(self, tasks: int, there: int) -> bool:
        return tasks > 0 and there == (0 if self.on_spark else tasks)


def _counted(lines: Iterable[str]) -> tuple[int, int]:
    """Number of tasks, and of those that ran in the driver's process."""
    jobs = [json.loads(line) for line in lines]
    there = sum(count for job in jobs for process, count in job["ran"].items() if int(process) == job["driver"])
    return sum(count for job in jobs for count in job["ran"].values()), there


SPARK = Kind("Spark", True, spark="spark.cdc.threads false\n")
THREADS = Kind("threads", False, spark="spark.cdc.threads true\n")
LOCAL = Kind("`--local`", False, ("--local",))
KINDS = (SPARK, THREADS, LOCAL)
