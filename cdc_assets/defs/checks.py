"""Asset checks: what must hold for the tables to be trusted.

`lsn_continuity` is told by the loop itself for each table that it reports, so it
costs no query of its own and blocks what depends on the table in the same run.
`retention_headroom` is one check per capture: how far SQL Server's clean-up is
from changes that were not read yet.
"""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from cdc_assets.defs.captures import CaptureResource
from cdc_assets.defs.catalog import CaptureCatalog
from cdc_assets.defs.failures import as_failures
from cdc_assets.defs.glance import Headroom
from cdc_assets.lake.state import TableState

CONTINUITY = "lsn_continuity"
HEADROOM = "retention_headroom"


def continuity_spec(key: dg.AssetKey) -> dg.AssetCheckSpec:
    """Blocking: nothing may build on a table with a hole."""
    return dg.AssetCheckSpec(
        CONTINUITY,
        asset=key,
        blocking=True,
        description="Every change up to the table's position was read: no interval of the log is missing.",
    )


def continuity_result(key: dg.AssetKey, state: TableState) -> dg.AssetCheckResult:
    """From the table's state in the manifest."""
    facts: dict[str, Any] = {"complete_to": str(state.position) if state.position else "not streamed"}
    if state.status == "gap":
        facts |= {"missing_after": str(state.gap_after), "missing_until": str(state.gap_until)}
    healthy = state.status == "healthy"
    return dg.AssetCheckResult(
        passed=healthy,
        asset_key=key,
        check_name=CONTINUITY,
        metadata=facts,
        description=state.reason or ("complete" if healthy else state.status),
    )


def headroom_check(catalog: CaptureCatalog) -> dg.AssetChecksDefinition:
    """Whether SQL Server still holds every change that was not read yet."""
    names = catalog.names

    @dg.asset_check(
        asset=catalog.windows_key,
        name=HEADROOM,
        blocking=True,
        required_resource_keys={names.resource},
        description=(
            "The clean-up job has not passed any table's position. The metadata tells how many hours of changes lie "
            "between the oldest change that the server keeps and the position: what is left when reading stands still."
        ),
    )
    def check(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        resource: CaptureResource = getattr(context.resources, names.resource)
        with as_failures(), resource.glance() as glance:
            return headroom_result(glance.headroom())

    return check


def headroom_result(rooms: Sequence[Headroom]) -> dg.AssetCheckResult:
    """Fails as soon as one table's next change may be gone."""
    lost = [room for room in rooms if room.lost]
    hours = [room.hours for room in rooms if room.hours is not None]
    table = (
        dg.MetadataValue.table(
            records=[
                dg.TableRecord(
                    {
                        "table": str(room.table),
                        "complete_to": str(room.position),
                        "kept_from": str(room.mark),
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
    return dg.AssetCheckResult(
        passed=not lost,
        metadata=facts | ({"least_hours": round(min(hours), 2)} if hours else {}),
        description=(
            "Clean-up has passed unread changes of " + ", ".join(str(room.table) for room in lost)
            if lost
            else "The server still holds every change that was not read yet."
        ),
    )
