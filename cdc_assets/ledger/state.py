"""What the manifest says about a capture: tables, the window in flight, the snapshot in flight.

All values are plain and turn into JSON and back (`codec`), because they live in
the manifest's `detail` column. A new field needs a default, so that older
manifests can be read.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn, Position
from cdc_assets.core.notification import Notification
from cdc_assets.core.ports import KeyRange
from cdc_assets.lake.files import DataFile
from cdc_assets.lake.marks import Mark
from cdc_assets.ledger.signal_state import SignalState

Status = Literal["healthy", "gap", "failed", "excluded"]
Kind = Literal["stream", "snapshot"]


@dataclass(frozen=True, slots=True)
class TableState:
    """One table of the capture.

    Args:
        object_id: of the source table that the position belongs to.
        position: the topic table is complete up to here, inclusive; None if the table cannot be streamed (no CDC).
        instance: capture instance last read, or None.
        made: when that was made, in server time without zone; None if it is not known. A namesake is made later.
        status: `healthy`; `gap`: changes in (gap_after, gap_until] were removed unread; `failed`: see reason; `excluded`:
            the settings leave it out, and it goes on from its position once they let it in again.
        reason: why it is not healthy, for people.
        gaps: changes that were lost, oldest first, as (exclusive start, inclusive end); kept after a repair.
        ranges: key ranges that snapshot partitions are made of, fixed by the first snapshot.
        snapshot_lsn: low watermark of the last complete snapshot of the whole table, or None.
    """

    table: TableId
    object_id: int
    position: Lsn | None
    instance: str | None = None
    status: Status = "healthy"
    reason: str = ""
    gaps: tuple[tuple[Lsn, Lsn], ...] = ()
    ranges: tuple[KeyRange, ...] = ()
    snapshot_lsn: Lsn | None = None
    made: datetime | None = None

    @property
    def streams(self) -> bool:
        """Whether windows take this table along."""
        return self.status == "healthy" and self.position is not None

    @property
    def keeps_position(self) -> bool:
        """Whether its position holds when its rows are read again: all changes behind it can be read, now or later."""
        return self.position is not None and self.status in ("healthy", "excluded")

    def is_to_be_repaired(self, gap_policy: str) -> bool:
        """Whether changes are missing and `gap.policy` wants the table to be read again for that."""
        return self.status == "gap" and gap_policy == "resnapshot"

    @property
    def gap_after(self) -> Lsn | None:
        """Exclusive start of the newest gap."""
        return self.gaps[-1][0] if self.gaps else None

    @property
    def gap_until(self) -> Lsn | None:
        """Inclusive end of the newest gap."""
        return self.gaps[-1][1] if self.gaps else None


@dataclass(frozen=True, slots=True)
class LogHistory:
    """Which history of a database's log its tables belong to (`capture.forks`).

    Args:
        fork: identity of the recovery fork; empty: nobody could see it yet.
        read: greatest LSN up to which windows read; None before the first.
        restored: why nothing is read from the database any more, or empty.
    """

    fork: str = ""
    read: Lsn | None = None
    restored: str = ""


@dataclass(frozen=True, slots=True)
class TableRead:
    """A table's change rows that a window reads from one capture instance: commit LSNs in (after, until]."""

    table: TableId
    instance: str
    after: Lsn
    until: Lsn


@dataclass(frozen=True, slots=True)
class SnapshotSlice:
    """Rows of one table in one key range.

    Args:
        number: place of the slice in its snapshot, from 0; sorts its READ events.
        partition: numbers of the table's ranges it covers, first and last.
        rows: about how many.
    """

    table: TableId
    number: int
    partition: tuple[int, int]
    range: KeyRange
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Window:
    """What was planned: a window of the log, or a round of snapshot slices.

    Args:
        window_id: number of the commit in every topic table it writes.
        kind: which of the two.
        database: where it reads.
        after: exclusive lower bound (stream).
        until: inclusive upper bound (stream), or the low watermark (snapshot).
        bounds: upper bounds of the slices (stream); the last is `until`.
        reads: what a stream window reads; tables without rows are not in it.
        slices: numbers of the slices of a round (snapshot).
        cuts: further bounds of slices, inside of transactions that are too large for one (stream).
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


@dataclass(frozen=True, slots=True)
class SnapshotTable:
    """A table inside a running snapshot.

    Args:
        object_id: of the source table.
        instance: capture instance whose columns are read; None reads all columns.
        low: low watermark: READ events carry it, changes after it are streamed again.
        ranges: the table's fixed key ranges.
        whole: whether all of them are read, so that the table's position may be set.
        select: statement of a signal that is read in place of the table, or empty.
        made: when the capture instance was made.
    """

    table: TableId
    object_id: int
    instance: str | None
    low: Lsn
    ranges: tuple[KeyRange, ...]
    whole: bool
    select: str = ""
    made: datetime | None = None


@dataclass(frozen=True, slots=True)
class HeldRow:
    """The newest READ event, not committed yet because its marker depends on what follows (spec debezium-sqlserver §2.5).

    Args:
        slice: number of the slice it came from.
        first: whether it is the first of its table, and so not only the last.
        first_of_all: whether it is the first of the whole snapshot.
        batch: the event as an Arrow IPC stream, base64.
    """

    table: TableId
    slice: int
    first: bool
    first_of_all: bool
    batch: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class SnapshotRun:
    """A snapshot in flight.

    Args:
        snapshot_id: the window id of its plan.
        database: where it reads.
        tables: in snapshot order.
        slices: all slices in order; their numbers are their places.
        done: number of slices that are committed or given up, from the front.
        held: see `HeldRow`.
        signal: id of the signal that asked for it: a blocking snapshot; empty for all others.
        scanned: rows read so far, by table.
        failed: tables that could not be read, and why.
    """

    snapshot_id: int
    database: str
    tables: tuple[SnapshotTable, ...]
    slices: tuple[SnapshotSlice, ...]
    done: int = 0
    held: HeldRow | None = None
    signal: str = ""
    scanned: tuple[tuple[TableId, int], ...] = ()
    failed: tuple[tuple[TableId, str], ...] = ()

    def of(self, table: TableId) -> SnapshotTable:
        """The entry of a table in it."""
        return next(entry for entry in self.tables if entry.table == table)

    def behind(self, written: "RoundFiles") -> "SnapshotRun":
        """The snapshot behind a round."""
        return dataclasses.replace(
            self, done=written.done, held=written.held, scanned=written.scanned, failed=written.failed
        )


@dataclass(frozen=True, slots=True)
class RoundFiles:
    """What the tasks of the pending round wrote; recorded before any of it is committed.

    A table's rows cannot be read twice with the same result, so a round is repeated by committing these files, not by
    reading again.

    Args:
        files: by directory of the topic table's generation.
        done: number of slices that are complete or given up with this round, from the front.
        held: see `HeldRow`.
        scanned: see `SnapshotRun`, with this round.
        failed: see `SnapshotRun`, with this round.
    """

    files: tuple[tuple[str, tuple[DataFile, ...]], ...]
    done: int
    held: HeldRow | None
    scanned: tuple[tuple[TableId, int], ...] = ()
    failed: tuple[tuple[TableId, str], ...] = ()


@dataclass(frozen=True, slots=True)
class CaptureState:
    """All of it. Changed only by `manifest`, which records each change first."""

    tables: Mapping[TableId, TableState] = field(default_factory=dict)
    next_window: int = 1
    pending: Window | None = None
    written: RoundFiles | None = None
    """Of the pending round, once its tasks are through."""
    snapshots: Mapping[str, SnapshotRun] = field(default_factory=dict)
    """Snapshots in flight by database."""
    signals: Mapping[str, SignalState] = field(default_factory=dict)
    """Signals and incremental snapshots by database."""
    logs: Mapping[str, LogHistory] = field(default_factory=dict)
    """Whose history was read, by database."""
    marks: Mapping[str, Mark] = field(default_factory=dict)
    """What the lake's tables must hold, by directory; those that nothing was committed to may have none."""
    notifications: tuple[Notification, ...] = ()
    """Notifications recorded with the newest row; perhaps not sent yet. A later row proves that they were."""

    def with_tables(self, changed: Iterable[TableState]) -> "CaptureState":
        """With some tables' states replaced or added."""
        return dataclasses.replace(self, tables={**self.tables, **{state.table: state for state in changed}})

    def advanced(self, database: str, until: Lsn, behind: Set[TableId] = frozenset()) -> "CaptureState":
        """With every streaming table of a database complete up to `until`, but for those that stay behind."""
        return self.with_tables(
            dataclasses.replace(state, position=until)
            for state in self.tables.values()
            if state.table.database == database
            and state.table not in behind
            and state.streams
            and state.position < until  # type: ignore[operator]
        )

    def with_marks(self, changed: Mapping[str, Mark | None]) -> "CaptureState":
        """With some tables' marks replaced; None takes one away. When a table was examined last is remembered."""
        marks = dict(self.marks)
        for directory, mark in changed.items():
            known = marks.pop(directory, None)
            if mark is not None:
                examined = max(mark.examined, known.examined if known else 0)
                marks[directory] = dataclasses.replace(mark, examined=examined)
        return dataclasses.replace(self, marks=marks)

    @property
    def files_wait(self) -> bool:
        """Whether written files may wait for their commit."""
        return self.pending is not None or any(signals.reads is not None for signals in self.signals.values())

    def log(self, database: str) -> LogHistory:
        """What is known of a database's log."""
        return self.logs.get(database, LogHistory())

    def with_log_read(self, database: str, until: Lsn) -> "CaptureState":
        """With a database's log read up to `until`."""
        log = self.log(database)
        read = until if log.read is None else max(log.read, until)
        return dataclasses.replace(self, logs={**self.logs, database: dataclasses.replace(log, read=read)})

    def has_position(self, table: TableId) -> bool:
        """Whether it is known from where on a table's changes are read; not of one that was snapshotted without CDC."""
        own = self.tables.get(table)
        return own is not None and own.position is not None

    def watermark(self, database: str) -> Lsn | None:
        """Every healthy table of the database is complete to here; None if none streams."""
        positions = [
            state.position
            for state in self.tables.values()
            if state.table.database == database and state.streams and state.position is not None
        ]
        return min(positions, default=None)
