"""The check `capture_job`: whether the server itself still reads its log.

The sensor, which looks all the time, tells it as soon as that changes, without a run;
the half-hourly job of checks tells it, too. Why it matters: `core.capture_job`.
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
LOOK_EVERY = timedelta(seconds=30)


def evaluation(key: dg.AssetKey, jobs: Sequence[CaptureJob]) -> dg.AssetCheckEvaluation:
    """The check's outcome as an event."""
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
    """The check as a job of checks runs it."""
    names = catalog.names

    @dg.asset_check(
        asset=catalog.windows_key,
        name=CAPTURE_JOB,
        required_resource_keys={names.resource},
        description=(
            "The SQL Server Agent runs and its capture job reads the log. If not, nothing new comes, and what is "
            "complete to the newest captured LSN is old all the same."
        ),
    )
    def check(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        resource: CaptureResource = getattr(context.resources, names.resource)
        with as_failures(), resource.overview() as overview:
            found = evaluation(catalog.windows_key, overview.capture_jobs())
        return dg.AssetCheckResult(passed=found.passed, metadata=found.metadata, description=found.description)

    return check


class CaptureJobWatch:
    """Tells the sensor when the state of the capture jobs has changed.

    What was told last is remembered in this process alone: a new one tells trouble once more.
    """

    def __init__(self, catalog: CaptureCatalog) -> None:
        self._catalog = catalog
        self._next = datetime.min.replace(tzinfo=UTC)
        self._healthy = True

    def look(self, resource: CaptureResource) -> list[dg.AssetCheckEvaluation]:
        """At most one event; none if nothing changed or it is not yet time to look again."""
        now = datetime.now(UTC)
        if now < self._next:
            return []
        self._next = now + LOOK_EVERY
        try:
            with resource.overview() as overview:
                jobs = overview.capture_jobs()
        except CdcError:
            return []  # the sensor's own look tells what is wrong with the server
        healthy = not any(job.trouble for job in jobs)
        if healthy == self._healthy:
            return []
        self._healthy = healthy
        return [evaluation(self._catalog.windows_key, jobs)]
