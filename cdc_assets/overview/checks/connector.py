"""Checks of a capture by an embedded connector: functions that make results, and their entries in the registry.

All are of the record of batches, because the connector reads one log for all tables. None passes on what is not known: if the database
does not answer, they fail and say so. For events that others wrote, topics or files are queried instead.

*Lateness* is reported with its positions only by the job, since these change every few seconds; runs and sensors report it after
more than a minute, in words that stay the same. So no earlier result stays good while changes wait.
"""

from datetime import datetime
from typing import Any

from cdc_assets.connectors.engine.overview import EngineOverview
from cdc_assets.connectors.engine.unread import Unread
from cdc_assets.core.kept import kept
from cdc_assets.errors import CdcError, describe_error
from cdc_assets.overview.checks.check import Check, Of, Subject, Verdict, not_known
from cdc_assets.overview.checks.health import HEALTH
from cdc_assets.overview.engine import Answers, Asked, not_seen, report_of_engine
from cdc_assets.overview.report import LATE_S, CaptureReport

_LATE = (
    f"What is not read yet may have waited for more than {LATE_S:.0f} s: the page of the capture tells for how long. "
    "Next: see whether a run works, and its log"
)


class ConnectorFacts:
    """What lake and database say of a capture.

    Args:
        asked: what the database says.
    """

    problem = ""

    def __init__(self, overview: EngineOverview, asked: Asked, at: datetime) -> None:
        self._overview, self._asked, self._at = overview, asked, at
        self._answers = asked if isinstance(asked, Answers) else None
        self._unread = asked if isinstance(asked, Unread) else None
        self._why = describe_error(asked) if isinstance(asked, CdcError) else ""

    @kept
    def report(self) -> CaptureReport:
        """As `Facts.report`."""
        return report_of_engine(self._overview, self._asked, self._at)

    def subjects(self, of: Of) -> tuple[Subject, ...]:
        """As `Facts.subjects`."""
        return (None,) if of == "capture" else ()

    def headroom(self, subject: Subject) -> Verdict:
        """Whether the database still has what was not read yet."""
        del subject
        if self._unread is not None:
            missing = self._unread.missing
            return Verdict(not missing, missing or "Nothing that was to be read is missing.")
        if self._answers is None:
            return not_known(self._why)
        kept = self._answers.retention
        text = kept.lost or kept.near
        good = self._nothing() or "The database still has every change that was not read yet."
        return Verdict(not text, text or good, bool(kept.lost), dict(kept.facts))

    def _nothing(self) -> str:
        """Why nothing of the database's log is to be read; empty if something is, or that is not known."""
        try:
            known = self._overview.known
        except CdcError:
            return ""
        if not known:
            return "Nothing was captured yet: the first run of the connector begins with the log as it is then."
        if not self._overview.config.streams:
            return "No table streams: snapshot.mode=initial_only reads no log, so nothing that is removed from it is missed."
        return ""

    def complete(self, subject: Subject) -> Verdict:
        """Whether the lake is complete to the end of the log."""
        del subject
        try:
            return self._complete()
        except CdcError as error:  # the lake cannot be read
            return Verdict(passed=False, text=describe_error(error))

    def _complete(self) -> Verdict:
        overview, answers = self._overview, self._answers
        facts: dict[str, Any] = {"complete_to": str(overview.point or "not known")}
        facts |= {"log_end": str(answers.end)} if answers else {}
        gaps = [str(gap) for gap in overview.state.gaps]
        facts |= {"lost_changes": " ".join(gaps)} if gaps else {}
        lost = " ".join(overview.losses.values())
        text = lost or self._lateness()
        good = self._nothing() or "Every change up to the end of the log is in the lake."
        if self._unread is not None:
            good = "Everything that others wrote is in the lake."
        return Verdict(not text, " ".join([text or good, *gaps]), bool(lost), facts)

    def _lateness(self) -> str:
        """Why the lake may lack changes that can still be read; empty if it lacks none."""
        state, point = self._overview.state, self._overview.point
        if not self._overview.known:
            return "Nothing was captured yet."
        if self._answers is None and self._unread is None:
            return f"The end of the log is not known: {self._why}"
        if self.report.late:
            return _LATE
        if state.pending is not None:
            return f"Batch {state.pending.batch_id} is planned and not in all its tables yet; the next run finishes it."
        if self._answers is None:
            return self._waiting()
        end = self._answers.end
        if self._answers.proved:
            return ""
        if point is None:
            return "The connector's offset does not show how far it has read."
        if point > end:
            return f"The lake is complete to {point}, and the log ends before that, at {end}: this is another log."
        return f"The lake is complete to {point}, and the log ends at {end}: the rest is read by the next run."

    def _waiting(self) -> str:
        """What topics or files hold that the lake lacks; empty if it lacks nothing."""
        assert self._unread is not None  # noqa: S101 - the caller has checked
        waits = f"{self._unread.what} wait to be read; the next run reads them." if self._unread.what else ""
        return self._unread.missing or not_seen(self._unread) or waits[:1].upper() + waits[1:]

    def is_complete_certain(self) -> bool:
        """Whether it is more than lateness of seconds: while changes come, that is another place every few seconds."""
        try:
            if isinstance(self._asked, CdcError) or self._overview.losses or self.report.late:
                return True
            if self._unread is not None:
                return self._overview.known and not self._unread.what
            return self._answers is not None and self._answers.proved
        except CdcError:
            return True


CONNECTOR = Check(
    name="connector",
    of="capture",
    about="The last run of the connector ended by itself, without an error.",
    error="the connector or its process ended with an error; reported by each run with the error's text",
    page="run-failed",
    when="runs",
    made_of="run",
)
COMPLETE = Check(
    name="complete_to_log_end",
    of="capture",
    about=(
        "Every change up to the end of the database's log is in the lake, and every table of the lake holds its batches. "
        "While changes continue, a warning says how far the lake lags."
    ),
    error="a topic table has lost a batch",
    warning="it is not proved that every change up to the end of the log is in the lake",
    page="gap",
    when="half-hourly",
    made_of="answers",
    result=ConnectorFacts.complete,
    is_reported=ConnectorFacts.is_complete_certain,
)
HEADROOM = Check(
    name="retention_headroom",
    of="capture",
    about="The database's log still begins before what was not read yet: binlog files, the replication slot, archived logs.",
    error="what was not read yet is gone: binlog files purged, the log reset, the replication slot dropped or lost, archived logs removed",
    warning="it soon will be, or that is not known",
    page="retention",
    when="half-hourly",
    made_of="answers",
    result=ConnectorFacts.headroom,
)

CHECKS = (HEALTH, CONNECTOR, HEADROOM, COMPLETE)
"""In the order in which the documents list them."""
