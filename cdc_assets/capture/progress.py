"""What a capture tells while it works and at its end."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.history.drift import Difference
from cdc_assets.history.records import HistoryEntry
from cdc_assets.lake.files import DataFile
from cdc_assets.ledger.state import Status


@dataclass(frozen=True, slots=True)
class TableProgress:
    """What one window or round brought for one table.

    Args:
        rows: events by envelope operation; tombstones as `tombstone`.
        size: bytes of Parquet.
        from_lsn: exclusive lower bound; of a snapshot its low watermark.
        to_lsn: the table is complete to here, inclusive.
        committed: server time of the newest commit read, if it is known.
    """

    rows: Mapping[str, int]
    size: int
    from_lsn: Lsn | None
    to_lsn: Lsn
    committed: datetime | None = None


@dataclass(frozen=True, slots=True)
class StructureChange:
    """A table's events look different from now on.

    Args:
        entry: of the schema history, with the LSN from which it holds.
        differences: to the structure before; empty if there was none.
    """

    entry: HistoryEntry
    differences: tuple[Difference, ...] = ()


@dataclass(frozen=True, slots=True)
class TroubledTable:
    """A table that does not go on, and why.

    Args:
        status: `gap` or `failed`.
        reason: for people, with the next step.
        gap_after: exclusive start of the missing changes.
        gap_until: inclusive end of the missing changes.
    """

    table: TableId
    status: Status
    reason: str
    gap_after: Lsn | None = None
    gap_until: Lsn | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """One window of the log, or one round of a snapshot or of an incremental snapshot, is committed.

    Args:
        kind: which of the three; the rows of the latter two are READ events.
        database: where it was read.
        window_id: number of its commit in every topic table that it wrote.
        from_lsn: exclusive lower bound of a window; of READ events, where they sort.
        to_lsn: a window completes every healthy table of the database to here.
        tables: only those with rows.
        troubled: tables that stopped in it.
        slices_done: of a snapshot, after this round.
        slices: of a snapshot, number of all; 0 of a window.
        lag_s: seconds between the newest commit read and the server's clock, if known.
        structures: what the window recorded in the schema history, in order.
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
    lag_s: float | None = None
    structures: tuple[StructureChange, ...] = ()


OnProgress = Callable[[Progress], None]
"""Called after each window or round is committed."""


class ProgressListener(Protocol):
    """Hears of all that a run brings. There is one in a run, and who commits something is given it once."""

    def note_commit(self, progress: Progress) -> None:
        """A window or round is committed."""

    def note_unread(self, trouble: TroubledTable) -> None:
        """A table whose snapshot a signal asked for was left, because it cannot be read."""


ShouldYield = Callable[[], bool]
"""Asked at each window border whether to give way."""


@dataclass(frozen=True, slots=True)
class SnapshotSummary:
    """How a snapshot ended.

    Args:
        tables: that are through, also those of a snapshot that an earlier run had left.
        failed: that are not, and why; they are as due as before.
    """

    tables: tuple[TableId, ...] = ()
    failed: tuple[TroubledTable, ...] = ()

    def __add__(self, other: "SnapshotSummary") -> "SnapshotSummary":
        """What came later wins: a table that failed may have been read at the second attempt."""
        later = {*other.tables, *(trouble.table for trouble in other.failed)}
        failed = (trouble for trouble in self.failed if trouble.table not in later)
        return SnapshotSummary((*self.tables, *other.tables), (*failed, *other.failed))


@dataclass(frozen=True, slots=True)
class StreamSummary:
    """How a loop ended.

    Args:
        ended: why: nothing new, time up, gave way to another run, or no table to stream.
        windows: number of windows.
        rows: events by table and operation, with those of snapshots that the loop carried out.
        troubled: all tables that do not go on now.
        waiting: captured tables that were not snapshotted yet.
        unread: tables whose snapshot, asked for by a signal, was given up; their streams go on.
    """

    ended: Literal["idle", "deadline", "yielded", "nothing"]
    windows: int
    rows: Mapping[TableId, Mapping[str, int]]
    troubled: tuple[TroubledTable, ...]
    waiting: tuple[TableId, ...]
    unread: tuple[TroubledTable, ...] = ()


def seconds_behind(now: datetime | None, committed: datetime | None) -> float | None:
    """How old a commit is by the server's clock, which may stand before it; None if one of the two is not known."""
    return max(0.0, (now - committed).total_seconds()) if now and committed else None


def rows_of(files: Iterable[DataFile]) -> Counter[str]:
    """Rows by operation of some files."""
    total: Counter[str] = Counter()
    for file in files:
        total.update(file.operations)
    return total
