"""Asset checks: what must hold for the tables to be trusted.

`lsn_continuity` is told by the loop itself for each table that it reports, so it
costs no query of its own and blocks what depends on the table in the same run.
`schema_drift` compares each table with the structure that its events have; it
warns, for events stay right, only poorer than the table.
`retention_headroom` is one check per capture: how far SQL Server's clean-up is
from changes that were not read yet.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

from cdc_assets.core.identifiers import TableId
from cdc_assets.defs.captures import CaptureResource
from cdc_assets.defs.catalog import CaptureCatalog
from cdc_assets.defs.failures import as_failures
from cdc_assets.errors import CdcError, describe_error
from cdc_assets.history.drift import Drift
from cdc_assets.ledger.state import CaptureState, TableState
from cdc_assets.run.overview import Headroom

CONTINUITY = "lsn_continuity"
HEADROOM = "retention_headroom"
DRIFT = "schema_drift"


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
    if past := state.gaps[: -1 if state.status == "gap" else None]:
        facts["lost_before"] = [f"after {after} up to {until}" for after, until in past]
    healthy = state.status == "healthy"
    return dg.AssetCheckResult(
        passed=healthy,
        asset_key=key,
        check_name=CONTINUITY,
        metadata=facts,
        description=state.reason or ("complete" if healthy else state.status),
    )


class ContinuityReport:
    """Tells `lsn_continuity` of a run's tables with its first window, and again at its end.

    A run of a busy capture takes minutes and the next one follows at once: told at the end alone, a check would be "in
    progress" nearly always, for Dagster plans it with the run. An evaluation under the run's own id ends that, and the
    result that the run yields later replaces it.
    """

    def __init__(self, catalog: CaptureCatalog, context: dg.AssetExecutionContext) -> None:
        tables = catalog.keys("changes")
        self._context = context
        self._chosen = {tables[check.asset_key]: check.asset_key for check in sorted(context.selected_asset_check_keys)}
        self._told = False

    def on_progress(self, read: Callable[[], CaptureState]) -> None:
        """A window is committed; the first one is the moment to report all tables.

        Args:
            read: gives the capture's state.
        """
        if self._told:
            return
        self._told = True
        states = read().tables
        for table, key in self._chosen.items():
            if table in states:
                self._report(key, continuity_result(key, states[table]))

    def _report(self, key: dg.AssetKey, result: dg.AssetCheckResult) -> None:
        evaluation = dg.AssetCheckEvaluation(
            asset_key=key,
            check_name=CONTINUITY,
            passed=result.passed,
            metadata=result.metadata,
            description=result.description,
            blocking=True,
        )
        event = dg.DagsterEvent(
            dg.DagsterEventType.ASSET_CHECK_EVALUATION.value, self._context.job_name, event_specific_data=evaluation
        )
        self._context.instance.report_dagster_event(event, self._context.run.run_id)

    def results(self, states: Mapping[TableId, TableState]) -> Iterator[dg.AssetCheckResult]:
        """At the end: all tables, for Dagster planned them; a failed check fails the run."""
        for table, key in self._chosen.items():
            if table in states:
                yield continuity_result(key, states[table])


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
        with as_failures(), resource.overview() as overview:
            return headroom_result(overview.headroom(), overview.problems())

    return check


def headroom_result(rooms: Sequence[Headroom], problems: Mapping[str, CdcError]) -> dg.AssetCheckResult:
    """Fails as soon as one table's next change may be gone, or a database cannot be asked for it.

    Args:
        rooms: of all tables that are read.
        problems: databases that cannot be captured now.
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
    return dg.AssetCheckResult(
        passed=not troubles,
        metadata=facts | ({"least_hours": round(min(hours), 2)} if hours else {}),
        description=" ".join(troubles) or "The server still holds every change that was not read yet.",
    )


def drift_check(catalog: CaptureCatalog) -> dg.AssetChecksDefinition:
    """Whether each table still has the structure of its events."""
    names = catalog.names
    specs = [
        dg.AssetCheckSpec(
            DRIFT,
            asset=key,
            description="The table has the columns, types, nullability, defaults and key that its events have.",
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
            yield drift_result(chosen.asset_key, found.get(chosen.asset_key))

    return check


def drift_result(key: dg.AssetKey, drift: Drift | None) -> dg.AssetCheckResult:
    """A warning with the T-SQL that mends it; a table that does not stream has nothing to compare."""
    facts: dict[str, Any] = {}
    if drift and drift.differences:
        facts |= {"differences": [str(found) for found in drift.differences], "remedy": drift.remedy}
        facts |= {"statements": list(drift.statements)} if drift.statements else {}
    if drift and drift.removable:
        facts |= {"removable_instance": drift.removable, "removal": drift.removal}
    differs = "; ".join(map(str, drift.differences)) if drift else "not streaming: nothing to compare"
    return dg.AssetCheckResult(
        passed=not (drift and drift.differences),
        asset_key=key,
        check_name=DRIFT,
        severity=dg.AssetCheckSeverity.WARN,
        metadata=facts,
        description=differs or "as recorded",
    )
