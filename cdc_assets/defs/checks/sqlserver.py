"""Checks of a capture from SQL Server: functions that make results, and their entries in the registry."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import dagster as dg

from cdc_assets.core.capture_job import CaptureJob
from cdc_assets.core.identifiers import TableId
from cdc_assets.defs.catalog import CaptureCatalog
from cdc_assets.defs.checks.check import Check, Facts, Of, not_known
from cdc_assets.defs.checks.health import HEALTH
from cdc_assets.errors import CdcError, describe_error
from cdc_assets.history.drift import Drift
from cdc_assets.lake.retained import Retained
from cdc_assets.ledger.state import TableState
from cdc_assets.overview import CaptureOverview, CaptureReport, Headroom
from cdc_assets.overview.report import LATE_S
from cdc_assets.publish.view import PublishedReport

_ERROR, _WARN = dg.AssetCheckSeverity.ERROR, dg.AssetCheckSeverity.WARN
_REPAIR = "Next: materialize the table's snapshot asset."
_LATE = (
    f"Windows wait that were complete in the lake more than {LATE_S:.0f} s ago: the page of the capture tells how many, and for how long. "
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

    def __init__(
        self, catalog: CaptureCatalog, overview: CaptureOverview, make_report: Callable[[], CaptureReport]
    ) -> None:
        self.catalog, self.overview, self._make_report = catalog, overview, make_report
        self._tables = catalog.keys("changes")

    @cached_property
    def report(self) -> CaptureReport:
        """As `Facts.report`."""
        return self._make_report()

    def keys(self, of: Of) -> Sequence[dg.AssetKey]:
        """As `Facts.keys`: tables of which something was captured."""
        if of == "table":
            return [key for key, table in self._tables.items() if table in self.overview.known]
        return self.catalog.checked(of) if of != "mirror" else ()

    @cached_property
    def problems(self) -> Mapping[str, CdcError]:
        """Databases that cannot be captured now."""
        return self.overview.problems()

    @cached_property
    def _drifts(self) -> Mapping[TableId, Drift]:
        return {drift.table: drift for drift in self.overview.drifts()}

    def headroom(self, key: dg.AssetKey) -> dg.AssetCheckResult:
        """Whether the server has what was not read."""
        del key
        return headroom_result(self.overview.headroom(), self.problems, streams=self.overview.streams)

    def capture_job(self, key: dg.AssetKey) -> dg.AssetCheckResult:
        """Whether the log is read."""
        del key
        return capture_job_result(self.overview.capture_jobs())

    def drift(self, key: dg.AssetKey) -> dg.AssetCheckResult:
        """Whether a table is as its events."""
        table, streams = self._tables[key], self.overview.streams
        return drift_result(self._drifts.get(table), self.problems.get(table.database), streams=streams)

    def continuity(self, key: dg.AssetKey) -> dg.AssetCheckResult:
        """Whether a table lacks changes."""
        table = self._tables[key]
        return continuity_result(
            self.overview.known[table], self.overview.state.retained.get(self.catalog.topic(table))
        )


def headroom_result(
    rooms: Sequence[Headroom], problems: Mapping[str, CdcError], *, streams: bool
) -> dg.AssetCheckResult:
    """Fails if a table's next change may be gone, or a database cannot be captured; warns if no table streams that should.

    Args:
        rooms: headroom of all tables that are read.
        problems: problems of databases that cannot be captured now.
        streams: whether the snapshot mode streams changes.
    """
    lost = ", ".join(str(room.table) for room in rooms if room.lost)
    troubles = [f"The server no longer has all unread changes of {lost}."] if lost else []
    troubles += [describe_error(problem) for problem in problems.values()]
    hours = [room.hours for room in rooms if room.hours is not None]
    facts: dict[str, Any] = {"tables": dg.MetadataValue.table(list(map(_room, rooms)))} if rooms else {}
    good = "The server still has every change that was not read yet."
    if not rooms:
        good = (
            "No table streams now, so what the server keeps is not known."
            if streams
            else "No table streams: the snapshot mode reads no log."
        )
    return dg.AssetCheckResult(
        passed=not troubles and (bool(rooms) or not streams),
        severity=_ERROR if troubles else _WARN,
        metadata=facts | ({"least_hours": round(min(hours), 2)} if hours else {}),
        description=" ".join(troubles) or good,
    )


def _room(room: Headroom) -> dg.TableRecord:
    return dg.TableRecord(
        {
            "table": str(room.table),
            "complete_to": str(room.position),
            "kept_from": str(room.mark) if room.mark else "nothing is kept",
            "hours": round(room.hours, 2) if room.hours is not None else "unknown",
        }
    )


def capture_job_result(jobs: Sequence[CaptureJob]) -> dg.AssetCheckResult:
    """Fails if the capture job does not read the log (`core.capture_job`); warns if that is not known."""
    troubles = [job.trouble for job in jobs if job.trouble]
    unknown = [job.unknown for job in jobs if job.unknown]
    quiet = [int(job.quiet) for job in jobs if job.quiet is not None]
    return dg.AssetCheckResult(
        passed=not troubles and not unknown,
        severity=_ERROR if troubles else _WARN,
        metadata={"quiet_seconds": max(quiet)} if quiet else {},
        description="; ".join([*troubles, *unknown]) or "The capture job reads the log.",
    )


def drift_result(drift: Drift | None, problem: CdcError | None = None, *, streams: bool) -> dg.AssetCheckResult:
    """A warning with the T-SQL that corrects it, or that it is not known because the table does not stream; a capture that
    streams nothing needs no comparison.

    Args:
        problem: why its database cannot be captured now.
        streams: whether the snapshot mode streams changes.
    """
    if drift is None:
        if not streams:
            return dg.AssetCheckResult(passed=True, severity=_WARN, description="the snapshot mode streams nothing")
        return not_known(describe_error(problem) if problem else "it does not stream now, so it is not compared.")
    facts: dict[str, Any] = {}
    if drift.differences:
        facts |= {"differences": [str(found) for found in drift.differences], "remedy": drift.remedy}
        facts |= {"statements": list(drift.statements)} if drift.statements else {}
    if drift.removable:
        facts |= {"removable_instance": drift.removable, "removal": drift.removal}
    differs = "; ".join(map(str, drift.differences))
    return dg.AssetCheckResult(passed=not differs, severity=_WARN, metadata=facts, description=differs or "as recorded")


def continuity_result(state: TableState, holds: Retained | None = None) -> dg.AssetCheckResult:
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
    lacks = (
        f"It lacks changes {', '.join(facts['lacks'])} (gap.policy=ignore). {_REPAIR}"
        if state.ignored_gaps
        else "complete"
    )
    return dg.AssetCheckResult(
        passed=healthy and not state.ignored_gaps,
        severity=_WARN if healthy else _ERROR,
        metadata=facts,
        description=state.reason or (lacks if healthy else state.status),
    )


def published_result(found: PublishedReport | None) -> dg.AssetCheckResult:
    """Fails if a topic is stopped; warns if that is not known, or much time has passed since what waits was complete."""
    found = found or PublishedReport(problem="nobody asked")
    late = (found.behind_s or 0.0) > LATE_S
    texts = [f"{topic} is not published further: {reason}" for topic, reason in found.stopped.items()]
    texts += [f"Not known: {found.problem}"] if found.problem else []
    held = f". What comes behind it waits for {found.held}" if found.held else ""
    texts += [f"{_LATE}{held}"] if late and not texts else []
    return dg.AssetCheckResult(
        passed=not texts,
        severity=_ERROR if found.stopped else _WARN,
        metadata=published_facts(found),
        description="; ".join(texts) or "No topic is stopped, and nothing waits for long.",
    )


def published_facts(found: PublishedReport | None) -> dict[str, Any]:
    """How far the topics are, as metadata."""
    if found is None or found.problem:
        return {}
    facts: dict[str, Any] = {"windows_behind": found.waiting, "seconds_behind": round(found.behind_s or 0.0, 3)}
    return facts | ({"published_to_lsn": str(found.lsn)} if found.lsn else {})


def _published(facts: Facts, key: dg.AssetKey) -> dg.AssetCheckResult:
    del key
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
    blocking=True,
)
CAPTURE_JOB = Check(
    name="capture_job",
    of="capture",
    about=(
        "The SQL Server Agent runs and its capture job reads the log. If not, no new changes arrive, and tables that are "
        "complete to the newest captured LSN are out of date."
    ),
    error="the SQL Server Agent is stopped, or its capture job does not read the log",
    warning="that is not known",
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
    warning="it went on behind a gap (`gap.policy=ignore`) and was not read again",
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
