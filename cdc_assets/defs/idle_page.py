"""Keeps a capture's page and checks true while no run works, for its sensor.

Each look is in a thread of its own, because one at many tables lasts: a tick waits for it briefly, and the next one tells what it has
found. A look that will last begins when the tick has ended, because both share the interpreter. Only changes of health or troubles
are told.

*Nothing old is told.* What was seen before or while a run worked, or long before the tick, is thrown away, and a new look begins. *Crash:* no state is
kept.
"""

import threading
from concurrent.futures import Future, wait
from dataclasses import replace
from functools import partial
from time import monotonic

import dagster as dg

from cdc_assets.defs.live import SHARE, Seen, Subject, differs
from cdc_assets.defs.page import page_of
from cdc_assets.run.overview import CaptureReport
from cdc_assets.run.overview.report import Trouble

_EVERY_S = 8.0
"""Least seconds between two looks."""
_PATIENCE_S = 0.2
"""Seconds that a tick waits for a look, if the one before it did not take longer."""
_PAUSE_S = 1.0
"""Seconds after which a look begins for which no tick waits."""
_OLD_S = 60.0
"""Seconds after which nobody is told what a look has found: the sensor was switched off meanwhile."""


class IdlePage:
    """The page of a capture between runs; it only reports changes of health or troubles."""

    def __init__(self) -> None:
        self._next, self._ended, self._took = 0.0, 0.0, 0.0
        self._under_way: Future[Seen] | None = None
        self._is_void = False
        """Whether a run has worked since the look that is under way began."""
        self._reported: CaptureReport | None = None

    def events(
        self, subject: Subject, failed: dg.RunRecord | None
    ) -> list[dg.AssetMaterialization | dg.AssetCheckEvaluation]:
        """The page and the checks of the whole capture, if they differ from those that were told before.

        Args:
            failed: the last run, if it has failed for a reason of its own.
        """
        seen = self._seen(subject)
        if seen is None:
            return []
        if failed is not None:
            run = Trouble("the last run", f"{failed.dagster_run.run_id[:8]} failed. Next: follow the error of that run")
            seen = replace(seen, report=replace(seen.report, troubles=(*seen.report.troubles, run)))
        before, self._reported = self._reported, seen.report
        if not (seen.report.tables or seen.report.findings):
            return []
        if (before is None and seen.report.health == "healthy") or (before and not differs(before, seen.report)):
            return []
        whole = [result for result in seen.checks if result.asset_key in (subject.key, *subject.others)]
        broken = [result for result in seen.checks if not result.passed and result not in whole]
        page = dg.AssetMaterialization(subject.key, metadata=page_of(seen.report))
        return [page, *whole, *broken]

    def forget(self) -> None:
        """A run works and reports by itself; look again once it has ended."""
        self._next, self._reported, self._is_void = 0.0, None, True

    def _seen(self, subject: Subject) -> Seen | None:
        """What the newest look has found, if it has ended and nobody was told; begins one if it is time."""
        if self._under_way is None:
            if monotonic() < self._next:
                return None
            self._is_void = False
            self._under_way = self._begun(subject)
        if not wait([self._under_way], _PATIENCE_S if self._is_short else 0.0).done:
            return None
        look, self._under_way = self._under_way, None
        if self._is_void or monotonic() - self._ended > _OLD_S:
            self._next = 0.0
            return self._seen(subject)
        return look.result()

    @property
    def _is_short(self) -> bool:
        """Whether a look is expected to end while a tick waits."""
        return self._took <= _PATIENCE_S

    def _begun(self, subject: Subject) -> Future[Seen]:
        """A look in a thread, which lasts as long as the process at most."""
        found = Future[Seen]()

        def work() -> None:
            begun = monotonic()
            try:
                seen = subject.look()
            except BaseException as error:  # noqa: BLE001 - the tick raises it
                outcome = partial(found.set_exception, error)
            else:
                outcome = partial(found.set_result, seen)
            self._ended = monotonic()
            self._took = self._ended - begun
            self._next = self._ended + max(_EVERY_S, SHARE * self._took)
            outcome()

        thread = threading.Timer(0.0 if self._is_short else _PAUSE_S, work)
        thread.name, thread.daemon = f"look at {subject.capture}", True
        thread.start()
        return found
