"""The code that runs inside a task of a snapshot: it reads some slices, one after the other.

The first and last row of each slice are returned to the driver instead of being
written: only the driver knows, once all slices of a round are finished, which of them
open or close a table (spec debezium-sqlserver §2.5). All other rows get `true`.
An error that concerns only one table is returned as a result, so that the other
tables of the job are read. If another attempt may help, it is made here first, because
a repeated task would read its other tables again.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from time import monotonic
from typing import Final

import pyarrow as pa

from cdc_assets.core import interruption
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.outages import warn_seldom
from cdc_assets.core.packed import Packed
from cdc_assets.core.ports import BulkSource, KeyRange, ReadTransaction
from cdc_assets.core.schema import TableSchema
from cdc_assets.envelope.plan import EventPlan
from cdc_assets.envelope.reads import ReadContext, build_reads
from cdc_assets.errors import (
    CdcError,
    ConnectionLostError,
    InvalidValueError,
    InvariantError,
    LockTimeoutError,
    PreflightError,
    QueryError,
    ServerBusyError,
    describe_error,
)
from cdc_assets.lake.files import DataFile, TopicWriter
from cdc_assets.lake.location import Location
from cdc_assets.ledger.snapshot_state import SnapshotSlice
from cdc_assets.shared.statements import rows_query
from cdc_assets.snapshot.barrier import Barrier
from cdc_assets.snapshot.range_count import RangeCount

Read = Callable[[str, Sequence[object]], Iterator[pa.RecordBatch]]
"""Reads rows by a statement and its parameters."""

TABLE_ERRORS: Final[tuple[type[CdcError], ...]] = (
    QueryError,
    PreflightError,
    ServerBusyError,
    InvalidValueError,
    InvariantError,
)
"""Errors that do not concern other tables: rejected statement, missing right, lock, value that fits no event."""
log = logging.getLogger(__name__)

_ATTEMPTS, _PAUSE_S = 3, 0.5
"""Attempts per table after `ConnectionLostError` or `ServerBusyError`; the pause doubles."""


@dataclass(frozen=True, slots=True)
class TableReading:
    """How one table is read.

    Args:
        plan: event plan of its rows.
        directory: directory of the topic table for its events.
        low: low watermark of the snapshot; of a table without a key the place of the moment at which it is read.
        server_time: the server's clock when the round began.
        ranges: all key ranges of the table.
        override: SELECT statement of a signal or of `snapshot.select.statement.overrides`, or None.
        is_keyless: whether its events have no key, and its changes are streamed, so that its rows must be of one moment whose
            place in the log is known.
    """

    plan: EventPlan
    schema: TableSchema
    directory: str
    low: Lsn
    server_time: datetime
    override: str | None = None
    ranges: tuple[KeyRange, ...] = ()
    is_keyless: bool = False

    def at(self, low: Lsn) -> "TableReading":
        """The same with the place of a moment, but not below the watermark of the plan: until then nothing of the table was
        changed after the moment, and its capture instance may begin there."""
        return replace(self, low=max(self.low, low))


@dataclass(frozen=True, slots=True)
class RoundTask:
    """The slices of one task.

    Args:
        window_id: number of the round.
        slices: slices to read, in order.
        tables: readings of the slices' tables.
        bulk: data plane to read from.
        number: number of the task, from 0.
        barrier: where all tasks fix the same moment; None if each statement sees its own moment.
        attempt: part of the names of its files.
        placed: tables whose events are placed where the barrier says.
    """

    window_id: int
    slices: tuple[SnapshotSlice, ...]
    tables: Packed[dict[TableId, TableReading]]
    location: Location
    bulk: BulkSource
    number: int = 0
    barrier: Barrier | None = None
    attempt: str = ""
    placed: frozenset[TableId] = frozenset()


@dataclass(frozen=True, slots=True)
class SliceEnds:
    """First and last event of a slice as Arrow IPC streams; `last` is None if there is one row, both are if there is none.

    Args:
        seconds: how long it was read.
        by_range: rows of each of its ranges; None if only the server can tell them apart.
    """

    number: int
    table: TableId
    first: bytes | None
    last: bytes | None
    rows: int
    seconds: float = 0.0
    by_range: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class TableFailure:
    """A table that could not be read, with the reason."""

    table: TableId
    reason: str


@dataclass(frozen=True, slots=True)
class RoundResult:
    """The files of a task by directory, the ends of its slices, and the tables that failed."""

    files: dict[str, tuple[DataFile, ...]]
    ends: tuple[SliceEnds, ...]
    failures: tuple[TableFailure, ...] = ()


def run_bundle(task: RoundTask) -> RoundResult:
    """Read, build and write some slices.

    Raises:
        CdcError: the server or the lake failed as a whole; if the error is retryable, the task may be repeated.
    """
    tables = task.tables.get()
    if task.barrier is None:
        return _read_all(task, tables, task.bulk.read, _ATTEMPTS)
    try:
        with task.bulk.transaction() as transaction:
            task.barrier.fix_moment(task.number, lambda: _pin(task, transaction))
            if task.placed:
                low = task.barrier.place()
                tables = tables | {table: tables[table].at(low) for table in task.placed & tables.keys()}
            return _read_all(task, tables, transaction.read, attempts=1)
    except CdcError as error:
        task.barrier.leave(error)
        raise


def _pin(task: RoundTask, transaction: ReadTransaction) -> None:
    table = task.slices[0].table
    if task.placed:
        transaction.require_primary(table.database)
    transaction.pin(table)


def _read_all(task: RoundTask, tables: Mapping[TableId, TableReading], read: Read, attempts: int) -> RoundResult:
    files: dict[str, tuple[DataFile, ...]] = {}
    ends: list[SliceEnds] = []
    failures: list[TableFailure] = []
    by_table: dict[TableId, list[SnapshotSlice]] = {}
    for entry in task.slices:
        by_table.setdefault(entry.table, []).append(entry)
    for table, slices in by_table.items():
        reading = tables[table]
        try:
            written, found = _read_table(task, read, reading, slices, attempts)
        except TABLE_ERRORS as error:
            failures.append(TableFailure(table, describe_error(error)))
            continue
        files[reading.directory] = (*files.get(reading.directory, ()), *written)
        ends += found
    return RoundResult(files, tuple(sorted(ends, key=lambda end: end.number)), tuple(failures))


def _read_table(
    task: RoundTask, read: Read, reading: TableReading, slices: list[SnapshotSlice], attempts: int
) -> tuple[tuple[DataFile, ...], list[SliceEnds]]:
    """Files and slice ends of one table; files of a failed attempt are never committed."""
    schema, attempt = reading.plan.topic_schema, 1
    while True:
        try:
            with TopicWriter(task.location, reading.directory, schema, task.window_id, task.attempt) as writer:
                ends = [_read_slice(task, read, reading, entry, writer) for entry in slices]
            return tuple(writer.files), ends
        except LockTimeoutError:
            raise
        except (ConnectionLostError, ServerBusyError) as error:
            if attempt == attempts:
                raise
            retry = f"retrying (attempt {attempt + 1} of {attempts})"
            warn_seldom(log, f"{reading.directory}: reading failed, {retry}: {error}")
            interruption.sleep(_PAUSE_S * 2 ** (attempt - 1))
            attempt += 1


def _read_slice(
    task: RoundTask, read: Read, reading: TableReading, entry: SnapshotSlice, writer: TopicWriter
) -> SliceEnds:
    statement, parameters = rows_query(reading.plan, reading.schema, entry.range, reading.override)
    context = ReadContext(task.window_id, reading.low, reading.server_time, entry.number)
    held, counted, begun = HeldEnds(), RangeCount(reading.ranges, *entry.partition), monotonic()
    rows = counted.of(iter(read(statement, parameters)))
    writer.write(held.between(build_reads(reading.plan, rows, context)))
    by_range, seconds = counted.by_range(held.rows), monotonic() - begun
    return SliceEnds(entry.number, entry.table, pack(held.first), pack(held.last), held.rows, seconds, by_range)


class HeldEnds:
    """Takes the first and the last row out of a stream of batches, and counts all rows."""

    def __init__(self) -> None:
        self.rows = 0
        self.first: pa.RecordBatch | None = None
        self.last: pa.RecordBatch | None = None

    def between(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """All rows except the first and the last; the newest batch is held back, because it may have the last one."""
        newest: pa.RecordBatch | None = None
        for batch in batches:
            self.rows += batch.num_rows
            rest = batch
            if self.first is None and batch.num_rows:
                self.first, rest = batch.slice(0, 1), batch.slice(1)
            if rest.num_rows:
                if newest is not None:
                    yield newest
                newest = rest
        if newest is not None:
            self.last = newest.slice(newest.num_rows - 1)
            if newest.num_rows > 1:
                yield newest.slice(0, newest.num_rows - 1)


def pack(batch: pa.RecordBatch | None) -> bytes | None:
    """A batch as an Arrow IPC stream; of a sliced batch it has only the slice's rows."""
    if batch is None:
        return None
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def unpack(data: bytes) -> pa.RecordBatch:
    """Inverse of `pack` for one batch."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_next_batch()
