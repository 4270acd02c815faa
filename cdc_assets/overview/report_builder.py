"""Makes the report of a capture from SQL Server out of its overview: manifest, lake and server, each read once.

A server that does not answer makes the report shorter, and is among what is not known; a lake that cannot be read is its only
trouble. So a report can always be made. Parts of it: `lag` (databases), `conditions` (tables), `published` (Kafka); what is wrong is found
by `troubles`, and what is not known because nothing goes on by `idle`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import partial

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.envelope.rules import shown_key
from cdc_assets.errors import CdcError, describe_error
from cdc_assets.history.drift import Drift
from cdc_assets.lake.audit import Turns
from cdc_assets.ledger.signal_state import QueuedTable
from cdc_assets.overview.capture import AUDIT_S, CaptureOverview
from cdc_assets.overview.checks.check import Inspection, ReportAlone
from cdc_assets.overview.checks.sqlserver import CHECKS, ServerFacts
from cdc_assets.overview.conditions import progress_of, table_report
from cdc_assets.overview.drift import OverviewSource
from cdc_assets.overview.idle import unknown_while_idle
from cdc_assets.overview.kept import kept_events
from cdc_assets.overview.lag import database_report
from cdc_assets.overview.mirrors import inspect_mirrors
from cdc_assets.overview.published import kafka_troubles, kafka_unknown, published_of
from cdc_assets.overview.rates import PERIOD, rates_of
from cdc_assets.overview.report import CaptureReport, Ddl, QueuedSnapshot, TableReport, Trouble
from cdc_assets.overview.troubles import hindered, no_longer_captured, troubles_of, unanswered
from cdc_assets.publish.view import AskMarker

OpenSource = Callable[[], AbstractContextManager[OverviewSource]]

NOT_ASKED = "The server"
_UNKNOWN = "changes that it still keeps and table structures are not checked"


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
    at, overview_of = now or datetime.now(UTC), partial(CaptureOverview, config, audit_s=audit_s, turns=turns)
    try:
        with open_source() as source:
            overview = overview_of(source)
            report = report_of(overview, at, marker=marker)
            return Inspection.of(CHECKS, ServerFacts(overview, lambda: report))
    except CdcError as error:
        away = Trouble(NOT_ASKED, f"{NOT_ASKED} cannot be queried, so {_UNKNOWN}: {describe_error(error)}")
        try:
            report = report_of(overview_of(), at, [away], marker)
        except CdcError as of_lake:
            report = CaptureReport(config.name, at, (Trouble("the lake", describe_error(of_lake)),))
        return Inspection.of(CHECKS, ReportAlone(report, describe_error(error), config.kafka.enabled))


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
    read = {
        table: found for run in overview.state.snapshots.values() for table, found in progress_of(run, reads).items()
    }
    databases = tuple(database_report(found, overview, jobs.get(found.database)) for found in overview.databases)
    tables = tuple(
        table_report(table, overview, drifts.get(table.table), read.get(table.table)) for table in overview.tables
    )
    return CaptureReport(
        capture=overview.name,
        at=at,
        troubles=(
            *troubles_of(overview, jobs, tables),
            *hindered(overview, retried=False),
            *mirrors.troubles,
            *kafka_troubles(published, overview.config.kafka.late_s),
        ),
        unknown=(
            *unknown,
            *mirrors.unknown,
            *unanswered(overview, jobs),
            *unknown_while_idle(overview, databases, tables, at),
            *kafka_unknown(published),
            *hindered(overview, retried=True),
        ),
        databases=databases,
        tables=tables,
        queue=tuple(_queue(overview)),
        rates=rates,
        last_ddl=_last_ddl(overview),
        advice=(*_advice(overview, drifts.values(), tables), *overview.foreign, *kept_events(overview)),
        published=published,
        ran_on=overview.ran_on,
    )


def _advice(overview: CaptureOverview, drifts: Iterable[Drift], tables: Sequence[TableReport]) -> Iterator[str]:
    for drift in drifts:
        if drift.removable:
            unless = "unless another capture, or a connector, reads it still"
            yield f"{drift.table}: capture instance {drift.removable} is completely read here; {unless}: {drift.removal}"
    yield from (
        f"{table.table} is not captured: {table.reason}" for table in tables if table.condition == "not captured"
    )
    yield from no_longer_captured(overview, tables)


def _queue(overview: CaptureOverview) -> Iterator[QueuedSnapshot]:
    waits = not overview.streams  # until the mode streams again, no run works on it
    for signals in overview.requests.values():
        for entry in signals.queue:
            yield QueuedSnapshot(entry.table, _reached(entry, overview.config), entry.rows, signals.paused or waits)
        for request in signals.blocking:
            yield from (QueuedSnapshot(table, "", None, paused=waits) for table, _ in request.tables)


def _reached(entry: QueuedTable, config: CaptureConfig) -> str:
    """The key in the server's text form, as people may see it."""
    shown = shown_key(entry.table, entry.order, entry.last or (), config.events)
    return ", ".join("NULL" if part is None else part for part in shown)


def _last_ddl(overview: CaptureOverview) -> Ddl | None:
    newest = max(overview.history, key=lambda entry: entry.at, default=None)
    return Ddl(newest.table, newest.kind, newest.lsn, newest.at) if newest else None
