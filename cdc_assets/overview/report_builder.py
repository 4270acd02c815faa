"""Makes the report of a capture from SQL Server out of its overview: manifest, lake and server, each read once.

A server that does not answer makes the report shorter, and is among what is not known; a lake that cannot be read is its only
trouble. So a report can always be made.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from math import inf
from typing import Any

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.capture_job import CaptureJob
from cdc_assets.core.clocks import seconds_behind
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.envelope.rules import shown_key
from cdc_assets.errors import CdcError, ConnectionLostError, describe_error
from cdc_assets.history.drift import Drift
from cdc_assets.lake.audit import Loss, Turns
from cdc_assets.lake.system_topics import history_directory
from cdc_assets.ledger.fenced_log import Row
from cdc_assets.ledger.signal_state import QueuedTable
from cdc_assets.ledger.snapshot_state import SnapshotRun
from cdc_assets.ledger.state import CaptureState
from cdc_assets.overview.capture import AUDIT_S, CaptureOverview
from cdc_assets.overview.checks.check import Inspection, ReportAlone
from cdc_assets.overview.checks.sqlserver import CHECKS, ServerFacts
from cdc_assets.overview.drift import OverviewSource
from cdc_assets.overview.formatting import duration
from cdc_assets.overview.kept import kept_events
from cdc_assets.overview.mirrors import inspect_mirrors
from cdc_assets.overview.rates import rates_of
from cdc_assets.overview.report import (
    LATE_S,
    STOPPED,
    CaptureReport,
    DatabaseReport,
    Ddl,
    Lag,
    QueuedSnapshot,
    TableCondition,
    TableReport,
    Trouble,
)
from cdc_assets.overview.server import DatabaseFacts
from cdc_assets.overview.tables import DatabaseOverview, TableOverview
from cdc_assets.publish.feed import Feed
from cdc_assets.publish.offset import Published, has_other, parse_published
from cdc_assets.publish.start import MARKER_GONE, WITHOUT_MARKER, foreign, is_of
from cdc_assets.publish.view import AskMarker, PublishedReport, published_report
from cdc_assets.publish.waiting import waiting_unlisted

OpenSource = Callable[[], AbstractContextManager[OverviewSource]]

Progress = tuple[float, float | None]
"""Percent of a table that a snapshot has read, and seconds until it has read all of it, if that is known."""
NOT_ASKED = "The server"
_UNKNOWN = "changes that it still keeps and table structures are not checked"
KAFKA = "Kafka"
STUCK_S = 15 * 60.0
"""Seconds without a row of the manifest after which it is not known whether anybody reads what is to be read."""
_MAX_NAMED = 5
PERIOD = timedelta(seconds=60)
"""Interval of which rates are the mean."""


def inspect_server(
    config: CaptureConfig,
    open_source: OpenSource,
    *,
    audit_s: float | None = AUDIT_S,
    turns: Turns | None = None,
    now: datetime | None = None,
    marker: AskMarker | None = None,
) -> Inspection:
    """Report and checks with all that can be read; see the module's head.

    Args:
        open_source: opens the server; a report without it is made if that fails.
        audit_s: time limit in seconds for examining tables of the lake that seem right.
        turns: of somebody who looks again and again.
        now: the time; None is now.
        marker: finds how far the topics in Kafka are; None if nothing is written to Kafka.
    """
    at = now or datetime.now(UTC)
    try:
        with open_source() as source:
            overview = CaptureOverview(config, source, audit_s=audit_s, turns=turns)
            report = report_of(overview, at, marker=marker)
            return Inspection.of(CHECKS, ServerFacts(overview, lambda: report))
    except CdcError as error:
        report = without_server(config, error, at, audit_s, marker, turns)
        return Inspection.of(CHECKS, ReportAlone(report, describe_error(error), config.kafka.enabled))


def without_server(
    config: CaptureConfig,
    problem: CdcError,
    at: datetime,
    audit_s: float | None = AUDIT_S,
    marker: AskMarker | None = None,
    turns: Turns | None = None,
) -> CaptureReport:
    """The report of manifest and lake only, or of nothing if they are the problem.

    Args:
        problem: why the server cannot be queried.
    """
    away = Trouble(NOT_ASKED, f"{NOT_ASKED} cannot be queried, so {_UNKNOWN}: {describe_error(problem)}")
    try:
        return report_of(CaptureOverview(config, audit_s=audit_s, turns=turns), at, [away], marker)
    except CdcError as error:  # the lake itself
        return CaptureReport(config.name, at, (Trouble("the lake", describe_error(error)),))


def report_of(
    overview: CaptureOverview, at: datetime, unknown: Sequence[Trouble] = (), marker: AskMarker | None = None
) -> CaptureReport:
    """The report of an overview; of manifest and lake only if it has no server.

    Args:
        unknown: what could not be queried.
        marker: finds how far the topics in Kafka are; None if nothing is written to Kafka.

    Raises:
        CdcError: the lake cannot be read, or the server is away.
    """
    jobs = {job.database: job for job in overview.capture_jobs()} if overview.asks else {}
    drifts = {drift.table: drift for drift in overview.drifts()} if overview.asks else {}
    if not overview.asks and not unknown:
        unknown = [Trouble(NOT_ASKED, f"{NOT_ASKED} was not queried, so {_UNKNOWN}. Next: give its password")]
    rates = rates_of(overview.rows(), at, PERIOD)
    reads = rates.by_operation.get("r", 0.0)
    published, mirrors = published_of(overview, at, marker), inspect_mirrors(overview, at)
    read = {table: found for run in overview.state.snapshots.values() for table, found in _progress(run, reads).items()}
    databases = tuple(_database(found, overview, jobs.get(found.database)) for found in overview.databases)
    tables = tuple(_table(table, overview, drifts.get(table.table), read.get(table.table)) for table in overview.tables)
    return CaptureReport(
        capture=overview.name,
        at=at,
        troubles=(
            *_troubles(overview, jobs, tables),
            *_hindered(overview, retried=False),
            *mirrors.troubles,
            *_of_kafka(published, overview.config.kafka.late_s),
        ),
        unknown=(
            *unknown,
            *mirrors.unknown,
            *_unknown(overview, jobs, (databases, tables), published, at),
            *_hindered(overview, retried=True),
        ),
        databases=databases,
        tables=tables,
        queue=tuple(_queue(overview.state, overview)),
        rates=rates,
        last_ddl=_last_ddl(overview),
        advice=(*_advice(drifts.values(), tables), *overview.foreign, *kept_events(overview)),
        published=published,
        ran_on=overview.ran_on,
    )


def _advice(drifts: Iterable[Drift], tables: Iterable[TableReport]) -> Iterator[str]:
    for drift in drifts:
        if drift.removable:
            unless = "unless another capture, or a connector, reads it still"
            yield f"{drift.table}: capture instance {drift.removable} is completely read here; {unless}: {drift.removal}"
    yield from (
        f"{table.table} is not captured: {table.reason}" for table in tables if table.condition == "not captured"
    )


def published_of(overview: CaptureOverview, at: datetime, marker: AskMarker | None) -> PublishedReport | None:
    """How far the topics in Kafka are; None too if nothing publishes: nothing is there yet, and Dagster is not to do it."""
    if marker is None:
        return None
    try:
        text, feed = marker(), Feed(overview.config, overview.lake)
        if text is None and (recorded := feed.recorded().read()) and is_of(recorded, feed.lake()):
            return PublishedReport(problem=f"{MARKER_GONE}. Next: {WITHOUT_MARKER}")
        if text is None and not overview.config.kafka.enabled:
            return None
        state, rows = overview.state, overview.rows()
        if text is not None and (wrong := _foreign(feed, parse_published(text), state, rows)):
            return PublishedReport(problem=wrong)

        def unlisted(known: Published | None, waits: bool) -> datetime | None:
            return waiting_unlisted(feed, state, known, rows, waits=waits)

        numbered = [topic.name for topic in feed.topics(state) if topic.numbered]
        found = published_report(text, rows, at, unlisted, numbered)
        return replace(found, held=state.held_by) if found.waiting else found
    except CdcError as error:
        return PublishedReport(problem=describe_error(error), is_away=isinstance(error, ConnectionLostError))


def _foreign(feed: Feed, known: Published, state: CaptureState, rows: Sequence[Mapping[str, Any]]) -> str:
    """Why topics were not published from this lake; empty if they were. What is ahead of a state may be complete by now."""
    lake = feed.lake()
    if has_other(rows, known.entry):
        return foreign(known, lake, *feed.read(), continued=True)
    return foreign(known, lake, state.complete_window, feed.topics(state)) and foreign(known, lake, *feed.read())


def derived_troubles(overview: CaptureOverview, at: datetime, marker: AskMarker | None) -> Iterator[Trouble]:
    """What is wrong, or not known, of what is made of the topics: mirrors, and topics in Kafka.

    Raises:
        LakeError: the lake cannot be read.
    """
    yield from itertools.chain(*inspect_mirrors(overview, at))
    published = published_of(overview, at, marker)
    yield from _of_kafka(published, overview.config.kafka.late_s)
    if published and not published.is_away:  # brokers are queried besides
        yield from _unknown_of_kafka(published)
    yield from _ahead_of_kafka(published)


def _unknown_of_kafka(published: PublishedReport | None) -> Iterator[Trouble]:
    if published and published.problem:
        yield Trouble(KAFKA, f"How far its topics are is not known: {published.problem}")


def _of_kafka(published: PublishedReport | None, late_s: float) -> Iterator[Trouble]:
    if published and (published.behind_s or 0.0) > late_s:
        yield Trouble(
            KAFKA,
            f"its topics are {duration(published.behind_s or 0.0)} behind the lake, and {published.waiting:,} windows wait. Next: check "
            "that `cdc-assets publish --follow`, or Dagster's sensor, runs, and read its log",
        )
    for topic, reason in published.stopped.items() if published else ():
        yield Trouble(
            topic,
            f"it is not published to Kafka further: {reason}. Next: make room for the record, give the right, or change "
            "what refuses it; the next start of publishing tries it again",
        )


def _ahead_of_kafka(published: PublishedReport | None) -> Iterator[Trouble]:
    if published and published.is_age_unknown:
        yield Trouble(
            KAFKA,
            f"{published.waiting:,} windows wait, and how long is not known: they were complete at a time that lies ahead of the clock here. "
            "Next: correct the clocks; what is published ends this, too",
        )


def _troubles(
    overview: CaptureOverview, jobs: Mapping[str, CaptureJob], tables: Sequence[TableReport]
) -> Iterator[Trouble]:
    """Of the settings, then databases, the lake, and tables; a database's own problem includes those of its tables."""
    problems, history = (
        overview.problems() if overview.asks else {},
        history_directory(overview.config.events.topic_prefix),
    )
    restored = {name: log.restored for name, log in overview.state.logs.items() if log.restored}
    if refused := overview.other_name:
        yield Trouble(refused.what, str(refused))
    yield from (Trouble(name, describe_error(problem)) for name, problem in problems.items())
    yield from (Trouble(name, text) for name, text in restored.items() if name not in problems)
    yield from (
        Trouble(job.database, job.trouble) for job in jobs.values() if job.trouble and job.database not in problems
    )
    yield from (Trouble(loss.directory, _lost(loss, overview.config)) for loss in overview.losses_of_no_table)
    yield from (Trouble(commit.directory, commit.trouble) for commit in overview.doubled)
    if overview.lacks_structures and history not in {loss.directory for loss in overview.losses_of_no_table}:
        yield Trouble(history, _lost(Loss(history, overview.lacks_structures), overview.config))
    known = {*problems, *restored}
    for table in tables:
        if table.condition in STOPPED:
            if table.table.database in known and table.condition == "failed":
                continue
            yield Trouble(str(table.table), table.reason or table.condition)
    yield from (Trouble(found.property_name, str(found)) for found in overview.unmatched)
    for run in overview.state.snapshots.values():
        yield from (Trouble(str(table), f"its snapshot failed: {reason}") for table, reason in run.failed)


def _hindered(overview: CaptureOverview, *, retried: bool) -> Iterator[Trouble]:
    """What runs have met in their own questions, however short the lag is."""
    for what, found in overview.hindrances.get("stream", {}).items():
        if found.retried is retried:
            yield Trouble(
                what, f"it has been unable to continue since {found.since:%Y-%m-%d %H:%M:%S} UTC: {found.why}"
            )


def _unknown(
    overview: CaptureOverview,
    jobs: Mapping[str, CaptureJob],
    found: tuple[Sequence[DatabaseReport], Sequence[TableReport]],
    published: PublishedReport | None,
    at: datetime,
) -> Iterator[Trouble]:
    databases, tables = found
    yield from (Trouble(job.database, job.unknown) for job in jobs.values() if job.unknown)
    idle = cache(lambda database: _idle_s(overview.rows(), at, database))
    for database in databases:
        if database.is_lag_unknown and idle(database.database) > LATE_S:
            yield Trouble(
                database.database,
                f"changes wait, and no run has read for {_for(idle(database.database))}; how long they wait is not known, because the server "
                "has no time of them. Next: start a run, or find out what holds it",
            )
    # databases are snapshotted one after the other, and streamed when all are
    if not any(idle(name) <= STUCK_S for name in overview.state.snapshots):
        yield from _left_waiting(tables, idle)
        for database in databases:
            yield from left_unread(database, idle(database.database))
    # a busy run reports itself, and its own commits shorten the log
    for commit in overview.unclear if idle("") > LATE_S else ():
        yield Trouble(
            commit.directory,
            "it is not known whether other programs have put rows in a second time, because its log no longer shows it. Next: let a "
            "run of the capture compare the positions, which takes a minute; cdc-assets doctor does it, too",
        )
    yield from _unknown_of_kafka(published)
    yield from _ahead_of_kafka(published)


def left_unread(database: DatabaseReport, idle_s: float) -> Iterator[Trouble]:
    """That changes have waited for long, and nothing is written: what is late is read by a run, and whether one works is not known here.

    Args:
        idle_s: seconds for which nothing has been recorded of the database.
    """
    behind_s = database.lag.behind_s or 0.0
    if min(behind_s, idle_s) > STUCK_S:
        yield Trouble(
            database.database,
            f"changes have waited for {duration(behind_s)}, and nothing has been written of {database.database} for {_for(idle_s)}, so it is "
            "not known whether a run reads. Next: see whether a run works, and its log; else start one",
        )


def _left_waiting(tables: Sequence[TableReport], idle: Callable[[str], float]) -> Iterator[Trouble]:
    """Tables that are to be read, by database, if nothing is written of it: whether a run works is not known here."""
    waiting: dict[str, list[str]] = {}
    for table in tables:
        if table.condition in ("waiting", "snapshotting") and idle(table.table.database) > STUCK_S:
            waiting.setdefault(table.table.database, []).append(str(table.table))
    for database, names in waiting.items():
        more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
        yield Trouble(
            database,
            f"{', '.join(names[:_MAX_NAMED])}{more} are to be read, and nothing has been written of {database} for {_for(idle(database))}, so "
            "it is not known whether a run reads. Next: see whether a run works, and its log; else start one",
        )


def _idle_s(rows: Sequence[Row], at: datetime, database: str) -> float:
    """For how long no run has recorded anything of a database, or of anything if it is empty, at least; without end if none ever has, or
    the newest row lies ahead."""
    own = (row["at"] for row in reversed(rows) if database in (row["database"] or "").split(", ") or not database)
    if not rows:
        return inf
    idle_s = seconds_behind(at, next(own, rows[0]["at"]))
    return inf if idle_s is None else idle_s


def _for(seconds: float) -> str:
    return "an unknown time" if seconds == inf else duration(seconds)


def _lost(loss: Loss, config: CaptureConfig) -> str:
    if loss.directory == history_directory(config.events.topic_prefix):
        return f"{loss.what}. Next: restore its folder from a copy, or set snapshot.mode=recovery for one run"
    return f"{loss.what}. Next: let a run record it, which continues without what is lost"


def _database(found: DatabaseOverview, overview: CaptureOverview, job: CaptureJob | None) -> DatabaseReport:
    facts = overview.facts(found.database) if overview.knows(found.database) else None
    if facts is None or facts.problem is not None:
        return DatabaseReport(found.database, found.complete_to)
    return DatabaseReport(
        database=found.database,
        complete_to=found.complete_to,
        committed=facts.times.get(found.complete_to) if found.complete_to else None,
        server_time=facts.now,
        newest=facts.newest,
        lag=lag_of(
            overview.state.complete_to(found.database), overview.state.planned_until(found.database), facts, job
        ),
        capture_job=(job.trouble or job.unknown or "reads the log") if job else "",
    )


def lag_of(reached: Lsn | None, planned: Lsn | None, facts: DatabaseFacts, job: CaptureJob | None) -> Lag:
    """Lag by cause: how old is what waits. The server's own times of commits are compared with its clock only, so that no other
    clock matters; a capture that reads nothing is late on a quiet database too, and a commit after quiet hours is not.

    Args:
        reached: LSN up to which the lake is complete.
        planned: end of the window in flight, if there is one.
    """
    newest = facts.newest
    unread = min(
        (known for known in (_age(facts, newest), job.quiet if job else None) if known is not None), default=None
    )
    if reached is None:
        return Lag(unread)
    if newest is None or newest <= reached:
        return Lag(unread, 0.0, 0.0)
    behind = _age(facts, facts.unread)
    if planned is None or planned <= reached:
        return Lag(unread, behind, 0.0)
    poll = _age(facts, facts.unplanned) if newest > planned else 0.0
    return Lag(unread) if behind is None or poll is None else Lag(unread, poll, max(0.0, behind - poll))


def _age(facts: DatabaseFacts, commit: Lsn | None) -> float | None:
    """Age of a commit by the server's clock; not known either if that clock was set back since."""
    return seconds_behind(facts.now, facts.times.get(commit) if commit is not None else None)


def _table(
    table: TableOverview, overview: CaptureOverview, drift: Drift | None, progress: Progress | None
) -> TableReport:
    condition, reason = _condition(table, overview, drift, reads=progress is not None)
    dropped = overview.state.retained.get(table.topic)
    percent, eta_s = progress if progress is not None and condition == "snapshotting" else (None, None)
    return TableReport(
        table=table.table,
        topic=table.topic,
        condition=condition,
        reason=reason,
        complete_to=table.position,
        instance=table.recorded.instance if table.recorded else None,
        percent=percent,
        eta_s=eta_s,
        headroom_h=table.headroom.hours if table.headroom else None,
        ignored_gaps=table.recorded.ignored_gaps if table.recorded else (),
        complete_after=Lsn.parse(dropped.after) if dropped and dropped.after else None,
    )


def _condition(
    table: TableOverview, overview: CaptureOverview, drift: Drift | None, *, reads: bool
) -> tuple[TableCondition, str]:
    """The worst that is true of a table; a snapshot in flight repairs a gap, but has not yet."""
    if table.status in ("gap", "failed"):
        return table.status, table.reason
    if table.status in ("excluded", "not captured"):
        return table.status, table.reason
    if reads:
        return "snapshotting", table.reason
    if table.status == "waiting":
        return table.status, table.reason
    if not overview.streams:
        return "snapshotted", "the snapshot mode streams no changes"
    if table.position is None:
        return "not streamed", (
            "the server does not capture its changes, so its topic lacks them. "
            "Next: EXEC sys.sp_cdc_enable_table for it, or exclude it from the capture"
        )
    if drift and drift.differences:
        texts = "; ".join(map(str, drift.differences))
        return "drifted", f"its structure differs from that of its events: {texts}. Next: {drift.remedy}"
    return "streaming", ""


def _progress(run: SnapshotRun, reads_per_s: float) -> Mapping[TableId, Progress]:
    """Of each table percent of its rows that are read, and seconds until the rest is, with all slices before its last one."""
    total, done, remaining, ahead = Counter[TableId](), Counter[TableId](), dict[TableId, int](), 0
    for place, part in enumerate(run.slices):
        rows = max(part.rows, 1)
        total[part.table] += rows
        if place < run.done:
            done[part.table] += rows
        else:
            ahead += rows
        remaining[part.table] = ahead
    return {
        entry.table: (
            100.0 * done[entry.table] / (total[entry.table] or 1),
            remaining.get(entry.table, 0) / reads_per_s if reads_per_s > 0 else None,
        )
        for entry in run.tables
    }


def _queue(state: CaptureState, overview: CaptureOverview) -> Iterator[QueuedSnapshot]:
    for signals in state.signals.values():
        for entry in signals.queue:
            yield QueuedSnapshot(entry.table, _reached(entry, overview.config), entry.rows, signals.paused)


def _reached(entry: QueuedTable, config: CaptureConfig) -> str:
    """The key in the server's text form, as people may see it."""
    shown = shown_key(entry.table, entry.order, entry.last or (), config.events)
    return ", ".join("NULL" if part is None else part for part in shown)


def _last_ddl(overview: CaptureOverview) -> Ddl | None:
    newest = max(overview.history, key=lambda entry: entry.at, default=None)
    return Ddl(newest.table, newest.kind, newest.lsn, newest.at) if newest else None
