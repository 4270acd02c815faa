"""Keeps a capture's page and checks true for its sensor, while no run does.

Each look is in a thread of its own, because one at many tables lasts: a tick waits for it briefly, and the next one tells what it has
found. A look that will last begins when the tick has ended, because both share the interpreter. A page that says healthy is told again only if
it would say something else; any other also every `_REPORT_S` seconds, so that its numbers are new.

*What is shown is asked, not remembered.* A tick compares what it sees with the page that Dagster shows, whoever told it: a
run, a sensor before the code location was loaded again, or nobody. So no trouble stays on the page for want of somebody who told it.
The same holds for checks; they are compared when the page says something new, after a run, and as long as one of them fails.

*No answer is an answer.* A look that has not ended in time, and one that fails, tell that nothing is known, over what was seen last.

*Nothing old is told.* What was seen before or while a run looked, or long before the tick, is thrown away, and a new look begins. *Crash:* no state is
kept.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from datetime import UTC, datetime
from time import monotonic
from typing import Any

import dagster as dg

from cdc_assets.defs.asking import begun, overdue_s
from cdc_assets.defs.board import Verdict, recorded_verdict, verdict_of
from cdc_assets.defs.live import SHARE
from cdc_assets.defs.page import page_of, tells
from cdc_assets.defs.view import CaptureView, Seen
from cdc_assets.errors import describe_error
from cdc_assets.overview.report import Trouble

_EVERY_S, _LONGEST_S = 8.0, 10.0
"""Least and most seconds between two looks."""
_PATIENCE_S = 0.2
"""Seconds that a tick waits for a look, if the one before it did not take longer."""
_PAUSE_S = 1.0
"""Seconds after which a look begins for which no tick waits."""
_OLD_S = 60.0
"""Seconds after which nobody is told what a look has found: the sensor was switched off meanwhile."""
_REPORT_S = 20.0
"""Seconds after which a page that is not healthy is told again."""

Events = list[dg.AssetMaterialization | dg.AssetCheckEvaluation]


class IdlePage:
    """The page of a capture while no run tells it."""

    def __init__(self) -> None:
        self._next, self._began, self._ended, self._took = 0.0, 0.0, 0.0, 0.0
        self._under_way: Future[Seen] | None = None
        self._is_void = False
        """Whether a run has looked since the look that is under way began."""
        self._last: Seen | None = None
        self._may_differ = True
        """Whether Dagster may show results of checks that are not true any more."""

    def events(self, instance: dg.DagsterInstance, view: CaptureView, troubles: Sequence[Trouble] = ()) -> Events:
        """The page and the checks of the whole capture, if Dagster shows something else.

        Args:
            troubles: what the sensor knows beside what a look finds.
        """
        seen = self._seen(view) or (self._last if troubles else None)
        if seen is None:
            return []
        seen = replace(seen, report=replace(seen.report, troubles=(*seen.report.troubles, *troubles)))
        report, results = seen.report, view.results(seen)
        if not (report.tables or report.findings):
            return []
        facts, shown = page_of(report), _shown(instance, view.key)
        is_news = shown is None or tells(shown) != tells(facts)
        of_whole = (view.key, *view.others)
        corrected = self._corrected(instance, results, is_news=is_news)
        if not is_news and (report.healthy or not _is_old(shown or {})):
            return [*corrected]
        whole = [result for result in results if result.asset_key in of_whole]
        rest = [result for result in corrected if result.asset_key not in of_whole]
        return [dg.AssetMaterialization(view.key, metadata=facts), *whole, *rest]

    def begin(self, view: CaptureView) -> None:
        """Begin a look unless one is under way, for a tick that lasts: when it ends, the look has an answer, or is late itself."""
        if self._under_way is None:
            self._is_void = False
            self._under_way = self._begun(view)

    def forget(self) -> None:
        """A run looks and tells by itself; look again once it does not."""
        self._next, self._is_void, self._last, self._may_differ = 0.0, True, None, True

    def _seen(self, view: CaptureView) -> Seen | None:
        """What the newest look has found, if it has ended and nobody was told, or that it does not end; begins one if it is time."""
        if self._under_way is None:
            if monotonic() < self._next:
                return None
            self.begin(view)
        assert self._under_way is not None  # noqa: S101 - begun just now
        if not wait([self._under_way], _PATIENCE_S if self._is_short else 0.0).done:
            lasts = monotonic() - self._began
            return self._unanswered(view, f"no answer for {lasts:.0f} s") if lasts > overdue_s(self._took) else None
        look, self._under_way = self._under_way, None
        if self._is_void or monotonic() - self._ended > _OLD_S:
            self._next = 0.0
            return self._seen(view)
        try:
            self._last = look.result()
        except Exception as error:  # noqa: BLE001 - it is told
            return self._unanswered(view, describe_error(error))
        return self._last

    def _unanswered(self, view: CaptureView, reason: str) -> Seen:
        return view.unanswered(reason, self._last)

    def _corrected(
        self, instance: dg.DagsterInstance, results: Sequence[dg.AssetCheckEvaluation], *, is_news: bool
    ) -> Sequence[dg.AssetCheckEvaluation]:
        """Results that Dagster shows otherwise: those that fail, and those that had failed and pass now."""
        if not results or not (is_news or self._may_differ):
            return []
        keys = [result.asset_check_key for result in results]
        records = instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
        shown = {key: recorded_verdict(record) for key, record in records.items()}
        self._may_differ = not all(result.passed for result in results)
        return [result for result in results if _is_shown_otherwise(result, shown, is_news=is_news)]

    @property
    def _is_short(self) -> bool:
        """Whether a look is expected to end while a tick waits."""
        return self._took <= _PATIENCE_S

    def _begun(self, view: CaptureView) -> Future[Seen]:
        pause = 0.0 if self._is_short else _PAUSE_S
        self._began = monotonic() + pause

        def work() -> Seen:
            try:
                return view.look()
            finally:
                self._ended = monotonic()
                self._took = self._ended - self._began
                self._next = self._ended + min(_LONGEST_S, max(_EVERY_S, SHARE * self._took))

        return begun(f"look at {view.capture}", work, pause)


def _shown(instance: dg.DagsterInstance, key: dg.AssetKey) -> Mapping[str, Any] | None:
    """Metadata of the page that Dagster shows."""
    event = instance.get_latest_materialization_event(key)
    page = event.asset_materialization if event else None
    return page.metadata if page else None


def _is_shown_otherwise(
    result: dg.AssetCheckEvaluation, shown: Mapping[dg.AssetCheckKey, Verdict | None], *, is_news: bool
) -> bool:
    verdict = shown.get(result.asset_check_key)
    if result.passed:
        return verdict is not None and not verdict[0]
    return verdict is None or verdict[0] or (is_news and verdict != verdict_of(result))


def _is_old(shown: Mapping[str, Any]) -> bool:
    seen_at = shown.get("seen_at")
    return seen_at is None or abs(datetime.now(UTC).timestamp() - float(seen_at.value)) > _REPORT_S
