"""Keeps a capture's page and checks true: by a thread of a run while one works (`LivePage`), else by the sensor (`IdlePage`).

*A run* queries record, lake and server every few seconds over a connection of its own, also while the loop waits for a server that is
away. It reports the page as a materialization: at once if health or troubles change, else every `_RUN_REPORT_S` seconds while
something else has, or it is not healthy; and results of checks by `board`. After each report it pauses for a multiple of what the
report took, so that it takes a fixed share of the time. It never pauses so long that the page gets old.

*The sensor* does so in threads as well, because checking many tables takes seconds: a tick waits for it briefly, and the next one reports what was
found. A report that will take long begins when the tick has ended, because both share the interpreter. A page that says healthy is reported
again only if it would say something else; any other also every `_IDLE_REPORT_S` seconds, so that its numbers are new. It compares with what
Dagster shows, whichever process reported that: a run, a sensor before the code location was loaded again, or none. So no trouble stays on the page
after it has ended. Checks are compared at each report, since the job of checks may have met what the page never said.

*Which of them.* The time of each report of a run is recorded (`seen`). If its thread does not continue, because the process is frozen or an
answer does not come, the sensor sees that and reports itself. So after such a pause the run throws away what it had found before, and
reports everything once more.

*No answer is an answer.* A report that is not ready in time, and one that fails, are shown as such, over what was seen last, until one ends.
So is the state of a capture whose run's thread does not go on, in metrics and at the end of the run, which need no storage of Dagster.
What the sensor saw before or while a run reported, or before a long time without a tick, is thrown away; a run may also come and go
between two ticks. *Crash:* no state is kept.
"""

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from time import monotonic, time
from typing import Any

import dagster as dg

from cdc_assets.core.asking import begun, overdue_s
from cdc_assets.core.interruption import Interrupted
from cdc_assets.defs.checks.board import CheckBoard
from cdc_assets.defs.checks.shown import shown_otherwise
from cdc_assets.defs.envelope_io import account_of
from cdc_assets.defs.page import differs, page_of, shown_facts, unchanging
from cdc_assets.defs.queue import waiting_too_long
from cdc_assets.defs.run_troubles import another_location
from cdc_assets.defs.runs import CaptureRuns, repository_of
from cdc_assets.defs.seen import FRESH_S, note_seen, was_seen
from cdc_assets.defs.view import CaptureView, Observation, Observe
from cdc_assets.errors import CdcError, describe_error
from cdc_assets.lake.topics import TopicTables
from cdc_assets.overview import CaptureReport
from cdc_assets.overview.report import Trouble

log = logging.getLogger(__name__)

_SHARE = 5.0
"""A report is followed by a pause of this many times its duration, within the bounds below."""
_FIRST_S, _FIRST_OF_TABLE_S = 1.0, 0.01
"""Seconds from the start of a run to its first report, which would take the processor from the run's first window; and as many more for
each table, since checking many takes longer than many a run."""
_RUN_EVERY_S, _RUN_LONGEST_S = 3.0, 8.0
"""Minimum and maximum of seconds between two reports of a run."""
_RUN_REPORT_S = 10.0
"""Least seconds between two materializations of the page if health and troubles stay the same; what is not healthy is repeated after them."""
_SILENT_S = 30.0
"""Seconds after which what was reported last is not known any more: longer than a pause and a wait for the next report."""
_BEAT_S = 1.0
"""Longest wait at a time; one that takes longer than `FRESH_S` shows that the process was frozen, or its machine suspended."""
_CLOSE_TIMEOUT_S = 5.0
"""Longest wait for a report that is being made when the run ends; it reports nothing any more."""
_IDLE_EVERY_S, _IDLE_LONGEST_S = 8.0, 10.0
"""Minimum and maximum of seconds between two reports of a sensor."""
_GRACE_S = 0.2
"""Seconds that a tick waits for a report, if the one before it did not take longer."""
_SELDOM_S = 5.0
"""The same of a tick before which there was none for long: what it does not see now, the next one would throw away."""
_PAUSE_S = 1.0
"""Seconds after which a report is begun for which no tick waits."""
_OLD_S = 60.0
"""Seconds without a tick after which nothing from before is shown: the sensor was switched off, or its process frozen."""
_IDLE_REPORT_S = 20.0
"""Seconds after which a page that is not healthy is reported again."""

Events = list[dg.AssetMaterialization | dg.AssetCheckEvaluation]


class _FrozenError(Exception):
    """The process was frozen, or its machine suspended, while a report was made."""


class _Reports:
    """The reports of one page, made in threads: while one hangs, no other is begun."""

    def __init__(self) -> None:
        self._under_way: Future[Observation] | None = None
        self._is_void = False
        """Whether a run has reported, or the process was frozen, since the report under way began."""
        self._answered: Observation | None = None
        """The newest report that was finished."""
        self._took, self._awake_at = 0.0, 0.0
        """How long the last one took; and when the page was worked on last, by the wall clock: others stand still while a machine is
        suspended."""

    def _begun(self, view: CaptureView, observe: Observe, pause_s: float = 0.0) -> Future[Observation]:
        """The report under way, or a new one."""
        if self._under_way is None:
            self._is_void = False
            self._under_way = begun(f"report of {view.capture}", observe, pause_s)
        return self._under_way

    def _found(self, view: CaptureView, report: Future[Observation]) -> Observation:
        """What a report has found, or that it has failed, over what was found before."""
        try:
            self._answered = report.result()
        except Exception as error:  # noqa: BLE001 - it is reported
            return view.unanswered(describe_error(error), self._answered)
        return self._answered

    def _slept_s(self) -> float:
        """Seconds since the page was worked on last; a clock that was set back counts like a pause."""
        before, self._awake_at = self._awake_at, time()
        return abs(self._awake_at - before)


class LivePage(_Reports):
    """The page of a capture while a run works; see the module's head.

    Args:
        topics: tables that the run commits to.
    """

    def __init__(self, view: CaptureView, context: dg.AssetExecutionContext, topics: TopicTables) -> None:
        super().__init__()
        self._view, self._context, self._topics = view, context, topics
        self.board = CheckBoard(context.instance, context.run.run_id, context.job_name)
        self._materialized = {view.key, *view.others}
        self._end = threading.Event()
        self._reported: tuple[float, CaptureReport] | None = None
        self._shown_at = float("inf")
        """When a report was shown last; like all times that are compared over a pause of the process, by the wall clock."""
        self._seen: tuple[float, Observation] | None = None
        """What is known, and since when."""
        self._waiting: tuple[Trouble, ...] = ()
        """Runs that waited for long, when Dagster was last asked."""
        self._is_over = False
        view.share_home(context.instance)

    def note(self, keys: Iterable[dg.AssetKey]) -> None:
        """Take note of assets that this run materializes: their checks have to be of this run, too."""
        self._materialized |= set(keys)

    @contextmanager
    def fresh(self) -> Iterator[None]:
        """Keep the page fresh during the block, and report once more at its end."""
        thread = threading.Thread(target=self._work, name=f"page of {self._view.capture}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._end.set()
            thread.join(_CLOSE_TIMEOUT_S)
        before = self._seen
        if not thread.is_alive():
            self._end.clear()  # the last report is made here, and shown
            self._observe_once(last=True)
        if self._seen is before:
            self._keep(self._view.unanswered("no answer at the end of the run", self._answered))
        self._is_over = True

    def report(self) -> CaptureReport | None:
        """The newest report, for metrics; what is old, because the thread does not go on, is not known any more."""
        if self._seen is None:
            return None
        at, seen = self._seen
        if (age := abs(time() - at)) > _SILENT_S:
            seen = self._view.unanswered(f"no report for {age:.0f} s", self._answered)
        return seen.report

    def facts(self) -> dict[str, Any]:
        """Metadata of the newest report, for the last materialization of the run; empty if there was none. What the run does between
        its last report and that, such as publishing the rest, makes it no less true."""
        report = self._seen[1].report if self._seen and self._is_over else self.report()
        return page_of(report) if report else {}

    def _work(self) -> None:
        with suppress(Interrupted):  # the run was interrupted, and ends by itself
            self._end.wait(_FIRST_S + _FIRST_OF_TABLE_S * self._view.tables)
            while not self._end.is_set():
                begun = monotonic()
                self._observe_once()
                self._end.wait(min(_RUN_LONGEST_S, max(_RUN_EVERY_S, _SHARE * (monotonic() - begun))))

    def _observe_once(self, *, last: bool = False) -> None:
        """Make a report and show it. A failure of the report itself must not end the run whose state it reports."""
        begin, self._awake_at = monotonic(), time()
        try:
            report = self._begun(self._view, self._view.observe)
            while not self._has_ended(report, overdue_s(self._took)):
                if self._end.is_set():
                    return
                self._show(self._view.unanswered(f"no answer for {monotonic() - begin:.0f} s", self._answered))
                if last:
                    return
            self._under_way = None
            if self._is_void:
                raise _FrozenError
            self._took = monotonic() - begin
            self._show(self._found(self._view, report))
        except _FrozenError:
            self._is_void = True
            log.info("The process was frozen; what was found of capture %s is thrown away.", self._view.capture)
        except Exception:
            log.exception("The page of capture %s could not be reported; the run continues.", self._view.capture)

    def _has_ended(self, report: Future[Observation], patience_s: float) -> bool:
        """Whether a report ends in time, and before the run does. Many short waits show whether the process was frozen meanwhile."""
        until = monotonic() + patience_s
        while True:
            is_done = wait([report], min(_BEAT_S, patience_s)).done
            if self._slept_s() > FRESH_S:  # the sensor may know better than what was found before a freeze
                raise _FrozenError
            if is_done:
                return True
            if monotonic() >= until or self._end.is_set():
                return False

    def _show(self, seen: Observation) -> None:
        self._keep(_with(seen, self._waiting))  # metrics do not need Dagster's storage
        asked_at = time()
        seen = self._with_queue(seen)
        if abs(time() - asked_at) > FRESH_S or self._end.is_set():
            return  # what was found is old by now, and the sensor may know better
        self._keep(seen)
        if is_late := abs(time() - self._shown_at) > FRESH_S:  # the sensor may have reported meanwhile
            self._reported = None
        self._materialize(seen.report)
        self.board.show(self._view.results(seen), frozenset(self._materialized), anew=is_late)
        note_seen(self._context.instance, self._view.key)
        self._view.share_home(self._context.instance)
        self._shown_at = self._awake_at = time()

    def _keep(self, seen: Observation) -> None:
        self._seen = time(), seen

    def _with_queue(self, seen: Observation) -> Observation:
        """With what other runs of the capture do, since the sensor leaves the page to this run."""
        runs, run, report = self._view.runs, self._context.run, seen.report
        try:
            waiting = tuple(_of_others(self._context.instance, runs.of(repository_of(run)))) if runs else ()
        except Exception as error:  # noqa: BLE001 - of Dagster's storage; metrics do not need it
            what = f"It cannot be queried: {describe_error(error)}. Next: see whether Dagster's storage answers"
            return replace(seen, report=replace(report, unknown=(*report.unknown, Trouble("Dagster's queue", what))))
        self._waiting = waiting
        return _with(seen, waiting)

    def _materialize(self, report: CaptureReport) -> None:
        if self._reported is not None:
            at, before = self._reported
            is_same = report.healthy and unchanging(before) == unchanging(report)
            if not differs(before, report) and (monotonic() - at < _RUN_REPORT_S or is_same):
                return
        metadata = page_of(report)
        with suppress(CdcError):  # the lake that it is read from may be what the page is about
            metadata |= account_of(self._topics, self._view.directory)
        event = dg.AssetMaterialization(self._view.key, metadata=metadata)
        dg.DagsterEvent.asset_materialization(self._context.get_step_execution_context(), event)  # records it
        self._reported = monotonic(), report


def _of_others(instance: dg.DagsterInstance, runs: CaptureRuns) -> Iterator[Trouble]:
    """What other runs do that hinders the capture."""
    yield from waiting_too_long(instance, runs)
    yield from another_location(instance, runs)


def _with(seen: Observation, troubles: Sequence[Trouble]) -> Observation:
    return replace(seen, report=replace(seen.report, troubles=(*seen.report.troubles, *troubles)))


class IdlePage(_Reports):
    """The page of a capture while no run reports it."""

    def __init__(self) -> None:
        super().__init__()
        self._next, self._began = 0.0, 0.0
        """When the next report may begin; and when the newest one began, or will begin."""
        self._turn = threading.RLock()
        """For the daemon's tick, and that of a person who tests the sensor."""
        self._known: Observation | None = None
        """The newest report, or that nothing is known since."""

    def events(self, instance: dg.DagsterInstance, view: CaptureView, troubles: Sequence[Trouble] = ()) -> Events:
        """The page and the checks of the whole capture, if Dagster shows something else.

        Args:
            troubles: what the sensor knows beside what a report finds.
        """
        with self._turn:
            if was_seen(instance, view.key, monotonic() - self._began):
                self.forget()
            found = self._newest(view)
            self._known = found or self._known
        seen = found or (self._known if troubles else None)
        if seen is None:
            return []
        seen = _with(seen, troubles)
        report, results = seen.report, view.results(seen)
        facts, shown = page_of(report), _shown(instance, view.key)
        if shown is None and not (report.tables or report.findings):
            return []
        is_news = shown is None or shown_facts(shown) != shown_facts(facts)
        of_whole = (view.key, *view.others)
        corrected = shown_otherwise(instance, results, is_news=is_news)
        if not is_news and (report.healthy or not _is_old(shown or {})):
            return [*corrected]
        whole = [result for result in results if result.asset_key in of_whole]
        rest = [result for result in corrected if result.asset_key not in of_whole]
        return [dg.AssetMaterialization(view.key, metadata=facts), *whole, *rest]

    def begin(self, view: CaptureView) -> None:
        """Begin a report unless one is under way, for a tick that lasts: when it ends, the report is ready, or is late itself."""
        with self._turn:
            if self._was_away():
                self.forget()
            self._begin(view)

    def _begin(self, view: CaptureView) -> Future[Observation]:
        pause_s = 0.0 if self._is_short else _PAUSE_S
        if self._under_way is None:
            self._began = monotonic() + pause_s
        return self._begun(view, partial(self._observe, view), pause_s)

    def forget(self) -> None:
        """A run reports by itself, or no tick came for long; make a report anew."""
        with self._turn:
            self._next, self._is_void = 0.0, True
            self._answered = self._known = None

    def _newest(self, view: CaptureView) -> Observation | None:
        """The newest report, if it has ended and was not shown, or that it does not end; begins one if it is time."""
        patience_s = _GRACE_S if self._is_short else 0.0
        if self._was_away():
            self.forget()
            patience_s = _SELDOM_S
        if self._under_way is None and monotonic() < self._next:
            return None
        report = self._begin(view)
        is_done = wait([report], patience_s).done
        if self._was_away():
            self.forget()
        if not is_done:
            lasts = monotonic() - self._began
            late = lasts > overdue_s(self._took)
            return view.unanswered(f"no answer for {lasts:.0f} s", self._answered) if late else None
        self._under_way = None
        if self._is_void:
            self._next = 0.0
            return self._newest(view)
        return self._found(view, report)

    def _was_away(self) -> bool:
        """Whether no tick was here for long: what is known is of another time, also if a clock was set."""
        return self._slept_s() > _OLD_S

    @property
    def _is_short(self) -> bool:
        """Whether a report is expected to end while a tick waits."""
        return self._took <= _GRACE_S

    def _observe(self, view: CaptureView) -> Observation:
        try:
            return view.observe()
        finally:
            self._took = monotonic() - self._began
            self._next = monotonic() + min(_IDLE_LONGEST_S, max(_IDLE_EVERY_S, _SHARE * self._took))


def _shown(instance: dg.DagsterInstance, key: dg.AssetKey) -> Mapping[str, Any] | None:
    """Metadata of the page that Dagster shows."""
    event = instance.get_latest_materialization_event(key)
    page = event.asset_materialization if event else None
    return page.metadata if page else None


def _is_old(shown: Mapping[str, Any]) -> bool:
    seen_at = shown.get("seen_at")
    return seen_at is None or abs(datetime.now(UTC).timestamp() - float(seen_at.value)) > _IDLE_REPORT_S
