"""What runs inside a task of a snapshot: some slices, one after the other.

First and last row of each slice come back to the driver instead of being
written: only it knows, once all slices of a round are through, which of them
open or close a table (spec debezium-sqlserver §2.5). All others are `true`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.ports import BulkSource
from cdc_assets.core.schema import TableSchema
from cdc_assets.envelope.plan import EventPlan
from cdc_assets.envelope.reads import ReadContext, build_reads
from cdc_assets.lake.files import DataFile, TopicWriter
from cdc_assets.lake.location import Location
from cdc_assets.lake.state import SnapshotSlice
from cdc_assets.streaming.statements import rows_query


@dataclass(frozen=True, slots=True)
class TableReading:
    """How one table is read.

    Args:
        plan: how its rows become events.
        schema: its structure.
        directory: where its events go.
        low: low watermark.
        server_time: server's clock when the round was begun.
        override: SELECT of `snapshot.select.statement.overrides`, or None.
    """

    plan: EventPlan
    schema: TableSchema
    directory: str
    low: Lsn
    server_time: datetime
    override: str | None = None


@dataclass(frozen=True, slots=True)
class RoundTask:
    """Slices of one task.

    Args:
        window_id: number of the round.
        slices: in order.
        tables: how their tables are read.
        location: the lake.
        bulk: how it reads.
    """

    window_id: int
    slices: tuple[SnapshotSlice, ...]
    tables: dict[TableId, TableReading]
    location: Location
    bulk: BulkSource


@dataclass(frozen=True, slots=True)
class SliceEnds:
    """First and last event of a slice as Arrow IPC streams; `last` is None for a single row, both for none."""

    number: int
    table: TableId
    first: bytes | None
    last: bytes | None


@dataclass(frozen=True, slots=True)
class RoundResult:
    """What a task wrote, by directory, and the ends of its slices."""

    files: dict[str, tuple[DataFile, ...]]
    ends: tuple[SliceEnds, ...]


def run_bundle(task: RoundTask) -> RoundResult:
    """Read, build and write some slices.

    Raises:
        CdcError: the server or the lake failed; the bundle may be repeated if the error says so.
    """
    files: dict[str, tuple[DataFile, ...]] = {}
    ends: list[SliceEnds] = []
    for table, reading in task.tables.items():
        slices = [entry for entry in task.slices if entry.table == table]
        if not slices:
            continue
        with TopicWriter(task.location, reading.directory, reading.plan.topic_schema, task.window_id) as writer:
            ends += [_read_slice(task, reading, entry, writer) for entry in slices]
        files[reading.directory] = (*files.get(reading.directory, ()), *writer.files)
    return RoundResult(files, tuple(sorted(ends, key=lambda end: end.number)))


def _read_slice(task: RoundTask, reading: TableReading, entry: SnapshotSlice, writer: TopicWriter) -> SliceEnds:
    statement, parameters = rows_query(reading.plan, reading.schema, entry.range, reading.override)
    context = ReadContext(task.window_id, reading.low, reading.server_time, entry.number)
    held = HeldEnds()
    writer.write(held.between(build_reads(reading.plan, iter(task.bulk.read(statement, parameters)), context)))
    return SliceEnds(entry.number, entry.table, pack(held.first), pack(held.last))


class HeldEnds:
    """Takes the first and the last row out of a stream of batches."""

    def __init__(self) -> None:
        self.first: pa.RecordBatch | None = None
        self.last: pa.RecordBatch | None = None

    def between(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """All rows but the first and the last."""
        for batch in batches:
            rest = batch
            if self.first is None and rest.num_rows:
                self.first, rest = rest.slice(0, 1), rest.slice(1)
            if rest.num_rows:
                if self.last is not None:
                    yield self.last
                self.last = rest.slice(rest.num_rows - 1)
                yield rest.slice(0, rest.num_rows - 1)


def pack(batch: pa.RecordBatch | None) -> bytes | None:
    """A batch as an Arrow IPC stream; a sliced batch takes only its own rows along."""
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
