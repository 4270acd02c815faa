"""The half-hourly checks of a capture between runs.

Dagster writes two records for each check of a run, and each table has a check `schema_drift`: with a thousand tables a run of
all of them every half hour writes a hundred thousand records a day that say what is shown already. So the schedule compares the
tables itself, by a few statements for all, and selects the checks of the whole capture and of those tables whose result is
another one than Dagster shows, or the first. A run of the stream evaluates the checks of the tables that it writes.
"""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from cdc_assets.defs.board import recorded_verdict
from cdc_assets.defs.captures import CaptureResource
from cdc_assets.defs.catalog import CaptureCatalog
from cdc_assets.defs.checks import DRIFT, drift_result
from cdc_assets.defs.seen import was_just_seen
from cdc_assets.errors import CdcError


def headroom_schedule(
    catalog: CaptureCatalog, job: Any, whole: Sequence[dg.AssetChecksDefinition]
) -> dg.ScheduleDefinition:
    """The schedule.

    Args:
        job: runs all checks; what `dg.define_asset_job` returns.
        whole: checks of the whole capture.
    """
    names = catalog.names

    @dg.schedule(
        job=job,
        cron_schedule="*/30 * * * *",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        required_resource_keys={names.resource},
        name=f"{names.headroom}_schedule",
        description="Checks every half hour how far clean-up is from unread changes, and whether tables differ from their events.",
    )
    def schedule(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        if catalog.runs().active(context.instance) and was_just_seen(context.instance, catalog.windows_key):
            return dg.SkipReason("A run is at work, which checks them itself.")
        resource: CaptureResource = getattr(context.resources, names.resource)
        always = [key for checks in whole for key in checks.check_keys]
        return dg.RunRequest(
            asset_selection=[], asset_check_keys=[*always, *_outdated(catalog, resource, context.instance)]
        )

    return schedule


def _outdated(
    catalog: CaptureCatalog, resource: CaptureResource, instance: dg.DagsterInstance
) -> list[dg.AssetCheckKey]:
    """Checks of tables whose result is not the one that Dagster shows."""
    keys = {dg.AssetCheckKey(key, DRIFT): key for key in catalog.keys("changes")}
    try:
        found = {catalog.key(drift.table, "changes"): drift for drift in resource.server.drifts()} if keys else {}
    except CdcError:  # the check of the whole capture tells it
        return []
    shown = instance.event_log_storage.get_latest_asset_check_execution_by_key(list(keys))
    results = {check: drift_result(catalog, key, found.get(key)) for check, key in keys.items()}
    return [
        check
        for check, result in results.items()
        if check not in shown or recorded_verdict(shown[check]) != (result.passed, result.description)
    ]
