"""Checks of a capture from SQL Server: functions that make results, and their entries in the registry."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from cdc_assets.core.capture_job import CaptureJob
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.kept import kept
from cdc_assets.envelope.naming import topic_name
from cdc_assets.errors import CdcError, describe_error
from cdc_assets.history.drift import Drift
from cdc_assets.lake.retained import Retained
from cdc_assets.ledger.table_state import TableState
from cdc_assets.overview.capture import CaptureOverview
from cdc_assets.overview.checks.check import Check, Facts, Of, Subject, Verdict, not_known
from cdc_assets.overview.checks.health import HEALTH
from cdc_assets.overview.report import LATE_S, CaptureReport
from cdc_assets.overview.tables import Headroom, TableOverview
from cdc_assets.publish.view import PublishedReport

_REPAIR = "Next: materialize the table's snapshot asset."
_LATE = (
    f"Windows wait that were complete in the lake more than {LATE_S:.0f} s ago: the page of the capture says how many, and for how long. "
    "Next: see whether a run publishes, and its log"
)
"""Without numbers: as a check's result it would be another one every few seconds."""


class ServerFacts:
    """What a server that answers knows of a capture; each thing is queried when a check needs it, and once.

    Args:
        overview: the capture, with its server.
        make_report: makes the page.
    """

    problem = ""

    def __init__(self, overview: CaptureOverview, make_report: Callable[[], CaptureReport]) -> None:
        self.overview, self._make_report = overview, make_report

    @kept
    def report(self) -> CaptureReport:
        """As `Facts.report`."""
        return self._make_report()

    def subjects(self, of: Of) -> Iterable[Subject]:
        """As `Facts.subjects`: tables of which something was captured, and that no settings leave out, as nothing is to be known of these;
        without those of which nothing is known now."""
        if of == "table":
            return [table for table, state in self.overview.known.items() if self._is_known(table, state)]
        return (None,) if of == "capture" or (of == "kafka" and self.overview.config.kafka.enabled) else ()

    def _is_known(self, table: TableId, state: TableState) -> bool:
        """Whether something is to be said of a table: what the server says, or what a run has recorded."""
        if state.status == "excluded" or not self.overview.includes(table):
            return False
        return state.status != "healthy" or table.database not in self._unanswered

    @kept
    def problems(self) -> Mapping[str, CdcError]:
        """Databases that cannot be captured now."""
        return self.overview.problems()

    @kept
    def _unanswered(self) -> Mapping[str, str]:
        return self.overview.unanswered()

    @kept
    def _seen(self) -> Mapping[TableId, TableOverview]:
        return {found.table: found for found in self.overview.tables}

    @kept
    def _drifts(self) -> Mapping[TableId, Drift]:
        return {drift.table: drift for drift in self.overview.drifts()}

    def headroom(self, subject: Subject) -> Verdict:
        """Whether the server has what was not read."""
        del subject
        return headroom_result(self.overview.headroom(), self.problems, self._unanswered, streams=self.overview.streams)

    def capture_job(self, subject: Subject) -> Verdict:
        """Whether the log is read."""
        del subject
        return capture_job_result(self.overview.capture_jobs(), self._unanswered, streams=self.overview.streams)

    def drift(self, table: TableId) -> Verdict:
        """Whether a table is as its events."""
        if why := self._unanswered.get(table.database):
            return not_known(why)
        return drift_result(self._drifts.get(table), self.problems.get(table.database), streams=self.overview.streams)

    def continuity(self, table: TableId) -> Verdict:
        """Whether a table lacks changes: as the page says it, also where no run has recorded it yet."""
        topic, state, seen = (
            topic_name(table, self.overview.config.events),
            self.overview.known[table],
            self._seen.get(table),
        )
        found = continuity_result(state, self.overview.state.retained.get(topic))
        is_new = seen is not None and seen.status in ("gap", "failed") and state.status == "healthy"
        if seen is None or not is_new or table.database in self.problems:
            return found  # the problem of a database is reported for the capture
        return Verdict(passed=False, text=seen.reason or seen.status, facts=found.facts)


def headroom_result(
    rooms: Sequence[Headroom],
    problems: Mapping[str, CdcError],
    unanswered: Mapping[str, str] = MappingProxyType({}),
    *,
    streams: bool,
) -> Verdict:
    """Fails if a table's next change may be gone, or a database cannot be captured; warns if that is not known, or no table streams that
    should.

    Args:
        rooms: headroom of all tables that are read.
        problems: problems of databases that cannot be captured now.
        unanswered: why nothing is known of others.
        streams: whether the snapshot mode streams changes.
    """
    lost = ", ".join(str(room.table) for room in rooms if room.lost)
    troubles = [f"The server no longer has all unread changes of {lost}."] if lost else []
    troubles += [describe_error(problem) for problem in problems.values()]
    hours = [room.hours for room in rooms if room.hours is not None]
    facts: dict[str, Any] = {"tables": list(map(_room, rooms))} if rooms else {}
    facts |= {"least_hours": round(min(hours), 2)} if hours else {}
    good = "The server still has every change that was not read yet."
    if unanswered:
        good = "; ".join(_not_known_of(unanswered))
    elif not rooms:
        good = (
            "No table streams now, so what the server keeps is not known."
            if streams
            else "No table streams: the snapshot mode reads no log."
        )
    passed = not troubles and not unanswered and (bool(rooms) or not streams)
    return Verdict(passed, " ".join(troubles) or good, bool(troubles), facts)


def _room(room: Headroom) -> dict[str, str | float]:
    return {
        "table": str(room.table),
        "complete_to": str(room.position),
        "kept_from": str(room.mark) if room.mark else "nothing is kept",
        "hours": round(room.hours, 2) if room.hours is not None else "unknown",
    }


def _not_known_of(unanswered: Mapping[str, str]) -> list[str]:
    return [f"Not known of {name}: {why}" for name, why in unanswered.items()]


def capture_job_result(
    jobs: Sequence[CaptureJob], unanswered: Mapping[str, str] = MappingProxyType({}), *, streams: bool
) -> Verdict:
    """Fails if a capture job does not read the log (`core.capture_job`); warns if that is not known, also because no table streams.

    Args:
        jobs: those of the databases with tables that stream.
        unanswered: why nothing is known of others.
        streams: whether the snapshot mode streams changes.
    """
    if not jobs and not unanswered and streams:
        return not_known("no table streams now, so no capture job was queried.")
    troubles = [job.trouble for job in jobs if job.trouble]
    unknown = [*(job.unknown for job in jobs if job.unknown), *(_not_known_of(unanswered) if streams else ())]
    quiet = [int(job.quiet) for job in jobs if job.quiet is not None]
    good = "The capture job reads the log." if jobs else "No table streams: the snapshot mode reads no log."
    text = "; ".join([*troubles, *unknown]) or good
    return Verdict(not troubles and not unknown, text, bool(troubles), {"quiet_seconds": max(quiet)} if quiet else {})


def drift_result(drift: Drift | None, problem: CdcError | None = None, *, streams: bool) -> Verdict:
    """A warning with the T-SQL that corrects it, or that it is not known because the table does not stream; a capture that
    streams nothing needs no comparison.

    Args:
        problem: why its database cannot be captured now.
        streams: whether the snapshot mode streams changes.
    """
    if drift is None:
        if not streams:
            return Verdict(passed=True, text="the snapshot mode streams nothing", is_error=False)
        return not_known(describe_error(problem) if problem else "it does not stream now, so it is not compared.")
    facts: dict[str, Any] = {}
    if drift.differences:
        facts |= {"differences": [str(found) for found in drift.differences], "remedy": drift.remedy}
        facts |= {"statements": list(drift.statements)} if drift.statements else {}
    if drift.removable:
        facts |= {"removable_instance": drift.removable, "removal": drift.removal}
    differs = "; ".join(map(str, drift.differences))
    return Verdict(not differs, differs or "as recorded", is_error=False, facts=facts)


def continuity_result(state: TableState, holds: Retained | None = None) -> Verdict:
    """Whether a table lacks changes, by its state in the manifest.

    Args:
        holds: what its topic still holds, if older events were dropped: they were read, so the check passes.
    """
    facts: dict[str, Any] = {"complete_to": str(state.position) if state.position else "not streamed"}
    if state.status == "gap":
        facts |= {"missing_after": str(state.gap_after), "missing_until": str(state.gap_until)}
    if state.ignored_gaps:
        facts["lacks"] = [f"after {after} up to {until}" for after, until in state.ignored_gaps]
    if past := state.gaps[: -1 if state.status == "gap" else None]:
        facts["lost_before"] = [f"after {after} up to {until}" for after, until in past]
    if holds is not None and holds.after:
        facts["complete_after"] = holds.after
    healthy = state.status == "healthy"
    lacks = f"It lacks changes {', '.join(facts['lacks'])} {_why_lacking(state)}" if state.ignored_gaps else "complete"
    text = state.reason or (lacks if healthy else state.status)
    return Verdict(healthy and not state.ignored_gaps, text, not healthy, facts)


def _why_lacking(state: TableState) -> str:
    """Why a table went on without changes, and the next step."""
    if state.reads_all is False:
        return (
            "(gap.policy=ignore, or its snapshot reads the statement of snapshot.select.statement.overrides, which may leave their rows out). "
            "Next: without that statement materialize the table's snapshot asset."
        )
    return f"(gap.policy=ignore, or no rows are read). {_REPAIR}"


def published_result(found: PublishedReport | None) -> Verdict:
    """Fails if a topic is stopped; warns if that is not known, or much time has passed since what waits was complete."""
    found = found or PublishedReport(problem="it was not queried")
    late = (found.behind_s or 0.0) > LATE_S
    texts = [f"{topic} is not published further: {reason}" for topic, reason in found.stopped.items()]
    texts += [f"Not known: {found.problem}"] if found.problem else []
    held = f". Later events wait for {found.held}" if found.held else ""
    texts += [f"{_LATE}{held}"] if late and not texts else []
    texts += ["Not known: windows wait since a time that lies ahead of the clock."] if found.is_age_unknown else []
    text = "; ".join(texts) or "No topic is stopped, and nothing waits for long."
    return Verdict(not texts, text, bool(found.stopped), published_facts(found))


def published_facts(found: PublishedReport | None) -> dict[str, Any]:
    """How far the topics are, as metadata."""
    if found is None or found.problem:
        return {}
    facts: dict[str, Any] = {"windows_behind": found.waiting}
    facts |= {} if found.behind_s is None else {"seconds_behind": round(found.behind_s, 3)}
    return facts | ({"published_to_lsn": str(found.lsn)} if found.lsn else {})


def _published(facts: Facts, subject: Subject) -> Verdict:
    del subject
    return published_result(facts.report.published)


HEADROOM = Check(
    name="retention_headroom",
    of="capture",
    about=(
        "The clean-up job has not passed any table's position. The metadata contain the hours of changes "
        "between the oldest change that the server keeps and the position: the time left if reading stops."
    ),
    error="the server no longer has what was not read yet, or a database cannot be captured",
    warning="no table streams that should, or the server does not answer",
    page="retention",
    when="half-hourly",
    made_of="answers",
    result=ServerFacts.headroom,
)
CAPTURE_JOB = Check(
    name="capture_job",
    of="capture",
    about=(
        "The SQL Server Agent runs and its capture job reads the log. If not, no new changes arrive, and tables that are "
        "complete to the newest captured LSN are out of date."
    ),
    error="the SQL Server Agent is stopped, or its capture job does not read the log",
    warning="that is not known, or no table streams that should",
    page="capture-job",
    when="half-hourly",
    made_of="answers",
    result=ServerFacts.capture_job,
)
DRIFT = Check(
    name="schema_drift",
    of="table",
    about="The table has the same columns, types, nullability, defaults and key as its events.",
    warning="the table on the server differs from the structure of its events, or does not stream",
    page="drift",
    when="half-hourly",
    made_of="answers",
    result=ServerFacts.drift,
)
CONTINUITY = Check(
    name="lsn_continuity",
    of="table",
    about="Every change up to the table's position was read: no interval of the log is missing.",
    error="the table lacks changes, or has failed",
    warning="it continued after a gap and was not read again",
    page="gap",
    when="seconds",
    made_of="answers",
    result=ServerFacts.continuity,
    blocking=True,
)
PUBLISHED = Check(
    name="published",
    of="kafka",
    about="No topic is stopped, and what is complete in the lake is in Kafka.",
    error="a topic is stopped",
    warning="windows wait for more than a minute, or that is not known",
    page="kafka",
    when="seconds",
    made_of="report",
    result=_published,
)
MATCHES = Check(
    name="matches_source",
    of="mirror",
    about="All rows that were compared are on the server as in the mirror, apart from changes in flight.",
    error="rows of the mirror differ from the server's",
    warning="the table was not compared",
    page="mirror",
    when="own job",
    made_of="run",
)

CHECKS = (HEALTH, CAPTURE_JOB, HEADROOM, CONTINUITY, DRIFT, PUBLISHED, MATCHES)
"""In the order in which the documents list them."""
