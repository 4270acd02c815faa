"""What a job of tasks is for, as Spark's pages and logs show it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from threading import Event
from typing import Literal

from cdc_assets.core.ran_on import JobAccount, RanOn

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
        capture: whose job it is (`core.capture_runner`).
        account: where it is counted; nowhere if None.
        over: set when its results are no longer needed; then tasks that have not begun never do.
    """

    kind: JobKind
    about: str = ""
    rows: int | None = None
    capture: str = ""
    account: JobAccount | None = field(default=None, repr=False, compare=False)
    over: Event | None = field(default=None, repr=False, compare=False)

    def note(self, ran_on: RanOn) -> None:
        """Count the job; called by its runner."""
        if self.account is not None:
            self.account.note(self.kind, ran_on)

    def __str__(self) -> str:
        text = f"{self.kind} {self.about}".rstrip()
        return f"{self.capture}: {text}" if self.capture else text


def named(things: Iterable[object]) -> str:
    """Names of a few things, or how many others there are."""
    names = sorted(map(str, things))
    few = ", ".join(names[:_NAMED])
    return few if len(names) <= _NAMED else f"{few} and {len(names) - _NAMED} more"
