"""Alerts: a sensor that calls a function of yours for failed runs and failed checks of its code location.

A failed run is reported once. A check is reported when it begins to fail and when it passes again, not at each evaluation
between: the cursor holds the run event that was reported last, and the checks that fail. What failed before the first
evaluation is reported for checks, which may be failing still, but not for runs.

Dagster stores the cursor when an evaluation ends. If the function raises, or the process dies before that, the next
evaluation repeats the same alerts: each is reported at least once, in order.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Literal

import dagster as dg
from dagster import DagsterEventType

from cdc_assets.defs.checks.shown import newest_records
from cdc_assets.defs.dagster_internals import CheckRecord
from cdc_assets.defs.run_troubles import reason_of
from cdc_assets.defs.runbook import RUN_FAILED, check_runbook, runbook_url
from cdc_assets.defs.runs import is_of, repository_here

_EVERY_S = 30
_AT_ONCE = 50
"""Maximum number of failed runs that an evaluation reports."""


@dataclass(frozen=True, slots=True)
class Alert:
    """What a person should know.

    Args:
        kind: a run failed, a check failed, or a check that had failed passes again.
        subject: the job, or the asset and its check.
        text: the reason, with the next step where one is known.
        run_id: the run, if it is known.
        runbook_url: page of the runbook that says what to do (`CDC_RUNBOOK_URL`); empty for a check of another library.
    """

    kind: Literal["run failed", "check failed", "check passed"]
    subject: str
    text: str
    run_id: str = ""
    runbook_url: str = ""

    def __str__(self) -> str:
        """One line for a chat."""
        page = f" Runbook: {self.runbook_url}" if self.runbook_url else ""
        return f"{self.subject}: {self.kind}. {self.text}".strip() + page


def alert_sensor(
    send: Callable[[Alert], None], *, name: str = "cdc_alerts", interval_s: int = _EVERY_S
) -> dg.SensorDefinition:
    """A sensor that passes failed runs and checks of its code location to a function; add it to your definitions.

    Args:
        send: called with each alert; if it raises, the sensor's tick fails and the alerts are sent again.
        name: name of the sensor.
        interval_s: minimum number of seconds between two evaluations.

    Example:
        >>> defs = dg.Definitions.merge(
        ...     build_definitions("shop.json"),
        ...     dg.Definitions(sensors=[alert_sensor(lambda alert: print(alert))]),
        ... )
    """

    @dg.sensor(
        name=name,
        minimum_interval_seconds=interval_s,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Reports failed runs, checks that start to fail, and checks that pass again.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        known = json.loads(context.cursor or "{}")
        runs, place = _failed_runs(context, known.get("run"), first=not known)
        checks, failing = _changed_checks(context, frozenset(known.get("failing", ())))
        alerts = [*runs, *checks]
        for alert in alerts:
            send(alert)
        context.update_cursor(json.dumps({"run": place, "failing": sorted(failing)}))
        sent = "; ".join(f"{alert.subject}: {alert.kind}" for alert in alerts)
        return dg.SkipReason(f"Sent: {sent}." if alerts else f"Nothing new; {len(failing)} checks are failing.")

    return sensor


def _failed_runs(context: dg.SensorEvaluationContext, place: str | None, *, first: bool) -> tuple[list[Alert], str]:
    """Alerts for runs of this code location that failed after `place`, and the new place."""
    found = context.instance.fetch_run_status_changes(
        DagsterEventType.RUN_FAILURE, limit=1 if first else _AT_ONCE, cursor=place or None, ascending=not first
    )
    if first:
        return [], found.cursor if found.records else ""
    entries = [record.event_log_entry for record in found.records]
    own = _own_runs(context, [entry.run_id for entry in entries])
    alerts = [
        Alert("run failed", entry.job_name or "", _reason(context, entry), entry.run_id, runbook_url(RUN_FAILED))
        for entry in entries
        if entry.run_id in own
    ]
    return alerts, found.cursor if found.records else place or ""


def _own_runs(context: dg.SensorEvaluationContext, found: Sequence[str]) -> Set[str]:
    """Those of some runs that are of this code location: names of jobs are not unique among several."""
    if not found:
        return frozenset()
    jobs = {*(context.repository_def.job_names if context.repository_def else ())}
    runs, here = context.instance.get_runs(dg.RunsFilter(run_ids=list(found))), repository_here(context)
    return {run.run_id for run in runs if run.job_name in jobs and is_of(run, here)}


def _reason(context: dg.SensorEvaluationContext, failure: dg.EventLogEntry) -> str:
    """Why the run failed: the step's own words in place of Dagster's that a step failed."""
    said = failure.dagster_event.message if failure.dagster_event else None
    return reason_of(context.instance, failure.run_id) or said or failure.user_message


def _changed_checks(context: dg.SensorEvaluationContext, known: frozenset[str]) -> tuple[list[Alert], frozenset[str]]:
    """Alerts for checks whose verdict is another than at the last evaluation, and all that fail."""
    if context.repository_def is None:
        return [], known
    keys = sorted(context.repository_def.asset_graph.asset_check_keys, key=str)
    verdicts = {_name(key): record for key, record in newest_records(context.instance, keys).items()}
    judged = {name for name, record in verdicts.items() if record.status.value != "PLANNED"}
    failed = {name for name in judged if verdicts[name].status.value == "FAILED"}
    mended = (known & judged) - failed
    alerts = [*_alerts("check failed", failed - known, verdicts), *_alerts("check passed", mended, verdicts)]
    return alerts, frozenset(failed | (known - mended) & {_name(key) for key in keys})


def _alerts(
    kind: Literal["check failed", "check passed"], names: Set[str], verdicts: Mapping[str, CheckRecord]
) -> Iterator[Alert]:
    for name in sorted(names):
        entry = verdicts[name].event
        event = entry.dagster_event if entry else None
        evaluated = event is not None and event.event_type is DagsterEventType.ASSET_CHECK_EVALUATION
        text = (event.asset_check_evaluation_data.description if event and evaluated else "") or ""
        page = check_runbook(name.rpartition(" ")[2]) if kind == "check failed" else ""
        yield Alert(kind, name, text, verdicts[name].run_id, page)


def _name(key: dg.AssetCheckKey) -> str:
    return f"{key.asset_key.to_user_string()} {key.name}"
