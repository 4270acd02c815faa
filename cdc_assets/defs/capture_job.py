"""The check `capture_job`: whether the server's capture job still reads the log.

The sensor checks it at short intervals and reports a change at once, without a run;
the half-hourly job of checks reports it too. Why it matters: `core.capture_job`.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import dagster as dg

from cdc_assets.core.capture_job import CaptureJob
from cdc_assets.defs.captures import CaptureResource
from cdc_assets.defs.catalog import CaptureCatalog
from cdc_assets.defs.failures import as_failures
from cdc_assets.errors import CdcError

CAPTURE_JOB = "capture_job"
CHECK_EVERY = timedelta(seconds=30)


def evaluation(key: dg.AssetKey, jobs: Sequence[CaptureJob]) -> dg.AssetCheckEvaluation:
    """The result of the check as an event."""
    troubles = [job.trouble for job in jobs if job.trouble]
    quiet = [job.quiet_s for job in jobs if job.quiet_s is not None]
    return dg.AssetCheckEvaluation(
        asset_key=key,
        check_name=CAPTURE_JOB,
        passed=not troubles,
        metadata={"quiet_seconds": max(quiet)} if quiet else {},
        description="; ".join(troubles) or "The capture job reads the log.",
    )


def capture_job_check(catalog: CaptureCatalog) -> dg.AssetChecksDefinition:
    """The check for the job of checks."""
    names = catalog.names

    @dg.asset_check(
        asset=catalog.windows_key,
        name=CAPTURE_JOB,
        required_resource_keys={names.resource},
        description=(
            "The SQL Server Agent runs and its capture job reads the log. If not, no new changes arrive, and tables that are "
            "complete to the newest captured LSN are out of date."
        ),
    )
    def check(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        resource: CaptureResource = getattr(context.resources, names.resource)
        with as_failures(), resource.overview() as overview:
            found = evaluation(catalog.windows_key, overview.capture_jobs())
        return dg.AssetCheckResult(passed=found.passed, metadata=found.metadata, description=found.description)

    return check


class CaptureJobWatch:
    """Reports to the sensor when the state of the capture jobs has changed.

    The last reported state is kept only in this process: a new process reports a problem once more.
    """

    def __init__(self, catalog: CaptureCatalog) -> None:
        self._catalog = catalog
        self._next = datetime.min.replace(tzinfo=UTC)
        self._healthy = True

    def check(self, resource: CaptureResource) -> list[dg.AssetCheckEvaluation]:
        """At most one event; none if nothing changed or the next check is not due."""
        now = datetime.now(UTC)
        if now < self._next:
            return []
        self._next = now + CHECK_EVERY
        try:
            with resource.overview() as overview:
                jobs = overview.capture_jobs()
        except CdcError:
            return []  # the sensor itself reports problems of the server
        healthy = not any(job.trouble for job in jobs)
        if healthy == self._healthy:
            return []
        self._healthy = healthy
        return [evaluation(self._catalog.windows_key, jobs)]
