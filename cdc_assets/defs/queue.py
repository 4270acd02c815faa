"""Runs of a capture that wait in Dagster's queue, and what for."""

import time
from collections.abc import Iterator, Sequence

import dagster as dg
from dagster import DagsterRun, DagsterRunStatus, RunsFilter

from cdc_assets.defs.runs import WAITING, CaptureRuns
from cdc_assets.run.overview.report import Trouble

_AT_WORK = [DagsterRunStatus.STARTING, DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING]
_SOON_S = 60.0
"""Seconds that a run may wait before it is told."""


def waiting_too_long(instance: dg.DagsterInstance, runs: CaptureRuns) -> Iterator[Trouble]:
    """The capture's oldest run that has not started for more than a minute, as a trouble that says what it waits for."""
    found = instance.get_run_records(RunsFilter(statuses=WAITING), ascending=True)
    late = [record for record in found if runs.concerns(record.dagster_run) and _age_s(record) > _SOON_S]
    for record in late[:1]:
        run = record.dagster_run
        yield Trouble(
            "Dagster's queue",
            f"run {run.run_id[:8]} of {run.job_name} has waited for {_age_s(record):.0f} s: {_reason(instance, run, runs)}",
        )


def _age_s(record: dg.RunRecord) -> float:
    return time.time() - record.create_timestamp.timestamp()


def _reason(instance: dg.DagsterInstance, run: DagsterRun, runs: CaptureRuns) -> str:
    if run.status is DagsterRunStatus.NOT_STARTED:
        return "Dagster has not started it. Next: see the log of the daemon and of what starts runs"
    working = instance.get_runs(RunsFilter(statuses=_AT_WORK))
    holders = [other for other in working if runs.concerns(other)]
    if holders:
        names = ", ".join(f"{other.run_id[:8]} of {other.job_name}" for other in holders)
        return f"{names} holds the pool of the capture. Next: wait for it, or end it if it does not go on"
    most = most_runs(instance)
    if most is not None and len(working) >= most:
        return (
            f"{len(working)} runs are at work, and no more may be (concurrency.runs.max_concurrent_runs). "
            "Next: wait for one to end, or allow more"
        )
    return "Dagster's daemon has not taken it. Next: see whether the daemon runs, and its log: a pool or a limit for tags may be full"


def most_runs(instance: dg.DagsterInstance) -> int | None:
    """How many runs Dagster lets work at a time; None if as many as there are."""
    queue = instance.get_concurrency_config().run_queue_config
    return queue.max_concurrent_runs if queue and queue.max_concurrent_runs >= 0 else None


def waits_for_pool_alone(instance: dg.DagsterInstance, waiting: Sequence[DagsterRun]) -> bool:
    """Whether there is room for another run, so that one that waits is only kept by the pool that the caller holds."""
    most = most_runs(instance)
    return bool(waiting) and (most is None or len(instance.get_runs(RunsFilter(statuses=_AT_WORK))) < most)
