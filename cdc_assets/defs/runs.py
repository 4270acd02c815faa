"""Finds the runs of a capture in Dagster's run storage.

Runs are identified by their job, their selected assets, or, if they select none, the steps of their plan; not by tags only, so
that a run started by hand counts too, and one of a user's own job that a schedule has started. A run that has ended is known by its job, or
by the tag that its step has left: what a person materializes on the pages of assets is a run of Dagster's own job. A capture of the same name in
another code location is another capture.

*Who is dead.* A run whose recorded process is gone. One that has recorded none died before its first step did, if three things
hold: that takes long, the code server that would have reported it is gone too, and no step of anybody else is at work.
"""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import dagster as dg
from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, RunsFilter

from cdc_assets.core.processes import is_gone
from cdc_assets.defs.process import process_of

WAITING = [DagsterRunStatus.QUEUED, DagsterRunStatus.NOT_STARTED]
_ENDED = [DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED]
ACTIVE = [*WAITING, DagsterRunStatus.STARTING, DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING]

FAILURE_REASON_TAG = "dagster/failure_reason"
_SENSOR_TAG = "dagster/sensor_name"
COMMITTED_TAG = "cdc/committed"
"""On a run that committed everything: if it fails, only one of its tables has a problem, and the others continue."""

PROGRESS_TAG = "cdc/progress"
"""On a run that failed after it had committed windows: how many; and on one that has read tables: how many. What the run before had
met was over by then."""

_STEP_TAG = ".dagster/cdc_step/"
"""On a run whose step of this name, which follows, has begun, whatever its job is."""

_REPOSITORY_TAG = ".dagster/repository"
"""Dagster's: of runs that were started through a code location."""

LEFT_AT_TAG = "cdc/left_at"
"""On a run that stopped streaming though there may be more to read, at its time limit or for another run: when, in seconds since 1970."""

MADE_WAY_TAG = "cdc/made_way"
"""On a run that stopped streaming for a run of another code location that captures into the same lake: its repository."""

_SILENT_S = 600
"""Seconds that a run may take from its start until it records its process."""
_LOADED = time.time()
"""When this code server has started."""
_GONE = "The process of this run is gone, and so is the code server that would have reported it."


def is_asked_for(run: DagsterRun, sensor: str) -> bool:
    """Whether the capture's sensor has requested a run, because it has found work; else somebody wants it as it is.

    Args:
        sensor: its name.
    """
    return run.tags.get(_SENSOR_TAG) == sensor


@dataclass(frozen=True, slots=True)
class CaptureRuns:
    """The runs that write to one capture.

    Args:
        jobs: names of the capture's jobs.
        assets: keys of the assets that these jobs write.
        steps: names of the steps that write them.
        repository: Dagster's label of the repository that has them; empty if it is not known, which excludes no run.
    """

    jobs: frozenset[str]
    assets: frozenset[dg.AssetKey]
    steps: frozenset[str] = frozenset()
    repository: str = ""

    def of(self, repository: str) -> "CaptureRuns":
        """Those of one repository."""
        return replace(self, repository=repository)

    def concerns(self, instance: DagsterInstance, run: DagsterRun) -> bool:
        """Whether the run writes to this capture."""
        if not is_of(run, self.repository):
            return False
        if run.job_name in self.jobs:
            return True
        if run.asset_selection is not None:
            return bool(self.assets & run.asset_selection)
        return bool(self.steps & _steps_of(instance, run))

    def active(self, instance: DagsterInstance) -> Sequence[DagsterRun]:
        """Queued or running runs; one whose process is gone is reported to Dagster as failed and left out."""
        return [record.dagster_run for record in self._active(instance, ACTIVE)]

    def at_work(self, instance: DagsterInstance) -> Sequence[dg.RunRecord]:
        """Records of the same without those that are queued."""
        return self._active(instance, [status for status in ACTIVE if status not in WAITING])

    def _active(self, instance: DagsterInstance, statuses: list[DagsterRunStatus]) -> Sequence[dg.RunRecord]:
        records = instance.get_run_records(RunsFilter(statuses=statuses))
        concerned = [record for record in records if self.concerns(instance, record.dagster_run)]
        return [record for record in concerned if not self._end_if_gone(instance, record)]

    def waiting(self, instance: DagsterInstance) -> Sequence[DagsterRun]:
        """Runs that are in the queue."""
        return [run for run in instance.get_runs(RunsFilter(statuses=WAITING)) if self.concerns(instance, run)]

    def others_at_work(self, instance: DagsterInstance, own: DagsterRun) -> bool:
        """Whether another run than one's own is at work; one that is queued is not, nor one that is dead."""
        runs = self.of(repository_of(own)).active(instance)
        return any(run.run_id != own.run_id and run.status not in WAITING for run in runs)

    def finished(self, instance: DagsterInstance, limit: int) -> Sequence[dg.RunRecord]:
        """The newest ended runs of the capture, newest first: of its jobs, and those whose steps have begun."""
        found = [record for job in sorted(self.jobs) for record in self.finished_of(instance, job, limit)]
        found += [record for step in sorted(self.steps) for record in self._ended(instance, limit, step_tag(step))]
        records = {record.storage_id: record for record in found}
        return [records[number] for number in sorted(records, reverse=True)[:limit]]

    def gap_s(self, instance: DagsterInstance) -> float | None:
        """Seconds for which nothing streams by now because the last run stopped; None if it had read everything."""
        last = self.finished(instance, 1)
        left_at = last[0].dagster_run.tags.get(LEFT_AT_TAG) if last else None
        return max(0.0, time.time() - float(left_at)) if left_at else None

    def finished_of(self, instance: DagsterInstance, job: str, limit: int) -> Sequence[dg.RunRecord]:
        """The newest ended runs of one job, newest first."""
        return self._ended(instance, limit, {}, job)

    def _ended(
        self, instance: DagsterInstance, limit: int, tags: Mapping[str, str], job: str | None = None
    ) -> Sequence[dg.RunRecord]:
        own = {_REPOSITORY_TAG: self.repository} if self.repository else {}
        return instance.get_run_records(RunsFilter(job_name=job, tags={**tags, **own}, statuses=_ENDED), limit=limit)

    def _end_if_gone(self, instance: DagsterInstance, record: dg.RunRecord) -> bool:
        """Report the end of a run whose process is gone; returns whether it was."""
        run = record.dagster_run
        if run.status in WAITING or not self._is_gone(instance, record):
            return False
        if run.status is DagsterRunStatus.CANCELING:
            instance.report_run_canceled(run, _GONE)
        else:
            instance.report_run_failed(run, _GONE)
        return True

    def _is_gone(self, instance: DagsterInstance, record: dg.RunRecord) -> bool:
        """Whether a run is dead; see the module's head."""
        if (process := process_of(record.dagster_run)) is not None:
            return bool(process) and is_gone(process)
        started = record.start_time
        if started is None or started >= _LOADED or abs(time.time() - started) <= _SILENT_S:
            return False  # in both directions: the clock may have been set back
        stats = instance.get_run_step_stats(record.dagster_run.run_id)
        return not any(
            step.start_time and not step.end_time and _name(step.step_key) not in self.steps for step in stats
        )


def step_tag(name: str) -> dict[str, str]:
    """The tag of a run in which a step of this name has begun."""
    return {f"{_STEP_TAG}{_name(name)}": "begun"}


def repository_of(run: DagsterRun) -> str:
    """Dagster's label of the repository that a run's job is of; empty if it was started without one."""
    return run.remote_job_origin.repository_origin.get_label() if run.remote_job_origin else ""


def is_of(run: DagsterRun, repository: str) -> bool:
    """Whether a run's job is of a repository, as far as is known.

    Args:
        repository: its label; empty if it is not known.
    """
    return not repository or (repository_of(run) or repository) == repository


def repository_here(context: dg.SensorEvaluationContext) -> str:
    """The label of the repository that a sensor is of; empty if it is unknown."""
    origin = context.code_location_origin
    return f"{context.repository_name}@{origin.location_name}" if origin and context.repository_name else ""


_plans: dict[str, frozenset[str]] = {}
"""Names of the steps by plan; a plan never changes."""
_MAX_PLANS = 1000


def _steps_of(instance: DagsterInstance, run: DagsterRun) -> frozenset[str]:
    """Names of the steps in a run's plan; none if it has not been planned."""
    plan = run.execution_plan_snapshot_id
    if not plan:
        return frozenset()
    if plan not in _plans:
        if len(_plans) >= _MAX_PLANS:
            _plans.clear()
        _plans[plan] = frozenset(map(_name, instance.get_execution_plan_snapshot(plan).step_keys_to_execute))
    return _plans[plan]


def _name(step: str) -> str:
    """Name of a step's function: without the graphs around it, and the number that Dagster gives to a part of its assets."""
    return re.sub(r"_\d+$", "", step.rpartition(".")[2])
