"""Checks of a capture by an embedded connector; all are of its ledger, because the connector reads one log for all tables.

| check | passes if |
|---|---|
| `connector` | the last run ended by itself; reported by the runs |
| `complete_to_log_end` | the lake holds every change up to the end of the log at the moment of the check, and all its tables |
| `retention_headroom` | the database still has everything that was not read yet |

None passes on what is not known: if the database cannot be asked, they fail and say so.
"""

from typing import Any

import dagster as dg

from cdc_assets.defs.engines.catalog import ConnectorCatalog
from cdc_assets.defs.engines.resource import ConnectorResource
from cdc_assets.engine.overview import EngineOverview
from cdc_assets.engine.source import LogPoint, Retention, is_complete
from cdc_assets.errors import CdcError, describe_error

CONNECTOR, COMPLETE, HEADROOM = "connector", "complete_to_log_end", "retention_headroom"
_LOST, _LATE = dg.AssetCheckSeverity.ERROR, dg.AssetCheckSeverity.WARN


def connector_spec(catalog: ConnectorCatalog) -> dg.AssetCheckSpec:
    """The check that runs report."""
    return dg.AssetCheckSpec(
        CONNECTOR,
        asset=catalog.batches_key,
        description="The last run of the connector ended by itself, without an error.",
    )


def report_connector(catalog: ConnectorCatalog, context: dg.AssetExecutionContext, trouble: str) -> None:
    """Report how a run of the connector ended, if it did not plan the check and it is news, or if it failed."""
    planned = any(check.name == CONNECTOR for check in context.selected_asset_check_keys)
    if not trouble and (planned or _shown(catalog, context) is True):
        return
    evaluation = dg.AssetCheckEvaluation(
        asset_key=catalog.batches_key,
        check_name=CONNECTOR,
        passed=not trouble,
        metadata={},
        description=trouble or "The connector ended by itself.",
    )
    event = dg.DagsterEvent(
        dg.DagsterEventType.ASSET_CHECK_EVALUATION.value, context.job_name, event_specific_data=evaluation
    )
    context.instance.report_dagster_event(event, context.run.run_id)


def _shown(catalog: ConnectorCatalog, context: dg.AssetExecutionContext) -> bool | None:
    """The last result that Dagster shows; None if there is none."""
    key = dg.AssetCheckKey(catalog.batches_key, CONNECTOR)
    record = context.instance.event_log_storage.get_latest_asset_check_execution_by_key([key]).get(key)
    event = record.event.dagster_event if record and record.event else None
    found = event.event_specific_data if event else None
    return found.passed if isinstance(found, dg.AssetCheckEvaluation) else None


def complete_result(
    overview: EngineOverview, end: LogPoint | None, *, proved: bool = False, problem: str = ""
) -> dg.AssetCheckResult:
    """Whether the lake is complete to the end of the log.

    Args:
        end: where the log ends; None if that is not known.
        proved: whether the lake holds everything up to there.
        problem: why that is not known.
    """
    facts: dict[str, Any] = {"complete_to": str(overview.point or "not known")}
    facts |= {"log_end": str(end)} if end else {}
    gaps = [str(gap) for gap in overview.state.gaps]
    facts |= {"lost_changes": " ".join(gaps)} if gaps else {}
    severity, text = _LOST, " ".join(overview.losses.values())
    if not text:
        severity, text = _LATE, _lateness(overview, end, proved, problem)
    return dg.AssetCheckResult(
        passed=not text,
        severity=severity,
        metadata=facts,
        description=" ".join([text or "Every change up to the end of the log is in the lake.", *gaps]),
    )


def _lateness(overview: EngineOverview, end: LogPoint | None, proved: bool, problem: str) -> str:
    """Why the lake may lack changes that can still be read; empty if it lacks none."""
    state = overview.state
    if not overview.known:
        return "Nothing was captured yet."
    if end is None:
        return f"The end of the log is not known: {problem}"
    if state.pending is not None:
        return f"Batch {state.pending.batch_id} is planned and not in all its tables yet; the next run finishes it."
    if proved:
        return ""
    if overview.point is None:
        return "The connector's offset does not tell up to where it has read."
    if overview.point > end:
        return f"The lake is complete to {overview.point}, and the log ends before that, at {end}: this is another log."
    return f"The lake is complete to {overview.point}, and the log ends at {end}: the rest is read by the next run."


def headroom_result(retention: Retention | None, problem: str = "", nothing: str = "") -> dg.AssetCheckResult:
    """Whether the database still has what was not read yet.

    Args:
        retention: what it has; None if it could not be asked.
        problem: why not.
        nothing: why nothing of its log is to be read; empty if something is.
    """
    if retention is None:
        return dg.AssetCheckResult(passed=False, severity=_LATE, description=f"Not known: {problem}")
    text = retention.lost or retention.near
    return dg.AssetCheckResult(
        passed=not text,
        severity=_LOST if retention.lost else _LATE,
        metadata=dict(retention.facts),
        description=text or nothing or "The database still has every change that was not read yet.",
    )


def nothing_to_remove(overview: EngineOverview) -> str:
    """Why nothing of the database's log is to be read; empty if something is, or that is not known."""
    try:
        known = overview.known
    except CdcError:
        return ""
    if not known:
        return "Nothing was captured yet: the first run of the connector begins with the log as it is then."
    if overview.config.properties.get("snapshot.mode") == "initial_only":
        return (
            "No table streams: snapshot.mode=initial_only reads no log, so nothing that is removed from it is missed."
        )
    return ""


def complete_check(catalog: ConnectorCatalog) -> dg.AssetChecksDefinition:
    """The check of completeness."""
    names = catalog.names

    @dg.asset_check(
        asset=catalog.batches_key,
        name=COMPLETE,
        required_resource_keys={names.resource},
        description=(
            "Every change up to the end of the database's log is in the lake, and every table of the lake holds its batches. "
            "While changes go on, a warning tells how far the lake is behind."
        ),
    )
    def check(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        resource: ConnectorResource = getattr(context.resources, names.resource)
        end, proved, problem = None, False, ""
        overview = resource.overview()
        try:
            state = overview.state
        except CdcError as error:
            return dg.AssetCheckResult(passed=False, severity=_LOST, description=describe_error(error))
        try:
            with resource.probe() as probe:
                end = probe.log_end()
                proved = is_complete(state, probe, end)
        except CdcError as error:
            problem = describe_error(error)
        return complete_result(overview, end, proved=proved, problem=problem)

    return check


def headroom_check(catalog: ConnectorCatalog) -> dg.AssetChecksDefinition:
    """The check of what the database keeps."""
    names = catalog.names

    @dg.asset_check(
        asset=catalog.batches_key,
        name=HEADROOM,
        blocking=True,
        required_resource_keys={names.resource},
        description="The database's log still begins before what was not read yet: binlog files, the replication slot, archived logs.",
    )
    def check(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        resource: ConnectorResource = getattr(context.resources, names.resource)
        try:
            overview = resource.overview()
            with resource.probe() as probe:
                return headroom_result(probe.retention(overview.point), nothing=nothing_to_remove(overview))
        except CdcError as error:
            return headroom_result(None, describe_error(error))

    return check
