"""The check `lsn_continuity` of each table, told by the loop itself: it costs no query of its own.

*Planned.* Dagster plans the checks of the assets that a run is asked for, and shows them as "in progress" until they are
told. A run of a busy capture takes minutes and the next one follows at once. So planned checks are told with the first
window, by an evaluation under the run's own id, and again at the end.

*Not planned.* A run that the sensor starts is asked for the window manifest alone (`sensors`), so each check goes on to
show its last outcome. What is told then is what is new: the outcome of a table that had events in the run, one that
differs from the last, and the first. Records grow with the tables that changed, not with all tables.

A planned check that fails fails its run. So does a table that cannot be trusted in a run without planned checks, after all
is told: whoever is told of failed runs must hear of it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import dagster as dg

from cdc_assets.capture.progress import Progress
from cdc_assets.core.identifiers import TableId
from cdc_assets.defs.catalog import CaptureCatalog
from cdc_assets.ledger.state import CaptureState, TableState

CONTINUITY = "lsn_continuity"
Verdict = tuple[bool, str | None]
"""Whether a check passed, and its description."""


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
    """Tells `lsn_continuity` of a run's tables with its first window, and again at its end."""

    def __init__(self, catalog: CaptureCatalog, context: dg.AssetExecutionContext) -> None:
        self._context = context
        keys = {table: key for key, table in catalog.keys("changes").items()}
        chosen = {check.asset_key for check in context.selected_asset_check_keys}
        self._planned = {table: key for table, key in sorted(keys.items()) if key in chosen}
        self._others = {table: key for table, key in sorted(keys.items()) if key not in chosen}
        self._changed: set[TableId] = set()
        self._told: dict[dg.AssetKey, Verdict] | None = None

    def on_progress(self, progress: Progress, read: Callable[[], CaptureState]) -> None:
        """A window is committed; the first one is the moment to tell what is planned or new.

        Args:
            read: gives the capture's state.
        """
        self._changed.update(progress.tables)
        if self._told is not None:
            return
        states = read().tables
        for table, key in self._planned.items():
            if table in states:
                self._report(continuity_result(key, states[table]))
        self._tell_new(states)

    def results(self, states: Mapping[TableId, TableState]) -> Iterator[dg.AssetCheckResult]:
        """At the end: what was planned, and of the others what changed or is new.

        Raises:
            dagster.Failure: no check was planned, and a table cannot be trusted.
        """
        for table, key in self._planned.items():
            if table in states:
                yield continuity_result(key, states[table])
        self._tell_new(states, self._changed)
        broken = [states[table] for table in self._others if table in states and states[table].status != "healthy"]
        if broken and not self._planned:
            raise dg.Failure(
                description="\n".join(f"{state.table}: {state.reason or state.status}" for state in broken),
                metadata={"check": CONTINUITY, "failed": len(broken)},
                allow_retries=False,
            )

    def _tell_new(self, states: Mapping[TableId, TableState], anyhow: Iterable[TableId] = ()) -> None:
        """Of tables that are not planned: those with an outcome that Dagster does not show yet, and some anyhow."""
        if self._told is None:
            self._told = self._shown()
        chosen = set(anyhow)
        for table, key in self._others.items():
            if table not in states:
                continue
            result = continuity_result(key, states[table])
            if table in chosen or self._told.get(key) != (result.passed, result.description):
                self._report(result)
                self._told[key] = (result.passed, result.description)

    def _shown(self) -> dict[dg.AssetKey, Verdict]:
        """Last outcomes, asked in one query; one that was planned and never told is none."""
        keys = [dg.AssetCheckKey(key, CONTINUITY) for key in self._others.values()]
        records = self._context.instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
        events = [record.event.dagster_event for record in records.values() if record.event]
        told = [event.event_specific_data for event in events if event]
        return {
            found.asset_key: (found.passed, found.description)
            for found in told
            if isinstance(found, dg.AssetCheckEvaluation)
        }

    def _report(self, result: dg.AssetCheckResult) -> None:
        assert result.asset_key is not None  # noqa: S101 - `continuity_result` gives it
        evaluation = dg.AssetCheckEvaluation(
            asset_key=result.asset_key,
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
