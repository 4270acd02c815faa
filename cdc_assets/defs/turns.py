"""Lets runs that write the same thing wait for each other, whatever pools Dagster has.

A pool is only what the instance says it is: without a limit for it, as in a new project, two runs of a capture begin at once. The
fence of the manifest ends the older one, and its backfill has failed. So a step takes its turn before it writes. Where a pool lets one
run begin at a time, the turn is always free.

*The algorithm* is Lamport's bakery. A step that wants its turn says so in a tag of its run, then takes a number that is greater
than all it sees. It waits for those who are choosing one, and for smaller numbers; of equal ones the run with the smaller id is first. Each
step writes only its own tag (`tags` keeps those of one run from losing each other). So there is one at a time, in the order of their coming, and no step waits for one that waits.

*Who is seen* are steps of runs that Dagster counts as at work, in all code locations of the instance. A number is of one run
and one process: a re-execution inherits the tags of its parent, and so nothing. *Crash:* the process is gone, and so is its
number; that of another host counts until Dagster reports the end of the run. Two runs outside one instance are kept apart by
the fence only.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import dagster as dg
from dagster import DagsterRunStatus, RunsFilter

from cdc_assets.core.interruption import sleep
from cdc_assets.core.processes import is_gone, own_process
from cdc_assets.defs.runs import repository_of
from cdc_assets.defs.tags import tag_run

_TAG = ".dagster/cdc_turn"
"""Begin of the tag's name; what is written, and the step, follow. Dagster's pages do not show tags with this prefix."""
_AT_WORK = [DagsterRunStatus.STARTING, DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING]
_CHOOSING = 0
_POLL_S = 0.5


@dataclass(frozen=True, order=True, slots=True)
class _Place:
    """A number that a step has taken; `_CHOOSING` if it is about to."""

    number: int
    run_id: str
    tag: str
    job: str
    repository: str


class Turns:
    """The turns of one step at one thing that only one may write.

    Args:
        what: the address of its record, which all writers know.
    """

    def __init__(self, context: dg.AssetExecutionContext, what: str) -> None:
        self._instance, self._run, self._log = context.instance, context.run, context.log
        self._things = f"{_TAG}/{hashlib.sha256(what.encode()).hexdigest()[:12]}/"
        self._tag = self._things + context.op_execution_context.op_handle.name
        self._number: int | None = None

    @contextmanager
    def taken(self) -> Iterator[None]:
        """A block that only this step is in; waits for those who came before.

        Raises:
            Interrupted: the run was to end while it waited.
        """
        self.take()
        try:
            yield
        finally:
            self.leave()

    def take(self) -> None:
        """Wait for the turn, and take it until `leave`."""
        named = None
        try:
            self._choose()
            while ahead := self._ahead():
                if ahead != named and ahead.number != _CHOOSING:
                    self._log.info(f"Waits for run {ahead.run_id[:8]} of {ahead.job}, which writes the same tables.")
                    named = ahead
                sleep(_POLL_S)
        except BaseException:
            self.leave()
            raise

    def leave(self) -> None:
        """Let the next one begin."""
        self._number = None
        tag_run(self._instance, self._run.run_id, {self._tag: ""})

    def is_wanted(self) -> bool:
        """Whether another step waits for this one."""
        return bool(self._others())

    def wanted_elsewhere(self) -> str:
        """The repository of another code location, a run of which waits for this step; empty if none does."""
        own = repository_of(self._run)
        return next((place.repository for place in self._others() if place.repository != own), "")

    def _choose(self) -> None:
        self._say(_CHOOSING)
        self._number = 1 + max((place.number for place in self._others()), default=0)
        self._say(self._number)

    def _say(self, number: int) -> None:
        tag_run(self._instance, self._run.run_id, {self._tag: f"{self._run.run_id} {number} {own_process()}"})

    def _ahead(self) -> _Place | None:
        """Who is first of those that this step has to wait for."""
        own = self._number, self._run.run_id, self._tag
        return min((it for it in self._others() if (it.number, it.run_id, it.tag) < own), default=None)

    def _others(self) -> list[_Place]:
        found = []
        for run in self._instance.get_runs(RunsFilter(statuses=_AT_WORK)):
            for tag, value in run.tags.items():
                if tag.startswith(self._things) and value and (run.run_id, tag) != (self._run.run_id, self._tag):
                    run_id, number, process = value.split(" ", 2)
                    if run_id == run.run_id and not is_gone(process):
                        found.append(_Place(int(number), run_id, tag, run.job_name, repository_of(run)))
        return found
