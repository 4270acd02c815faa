"""Finds the runs of a capture in Dagster's run storage.

Runs are identified by their selected assets and their job, not only by tags,
so that a run started by hand in the web pages counts too.
"""

import time
from collections.abc import Sequence, Set
from dataclasses import dataclass

import dagster as dg
from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, RunsFilter

from cdc_assets.core.processes import is_gone
from cdc_assets.defs.process import PROCESS_TAG

WAITING = [DagsterRunStatus.QUEUED, DagsterRunStatus.NOT_STARTED]
ACTIVE = [*WAITING, DagsterRunStatus.STARTING, DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING]

FAILURE_REASON_TAG = "dagster/failure_reason"
_SENSOR_TAG = "dagster/sensor_name"
COMMITTED_TAG = "cdc/committed"
"""On a run that committed everything: if it fails, only one of its tables has a problem, and the others continue."""

_SILENT_S = 600
"""Seconds that a run may take from its start until it records its process."""
_GONE = "The process of this run is gone, and so is the code server that would have reported it."


def is_asked_for(run: DagsterRun) -> bool:
    """Whether a sensor has asked for a run, because it has found work."""
    return _SENSOR_TAG in run.tags


@dataclass(frozen=True, slots=True)
class CaptureRuns:
    """The runs that write to one capture.

    Args:
        jobs: names of the capture's jobs.
        assets: keys of the assets that these jobs write.
    """

    jobs: frozenset[str]
    assets: frozenset[dg.AssetKey]

    def concerns(self, run: DagsterRun) -> bool:
        """Whether the run writes to this capture."""
        return run.job_name in self.jobs or bool(self.assets & (run.asset_selection or frozenset()))

    def active(self, instance: DagsterInstance) -> Sequence[DagsterRun]:
        """Queued or running runs; one whose process is gone is reported to Dagster as failed and left out."""
        records = instance.get_run_records(RunsFilter(statuses=ACTIVE))
        concerned = [record for record in records if self.concerns(record.dagster_run)]
        return [record.dagster_run for record in concerned if not _end_if_gone(instance, record)]

    def waiting(self, instance: DagsterInstance, assets: Set[dg.AssetKey], jobs: Set[str]) -> Sequence[DagsterRun]:
        """Runs of these jobs, or with some of these assets, that are in the queue."""
        queued = instance.get_runs(RunsFilter(statuses=WAITING))
        return [run for run in queued if run.job_name in jobs or assets & (run.asset_selection or set())]

    def finished(self, instance: DagsterInstance, limit: int) -> Sequence[dg.RunRecord]:
        """The newest ended runs of the capture's jobs, newest first."""
        records = [record for job in sorted(self.jobs) for record in self.finished_of(instance, job, limit)]
        return sorted(records, key=lambda record: record.storage_id, reverse=True)[:limit]

    def finished_of(self, instance: DagsterInstance, job: str, limit: int) -> Sequence[dg.RunRecord]:
        """The newest ended runs of one job, newest first."""
        records = instance.get_run_records(RunsFilter(job_name=job), limit=limit)
        return [record for record in records if record.dagster_run.is_finished]


def _end_if_gone(instance: DagsterInstance, record: dg.RunRecord) -> bool:
    """Report the end of a run whose process is gone; returns whether it was."""
    run = record.dagster_run
    if run.status in WAITING or not _gone(run.tags.get(PROCESS_TAG), record.start_time):
        return False
    if run.status is DagsterRunStatus.CANCELING:
        instance.report_run_canceled(run, _GONE)
    else:
        instance.report_run_failed(run, _GONE)
    return True


def _gone(process: str | None, started: float | None) -> bool:
    """Whether a run's process is gone. A run records its process in its first seconds; one that did not has died in them."""
    if process is None:
        return started is not None and abs(time.time() - started) > _SILENT_S  # the clock may have been set back
    return is_gone(process)
