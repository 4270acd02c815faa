"""Keeps a capture's page and checks true while a run works; while none tells what it sees, the sensor does (`idle_page`).

A thread of the run asks manifest, lake and server every few seconds over a connection of its own, also while the loop waits
for a server that is away. It reports the page (`page`) as a materialization of the window manifest: at once if health or
troubles change, else every `_REPORT_S` seconds while something else has, or it is not healthy; and results of checks by `board`. Between two
looks it waits for a multiple of what the last one took, so that it takes a fixed share of the time, but never so long that the page gets old.

*Who tells.* Each look that was told is recorded (`seen`). If the thread does not go on, because the process is frozen or an answer does not
come, the sensor sees that and tells what it sees itself. So after such a pause everything is told anew.

*Nothing is invented.* A check whose facts could not be asked does not pass: it warns that the answer is not known, with the reason.
A look that has not ended in time is told as one without an answer, again and again until it ends.
*Crash:* no state is kept.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import wait
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from time import monotonic
from typing import Any

import dagster as dg

from cdc_assets.assembly.publishing import TICK_MARKER
from cdc_assets.config.settings import MetricsSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.interruption import Interrupted
from cdc_assets.defs.asking import begun, overdue_s
from cdc_assets.defs.board import CheckBoard, evaluated
from cdc_assets.defs.capture_job import CAPTURE_JOB, evaluation
from cdc_assets.defs.captures import CaptureResource
from cdc_assets.defs.catalog import CaptureCatalog
from cdc_assets.defs.checks import DRIFT, HEADROOM, drift_result, headroom_result
from cdc_assets.defs.continuity import continuity_evaluation
from cdc_assets.defs.envelope_io import account_of
from cdc_assets.defs.health import HEALTH, health_result
from cdc_assets.defs.kafka import PUBLISHED, published_result
from cdc_assets.defs.known_lake import Home, share_home
from cdc_assets.defs.page import page_of
from cdc_assets.defs.queue import waiting_too_long
from cdc_assets.defs.runs import CaptureRuns, repository_of
from cdc_assets.defs.seen import FRESH_S, note_seen
from cdc_assets.errors import CdcError, describe_error
from cdc_assets.lake.system_topics import WINDOWS
from cdc_assets.lake.topics import TopicTables
from cdc_assets.metrics.exports import OnCommit, exported_metrics
from cdc_assets.overview import CaptureOverview, CaptureReport, report_of, without_server
from cdc_assets.overview.report import Trouble
from cdc_assets.overview.words import without_numbers

log = logging.getLogger(__name__)

_FIRST_S, _FIRST_OF_TABLE_S = 1.0, 0.01
"""Seconds from the start of a run to its first look, which would take the processor from the run's first window; and as many more for
each table, since a look at many takes longer than many a run."""
_EVERY_S, _LONGEST_S = 3.0, 8.0
"""Least and most seconds between two looks."""
SHARE = 5.0
"""A look is followed by a pause of this many times its duration, within these bounds."""
_REPORT_S = 10.0
"""Least seconds between two materializations of the page if health and troubles stay the same; what is not healthy is told again after them."""
_END_S = 5.0
"""Longest wait for a look that is under way when the run ends; it reports nothing any more."""


@dataclass(frozen=True)
class Seen:
    """What one look has found: the page, and a result for each check but `health`, which tells the page."""

    report: CaptureReport
    checks: Sequence[dg.AssetCheckEvaluation] = field(default=())


Look = Callable[[], Seen]
"""Asks everything once; whatever cannot be asked is in the report, and fails the checks that depend on it."""


@dataclass(frozen=True)
class Subject:
    """What a page is about.

    Args:
        capture: name of the capture.
        key: asset that carries the page: the record of windows, or of batches.
        directory: of that asset's table.
        others: assets that a run materializes beside it, with a check of their own.
        tables: how many tables a look is about.
        runs: those that write to the capture, of which some may wait.
        unknown: results of the checks of the whole capture that nobody can answer now, for a reason.
        home: where its record is, by the settings as they are now.
    """

    capture: str
    key: dg.AssetKey
    directory: str
    look: Look
    others: tuple[dg.AssetKey, ...] = ()
    tables: int = 0
    runs: CaptureRuns | None = None
    unknown: Callable[[str], Iterable[dg.AssetCheckEvaluation]] = lambda _: ()
    home: Callable[[], Home] | None = None

    def share_home(self, instance: dg.DagsterInstance) -> None:
        """Let Dagster and this process know of the capture's record what the other knows."""
        with suppress(CdcError):  # of settings that are wrong, which is told by who needs them
            if self.home is not None:
                share_home(instance, self.key, self.home())

    def results(self, seen: Seen) -> Sequence[dg.AssetCheckEvaluation]:
        """Those of all checks."""
        return [*seen.checks, evaluated(health_result(seen.report), self.key, HEALTH)]

    def unanswered(self, reason: str, last: Seen | None = None) -> Seen:
        """What is known if a look gives no answer: what was seen last, and that nothing is known now."""
        what = (
            f"The state of the capture is not known: {reason}. Next: see whether the server and the lake's store answer"
        )
        unknown = Trouble("The state of the capture", what)
        before = last.report if last is not None else CaptureReport(self.capture, datetime.now(UTC))
        report = replace(before, at=datetime.now(UTC), unknown=(*before.unknown, unknown))
        return Seen(report, tuple(self.unknown(reason)))


def subject_of(catalog: CaptureCatalog, resource: CaptureResource) -> Subject:
    """A capture from SQL Server."""

    def ask() -> Seen:
        return look(catalog, resource)

    def home() -> Home:
        return Home.of(resource.config().lake, catalog.system[WINDOWS])

    others = (catalog.kafka_key,) if catalog.has_kafka else ()
    tables, unknown = len(catalog.tables), partial(_unknown, catalog)
    directory, runs = catalog.system[WINDOWS], catalog.runs()
    return Subject(catalog.config.name, catalog.windows_key, directory, ask, others, tables, runs, unknown, home)


def look(catalog: CaptureCatalog, resource: CaptureResource) -> Seen:
    """Ask everything of a capture from SQL Server once."""
    at, config = datetime.now(UTC), catalog.config
    try:
        config = resource.config()  # it may name another broker than when definitions were loaded
        with resource.overview(audit_s=0.0) as overview:
            report = report_of(overview, at, marker=TICK_MARKER.ask(config))
            return Seen(report, (*_results(catalog, overview), *_of_kafka(catalog, report)))
    except CdcError as error:
        report = without_server(config, error, at, audit_s=0.0, marker=TICK_MARKER.ask(config))
        return Seen(report, (*_unknown(catalog, describe_error(error)), *_of_kafka(catalog, report)))


def _of_kafka(catalog: CaptureCatalog, report: CaptureReport) -> Iterator[dg.AssetCheckEvaluation]:
    if catalog.has_kafka:
        yield evaluated(published_result(catalog, report.published), catalog.kafka_key, PUBLISHED)


def _results(catalog: CaptureCatalog, overview: CaptureOverview) -> Iterator[dg.AssetCheckEvaluation]:
    yield evaluation(catalog.windows_key, overview.capture_jobs())
    problems = overview.problems()
    headroom = headroom_result(overview.headroom(), problems, streams=overview.streams)
    yield evaluated(headroom, catalog.windows_key, HEADROOM, blocking=True)
    keys = {table: key for key, table in catalog.keys("changes").items()}
    drifts = {drift.table: drift for drift in overview.drifts()}
    for table, state in overview.known.items():
        if key := keys.get(table):
            drift = drift_result(catalog, key, drifts.get(table), problems.get(table.database))
            yield evaluated(drift, key, DRIFT)
            holds = overview.state.retained.get(catalog.topic(table))
            yield continuity_evaluation(key, state, holds)


def _unknown(catalog: CaptureCatalog, reason: str) -> Iterator[dg.AssetCheckEvaluation]:
    """Checks of the whole capture that nobody can answer now."""
    result = dg.AssetCheckResult(passed=False, severity=dg.AssetCheckSeverity.WARN, description=f"Not known: {reason}")
    yield evaluated(result, catalog.windows_key, CAPTURE_JOB)
    yield evaluated(result, catalog.windows_key, HEADROOM, blocking=True)


class LivePage:
    """The page of a capture while a run works; see the module's head.

    Args:
        topics: tables that the run commits to.
    """

    def __init__(self, subject: Subject, context: dg.AssetExecutionContext, topics: TopicTables) -> None:
        self._subject, self._context, self._topics = subject, context, topics
        self.board = CheckBoard(context.instance, context.run.run_id, context.job_name)
        self._materialized = {subject.key, *subject.others}
        self._end = threading.Event()
        self._reported: tuple[float, CaptureReport] | None = None
        self._seen_at = float("inf")
        """When a look was told last."""
        self._seen: Seen | None = None
        self._answered: Seen | None = None
        """What the newest look that was answered has found."""
        self._took = 0.0
        subject.share_home(context.instance)

    def note(self, keys: Iterable[dg.AssetKey]) -> None:
        """Take note of assets that this run materializes: their checks have to be of this run, too."""
        self._materialized |= set(keys)

    @contextmanager
    def fresh(self) -> Iterator[None]:
        """Keep the page fresh during the block, and look once more at its end."""
        thread = threading.Thread(target=self._work, name=f"page of {self._subject.capture}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._end.set()
            thread.join(_END_S)
        if not thread.is_alive():
            self._look_once(last=True)

    def exported(self, settings: MetricsSettings, prefix: str) -> AbstractContextManager[OnCommit]:
        """Export the run's metrics while the block runs; the function counts a commit.

        Args:
            prefix: value of the label `capture`.

        Raises:
            ConfigurationError: an extra is not installed.
        """
        return exported_metrics(settings, prefix, self._report)

    def _report(self) -> CaptureReport | None:
        return self._seen.report if self._seen else None

    def facts(self) -> dict[str, Any]:
        """Metadata of the newest look, for the last materialization of the run; empty if there was none."""
        return page_of(self._seen.report) if self._seen else {}

    def _work(self) -> None:
        with suppress(Interrupted):  # the run was asked to end, and ends by itself
            self._end.wait(_FIRST_S + _FIRST_OF_TABLE_S * self._subject.tables)
            while not self._end.is_set():
                begun = monotonic()
                self._look_once()
                self._end.wait(min(_LONGEST_S, max(_EVERY_S, SHARE * (monotonic() - begun))))

    def _look_once(self, *, last: bool = False) -> None:
        """Look and report. A failure of the report itself must not end the run whose state it reports."""
        try:
            begin, look = monotonic(), begun(f"look at {self._subject.capture}", self._subject.look)
            while not wait([look], overdue_s(self._took)).done:
                if last or self._end.is_set():
                    return
                self._show(self._subject.unanswered(f"no answer for {monotonic() - begin:.0f} s", self._answered))
            self._took = monotonic() - begin
            self._answered = look.result()
            self._show(self._answered, last=last)
        except Exception:
            log.exception("The page of capture %s could not be reported; the run continues.", self._subject.capture)

    def _show(self, seen: Seen, *, last: bool = False) -> None:
        seen = self._with_queue(seen)
        if self._end.is_set() and not last:
            return
        self._seen = seen
        if is_late := monotonic() - self._seen_at > FRESH_S:  # the sensor may have told meanwhile
            self._reported = None
        self._tell(self._seen.report)
        self.board.show(self._subject.results(self._seen), frozenset(self._materialized), anew=is_late)
        note_seen(self._context.instance, self._subject.key)
        self._subject.share_home(self._context.instance)
        self._seen_at = monotonic()

    def _with_queue(self, seen: Seen) -> Seen:
        """With runs of the capture that wait for long, since the sensor leaves the page to this run."""
        runs, run = self._subject.runs, self._context.run
        waiting = waiting_too_long(self._context.instance, runs.of(repository_of(run))) if runs else ()
        return replace(seen, report=replace(seen.report, troubles=(*seen.report.troubles, *waiting)))

    def _tell(self, report: CaptureReport) -> None:
        if self._reported is not None:
            at, before = self._reported
            is_same = report.healthy and _facts(before) == _facts(report)
            if not differs(before, report) and (monotonic() - at < _REPORT_S or is_same):
                return
        metadata = page_of(report) | account_of(self._topics, self._subject.directory)
        event = dg.AssetMaterialization(self._subject.key, metadata=metadata)
        dg.DagsterEvent.asset_materialization(self._context.get_step_execution_context(), event)  # records it
        self._reported = monotonic(), report


def differs(before: CaptureReport, now: CaptureReport) -> bool:
    """Whether health or troubles are others, or a table does something else."""
    return (before.health, _troubles(before), _conditions(before)) != (now.health, _troubles(now), _conditions(now))


def _troubles(report: CaptureReport) -> set[tuple[str, str]]:
    """Troubles and what is not known, without the numbers in them, which change all the time."""
    return {(trouble.where, without_numbers(trouble.what)) for trouble in report.findings}


def _conditions(report: CaptureReport) -> dict[TableId, str]:
    return {table.table: table.condition for table in report.tables}


def _facts(report: CaptureReport) -> CaptureReport:
    """The report without what changes while nothing happens."""
    databases = tuple(
        replace(found, server_time=None, lag=replace(found.lag, capture_job_s=None)) for found in report.databases
    )
    published = replace(report.published, behind_s=None) if report.published else None
    return replace(report, at=datetime.min.replace(tzinfo=UTC), databases=databases, published=published)
