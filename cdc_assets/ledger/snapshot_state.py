"""The recorded state of a snapshot in flight: its tables, their slices, and what its newest round has written."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.ports import KeyRange
from cdc_assets.core.schema import InstanceId
from cdc_assets.lake.files import DataFile


@dataclass(frozen=True, slots=True)
class SnapshotSlice:
    """Rows of one table in one key range.

    Args:
        number: index of the slice in its snapshot, from 0; sorts its READ events.
        partition: first and last index of the table's ranges that it covers.
        rows: approximate number of rows.
    """

    table: TableId
    number: int
    partition: tuple[int, int]
    range: KeyRange
    rows: int = 0


@dataclass(frozen=True, slots=True)
class SnapshotTable:
    """A table of a running snapshot.

    Args:
        object_id: object id of the source table.
        instance: capture instance whose columns are read; None reads all columns.
        low: low watermark: READ events carry it, changes after it are streamed again. Of a table without a key that is
            known once its rows are read.
        ranges: the table's fixed key ranges.
        whole: whether all of them are read; only then is the table's position set.
        select: statement given by a signal that replaces the table, or empty.
        made: creation time of the capture instance.
        change_table_id: object id of its change table.
        data: whether rows are read; otherwise the position alone is set, and what the lake lacks stays lacking.
        lost: whether changes after its position were in no capture instance any more when this was planned.
        overridden: whether the settings gave a SELECT statement in place of the table when this was planned.
    """

    table: TableId
    object_id: int
    instance: str | None
    low: Lsn
    ranges: tuple[KeyRange, ...]
    whole: bool
    select: str = ""
    made: datetime | None = None
    change_table_id: int | None = None
    data: bool = True
    lost: bool = False
    overridden: bool = False

    @property
    def identity(self) -> InstanceId | None:
        """The capture instance whose columns are read, or None."""
        return None if self.instance is None else InstanceId(self.instance, self.made, self.change_table_id)


@dataclass(frozen=True, slots=True)
class HeldRow:
    """The newest READ event, not committed yet because its marker depends on what follows (spec debezium-sqlserver §2.5).

    Args:
        slice: number of its slice.
        first: whether it is also the first of its table.
        first_of_all: whether it is also the first of the whole snapshot.
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
        database: database that is read.
        tables: tables in snapshot order.
        slices: all slices in order of their numbers.
        done: number of leading slices that are committed or abandoned.
        held: see `HeldRow`.
        signal: id of the signal that requested a blocking snapshot; empty for all other snapshots.
        scanned: number of rows read so far, by table.
        failed: tables that could not be read, with the reason.
        captured: how far the capture job was when it was planned; None if that is not known, or no table is captured.
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
    captured: Lsn | None = None

    @property
    def known(self) -> Lsn:
        """Up to where a server must have the log that is asked about its tables; the lowest LSN if that is not known."""
        return self.captured or ZERO_LSN

    def of(self, table: TableId) -> SnapshotTable:
        """The table's entry in this snapshot."""
        return next(entry for entry in self.tables if entry.table == table)

    def next_place(self, start: int, failed: Mapping[TableId, str]) -> int:
        """Index of the first slice from `start` on whose table did not fail; the number of slices if there is none."""
        return next((entry.number for entry in self.slices[start:] if entry.table not in failed), len(self.slices))

    def without(self, failed: Mapping[TableId, str]) -> "SnapshotRun":
        """The snapshot when these tables could not be read, with the reason."""
        return dataclasses.replace(self, done=self.next_place(self.done, failed), failed=tuple(failed.items()))

    def behind(self, written: "RoundFiles") -> "SnapshotRun":
        """The snapshot after a round."""
        lows = dict(written.lows)
        tables = tuple(dataclasses.replace(entry, low=lows.get(entry.table, entry.low)) for entry in self.tables)
        return dataclasses.replace(
            self, tables=tables, done=written.done, held=written.held, scanned=written.scanned, failed=written.failed
        )


@dataclass(frozen=True, slots=True)
class RoundFiles:
    """Files written by the tasks of the pending round; recorded before any of them is committed.

    Reading a table twice gives different results, so a round is repeated by committing these files, not by reading
    again.

    Args:
        files: files by directory of the topic table's generation.
        done: number of leading slices that are complete or abandoned after this round.
        held: see `HeldRow`.
        scanned: see `SnapshotRun`; includes this round.
        failed: see `SnapshotRun`; includes this round.
        lows: LSNs at which tables without a key were read, in place of their low watermarks.
    """

    files: tuple[tuple[str, tuple[DataFile, ...]], ...]
    done: int
    held: HeldRow | None
    scanned: tuple[tuple[TableId, int], ...] = ()
    failed: tuple[tuple[TableId, str], ...] = ()
    lows: tuple[tuple[TableId, Lsn], ...] = ()
