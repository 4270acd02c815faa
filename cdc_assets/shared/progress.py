"""What a capture reports while it runs and at its end."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol, Self

from cdc_assets import errors
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.ports import KeyRange
from cdc_assets.core.ran_on import NOWHERE, RanOn
from cdc_assets.errors import RetryableError
from cdc_assets.history.drift import Difference
from cdc_assets.history.records import HistoryEntry
from cdc_assets.lake.files import DataFile
from cdc_assets.ledger.table_state import Status


class TableCommit(Protocol):
    """What a commit brought one table: the part of it that is counted (`metrics`)."""

    @property
    def rows(self) -> Mapping[str, int]:
        """Number of events by envelope operation."""

    @property
    def size(self) -> int:
        """Bytes of Parquet."""

    @property
    def files(self) -> int:
        """Number of data files."""

    @property
    def committed(self) -> datetime | None:
        """Server time of the newest commit read, if it is known."""


class Commit(Protocol):
    """A commit, as far as it is counted: a `Progress`, or an engine's batch of one database."""

    @property
    def kind(self) -> str:
        """What was committed."""

    @property
    def database(self) -> str:
        """Database that was read."""

    @property
    def tables(self) -> Mapping[TableId, TableCommit]:
        """Tables with rows."""

    @property
    def slices_done(self) -> int:
        """Slices of the snapshot that are committed."""

    @property
    def slices(self) -> int:
        """All slices of the snapshot; 0 for what is none."""

    @property
    def lag_s(self) -> float | None:
        """Seconds between the newest commit read and the server's clock, if known."""

    @property
    def counts(self) -> Mapping[str, int]:
        """What no event shows, by name (`core.task_counters`)."""


@dataclass(frozen=True, slots=True)
class TableProgress:
    """What one window or round committed for one table.

    Args:
        rows: number of events by envelope operation; tombstones as `tombstone`.
        size: bytes of Parquet.
        from_lsn: exclusive lower bound; for a snapshot its low watermark.
        to_lsn: inclusive LSN up to which the table is complete.
        committed: server time of the newest commit read, if it is known.
        files: number of data files.
    """

    rows: Mapping[str, int]
    size: int
    from_lsn: Lsn | None
    to_lsn: Lsn
    committed: datetime | None = None
    files: int = 0

    @classmethod
    def of(
        cls, files: Sequence[DataFile], from_lsn: Lsn | None, to_lsn: Lsn, committed: datetime | None = None
    ) -> Self:
        """What some files brought."""
        return cls(rows_of(files), sum(file.size for file in files), from_lsn, to_lsn, committed, len(files))


@dataclass(frozen=True, slots=True)
class SliceProgress:
    """What one slice of a snapshot brought.

    Args:
        ranges: first and last number of the table's key ranges that it covers.
        rows: number of rows.
        seconds: how long it was read.
        by_range: rows of each of these ranges; None if they cannot be distinguished.
    """

    table: TableId
    ranges: tuple[int, int]
    rows: int
    seconds: float
    by_range: tuple[int, ...] | None = None

    def overlaps(self, other: "SliceProgress") -> bool:
        """Whether it has a range of the table that another one has."""
        return self.ranges[0] <= other.ranges[1] and other.ranges[0] <= self.ranges[1]


@dataclass(frozen=True, slots=True)
class RangesRead:
    """Key ranges of a table whose rows a snapshot has committed, all of them; an earlier run may have read some.

    Args:
        ranges: all ranges of the table; empty if it is not cut.
        numbers: of the ranges that were read; None if the whole table was.
    """

    table: TableId
    ranges: tuple[KeyRange, ...] = ()
    numbers: frozenset[int] | None = None

    def joined(self, earlier: "RangesRead") -> "RangesRead":
        """With what an earlier snapshot has read, if the table was cut in the same way."""
        if self.numbers is None or earlier.ranges != self.ranges:
            return self
        numbers = None if earlier.numbers is None else earlier.numbers | self.numbers
        return RangesRead(self.table, self.ranges, numbers)


@dataclass(frozen=True, slots=True)
class StructureChange:
    """A table's events have another structure from now on.

    Args:
        entry: entry of the schema history, with the LSN from which it is valid.
        differences: differences from the previous structure; empty if there was none.
    """

    entry: HistoryEntry
    differences: tuple[Difference, ...] = ()


@dataclass(frozen=True, slots=True)
class TroubledTable:
    """A table that has stopped, and the reason.

    Args:
        status: `gap` or `failed`.
        reason: reason for users, with the next step.
        gap_after: exclusive start of the missing changes.
        gap_until: inclusive end of the missing changes.
    """

    table: TableId
    status: Status
    reason: str
    gap_after: Lsn | None = None
    gap_until: Lsn | None = None


def is_temporary(failed: Sequence[TroubledTable]) -> bool:
    """Whether one of the tables failed for a temporary reason; the reason begins with the error's name."""
    kinds = (getattr(errors, trouble.reason.partition(":")[0], None) for trouble in failed)
    return any(isinstance(kind, type) and issubclass(kind, RetryableError) for kind in kinds)


@dataclass(frozen=True, slots=True)
class Progress:
    """A committed window of the log, or a committed round of a snapshot or of an incremental snapshot.

    Args:
        kind: which of the three; the rows of the latter two are READ events.
        database: database that was read.
        window_id: number of its commit in every topic table that it wrote.
        from_lsn: exclusive lower bound of a window; for READ events, the LSN at which they sort.
        to_lsn: LSN up to which a window completes every healthy table of the database.
        tables: progress by table; only tables with rows.
        troubled: tables that stopped in this window.
        slices_done: slices of the snapshot that are committed after this round.
        slices: number of all slices of the snapshot; 0 for a window.
        slices_read: those of this round; empty if an earlier run has read them.
        lag_s: seconds between the newest commit read and the server's clock, if known.
        structures: structures that the window recorded in the schema history, in order.
        counts: what no event shows, by name (`core.task_counters`); of windows only.
        ran_on: where its tasks ran; windows that are carried out together share their jobs.
    """

    kind: Literal["stream", "snapshot", "incremental"]
    database: str
    window_id: int
    from_lsn: Lsn
    to_lsn: Lsn
    tables: Mapping[TableId, TableProgress] = field(default_factory=dict)
    troubled: tuple[TroubledTable, ...] = ()
    slices_done: int = 0
    slices: int = 0
    slices_read: tuple[SliceProgress, ...] = ()
    lag_s: float | None = None
    structures: tuple[StructureChange, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    ran_on: RanOn = NOWHERE


OnProgress = Callable[[Progress], None]
"""Called after each window or round is committed."""

OnRead = Callable[[RangesRead], None]
"""Called after a snapshot of a table, or of some of its ranges, is complete and recorded."""


class ProgressListener(Protocol):
    """Receives all commits of a run. There is one per run, shared by everything that commits."""

    def note_commit(self, progress: Progress) -> None:
        """Called after a window or round is committed."""

    def note_read(self, read: RangesRead) -> None:
        """Called after a snapshot of a table, or of some of its ranges, is complete and recorded."""

    def note_unread(self, trouble: TroubledTable) -> None:
        """Called when a snapshot requested by a signal gives up a table that cannot be read."""


ShouldYield = Callable[[], bool]
"""Called at each window border: whether to end, so that another run can continue."""


@dataclass(frozen=True, slots=True)
class SnapshotSummary:
    """Result of a snapshot.

    Args:
        tables: tables that are finished, including those of a snapshot that an earlier run left unfinished.
        failed: tables that could not be read, with the reason; the next run tries them again.
        left_out: databases that cannot be captured now, with the reason, if no table was named.
    """

    tables: tuple[TableId, ...] = ()
    failed: tuple[TroubledTable, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)

    def __add__(self, other: "SnapshotSummary") -> "SnapshotSummary":
        """Combine two results; the later one wins, since a table that failed may have been read at the second attempt."""
        later = {*other.tables, *(trouble.table for trouble in other.failed)}
        failed = (trouble for trouble in self.failed if trouble.table not in later)
        left_out = {**self.left_out, **other.left_out}
        return SnapshotSummary((*self.tables, *other.tables), (*failed, *other.failed), left_out)


@dataclass(frozen=True, slots=True)
class StreamSummary:
    """Result of a loop.

    Args:
        ended: why it ended: nothing new, time up, another run waits, or no table to stream.
        windows: number of windows.
        rows: events by table and operation, including those of snapshots that the loop carried out.
        troubled: all tables that have stopped.
        waiting: captured tables that were not snapshotted yet.
        unread: tables whose snapshot was requested by a signal and given up; their streams continue.
        left_out: databases that cannot be captured now and of which no table is captured yet, with the reason.
    """

    ended: Literal["idle", "deadline", "yielded", "nothing"]
    windows: int
    rows: Mapping[TableId, Mapping[str, int]]
    troubled: tuple[TroubledTable, ...]
    waiting: tuple[TableId, ...]
    unread: tuple[TroubledTable, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)


def rows_of(files: Iterable[DataFile]) -> Counter[str]:
    """Number of rows by operation in some files."""
    total: Counter[str] = Counter()
    for file in files:
        total.update(file.operations)
    return total
