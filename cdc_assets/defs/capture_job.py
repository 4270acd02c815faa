"""The check `capture_job`: whether the server's capture job still reads the log.

A run that works, and between runs the sensor, checks it every few seconds (`live`); the half-hourly job of checks reports it
too. Why it matters: `core.capture_job`.
"""

from collections.abc import Sequence

import dagster as dg

from cdc_assets.core.capture_job import CaptureJob
from cdc_assets.defs.captures import CaptureResource
from cdc_assets.defs.catalog import CaptureCatalog
from cdc_assets.defs.failures import as_failures

CAPTURE_JOB = "capture_job"


def evaluation(key: dg.AssetKey, jobs: Sequence[CaptureJob]) -> dg.AssetCheckEvaluation:
    """The result of the check as an event."""
    troubles = [job.trouble for job in jobs if job.trouble]
    unknown = [job.unknown for job in jobs if job.unknown]
    quiet = [int(job.quiet) for job in jobs if job.quiet is not None]
    return dg.AssetCheckEvaluation(
        asset_key=key,
        check_name=CAPTURE_JOB,
        passed=not troubles and not unknown,
        severity=dg.AssetCheckSeverity.ERROR if troubles else dg.AssetCheckSeverity.WARN,
        metadata={"quiet_seconds": max(quiet)} if quiet else {},
        description="; ".join([*troubles, *unknown]) or "The capture job reads the log.",
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
        return dg.AssetCheckResult(
            passed=found.passed, severity=found.severity, metadata=found.metadata, description=found.description
        )

    return check
