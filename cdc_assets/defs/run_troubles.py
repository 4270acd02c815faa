"""What Dagster knows of a capture's runs, and a report made from server and lake does not: the sensor and the job of checks say the same."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from cdc_assets.defs.queue import waiting_too_long
from cdc_assets.defs.runs import FAILURE_REASON_TAG, CaptureRuns
from cdc_assets.defs.schedule import MAX_FAILURES, ended_in_a_row, failures_in_a_row, made_way_for
from cdc_assets.defs.seen import SILENT_S, is_silent, was_just_seen
from cdc_assets.overview.report import CaptureReport, Trouble

_DAGSTERS = ("Dagster", "RetryRequested")
"""How names of Dagster's errors begin, whose causes say more."""


def is_reported_by_a_run(instance: dg.DagsterInstance, runs: CaptureRuns, page: dg.AssetKey) -> bool:
    """Whether a run is at work that reports the page itself.

    Args:
        page: the asset that carries the capture's page.
    """
    return bool(runs.active(instance)) and was_just_seen(instance, page)


def troubles_of_runs(instance: dg.DagsterInstance, runs: CaptureRuns, *, is_reported: bool) -> Iterator[Trouble]:
    """Runs that wait for long, or make way for another code location; and the last one that ended, if it failed and none has reported since, or if several in
    a row ended without a word.

    Args:
        is_reported: see `is_reported_by_a_run`.
    """
    yield from waiting_too_long(instance, runs)
    yield from another_location(instance, runs)
    last = [] if is_reported else runs.finished(instance, MAX_FAILURES)
    if failures_in_a_row(last[:1]):
        run = last[0].dagster_run.run_id
        why = reason_of(instance, run) or "its process ended"
        more = "" if "Next: " in why else ". Next: follow the error of that run"
        yield Trouble("the last run", f"{run[:8]} failed: {why.rstrip('.')}{more}")
    elif ended := ended_in_a_row(last):
        yield Trouble("the last run", _without_a_word(ended))


def another_location(instance: dg.DagsterInstance, runs: CaptureRuns) -> Iterator[Trouble]:
    """That another code location captures into the same lake: its runs and these make way for each other again and again."""
    if other := made_way_for(runs.finished(instance, MAX_FAILURES)):
        yield Trouble(
            "another code location",
            f"its runs ({other}) capture into the same lake, and each run makes way for one of the other after a few windows. "
            "Next: leave the capture in one code location, or give one of them a topic.prefix of its own",
        )


def silent_run(instance: dg.DagsterInstance, runs: CaptureRuns, page: dg.AssetKey) -> Trouble | None:
    """The oldest run at work, if that has begun long ago and none has reported since: it hangs, or its launcher has lost it; or
    another step of its job, or another program, keeps it. As long as it is there the sensor starts none.

    Args:
        page: the asset that carries the capture's page.
    """
    if not is_silent(instance, page):
        return None
    for record in reversed(runs.at_work(instance)):
        since, run = record.start_time or record.update_timestamp.timestamp(), record.dagster_run
        if abs(time.time() - since) > SILENT_S:  # in both directions: the clock may have been set back
            return Trouble(
                "the run at work",
                f"{run.run_id[:8]} of {run.job_name} has been {run.status.value} since {datetime.fromtimestamp(since, UTC):%H:%M:%S} "
                "UTC, and reports nothing, and no other run starts before it ends. Next: see its log in Dagster; end it if it makes no "
                "progress",
            )
    return None


def named(report: CaptureReport, silent: Trouble | None) -> CaptureReport:
    """A report that names a run which does not go on, if there is something to do.

    Args:
        silent: see `silent_run`.
    """
    return report if silent is None or report.healthy else replace(report, troubles=(*report.troubles, silent))


def _without_a_word(ended: Sequence[dg.RunRecord]) -> str:
    """What is known of runs that were ended from outside, or did not begin."""
    runs = [record.dagster_run for record in ended]
    reasons = ", ".join(sorted({run.tags.get(FAILURE_REASON_TAG) or "its process is gone" for run in runs}))
    return (
        f"{runs[0].run_id[:8]} and the {len(runs) - 1} before it ended without having committed anything ({reasons}). "
        "Next: see in Dagster what ended them or did not let them begin, such as too little memory"
    )


def reason_of(instance: dg.DagsterInstance, run: str) -> str:
    """Why a run failed, in the words of its last step that did, which have the next step; or of what let it not begin. Empty if its
    process ended without a word.

    Args:
        run: its id.
    """
    for entry in reversed(instance.all_logs(run, of_type=dg.DagsterEventType.STEP_FAILURE)):
        data = entry.dagster_event.step_failure_data if entry.dagster_event else None
        if data and data.user_failure_data and data.user_failure_data.description:
            return str(data.user_failure_data.description)
        if data and data.error:
            return _own_words(data.error)
    for entry in reversed(instance.all_logs(run, of_type=dg.DagsterEventType.RUN_FAILURE)):
        began = entry.dagster_event.job_failure_data if entry.dagster_event else None
        if began and began.error:
            return _own_words(began.error)
    return ""


def _own_words(error: Any) -> str:
    """What an error says, below Dagster's that a step has failed, or was tried often enough.

    Args:
        error: as Dagster records it.
    """
    while error.cause and (error.cls_name or "").startswith(_DAGSTERS):
        error = error.cause
    return str(error.message).strip()
