"""One sensor per capture: asks for the newest LSN and starts a run when there is something to do.

A tick is one small query per database, one read of the manifest, and a look at
the channels of signals; no JVM. Rows of the signal table are changes as any
others, so they start a run by themselves; a file, a Kafka topic, requests of
people, and requests that no run has finished are asked for. The cursor plays no part in it: where the capture stands is in the lake.

*What a run is asked for.* A run that follows the log reads all tables of the capture, whatever its selection says, and
reports those that had events. Dagster writes a record ahead for each asset and check that is selected, and keeps a
description of each selection that it has not seen before. So the sensor selects the window manifest, the one table that
every such run writes: neither grows with the tables of the capture, and no table is left out by a guess.

*Run keys.* `capture:epoch:LSN`, where the epoch is the run before (its id). A
tick that is repeated asks for the same key and so for nothing; a run that died
or gave way changes the epoch, so the same LSN can be asked for again.

*After a failure.* A run whose process was killed is started again at once. A
run that failed for a reason would fail again: the pause doubles with each
failure in a row, up to `LONGEST_PAUSE`. A run that
committed everything but failed one table's check, or could not read one table,
does not delay the next run: the other tables must not wait for it. Tables that
could not be read wait by such a pause of their own, while the others are streamed;
so do tables of the loaded code location that are not on the server now.

*After a termination.* Nobody ends a run to see the next one start: the sensor waits for `AFTER_TERMINATION`, and says so.

*No table yet.* A code location that lists none is told of the first that is enabled by
the server itself, and the run that follows the log takes it in.

*Starts.* With a snapshot mode that reads tables at each start, the first look of
a loaded code location is one. The cursor remembers which start that was.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import dagster as dg
from dagster import DagsterRunStatus

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.defs.capture_job import CaptureJobWatch
from cdc_assets.defs.captures import CaptureResource
from cdc_assets.defs.catalog import CaptureCatalog
from cdc_assets.defs.partitions import all_ranges
from cdc_assets.defs.runs import COMMITTED_TAG, FAILURE_REASON_TAG
from cdc_assets.defs.snapshot import SnapshotConfig
from cdc_assets.errors import CdcError, describe_error

AFTER_TERMINATION = timedelta(minutes=1)
"""So that whoever ended a run can stop the sensor before the next one starts."""
FIRST_PAUSE = timedelta(seconds=15)
LONGEST_PAUSE = timedelta(minutes=15)
SIGNAL_TAG = "cdc/signals"
"""On a run that was started for signals: the channels, or the databases whose requests were not finished."""
NEWCOMERS_TAG = "cdc/tables"
"""On a run that was started because a capture without tables has one now: which."""
_LOOK_BACK = 10
"""Failures in a row that are told apart."""
_START = uuid4().hex
"""This loading of the code location."""
_OWN_FAILURES = frozenset({"STEP_FAILURE", "JOB_INITIALIZATION_FAILURE"})


def lsn_sensor(catalog: CaptureCatalog, jobs: Sequence[Any]) -> dg.SensorDefinition:
    """The sensor of one capture."""
    names, runs, capture_jobs = catalog.names, catalog.runs(), CaptureJobWatch(catalog)

    def answer_of(context: dg.SensorEvaluationContext, resource: CaptureResource) -> dg.RunRequest | dg.SkipReason:
        if active := runs.active(context.instance):
            return dg.SkipReason(f"Run {active[0].run_id[:8]} of {active[0].job_name} is at work.")
        records = runs.finished(context.instance, _LOOK_BACK)
        if (again := terminated_until(records)) and again > datetime.now(UTC):
            return dg.SkipReason(
                f"The last run was terminated; the next starts after {again:%H:%M:%S} UTC, unless this sensor is stopped."
            )
        ends = pause_ends(records)
        if ends and ends > datetime.now(UTC):
            return dg.SkipReason(f"The last run failed; the next starts after {ends:%H:%M:%S} UTC.")
        snapshots = runs.finished_of(context.instance, names.snapshot, _LOOK_BACK)
        if starts := streaming_starts(records, names.snapshot, catalog.config.streaming.delay_s):
            return dg.SkipReason(f"Streaming begins after {starts:%H:%M:%S} UTC (streaming.delay.ms).")
        unread = pause_ends(snapshots, of_any_kind=True)
        request = _request(catalog, resource, records, unread, first_look=context.cursor != _START)
        context.update_cursor(_START)
        return request

    @dg.sensor(
        name=names.sensor,
        jobs=list(jobs),
        minimum_interval_seconds=1,  # the daemon looks every 5 s; asking for 5 would give 5 to 10
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={names.resource},
        description=(
            "Asks the server for the newest captured LSN. Starts a snapshot for tables that have none, else a run "
            "that follows the log if there is something new or somebody asked for something; never a second run."
        ),
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.RunRequest | dg.SkipReason | dg.SensorResult:
        resource: CaptureResource = getattr(context.resources, names.resource)
        try:
            answer = answer_of(context, resource)
        except CdcError as error:
            if error.retryable:
                return dg.SkipReason(describe_error(error))
            raise
        if not (events := capture_jobs.look(resource)):
            return answer
        if isinstance(answer, dg.SkipReason):
            return dg.SensorResult(skip_reason=answer, asset_events=events)
        return dg.SensorResult(run_requests=[answer], asset_events=events)

    return sensor


def _request(
    catalog: CaptureCatalog,
    resource: CaptureResource,
    records: Sequence[dg.RunRecord],
    unread: datetime | None,
    *,
    first_look: bool,
) -> dg.RunRequest | dg.SkipReason:
    """What to do next for a capture at rest.

    Args:
        records: its newest ended runs.
        unread: when tables that could not be read may be tried again; None if now.
        first_look: whether this is the first look since the start.
    """
    capture = catalog.names.capture
    with resource.overview(at_signals=True) as overview:
        work = overview.work
        waiting = work.waiting(list(catalog.keys("snapshot").values()), first_look=first_look)
        if waiting and (unread is None or unread < datetime.now(UTC)):
            return dg.RunRequest(
                run_key=run_key(capture, records, "snapshot"),
                job_name=catalog.names.snapshot,
                asset_selection=[catalog.key(table, "snapshot") for table in waiting],
                run_config=dg.RunConfig(ops={catalog.names.snapshot_op: SnapshotConfig(due_only=True)}),
                tags=dict(all_ranges(catalog.partitions)),
            )
        fresh = work.fresh() if overview.streams else {}
        asked = work.asked() if overview.streams and not fresh else []
        new = work.newcomers() if overview.streams and not (catalog.tables or fresh or asked) else []
    if new:
        return _with_newcomers(catalog, new, records)
    if asked:
        return _signalled(catalog, asked, records)
    if waiting and not fresh:
        return dg.SkipReason(
            f"{len(waiting)} tables could not be read; the next attempt is after {unread:%H:%M:%S} UTC."
        )
    if not fresh:
        return dg.SkipReason("Nothing new.")
    newest = max(fresh.values())
    return _following(catalog, run_key(capture, records, newest), {"cdc/lsn": str(newest)})


def _following(catalog: CaptureCatalog, key: str, tags: Mapping[str, str]) -> dg.RunRequest:
    """A run that follows the log: of all tables, whatever is selected."""
    return dg.RunRequest(
        run_key=key,
        job_name=catalog.names.changes,
        asset_selection=[catalog.windows_key],
        asset_check_keys=[],  # None would be all checks of the manifest, which have a job of their own
        tags=dict(tags),
    )


def _with_newcomers(
    catalog: CaptureCatalog, tables: Sequence[TableId], records: Sequence[dg.RunRecord]
) -> dg.RunRequest | dg.SkipReason:
    """A run that takes the first tables in; not at once again if the last one could not."""
    what = ", ".join(map(str, tables))
    if again := _again(records, NEWCOMERS_TAG, what):
        return dg.SkipReason(f"{what} could not be taken in; the next attempt is after {again:%H:%M:%S} UTC.")
    key = run_key(catalog.names.capture, records, "tables")
    return _following(catalog, key, {NEWCOMERS_TAG: what})


def _again(records: Sequence[dg.RunRecord], tag: str, what: str) -> datetime | None:
    """When a run may start for what the last one was started for, too; None if now."""
    last = records[0] if records else None
    if last is None or not last.end_time or last.dagster_run.tags.get(tag) != what:
        return None
    again = datetime.fromtimestamp(last.end_time, UTC) + FIRST_PAUSE
    return again if again > datetime.now(UTC) else None


def _signalled(
    catalog: CaptureCatalog, asked: Sequence[str], records: Sequence[dg.RunRecord]
) -> dg.RunRequest | dg.SkipReason:
    """A run for signals; not at once again if the last one was for the same and left them there."""
    what = ", ".join(sorted(asked))
    if again := _again(records, SIGNAL_TAG, what):
        return dg.SkipReason(f"A run for signals ({what}) has just ended; the next starts after {again:%H:%M:%S} UTC.")
    key = run_key(catalog.names.capture, records, "signals")
    return _following(catalog, key, {SIGNAL_TAG: what})


def pause_ends(records: Sequence[dg.RunRecord], *, of_any_kind: bool = False) -> datetime | None:
    """When the next run may start after failures; None if it may start now.

    Args:
        records: of ended runs, newest first.
        of_any_kind: count runs too that failed for some of their tables only, or found none of them to read.
    """
    failures = failures_in_a_row(records, of_any_kind=of_any_kind)
    ended = records[0].end_time if failures else None
    if ended is None:
        return None
    pause: timedelta = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (failures - 1))
    return datetime.fromtimestamp(ended, UTC) + pause


def terminated_until(records: Sequence[dg.RunRecord]) -> datetime | None:
    """When the next run may start, if somebody terminated the last one.

    Args:
        records: of ended runs, newest first.
    """
    last = records[0] if records else None
    if last is None or last.end_time is None or last.dagster_run.status is not DagsterRunStatus.CANCELED:
        return None
    return datetime.fromtimestamp(last.end_time, UTC) + AFTER_TERMINATION


def streaming_starts(records: Sequence[dg.RunRecord], snapshot: str, delay_s: float) -> datetime | None:
    """When the delay after a snapshot run ends; None if it has, or something else ran since.

    Args:
        records: of ended runs, newest first.
        snapshot: name of the snapshot job.
        delay_s: `streaming.delay.ms` in seconds.
    """
    ended = records[0].end_time if records and records[0].dagster_run.job_name == snapshot else None
    starts = datetime.fromtimestamp(ended + delay_s, UTC) if ended and delay_s else None
    return starts if starts and starts > datetime.now(UTC) else None


def failures_in_a_row(records: Sequence[dg.RunRecord], *, of_any_kind: bool = False) -> int:
    """How many of the newest runs failed for a reason of their own, without another end between them."""
    count = 0
    for record in records:
        run = record.dagster_run
        if run.status is DagsterRunStatus.FAILURE and (COMMITTED_TAG not in run.tags or of_any_kind):
            count += run.tags.get(FAILURE_REASON_TAG) in _OWN_FAILURES
        elif run.status is DagsterRunStatus.SUCCESS and run.tags.get(COMMITTED_TAG) == "0" and of_any_kind:
            count += 1
        else:
            break
    return count


def run_key(capture: str, records: Sequence[dg.RunRecord], what: Lsn | str) -> str:
    """See the module's head."""
    epoch = records[0].dagster_run.run_id[:8] if records else "first"
    return f"{capture}:{epoch}:{what}"
