"""One sensor per capture: checks for a new LSN, and starts a run when there is something to do.

A tick is one small query per database, one read of the manifest, and a check of
the signal channels; no JVM. One that finds nothing waits for a change (`schedule`). Rows of the signal table are changes like any
others, so they start a run by themselves; if there are any among the new changes, one more question sees them, and the run
is tagged with them. After a run that did not succeed the same query finds rows that it may have read and not carried
out. A file, a Kafka topic, requests of users, and unfinished requests are checked separately; a request that no run
can finish starts fewer and fewer of them. The cursor is not used for positions: these are in the lake.

*What a run selects.* A streaming run reads all tables of the capture, whatever its selection is, and
reports those that had events. Dagster writes a record in advance for each selected asset and check. So the sensor has a job
of its own (`names.follow`) that has only the window manifest, the one table that
every such run writes: the number of records does not grow with the tables of the capture, and no table is left out. It is a
job and not a selection from one, because Dagster resolves each selection from all assets of the code location: once in the code
server, twice in the run, and with two descriptions of all tables.
A snapshot run of the sensor reads all tables that need it, too, so it selects `_MAX_SELECTED` of them at most: a selected
table costs four records, another one only its materialization.

*Run keys, failures, terminations:* `schedule`.

*Mirrors* follow in the runs that write topics. Some may lag while nothing else is to do, because they are new, their last step failed or
their tables lack data. Then a run only for them is started, one after each run of the capture, or when somebody else has written; if a run
of the capture did not wait for them any more, that one comes before the next stream, which waits for no second one. One that is refused,
or that cannot be queried, keeps lagging, and keeps the sensor from nothing.

They also wait until it is known up to where in the log a snapshot has read, which a run finds out. Where the last one ended without that, and
nothing is committed, no other run would come, so one is started for it.

*Kafka* follows in these runs too. If windows wait to be published while nothing else is to do, a run that publishes is started;
after a failure of that run, or one that published nothing, with the same pauses as above: so a topic that is stopped is tried again.
The broker is not queried again before the manifest has grown.

*New tables.* While nothing else is to do, the sensor queries the server for enabled tables of which nothing is captured, and
starts a streaming run that adds them. It does so once a minute, or at each tick if the code location lists no table: a quiet database would have no other run.
One that a run could not add is tried again after pauses that grow.

*What a run has met* is told until another one has gone on: that the last run failed, and what hindered the stream. If that is over while
nothing is new, no other run would come, so one is started for it, after pauses that grow.

*Starts.* If the snapshot mode reads tables at each start, the first evaluation under another
start of Dagster, or with another snapshot mode, is a start (`service`). It is over when a run for it has read what it could, or there was
nothing to read: a run that failed before is requested again.

*The page.* Whatever a tick finds, and whatever hinders it, it reports if no run does (`ticks`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any

import dagster as dg

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.seldom import Seldom
from cdc_assets.defs.captures import CaptureResource
from cdc_assets.defs.catalog import CaptureCatalog
from cdc_assets.defs.derived_runs import KafkaRuns, mirroring
from cdc_assets.defs.mirrors import MIRRORS_LEFT_TAG
from cdc_assets.defs.partitions import all_ranges
from cdc_assets.defs.runs import COMMITTED_TAG, LEFT_AT_TAG, PROGRESS_TAG, repository_here
from cdc_assets.defs.schedule import (
    MAX_FAILURES,
    Asks,
    Records,
    growing_retry_time,
    is_failing,
    pause_ends,
    retry_time,
    run_key,
    streaming_starts,
)
from cdc_assets.defs.server_view import server_view
from cdc_assets.defs.service import start_id
from cdc_assets.defs.snapshot import SnapshotConfig
from cdc_assets.defs.ticks import NOTHING_NEW, Answer, sensor_of, start_of
from cdc_assets.lake.audit import Turns
from cdc_assets.ledger.hindrances import THE_RUN
from cdc_assets.overview import CaptureOverview

RETRY_TAG = "cdc/again"
"""On a run that was started because tables failed and are tried again: these tables."""
READINGS_TAG = "cdc/readings"
"""On a run that was started because it is unknown where readings of databases ended: these databases."""
HINDERED_TAG = "cdc/hindered"
"""On a run that was started to see whether what the runs before have met is over: what could not continue."""
SIGNAL_TAG = "cdc/signals"
"""On a run that was started for signals: the channels (`source` is the signal table), or the databases with unfinished requests."""
START_TAG = ".dagster/cdc_start"
"""On a snapshot run that was requested at a start of Dagster: which."""
_SOURCE = "source"
NEW_TABLES_TAG = "cdc/tables"
"""On a run that was started because tables were enabled: these."""
_NEW_TABLES_EVERY_S = 60.0
"""Seconds between two searches for tables that were enabled, if there are others."""
_MAX_SELECTED = 20
"""Tables that a snapshot run of the sensor selects."""


def lsn_sensor(catalog: CaptureCatalog, jobs: Sequence[Any]) -> dg.SensorDefinition:
    """The sensor of one capture."""
    about = (
        "Checks the server for a new captured LSN. Starts a snapshot run for tables that need one, else a streaming run "
        "if there are new changes or requests; never a second run at a time."
    )
    view = partial(server_view, catalog, turns=Turns())  # each tick has a resource and a view of its own
    return sensor_of(catalog, catalog.names.sensor, about, jobs, view, _Decider(catalog))


class _Decider:
    """See `ticks.Decider`."""

    def __init__(self, catalog: CaptureCatalog) -> None:
        self._catalog, self._published, self._start = catalog, KafkaRuns(catalog), start_id(catalog.config)
        self._turns = Turns()
        self._new_tables = Seldom(_NEW_TABLES_EVERY_S if catalog.tables else 0.0)

    def times(self, resource: CaptureResource) -> tuple[float, float]:
        """As `ticks.Decider.times`."""
        now = resource.config().streaming
        return now.sensor_wait_s, now.poll_interval_s

    @contextmanager
    def changes(self, resource: CaptureResource) -> Iterator[Asks]:
        """As `ticks.Decider.changes`."""
        with resource.overview() as overview:
            yield overview.work.has_come

    def answer(self, context: dg.SensorEvaluationContext, resource: CaptureResource, records: Records) -> Answer:
        """As `ticks.Decider.answer`."""
        catalog, names = self._catalog, self._catalog.names
        runs = catalog.runs().of(repository_here(context))
        snapshots = runs.finished_of(context.instance, names.snapshot, MAX_FAILURES)
        if starts := streaming_starts(records, names.snapshot, catalog.config.streaming.delay_s):
            return dg.SkipReason(f"Streaming starts after {starts:%H:%M:%S} UTC (streaming.delay.ms).")
        mirrors = partial(mirroring, catalog, resource, context.instance, runs, records, self._turns)
        if (
            records
            and records[0].dagster_run.tags.get(MIRRORS_LEFT_TAG)
            and isinstance(left := mirrors(first=True), dg.RunRequest)
        ):
            return left
        unread = pause_ends(snapshots, of_any_kind=True)
        is_over = start_of(context) == self._start or _has_read(snapshots, self._start)
        start = "" if is_over else self._start
        request = _request(catalog, resource, records, unread, self._new_tables, start)
        reads = isinstance(request, dg.RunRequest) and request.job_name == names.snapshot
        if isinstance(request, dg.SkipReason):
            request = mirrors() or request
        if catalog.has_kafka and isinstance(request, dg.SkipReason):
            publishing = catalog.publishing_runs().of(runs.repository)
            request = self._published.request(context.instance, publishing, resource) or request
        if is_over or not (unread or reads):
            context.update_cursor(self._start)
        return request


def _request(
    catalog: CaptureCatalog,
    resource: CaptureResource,
    records: Records,
    unread: datetime | None,
    new_tables: Seldom,
    start: str,
) -> Answer:
    """What to do next for a capture without a running run.

    Args:
        records: records of its newest ended runs.
        unread: time from which tables that could not be read may be tried again; None if now.
        new_tables: when to search for new tables.
        start: the start of Dagster that is to be carried out; empty if it was.
    """
    capture = catalog.names.capture
    with resource.overview(at_signals=True) as overview:
        work = overview.work
        # rows before changes: a table without its rows cannot stream
        snapshots = list(catalog.keys("snapshot").values())
        waiting = work.waiting(snapshots, first_tick=bool(start))
        if waiting and unread is None:
            return dg.RunRequest(
                run_key=run_key(capture, records, "snapshot"),
                job_name=catalog.names.snapshot,
                asset_selection=[catalog.key(table, "snapshot") for table in waiting[:_MAX_SELECTED]],
                run_config=dg.RunConfig(ops={catalog.names.snapshot_op: SnapshotConfig(due_only=True)}),
                tags={**all_ranges(catalog.partitions), **({START_TAG: start} if start else {})},
            )
        # from here on cheap questions first; each is asked only if none before it has found work
        fresh = work.unread_databases() if overview.streams else {}
        signalled = work.signalled(fresh)
        asked = work.pending_signals() if overview.streams and not fresh else []
        if overview.streams and _has_left(records) and not (fresh or asked) and work.unheeded():
            asked = [_SOURCE]
        new = work.new_tables() if overview.streams and not (fresh or asked) and new_tables.due() else []
        new = [table for table in new if table not in snapshots]
        failed = work.failed() if overview.streams and not (fresh or asked or new) else []
        unended = work.readings_without_end() if overview.streams and not (fresh or asked or new or failed) else []
        hindered = _hindered(overview, records) if not (fresh or asked or new or failed or unended) else []
    run_for = partial(_run_for, catalog, records)
    if new:
        pauses = "{} could not be added; the next attempt starts"
        return run_for(NEW_TABLES_TAG, new, "tables", again=_after_its_own, pauses=pauses)
    if asked:
        pauses = "A run for signals ({}) has just ended; the next starts"
        # a channel may have brought more since that run; a request of a database is one that it could not finish
        again = _if_unfinished if set(asked) <= overview.state.signals.keys() else retry_time
        return run_for(SIGNAL_TAG, sorted(asked), "signals", again=again, pauses=pauses)
    if waiting and not fresh:
        return dg.SkipReason(
            f"{len(waiting)} tables could not be read; the last run says why, the next attempt starts after {unread:%H:%M:%S} UTC."
        )
    if failed:  # every run tries them first
        return run_for(RETRY_TAG, failed, "again", pauses="{} failed; the next attempt starts")
    if unended:  # mirrors wait for where readings ended; every run tries to find that out
        pauses = "The capture job of {} has not passed the end of a snapshot; the next run checks"
        return run_for(READINGS_TAG, unended, "readings", pauses=pauses)
    if hindered:  # a run finds out whether that is over
        pauses = "{} could not continue; the next attempt starts"
        return run_for(HINDERED_TAG, hindered, "hindered", again=_for_any_reason, pauses=pauses)
    if not fresh:
        return dg.SkipReason(f"{NOTHING_NEW}.")
    newest = max(fresh.values())
    tags = {"cdc/lsn": str(newest)} | ({SIGNAL_TAG: _SOURCE} if signalled else {})
    return _streaming_run(catalog, run_key(capture, records, newest), tags)


def _has_read(snapshots: Records, start: str) -> bool:
    """Whether a run that was requested at a start has read what it was to read, but for tables that could not be."""
    own = [record.dagster_run for record in snapshots if record.dagster_run.tags.get(START_TAG) == start]
    tags = (COMMITTED_TAG, PROGRESS_TAG)
    return any(run.status is dg.DagsterRunStatus.SUCCESS or any(map(run.tags.get, tags)) for run in own)


def _has_left(records: Records) -> bool:
    """Whether the last run may have ended between a window and what its signals request."""
    return bool(records) and records[0].dagster_run.status is not dg.DagsterRunStatus.SUCCESS


def _streaming_run(catalog: CaptureCatalog, key: str, tags: Mapping[str, str]) -> dg.RunRequest:
    """A request for a streaming run, which reads all tables whatever is selected."""
    return dg.RunRequest(run_key=key, job_name=catalog.names.follow, tags=dict(tags))


def _run_for(
    catalog: CaptureCatalog,
    records: Records,
    tag: str,
    what: Iterable[TableId | str],
    name: str,
    *,
    again: Callable[[Records, str, str], datetime | None] = growing_retry_time,
    pauses: str,
) -> Answer:
    """A request for a streaming run with a reason; after a pause if the runs before did not end that reason.

    Args:
        tag: names the reason.
        name: part of the run's key.
        again: when it may be requested, by the runs before.
        pauses: what is said until then; `{}` is what it is about.
    """
    about = ", ".join(map(str, what))
    if until := again(records, tag, about):
        return dg.SkipReason(f"{pauses.format(about)} after {until:%H:%M:%S} UTC.")
    return _streaming_run(catalog, run_key(catalog.names.capture, records, name), {tag: about})


def _after_its_own(records: Records, tag: str, what: str) -> datetime | None:
    """After pauses behind the runs for the same reason only, whatever others were between them."""
    own = [record for record in records if record.dagster_run.tags.get(tag) == what]
    return growing_retry_time(own, tag, what)


def _if_unfinished(records: Records, tag: str, what: str) -> datetime | None:
    """As `_after_its_own`, but a run that ended at its time limit, or for another one, may have finished others of many requests."""
    whole = [record for record in records if not record.dagster_run.tags.get(LEFT_AT_TAG)]
    return retry_time(records, tag, what) or _after_its_own(whole, tag, what)


def _for_any_reason(records: Records, tag: str, _: str) -> datetime | None:
    return growing_retry_time(records, tag)


def _hindered(overview: CaptureOverview, records: Records) -> list[str]:
    """What could not continue, as runs have met it, and the page therefore says until another one has gone on."""
    return sorted({*overview.hindrances.get("stream", ()), *([THE_RUN] if is_failing(records) else [])})
