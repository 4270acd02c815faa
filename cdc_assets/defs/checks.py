"""Asset checks: conditions under which the tables can be trusted.

`lsn_continuity` is reported by the streaming loop (`continuity`).
`schema_drift` compares each table with the structure of its events; it
only warns, since events stay correct but may lack columns.
`retention_headroom` is one check per capture: how far SQL Server's clean-up is
from changes that were not read yet.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

from cdc_assets.config.snapshot_modes import rule_of
from cdc_assets.defs.captures import CaptureResource
from cdc_assets.defs.catalog import CaptureCatalog
from cdc_assets.defs.failures import as_failures
from cdc_assets.errors import CdcError, describe_error
from cdc_assets.history.drift import Drift
from cdc_assets.overview import Headroom

HEADROOM = "retention_headroom"
DRIFT = "schema_drift"


def headroom_check(catalog: CaptureCatalog) -> dg.AssetChecksDefinition:
    """Whether SQL Server still has every change that was not read yet."""
    names = catalog.names

    @dg.asset_check(
        asset=catalog.windows_key,
        name=HEADROOM,
        blocking=True,
        required_resource_keys={names.resource},
        description=(
            "The clean-up job has not passed any table's position. The metadata contain the hours of changes "
            "between the oldest change that the server keeps and the position: the time left if reading stops."
        ),
    )
    def check(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        resource: CaptureResource = getattr(context.resources, names.resource)
        with as_failures(), resource.overview() as overview:
            return headroom_result(overview.headroom(), overview.problems(), streams=overview.streams)

    return check


def headroom_result(
    rooms: Sequence[Headroom], problems: Mapping[str, CdcError], *, streams: bool
) -> dg.AssetCheckResult:
    """Fails if a table's next change may be gone, or a database cannot be captured; warns if no table streams that should.

    Args:
        rooms: headroom of all tables that are read.
        problems: problems of databases that cannot be captured now.
        streams: whether the snapshot mode streams changes.
    """
    lost = ", ".join(str(room.table) for room in rooms if room.lost)
    troubles = [f"The server no longer has all unread changes of {lost}."] if lost else []
    troubles += [describe_error(problem) for problem in problems.values()]
    hours = [room.hours for room in rooms if room.hours is not None]
    table = (
        dg.MetadataValue.table(
            records=[
                dg.TableRecord(
                    {
                        "table": str(room.table),
                        "complete_to": str(room.position),
                        "kept_from": str(room.mark) if room.mark else "nothing is kept",
                        "hours": round(room.hours, 2) if room.hours is not None else "unknown",
                    }
                )
                for room in rooms
            ],
        )
        if rooms
        else None
    )
    facts: dict[str, Any] = {"tables": table} if table else {}
    good = "The server still has every change that was not read yet."
    if not rooms:
        nothing = "No table streams"
        good = (
            f"{nothing} now, so what the server keeps is not known."
            if streams
            else f"{nothing}: the snapshot mode reads no log."
        )
    return dg.AssetCheckResult(
        passed=not troubles and (bool(rooms) or not streams),
        severity=dg.AssetCheckSeverity.ERROR if troubles else dg.AssetCheckSeverity.WARN,
        metadata=facts | ({"least_hours": round(min(hours), 2)} if hours else {}),
        description=" ".join(troubles) or good,
    )


def drift_check(catalog: CaptureCatalog) -> dg.AssetChecksDefinition:
    """Whether each table still has the structure of its events."""
    names = catalog.names
    specs = [
        dg.AssetCheckSpec(
            DRIFT,
            asset=key,
            description="The table has the same columns, types, nullability, defaults and key as its events.",
        )
        for key in catalog.keys("changes")
    ]

    @dg.multi_asset_check(
        name=f"{names.headroom}_drift", specs=specs, can_subset=True, required_resource_keys={names.resource}
    )
    def check(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        resource: CaptureResource = getattr(context.resources, names.resource)
        with as_failures():
            found = {catalog.key(drift.table, "changes"): drift for drift in resource.server.drifts()}
        for chosen in sorted(context.selected_asset_check_keys, key=lambda chosen: chosen.asset_key):
            yield drift_result(catalog, chosen.asset_key, found.get(chosen.asset_key))

    return check


def drift_result(
    catalog: CaptureCatalog, key: dg.AssetKey, drift: Drift | None, problem: CdcError | None = None
) -> dg.AssetCheckResult:
    """A warning with the T-SQL that corrects it, or that it is not known because the table does not stream; a capture that
    streams nothing needs no comparison.

    Args:
        problem: why its database cannot be captured now.
    """
    facts: dict[str, Any] = {}
    if drift and drift.differences:
        facts |= {"differences": [str(found) for found in drift.differences], "remedy": drift.remedy}
        facts |= {"statements": list(drift.statements)} if drift.statements else {}
    if drift and drift.removable:
        facts |= {"removable_instance": drift.removable, "removal": drift.removal}
    streams = rule_of(catalog.config.snapshot).streams
    why = describe_error(problem) if problem else "it does not stream now, so it is not compared."
    unasked = f"Not known: {why}" if streams else "the snapshot mode streams nothing"
    differs = "; ".join(map(str, drift.differences)) if drift else unasked
    return dg.AssetCheckResult(
        passed=not drift.differences if drift else not streams,
        asset_key=key,
        check_name=DRIFT,
        severity=dg.AssetCheckSeverity.WARN,
        metadata=facts,
        description=differs or "as recorded",
    )
