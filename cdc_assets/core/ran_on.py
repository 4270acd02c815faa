"""Where the tasks of jobs ran: on Spark, or in this process, and why.

A runner of tasks notes each job (`core.jobs.Job.note`), so that reported figures were counted where the work happened. A task on Spark
says itself in which process it ran (`adapters.spark.runner`): one that ran in the driver's counts as such.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass

NO_TASK = "no task was needed"


@dataclass(frozen=True, slots=True)
class RanOn:
    """Where some jobs ran. A job on Spark counts once its tasks have ended, well or not; a task in this process once it is begun.

    Args:
        spark: Spark's master, or the address of a Connect server; empty if no task ran there.
        application: id of the newest application; empty if it is not known.
        pages: address of that application's pages; empty if Spark serves none.
        jobs: number of jobs on Spark.
        tasks: number of tasks on Spark.
        here: number of tasks in the process that requested them.
        why: why the newest of these did not run on Spark.
    """

    spark: str = ""
    application: str = ""
    pages: str = ""
    jobs: int = 0
    tasks: int = 0
    here: int = 0
    why: str = ""

    def __bool__(self) -> bool:
        """Whether any task ran."""
        return bool(self.tasks or self.here)

    def __add__(self, later: "RanOn") -> "RanOn":
        """These jobs and later ones; of two applications the later one is named."""
        newest = later if later.spark else self
        return RanOn(
            newest.spark,
            newest.application,
            newest.pages,
            self.jobs + later.jobs,
            self.tasks + later.tasks,
            self.here + later.here,
            later.why if later.here else self.why,
        )

    def since(self, earlier: "RanOn") -> "RanOn":
        """What was added to an earlier count of the same jobs."""
        jobs, tasks, here = self.jobs - earlier.jobs, self.tasks - earlier.tasks, self.here - earlier.here
        named = (self.spark, self.application, self.pages) if tasks else ("", "", "")
        return RanOn(*named, jobs, tasks, here, self.why if here else "")

    def __str__(self) -> str:
        parts = []
        if self.tasks:
            named = f"{self.spark} ({self.application})" if self.application else self.spark
            parts.append(f"Spark {named}: {count_of(self.jobs, 'job')}, {count_of(self.tasks, 'task')}")
        if self.here:
            parts.append(f"this process: {count_of(self.here, 'task')} ({self.why})")
        return "; ".join(parts) or NO_TASK


NOWHERE = RanOn()
"""Of no job."""


class JobAccount:
    """Adds up where jobs ran, by their kind; several threads may run jobs at once."""

    def __init__(self) -> None:
        self._lock, self._found = threading.Lock(), dict[str, RanOn]()

    def note(self, kind: str, ran_on: RanOn) -> None:
        """Add a job."""
        with self._lock:
            self._found[kind] = self._found.get(kind, NOWHERE) + ran_on

    def of(self, kind: str) -> RanOn:
        """All jobs of one kind until now."""
        with self._lock:
            return self._found.get(kind, NOWHERE)

    def by_kind(self) -> Mapping[str, RanOn]:
        """All jobs until now."""
        with self._lock:
            return dict(self._found)


def count_of(number: int, noun: str) -> str:
    """A number of things: `1 event`, `2,000 batches`."""
    plural = "es" if noun.endswith("ch") else "s"
    return f"{number:,} {noun}{'' if number == 1 else plural}"
