"""What a job of tasks is for, as whoever looks at Spark's pages or at a log sees it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

JobKind = Literal["start", "snapshot", "window", "incremental", "mirror", "reconcile", "rewriting", "retention"]

_NAMED = 3


@dataclass(frozen=True, slots=True)
class Job:
    """One call of a task runner.

    Args:
        kind: activity that needs it.
        about: what it works on in a few words: number of the window or round, names of tables.
        rows: number of change rows that its tasks read, with the rows of a mirror that they are about; None if that is not
            known, or they read other rows.
    """

    kind: JobKind
    about: str = ""
    rows: int | None = None

    def __str__(self) -> str:
        return f"{self.kind} {self.about}".rstrip()


def named(things: Iterable[object]) -> str:
    """Names of a few things, or how many others there are."""
    names = sorted(map(str, things))
    few = ", ".join(names[:_NAMED])
    return few if len(names) <= _NAMED else f"{few} and {len(names) - _NAMED} more"
