"""The state of a capture on one page: healthy or not and why, lag by cause, rates, tables, queue, what to do next.

Plain values, and the rules that lead from them to a word. The command line, Dagster's pages and metrics show the same object
(`CaptureReport`); `report_builder` makes it.

*Never healthy by mistake.* `healthy` has no value of its own: it is the absence of troubles, of questions without an answer and of
unfinished work. So an answer that is missing never counts as a good one, nor as a bad one: `in trouble` is said of what is known.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

from cdc_assets.core.clocks import seconds_behind
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.ran_on import RanOn
from cdc_assets.ledger.codec import encode
from cdc_assets.publish.view import PublishedReport

TableCondition = Literal[
    "failed",
    "gap",
    "not streamed",
    "drifted",
    "snapshotting",
    "waiting",
    "streaming",
    "snapshotted",
    "excluded",
    "not captured",
]
"""What a table is doing, what needs attention first. `snapshotted`: read once, and the snapshot mode streams nothing. `not streamed`: read once, and the server
does not capture its changes. `not captured`: the same, and nothing of it was read."""

Health = Literal["healthy", "working", "not known", "in trouble"]

Reached = Lsn | str
"""Up to where something is complete: an LSN, or a place in another database's log as that database writes it."""

STOPPED = ("gap", "failed", "drifted", "not streamed")
"""Conditions in which the lake lacks changes or columns, or soon will, until somebody acts."""

ABSENT = ("excluded", "not captured")
"""Conditions of tables that are no part of the capture."""

LATE_S = 60.0
"""Seconds by which the lake may lag what the server has captured before the capture is not called healthy."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that needs attention: it is wrong, or it is unknown whether it is.

    Args:
        where: the table, database or other thing that it is about.
        what: what is wrong or not known, with the next step.
    """

    where: str
    what: str

    @property
    def next_step(self) -> str:
        """What to do; empty if nothing is said."""
        return self.what.rpartition("Next: ")[2].strip() if "Next: " in self.what else ""

    def __str__(self) -> str:
        return self.what if self.what.startswith(self.where) else f"{self.where}: {self.what}"


@dataclass(frozen=True, slots=True)
class Lag:
    """Age of what is not in the lake yet, in seconds by the server's clock, by cause; None: not known.

    Args:
        capture_job_s: age of what SQL Server's capture job may not have read from the log yet.
        poll_s: age of the oldest commit that the server has captured and that is in no window yet; 0 if there is none.
        windows_s: by how much the oldest commit in a window that is not complete is older than that.
    """

    capture_job_s: float | None = None
    poll_s: float | None = None
    windows_s: float | None = None

    @property
    def behind_s(self) -> float | None:
        """Age of the oldest commit that the server has captured and the lake lacks; 0 if there is none; None if not known."""
        return None if self.poll_s is None or self.windows_s is None else self.poll_s + self.windows_s

    @property
    def is_known_in_part(self) -> bool:
        """Whether one of the two parts of `behind_s` is not known: something waits, and for longer than the other says."""
        return (self.poll_s is None) != (self.windows_s is None)


@dataclass(frozen=True, slots=True)
class DatabaseReport:
    """One database.

    Args:
        complete_to: up to where every healthy table is complete (the watermark); None if none streams.
        committed: server time of that commit, if the server still knows it.
        server_time: the server's clock; None if it was not queried.
        newest: newest captured transaction; of another database's log, its end.
        capture_job: state of the job that reads the log; empty if it was not queried.
        room_bytes: bytes that its log may still grow before unread changes are removed; None if it does not count by size.
    """

    database: str
    complete_to: Reached | None = None
    committed: datetime | None = None
    server_time: datetime | None = None
    newest: Reached | None = None
    lag: Lag = field(default_factory=Lag)
    capture_job: str = ""
    room_bytes: int | None = None

    @property
    def has_capture_job(self) -> bool:
        """Whether a job of the server is between its log and the capture; in other databases there is none."""
        return not any(isinstance(place, str) for place in (self.complete_to, self.newest))

    @property
    def lag_by_cause(self) -> Mapping[str, float | None]:
        """Seconds by the causes that there are."""
        of_job = {"capture job": self.lag.capture_job_s} if self.has_capture_job else {}
        return of_job | {"poll": self.lag.poll_s, "windows": self.lag.windows_s}

    @property
    def is_lag_unknown(self) -> bool:
        """Whether changes may wait for an unknown time."""
        streams = self.newest is not None and self.complete_to is not None
        return self.lag.behind_s is None and (streams or self.lag.is_known_in_part)

    @property
    def age_s(self) -> float | None:
        """Seconds between the newest complete commit and the server's clock; also grows while nothing changes."""
        return seconds_behind(self.server_time, self.committed)


@dataclass(frozen=True, slots=True)
class TableReport:
    """One table.

    Args:
        topic: topic of its events; empty if it cannot have one.
        reason: why it is not healthy, with the next step.
        percent: how much of its snapshot is read; None if none is in flight.
        eta_s: seconds until its snapshot is read at the present rate; None if not known.
        headroom_h: hours until unread changes are cleaned up; None if not known.
        complete_after: LSN after which its topic holds every event; None if no older ones were dropped.
        ignored_gaps: intervals that the lake lacks, as (exclusive start, inclusive end), after which it went on because of
            `gap.policy=ignore`, or without reading all rows; until a snapshot reads all its rows.
    """

    table: TableId
    topic: str
    condition: TableCondition
    reason: str = ""
    complete_to: Reached | None = None
    instance: str | None = None
    percent: float | None = None
    eta_s: float | None = None
    headroom_h: float | None = None
    complete_after: Lsn | None = None
    ignored_gaps: tuple[tuple[Lsn, Lsn], ...] = ()

    @property
    def lacks(self) -> str:
        """What it lacks, and went on without, for people; empty if nothing."""
        return "; ".join(f"after {after} up to {until}" for after, until in self.ignored_gaps)


@dataclass(frozen=True, slots=True)
class QueuedSnapshot:
    """A table that a signal's snapshot is to read: one in the queue of an incremental snapshot, or of a blocking one that is not planned yet.

    Args:
        reached: key up to which rows are committed; empty if it was not begun, hidden if a column rule masks the key.
        rows: rows read so far; None if not known.
        paused: whether it waits for a signal that resumes it, or until the snapshot mode streams again.
    """

    table: TableId
    reached: str
    rows: int | None
    paused: bool


@dataclass(frozen=True, slots=True)
class Rates:
    """What was committed in the last seconds, per second.

    Args:
        seconds: length of the interval.
        by_operation: events per second by envelope operation.
    """

    seconds: float = 0.0
    by_operation: Mapping[str, float] = field(default_factory=dict)

    @property
    def rows(self) -> float:
        """Events per second."""
        return sum(self.by_operation.values())


@dataclass(frozen=True, slots=True)
class Ddl:
    """The newest change of a table's structure in the schema history."""

    table: TableId
    kind: str
    lsn: Reached
    at: datetime


@dataclass(frozen=True, slots=True)
class CaptureReport:
    """A capture at one moment; see the module's head.

    Args:
        at: when it was made (UTC).
        troubles: everything that is wrong, worst first.
        unknown: what is unknown, because it could not be queried or the answer does not say.
        last_ddl: None if the history is empty or was not read.
        published: how far the topics in Kafka are; None if nothing is written to Kafka.
        advice: what may be done and need not.
        ran_on: where jobs have run, by kind: those of the newest run that had any of it.
    """

    capture: str
    at: datetime
    troubles: tuple[Trouble, ...] = ()
    unknown: tuple[Trouble, ...] = ()
    databases: tuple[DatabaseReport, ...] = ()
    tables: tuple[TableReport, ...] = ()
    queue: tuple[QueuedSnapshot, ...] = ()
    rates: Rates = field(default_factory=Rates)
    last_ddl: Ddl | None = None
    advice: tuple[str, ...] = ()
    published: PublishedReport | None = None
    ran_on: Mapping[str, RanOn] = field(default_factory=dict)

    @property
    def health(self) -> Health:
        """`in trouble`: somebody has to act. `not known`: something could not be queried, or nothing is captured. `working`: a
        snapshot is not complete, changes are late, or the lake lacks some by consent; no action is needed."""
        if self.troubles or any(table.condition in STOPPED for table in self.tables):
            return "in trouble"
        if self.unknown or self.is_empty:
            return "not known"
        return "working" if self.unfinished else "healthy"

    @property
    def healthy(self) -> bool:
        """Whether the lake has everything that the server has captured, but for the last seconds."""
        return self.health == "healthy"

    @property
    def is_empty(self) -> bool:
        """Whether no table is captured."""
        return all(table.condition in ABSENT for table in self.tables)

    @property
    def unfinished(self) -> Sequence[str]:
        """Work that is not done yet: why a capture without troubles is not healthy."""
        found = [f"{table.table} is {_doing(table)}" for table in self.tables if _doing(table)]
        for table in (table for table in self.tables if table.condition != "excluded"):
            if table.lacks:
                found.append(
                    f"{table.table} lacks changes {table.lacks} (gap.policy=ignore, or not all rows are read), until a snapshot reads all its rows"
                )
        found += [f"{entry.table} is to be read, as a signal requested" for entry in self.queue if not entry.paused]
        found += self.late
        return ["nothing is captured yet"] if self.is_empty else found

    @property
    def late(self) -> Sequence[str]:
        """What lags, or may."""
        found = []
        for database in self.databases:
            if database.is_lag_unknown:
                found.append(f"it is not known how far {database.database} is behind what the server has captured")
            elif (behind := database.lag.behind_s or 0.0) > LATE_S:
                found.append(f"{database.database} is {behind:,.0f} s behind what the server has captured")
        if self.published is not None and self.published.is_age_unknown:
            found.append("it is not known how late the topics in Kafka are")
        if self.published is not None and (self.published.behind_s or 0.0) > LATE_S:
            found.append(f"Kafka is {self.published.behind_s:,.0f} s behind the lake")
        return found

    @property
    def findings(self) -> tuple[Trouble, ...]:
        """Everything that needs attention: what is wrong, then what is not known."""
        return (*self.troubles, *self.unknown)

    @property
    def headline(self) -> str:
        """One line: the word, and its main figures."""
        stopped = [str(table.table) for table in self.tables if table.condition in STOPPED]
        found = self.findings
        if found and (self.troubles or not stopped):
            more = f", and {len(found) - 1} more" if len(found) > 1 else ""
            return f"{self.health}: {_first_line(str(found[0]))}{more}"
        why = f"{', '.join(stopped)}" if stopped else "; ".join(self.unfinished[:3])
        return f"{self.health}: {why}" if why else self.health

    @property
    def next_steps(self) -> Sequence[str]:
        """What to do, each once; empty if nothing has to be done."""
        return list(dict.fromkeys(step for trouble in self.findings if (step := trouble.next_step)))

    @property
    def headroom_h(self) -> float | None:
        """The least hours until unread changes are cleaned up; None if not known."""
        return min((table.headroom_h for table in self.tables if table.headroom_h is not None), default=None)

    @property
    def room_bytes(self) -> int | None:
        """The least bytes that a log may still grow before unread changes are removed; None if none counts by size."""
        return min((found.room_bytes for found in self.databases if found.room_bytes is not None), default=None)

    def counts(self) -> Mapping[str, int]:
        """Number of tables by condition."""
        found: dict[str, int] = {}
        for table in self.tables:
            found[table.condition] = found.get(table.condition, 0) + 1
        return found

    def as_json(self) -> dict[str, Any]:
        """The report as JSON data, with what follows from it."""
        derived = {
            "health": self.health,
            "healthy": self.healthy,
            "headline": self.headline,
            "next_steps": list(self.next_steps),
            "headroom_h": self.headroom_h,
            "rows_per_second": self.rates.rows,
        }
        ran_on = [{"kind": kind, **encode(found)} for kind, found in self.ran_on.items()]
        return derived | dict(encode(self)) | {"ran_on": ran_on}


def unanswered_report(capture: str, before: CaptureReport | None, reason: str) -> CaptureReport:
    """What is known if there is no answer: what was found last, and that nothing is known now.

    Args:
        before: the newest report that was finished; None if there was none.
    """
    what = f"The state of the capture is not known: {reason}. Next: see whether the server and the lake's store answer"
    now = datetime.now(UTC)
    known = before or CaptureReport(capture, now)
    return replace(known, at=now, unknown=(*known.unknown, Trouble("The state of the capture", what)))


def _doing(table: TableReport) -> str:
    if table.condition == "waiting":
        return f"waiting: {table.reason}"
    if table.condition == "snapshotting":
        return "being read" + (f" ({table.percent:.0f} %)" if table.percent is not None else "")
    return ""


def _first_line(text: str) -> str:
    return text.partition("\n")[0].partition(" Next: ")[0].rstrip(".")
