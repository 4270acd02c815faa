"""Keeps a capture's page and checks true while a run works; while none tells what it sees, the sensor does (`idle_page`).

A thread of the run asks manifest, lake and server every few seconds over a connection of its own, also while the loop waits
for a server that is away. It reports the page (`page`) as a materialization of the window manifest: at once if health or
troubles change, else every `_REPORT_S` seconds while something else has, or it is not healthy; and results of checks by `board`. Between two
looks it waits for a multiple of what the last one took, so that it takes a fixed share of the time, but never so long that the page gets old.

*Who tells.* Each look that was told is recorded (`seen`). If the thread does not go on, because the process is frozen or an answer does not
come, the sensor sees that and tells what it sees itself. So after such a pause everything is told anew.

*Nothing is invented.* A look that has not ended in time is told as one without an answer, again and again until it ends.
*Crash:* no state is kept.
"""

import logging
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import wait
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from time import monotonic
from typing import Any

import dagster as dg

from cdc_assets.config.settings import MetricsSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.interruption import Interrupted
from cdc_assets.defs.asking import begun, overdue_s
from cdc_assets.defs.board import CheckBoard
from cdc_assets.defs.envelope_io import account_of
from cdc_assets.defs.page import page_of
from cdc_assets.defs.queue import waiting_too_long
from cdc_assets.defs.runs import repository_of
from cdc_assets.defs.seen import FRESH_S, note_seen
from cdc_assets.defs.view import CaptureView, Seen
from cdc_assets.lake.topics import TopicTables
from cdc_assets.metrics.exports import OnCommit, exported_metrics
from cdc_assets.overview import CaptureReport
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


class LivePage:
    """The page of a capture while a run works; see the module's head.

    Args:
        topics: tables that the run commits to.
    """

    def __init__(self, view: CaptureView, context: dg.AssetExecutionContext, topics: TopicTables) -> None:
        self._view, self._context, self._topics = view, context, topics
        self.board = CheckBoard(context.instance, context.run.run_id, context.job_name)
        self._materialized = {view.key, *view.others}
        self._end = threading.Event()
        self._reported: tuple[float, CaptureReport] | None = None
        self._seen_at = float("inf")
        """When a look was told last."""
        self._seen: Seen | None = None
        self._answered: Seen | None = None
        """What the newest look that was answered has found."""
        self._took = 0.0
        view.share_home(context.instance)

    def note(self, keys: Iterable[dg.AssetKey]) -> None:
        """Take note of assets that this run materializes: their checks have to be of this run, too."""
        self._materialized |= set(keys)

    @contextmanager
    def fresh(self) -> Iterator[None]:
        """Keep the page fresh during the block, and look once more at its end."""
        thread = threading.Thread(target=self._work, name=f"page of {self._view.capture}", daemon=True)
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
            self._end.wait(_FIRST_S + _FIRST_OF_TABLE_S * self._view.tables)
            while not self._end.is_set():
                begun = monotonic()
                self._look_once()
                self._end.wait(min(_LONGEST_S, max(_EVERY_S, SHARE * (monotonic() - begun))))

    def _look_once(self, *, last: bool = False) -> None:
        """Look and report. A failure of the report itself must not end the run whose state it reports."""
        try:
            begin, look = monotonic(), begun(f"look at {self._view.capture}", self._view.look)
            while not wait([look], overdue_s(self._took)).done:
                if last or self._end.is_set():
                    return
                self._show(self._view.unanswered(f"no answer for {monotonic() - begin:.0f} s", self._answered))
            self._took = monotonic() - begin
            self._answered = look.result()
            self._show(self._answered, last=last)
        except Exception:
            log.exception("The page of capture %s could not be reported; the run continues.", self._view.capture)

    def _show(self, seen: Seen, *, last: bool = False) -> None:
        seen = self._with_queue(seen)
        if self._end.is_set() and not last:
            return
        self._seen = seen
        if is_late := monotonic() - self._seen_at > FRESH_S:  # the sensor may have told meanwhile
            self._reported = None
        self._tell(self._seen.report)
        self.board.show(self._view.results(self._seen), frozenset(self._materialized), anew=is_late)
        note_seen(self._context.instance, self._view.key)
        self._view.share_home(self._context.instance)
        self._seen_at = monotonic()

    def _with_queue(self, seen: Seen) -> Seen:
        """With runs of the capture that wait for long, since the sensor leaves the page to this run."""
        runs, run = self._view.runs, self._context.run
        waiting = waiting_too_long(self._context.instance, runs.of(repository_of(run))) if runs else ()
        return replace(seen, report=replace(seen.report, troubles=(*seen.report.troubles, *waiting)))

    def _tell(self, report: CaptureReport) -> None:
        if self._reported is not None:
            at, before = self._reported
            is_same = report.healthy and _facts(before) == _facts(report)
            if not differs(before, report) and (monotonic() - at < _REPORT_S or is_same):
                return
        metadata = page_of(report) | account_of(self._topics, self._view.directory)
        event = dg.AssetMaterialization(self._view.key, metadata=metadata)
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
