"""The recorded state of a capture: tables, and the windows in flight.

All values are plain and convert to JSON and back (`codec`), because they are stored in the manifest's `detail` column.
A new field needs a default, so that older manifests can be read.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn, Position
from cdc_assets.core.notification import Notification
from cdc_assets.core.ran_on import RanOn
from cdc_assets.core.schema import InstanceId
from cdc_assets.lake.marks import Mark
from cdc_assets.lake.retained import Retained
from cdc_assets.ledger.gaps import EarlyReads, Skipped, with_skipped
from cdc_assets.ledger.readings import Readings
from cdc_assets.ledger.signal_state import SignalState
from cdc_assets.ledger.snapshot_state import RoundFiles, SnapshotRun
from cdc_assets.ledger.table_state import Start, TableState

Kind = Literal["stream", "snapshot"]


@dataclass(frozen=True, slots=True)
class LogHistory:
    """The history of a database's log to which its tables belong (`capture.forks`).

    Args:
        fork: identity of the recovery fork; empty while unknown.
        read: greatest LSN that windows have read or that was captured when snapshots were planned; after a restore, of which the
            lake may hold something. None before the first.
        restored: reason for which the database is no longer read, or empty.
        shared: LSN up to which the server still had what was read, when it was found not to have all of it; None before that. Of
            several restores the earliest counts.
        reads: greatest LSN of READs of snapshots, which may lie behind all positions; None before the first.
        former: identities of the forks that it has left.
    """

    fork: str = ""
    read: Lsn | None = None
    restored: str = ""
    shared: Lsn | None = None
    reads: Lsn | None = None
    former: tuple[str, ...] = ()

    def on(self, fork: str) -> "LogHistory":
        """The same on another fork."""
        left = dict.fromkeys([*self.former, self.fork])
        return dataclasses.replace(self, fork=fork, former=tuple(one for one in left if one not in ("", fork)))


@dataclass(frozen=True, slots=True)
class TableRead:
    """The change rows that a window reads from one capture instance of a table: commit LSNs in (after, until].

    Args:
        counted: whether an earlier window committed their events, so that they are only counted for transaction
            metadata.
        begins: place in the first transaction after which its rows are read; None reads all of them.
        rows: number of its change rows, counted when the window was planned; None if unknown.
        directory: of the topic generation that gets its events (`streaming.destinations`); empty until it is known.
        made: creation time of the instance, server time without zone.
        change_table_id: object id of its change table; None the same.
    """

    table: TableId
    instance: str
    after: Lsn
    until: Lsn
    counted: bool = False
    begins: Start | None = None
    rows: int | None = None
    directory: str = ""
    made: datetime | None = None
    change_table_id: int | None = None

    @property
    def identity(self) -> InstanceId:
        """The capture instance that is read."""
        return InstanceId(self.instance, self.made, self.change_table_id)


@dataclass(frozen=True, slots=True)
class Unpublished:
    """Transactions of a database whose BEGIN and END are still to be published: those of a window that was abandoned
    after it had committed some tables.

    Args:
        known: commit LSN up to which transactions are published.
        until: commit LSN of the last one to publish.
        reads: change rows of the committed tables.
    """

    known: Lsn
    until: Lsn
    reads: tuple[TableRead, ...]


@dataclass(frozen=True, slots=True)
class Window:
    """A planned window of the log, or a planned round of snapshot slices.

    Args:
        window_id: number of its commit in every topic table; windows in flight together share it.
        kind: stream window or snapshot round.
        database: database that is read.
        after: exclusive lower bound (stream).
        until: inclusive upper bound (stream), or the low watermark (snapshot).
        bounds: upper bounds of the slices (stream); the last is `until`.
        reads: change rows to read (stream); tables without rows are left out.
        slices: numbers of the slices of a round (snapshot).
        cuts: additional slice bounds inside transactions that are too large for one slice (stream).
        transactions: topic of the BEGIN and END of all windows with its number (stream); empty if they are not published.
        skipped: letters of operations that change rows and are left out of it (stream); recorded before anything is read.
    """

    window_id: int
    kind: Kind
    database: str
    after: Lsn
    until: Lsn
    bounds: tuple[Lsn, ...] = ()
    reads: tuple[TableRead, ...] = ()
    slices: tuple[int, ...] = ()
    cuts: tuple[Position, ...] = ()
    transactions: str = ""
    skipped: str = ""

    @property
    def lacking(self) -> Mapping[TableId, Skipped]:
        """What it leaves out of the tables that it reads; of each it begins at its position."""
        tables = (read.table for read in self.reads if not read.counted) if self.skipped else ()
        return dict.fromkeys(tables, Skipped(self.after, self.until, self.skipped))


def _with_skipped(state: TableState, lacking: Skipped | None) -> tuple[Skipped, ...]:
    """What was read of a table without some operations, once a window is complete for it."""
    if lacking is None or state.position is None:
        return state.skipped
    return with_skipped(state.skipped, dataclasses.replace(lacking, after=state.position), state.snapshot_lsn)


@dataclass(frozen=True, slots=True)
class CaptureState:
    """The whole recorded state. Changed only by `manifest`, which records each change first."""

    tables: Mapping[TableId, TableState] = field(default_factory=dict)
    next_window: int = 1
    pending: tuple[Window, ...] = ()
    """What is in flight: windows of the log with one number, each of another database; or one round of a snapshot."""
    written: RoundFiles | None = None
    """Files of the pending round, once its tasks have ended."""
    snapshots: Mapping[str, SnapshotRun] = field(default_factory=dict)
    """Snapshots in flight by database."""
    signals: Mapping[str, SignalState] = field(default_factory=dict)
    """Signals and incremental snapshots by database."""
    logs: Mapping[str, LogHistory] = field(default_factory=dict)
    """History of the log, by database."""
    early: Mapping[TableId, EarlyReads] = field(default_factory=dict)
    """READs in the lake, or written, of tables that have no position from which their changes can be read."""
    readings: Readings = field(default_factory=dict)
    """What snapshots have read later than the LSN of its READs, by table."""
    unread: Mapping[TableId, str] = field(default_factory=dict)
    """Why the newest first snapshot of a table has failed; of tables that have no state."""
    transactions: Mapping[str, Lsn] = field(default_factory=dict)
    """Commit LSN up to which BEGIN and END are published, by database; none before its first window."""
    unpublished: Mapping[str, Unpublished] = field(default_factory=dict)
    """Transactions that the next window of a database publishes, by database."""
    retained: Mapping[str, Retained] = field(default_factory=dict)
    """What topics still hold, of those that have dropped events; by topic."""
    looked: datetime | None = None
    """When topics were last looked through for events that may be dropped."""
    kept: Mapping[str, str] = field(default_factory=dict)
    """Why old events stay for good that could be dropped, as that look has found, by topic."""
    marks: Mapping[str, Mark] = field(default_factory=dict)
    """Expected content of the lake's tables, by directory; tables without commits may have none."""
    notifications: tuple[Notification, ...] = ()
    """Notifications recorded with the newest row; perhaps not sent yet. A later row proves that they were."""
    writer: str = ""
    """Process that claimed the capture last (`core.processes`); empty if unknown."""
    ran_on: Mapping[str, RanOn] = field(default_factory=dict)
    """Where jobs have run, by kind: those of the newest run that had any of it; for people."""

    def with_tables(self, changed: Iterable[TableState]) -> "CaptureState":
        """The state with some tables replaced or added."""
        return dataclasses.replace(self, tables={**self.tables, **{state.table: state for state in changed}})

    def advanced(
        self, database: str, until: Lsn, behind: Set[TableId] = frozenset(), window: Window | None = None
    ) -> "CaptureState":
        """The state with every streaming table of a database complete up to `until`, except for those that stay
        behind.

        Args:
            window: by which they come there; None if there are no changes.
        """
        lacking = window.lacking if window else {}
        return self.with_tables(
            dataclasses.replace(
                state, position=until, begins=None, skipped=_with_skipped(state, lacking.get(state.table))
            )
            for state in self.tables.values()
            if state.table.database == database
            and state.table not in behind
            and state.streams
            and state.position < until  # type: ignore[operator]  # those that stream have one
        )

    def with_marks(self, changed: Mapping[str, Mark | None]) -> "CaptureState":
        """The state with some tables' marks replaced; None removes one. What was examined and read is kept, unless the table
        is an older one now."""
        marks = dict(self.marks)
        for directory, mark in changed.items():
            known = marks.pop(directory, None)
            if mark is not None:
                marks[directory] = mark if known is None else mark.behind(known)
        return dataclasses.replace(self, marks=marks)

    @property
    def complete_window(self) -> int:
        """The greatest number under which nothing is committed any more, nor under any before it."""
        return min((number for number, *_ in self._open()), default=self.next_window) - 1

    def complete_window_of(self, database: str) -> int:
        """The greatest number under which nothing of a database is committed any more, nor under any before it.

        A snapshot takes its number when it is planned, and writes structures under it before its first round. What other databases
        have in flight may hold their own numbers back for hours, while the positions of this one's tables continue.
        """
        return min((number for number, name, _ in self._open() if name == database), default=self.next_window) - 1

    @property
    def held_by(self) -> str:
        """What holds `complete_window` back, for people; empty if nothing does."""
        number, database, what = min(self._open(), default=(0, "", ""))
        return f"{what} ({database}, number {number})" if what else ""

    def _open(self) -> Iterator[tuple[int, str, str]]:
        """Numbers under which something may still be committed, with the database, and what it is."""
        for window in self.pending:
            what = "a window" if window.kind == "stream" else "a snapshot's round"
            yield window.window_id, window.database, f"{what} that is not complete"
        for name, signals in self.signals.items():
            if signals.reads is not None:
                yield signals.reads.window_id, name, "a round of an incremental snapshot that is not committed"
        for name, run in self.snapshots.items():
            if run.done == 0:
                yield run.snapshot_id, name, "a snapshot of which nothing is committed yet"

    @property
    def files_wait(self) -> bool:
        """Whether there may be written files that are not committed yet."""
        return bool(self.pending) or any(signals.reads is not None for signals in self.signals.values())

    def published(self, database: str, until: Lsn) -> "CaptureState":
        """The state with all transactions of a database published up to `until`."""
        known = max(until, self.transactions.get(database, until))
        state = dataclasses.replace(self, transactions={**self.transactions, database: known})
        left = self.unpublished.get(database)
        if left is None or until <= left.known:
            return state
        return state.with_unpublished(database, dataclasses.replace(left, known=until) if until < left.until else None)

    def complete_to(self, database: str) -> Lsn | None:
        """LSN up to which a database is complete, and its transactions are published; None if no table streams."""
        watermark, left = self.watermark(database), self.unpublished.get(database)
        return min(watermark, left.known) if watermark and left else watermark

    def with_unpublished(self, database: str, left: Unpublished | None) -> "CaptureState":
        """The state with other transactions to publish."""
        others = {name: entry for name, entry in self.unpublished.items() if name != database}
        return dataclasses.replace(self, unpublished=others if left is None else {**others, database: left})

    def published_until(self, window: Window) -> Lsn:
        """Commit LSN up to which earlier windows published the transactions of a window's database."""
        if left := self.unpublished.get(window.database):
            return left.known
        return self.transactions.get(window.database, window.after)

    def in_flight(self, database: str) -> Window | None:
        """The window or round of a database that is in flight."""
        return next((window for window in self.pending if window.database == database), None)

    def is_open(self, database: str) -> bool:
        """Whether a window, round or snapshot of a database is in flight."""
        return self.in_flight(database) is not None or database in self.snapshots

    def planned_until(self, database: str) -> Lsn | None:
        """Where a database's window of the log ends that is in flight."""
        window = self.in_flight(database)
        return window.until if window and window.kind == "stream" else None

    def without_pending(self, database: str) -> "CaptureState":
        """The state without the window or round of a database that is in flight."""
        remaining = tuple(window for window in self.pending if window.database != database)
        if remaining == self.pending:
            return self
        return dataclasses.replace(self, pending=remaining, written=None)

    def log(self, database: str) -> LogHistory:
        """The known history of a database's log."""
        return self.logs.get(database, LogHistory())

    def with_log_read(self, database: str, until: Lsn) -> "CaptureState":
        """The state with a database's log read up to `until`."""
        log = self.log(database)
        read = until if log.read is None else max(log.read, until)
        return dataclasses.replace(self, logs={**self.logs, database: dataclasses.replace(log, read=read)})

    def has_position(self, table: TableId) -> bool:
        """Whether a table has a position from which its changes are read; not so for one that was snapshotted without
        CDC."""
        known = self.tables.get(table)
        return known is not None and known.position is not None

    def wanted_after(self, table: TableId, object_id: int) -> Lsn | None:
        """LSN after which the changes of a table belong to what the lake has of it; None if the lake has nothing of it.

        Those of a table that was dropped are reported by its DROP.
        """
        known, early = self.tables.get(table), self.early.get(table)
        if known is not None and known.object_id == object_id and known.position is not None:
            return known.position
        if early is not None:
            return early.low
        return known.reached if known is not None and known.position is None else None

    def with_early(self, changed: Mapping[TableId, EarlyReads]) -> "CaptureState":
        """The state with further READs of tables, except for those that have such a position."""
        early = dict(self.early)
        for table, reads in changed.items():
            known = self.tables.get(table)
            if known is None or not known.keeps_position:
                early[table] = early.get(table, reads).joined(reads)
        return dataclasses.replace(self, early=early)

    def with_unread(self, failed: Mapping[TableId, str]) -> "CaptureState":
        """The state with further tables of which nothing could be read, and without those that have a state now."""
        unread = {**self.unread, **failed}
        return dataclasses.replace(
            self, unread={table: reason for table, reason in unread.items() if table not in self.tables}
        )

    def without_early(self) -> "CaptureState":
        """The state without READs of tables that have such a position now."""
        gone = {table for table in self.early if (known := self.tables.get(table)) and known.keeps_position}
        kept = {table: reads for table, reads in self.early.items() if table not in gone}
        return dataclasses.replace(self, early=kept) if gone else self

    def watermark(self, database: str) -> Lsn | None:
        """LSN up to which every healthy table of the database is complete; None if no table streams."""
        positions = [
            state.position
            for state in self.tables.values()
            if state.table.database == database and state.streams and state.position is not None
        ]
        return min(positions, default=None)
