"""A capture as its runs, its sensor and its checks see it, whichever connector makes it.

There are two sources of it: `server_view` for SQL Server, and `engines.view` for the other connectors and for events that others have
written. What is made of it exists once: the page, what runs and sensors report, the job of checks.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field

import dagster as dg

from cdc_assets.config.settings import LakeSettings
from cdc_assets.defs.checks.events import Checked, event_of, events_of
from cdc_assets.defs.known_lake import Home, share_home
from cdc_assets.defs.runs import CaptureRuns
from cdc_assets.errors import CdcError
from cdc_assets.overview import CaptureReport
from cdc_assets.overview.checks.check import Check, Facts, Inspection, Of, Subject, not_known, unanswered
from cdc_assets.overview.checks.health import HEALTH, health_result
from cdc_assets.overview.report import unanswered_report


@dataclass(frozen=True)
class Observation:
    """What was seen at one time: the page, and a result for each check but `health`, which repeats the page."""

    report: CaptureReport
    checks: Sequence[dg.AssetCheckEvaluation] = field(default=())

    @classmethod
    def of(cls, seen: Inspection, catalog: Checked) -> "Observation":
        """What is reported of an inspection."""
        found = (one for one in seen.found if one.check is not HEALTH)
        return cls(seen.report, tuple(events_of(found, catalog)))


Observe = Callable[[], Observation]
"""Queries everything once; what has no answer is in the report, and fails the checks that depend on it."""


@dataclass(frozen=True)
class CaptureView:
    """One capture.

    Args:
        capture: its name.
        key: asset that carries the page: the record of windows, or of batches.
        directory: of that asset's table.
        answers: what checks are made of; raises a `CdcError` if the server does not answer.
        checks: entries of the registry that are for its kind.
        others: assets that a run materializes beside it, with a check of their own.
        tables: how many there are.
        runs: those that write to the capture, of which some may wait.
        lake: where it is, by the settings as they are now.
    """

    capture: str
    key: dg.AssetKey
    directory: str
    observe: Observe
    answers: Callable[[], AbstractContextManager[Facts]] | None = None
    checks: Sequence[Check] = ()
    others: tuple[dg.AssetKey, ...] = ()
    tables: int = 0
    runs: CaptureRuns | None = None
    lake: Callable[[], LakeSettings] | None = None

    def checked(self, of: Of) -> Mapping[dg.AssetKey, Subject]:
        """As `checks.events.Checked`, of a capture with no table."""
        return {self.key: None} if of == "capture" else {}

    def share_home(self, instance: dg.DagsterInstance) -> None:
        """Let Dagster and this process know of the capture's record what the other knows.

        Raises:
            LakeError: what Dagster knows cannot be read.
        """
        home = None
        with suppress(CdcError):  # of settings that are wrong, which is reported by those who need them
            home = Home.of(self.lake(), self.directory) if self.lake else None
        if home is not None:
            share_home(instance, self.key, home)

    def results(self, seen: Observation) -> Sequence[dg.AssetCheckEvaluation]:
        """Those of all checks."""
        return [*seen.checks, event_of(HEALTH, health_result(seen.report), self.key)]

    def unanswered(self, reason: str, last: Observation | None = None) -> Observation:
        """What is known if there is no answer: what was seen last, and that nothing is known now."""
        report = unanswered_report(self.capture, last.report if last is not None else None, reason)
        beside = (
            event_of(check, not_known(reason), key)
            for check in self.checks
            if check.of == "kafka"
            for key in self.others
        )
        return Observation(report, (*events_of(unanswered(self.checks, reason), self), *beside))
