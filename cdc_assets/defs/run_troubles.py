"""What Dagster knows of a capture's runs, and a report made from server and lake does not: the sensor and the job of checks say the same."""

from collections.abc import Iterator

import dagster as dg

from cdc_assets.defs.queue import waiting_too_long
from cdc_assets.defs.runs import CaptureRuns
from cdc_assets.defs.schedule import failures_in_a_row
from cdc_assets.defs.seen import was_just_seen
from cdc_assets.overview.report import Trouble


def is_reported_by_a_run(instance: dg.DagsterInstance, runs: CaptureRuns, page: dg.AssetKey) -> bool:
    """Whether a run is at work that reports the page itself.

    Args:
        page: the asset that carries the capture's page.
    """
    return bool(runs.active(instance)) and was_just_seen(instance, page)


def troubles_of_runs(instance: dg.DagsterInstance, runs: CaptureRuns, *, is_reported: bool) -> Iterator[Trouble]:
    """Runs that wait for long; and the last one, if it failed and none is at work since.

    Args:
        is_reported: see `is_reported_by_a_run`.
    """
    yield from waiting_too_long(instance, runs)
    last = [] if is_reported else runs.finished(instance, 1)
    if failures_in_a_row(last):
        run = last[0].dagster_run.run_id[:8]
        yield Trouble("the last run", f"{run} failed. Next: follow the error of that run")
