"""Transaction metadata: each event's order within its transaction, and BEGIN and END events (spec debezium-sqlserver
§7).

A slice usually holds whole transactions, so its task has all their events; for slices that begin or end inside one see
below. The task reads its tables in parallel and advances a *frontier*: the least of the last positions of the tables'
current batches. Every event at or below the frontier has been read, because each table's events arrive in position
order; so all of them can be sorted and numbered at once, with counters carried from frontier to frontier. Memory is one
batch per table, also for a transaction of any size; there is no shuffle.

Difference from the connector, which detects a transaction's end by the next one: here END is committed with the
transaction, and its time is the commit time.

*A transaction that is cut* spans several slices. A slice that begins inside one receives the number of earlier events
of each table (`Carried`), continues these counts, and writes no BEGIN; it writes END even if it has no event of the
transaction. A slice that ends inside one writes no END. If there are no earlier events, the transaction begins in this
slice. So the slice of the first event writes BEGIN, and the slice in which the transaction ends writes END with the
total. The counts come from the same events, which are built and discarded before the slices are read, so numbers are
those of an uncut transaction.

*Tables that stay behind.* END counts the events that have a block, and no others. A table that cannot be committed in the
window in which its events were counted is left out, and the window is read again without it (`streaming.windows`). When it
catches up, its transactions are published already (`known`): its events get no block.

*Several databases* write into one topic, and may have commits with one LSN. So a position ends with the name of its database, by which their rows
are told apart; those of earlier versions do not.

*Repeating.* The numbers are a function of the slice's rows. A table that an earlier attempt committed is read and
counted again, otherwise the numbers of the others would change; it is not written again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.core.lsn import LSN_WIDTH, POSITION_WIDTH, ZERO_LSN, Lsn
from cdc_assets.envelope.amend import data_events, with_transactions
from cdc_assets.envelope.blocks import assemble
from cdc_assets.envelope.plan import HEADERS, POSITION, WINDOW
from cdc_assets.errors import CdcError, CredentialsError, LockTimeoutError
from cdc_assets.kernels import Numbers
from cdc_assets.typemap.connect import ConnectType, array, struct

_TEXT, _LONG = ConnectType("string"), ConnectType("int64")

_COLLECTION = struct(
    "event.collection",
    [_TEXT.required().to_field("data_collection"), _LONG.required().to_field("event_count")],
    version=1,
)
_VALUE = struct(
    "io.debezium.connector.common.TransactionMetadataValue",
    [
        _TEXT.required().to_field("status"),
        _TEXT.required().to_field("id"),
        _LONG.to_field("event_count"),
        array("data_collections", _COLLECTION),
        _LONG.required().to_field("ts_ms"),
    ],
    version=1,
    optional=False,
)
_KEY = struct(
    "io.debezium.connector.common.TransactionMetadataKey", [_TEXT.required().to_field("id")], version=1, optional=False
)

TOPIC_SCHEMA = pa.schema([POSITION, _KEY.to_field("key"), _VALUE.to_field("value"), HEADERS, WINDOW])
"""Layout of the transaction topic's table."""

_BEFORE_ALL = f"/00000000/{ZERO_LSN}/0"
_AFTER_ALL = f"/ffffffff/{Lsn(bytes([255]) * 10)}/f"


@dataclass
class Stream:
    """The events of one table in a slice.

    Args:
        collection: `database.schema.table`.
        batches: batches in position order.
        sink: function that receives the numbered batches.
        failed: function called when the table's events cannot be read or built; the other tables continue.
    """

    collection: str
    batches: Iterator[pa.RecordBatch]
    sink: Callable[[Sequence[pa.RecordBatch]], None]
    failed: Callable[[CdcError], None]
    waiting: pa.RecordBatch | None = None
    positions: Numbers = field(default_factory=lambda: np.empty(0, f"S{POSITION_WIDTH}"))

    def fill(self) -> bool:
        """Make the next batch available; False at the end or after a failure of this table alone."""
        try:
            while self.waiting is None or self.waiting.num_rows == 0:
                self.waiting = next(self.batches)
                self.positions = _positions(self.waiting)
        except StopIteration:
            return False
        except CdcError as error:
            of_one = isinstance(error, LockTimeoutError) or not error.retryable
            if not of_one or isinstance(error, CredentialsError):  # not a failure of one table
                raise
            self.failed(error)
            return False
        return True

    def take(self, frontier: bytes) -> tuple[pa.RecordBatch, Numbers]:
        """Remove and return the events up to the frontier, with their positions."""
        assert self.waiting is not None  # noqa: S101 - `fill` came first
        count = int(np.searchsorted(self.positions, frontier, side="right"))
        taken = self.waiting.slice(0, count), self.positions[:count]
        self.waiting, self.positions = self.waiting.slice(count), self.positions[count:]
        return taken


@dataclass(frozen=True, slots=True)
class Carried:
    """Counts of a transaction that began in an earlier slice and continues in this one.

    Args:
        commit: its commit LSN.
        counts: number of earlier events by `database.schema.table`; not all zero.
        ts_ms: commit time in milliseconds.
    """

    commit: Lsn
    counts: Mapping[str, int]
    ts_ms: int


def _positions(batch: pa.RecordBatch) -> Numbers:
    """Positions as fixed-width bytes; a tombstone has the position of its delete."""
    texts = pc.utf8_slice_codeunits(batch.column("position"), 0, POSITION_WIDTH)
    first, end = texts.offset * POSITION_WIDTH, (texts.offset + len(texts)) * POSITION_WIDTH
    return np.frombuffer(texts.buffers()[2], dtype=np.uint8)[first:end].view(f"S{POSITION_WIDTH}")


def number(
    streams: Sequence[Stream],
    known: Lsn,
    window_id: int,
    carried: Carried | None = None,
    goes_on: Lsn | None = None,
    *,
    database: str,
) -> Iterator[pa.RecordBatch]:
    """Send every stream's events to its sink with transaction blocks; yield the BEGIN and END events.

    Args:
        streams: the slice's tables.
        known: LSN up to which earlier windows wrote the transactions: a table that catches up gets no blocks there.
        carried: the transaction inside which the slice begins, if it has earlier events.
        goes_on: commit LSN of the transaction inside which the slice ends.
        database: whose tables they are.

    Raises:
        RetryableError: the server is away or busy.
    """
    collections = sorted({stream.collection for stream in streams} | set(carried.counts if carried else ()))
    counter = _Counter(database, collections, str(known).encode(), window_id, carried)
    live = list(streams)
    while live := [stream for stream in live if stream.fill()]:
        frontier = min(stream.positions[-1] for stream in live)
        taken = [stream.take(frontier) for stream in live]
        yield from counter.count(live, taken)
    if goes_on is None or not counter.is_open(goes_on):
        yield from counter.finish()


class _Counter:
    """Counts events by transaction and table; keeps the open transaction from one frontier to the next."""

    def __init__(
        self, database: str, collections: Sequence[str], known: bytes, window_id: int, carried: Carried | None
    ) -> None:
        self._database, self._collections = database, list(collections)
        self._known = known
        self._window_id = window_id
        self._id = b""
        self._time = 0
        self._counts = np.zeros(len(self._collections), dtype=np.int64)
        if carried is not None:
            self._id, self._time = str(carried.commit).encode(), carried.ts_ms
            self._counts[:] = [carried.counts.get(collection, 0) for collection in collections]

    def is_open(self, commit: Lsn) -> bool:
        """Whether the newest events, or those of earlier slices, belong to this transaction."""
        return self._id == str(commit).encode()

    def count(
        self, streams: Sequence[Stream], taken: Sequence[tuple[pa.RecordBatch, Numbers]]
    ) -> Iterator[pa.RecordBatch]:
        """Number the taken events, pass them to the sinks, and return the BEGIN and END events that are known now."""
        batches = [batch for batch, _ in taken]
        counted = [data_events(batch).to_numpy(zero_copy_only=False) for batch in batches]
        owner = np.repeat(np.arange(len(batches)), [len(batch) for batch in batches])
        positions = np.concatenate([positions for _, positions in taken])
        order = np.argsort(positions, kind="stable")
        ids = positions.astype(f"S{LSN_WIDTH}")[order]
        data = np.concatenate(counted)[order].astype(np.int64)
        tables = np.array([self._collections.index(stream.collection) for stream in streams])[owner[order]]
        starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
        group = np.cumsum(np.bincount(starts, minlength=len(ids))) - 1
        continues = bool(ids[0] == self._id)
        totals = self._running(data, starts, group, int(self._counts.sum()) if continues else 0)
        within = np.zeros_like(totals)
        for table in np.unique(tables):
            mine = (tables == table) * data
            carried = int(self._counts[table]) if continues else 0
            within[tables == table] = self._running(mine, starts, group, carried)[tables == table]
        self._send(streams, batches, order, ids, totals, within)
        matrix = np.zeros((len(starts), len(self._collections)), dtype=np.int64)
        np.add.at(matrix, (group, tables), data)
        times = _commit_times(batches)[order][starts]
        yield from self._events(ids[starts], times, matrix, continues)

    @staticmethod
    def _running(data: Numbers, starts: Numbers, group: Numbers, carried: int) -> Numbers:
        """Running count within each transaction; the first transaction continues from `carried`."""
        running = np.cumsum(data)
        before = (running - data)[starts]
        before[0] -= carried
        numbers: Numbers = running - before[group]
        return numbers

    def _send(
        self,
        streams: Sequence[Stream],
        batches: Sequence[pa.RecordBatch],
        order: Numbers,
        ids: Numbers,
        totals: Numbers,
        within: Numbers,
    ) -> None:
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        absent = (ids <= self._known)[back]
        totals, within = totals[back], within[back]
        first = 0
        for stream, batch in zip(streams, batches, strict=True):
            part = slice(first, first + batch.num_rows)
            first = part.stop
            if batch.num_rows:
                total = pa.array(totals[part], mask=absent[part])
                stream.sink([with_transactions(batch, total, pa.array(within[part]))])

    def _events(self, ids: Numbers, times: Numbers, matrix: Numbers, continues: bool) -> Iterator[pa.RecordBatch]:
        """END of the open transaction if it is over, then BEGIN and END of each transaction; the last one stays
        open."""
        if continues:
            matrix[0] += self._counts
            times[0] = self._time
        elif self._id:
            yield from self.finish()
        begins = np.ones(len(ids), dtype=bool)
        begins[0] = not continues
        ends = np.ones(len(ids), dtype=bool)
        ends[-1] = False
        self._id, self._time, self._counts = ids[-1], int(times[-1]), matrix[-1].copy()
        yield from self._block_events(ids, times, matrix, begins, ends)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """END of the transaction that is still open."""
        if self._id:
            none, one = np.zeros(1, dtype=bool), np.ones(1, dtype=bool)
            ids, times = np.array([self._id], f"S{LSN_WIDTH}"), np.array([self._time])
            yield from self._block_events(ids, times, self._counts[None, :], none, one)
        self._id = b""

    def _block_events(
        self, ids: Numbers, times: Numbers, matrix: Numbers, begins: Numbers, ends: Numbers
    ) -> Iterator[pa.RecordBatch]:
        """One batch: BEGIN, END or both of each transaction, without those written earlier and empty ones."""
        shown = (ids > self._known) & (matrix.sum(axis=1) > 0)
        rows = np.column_stack([begins & shown, ends & shown]).ravel()
        if not rows.any():
            return
        chosen = np.flatnonzero(rows)
        group, is_end = chosen // 2, chosen % 2 == 1
        names = pa.array(ids[group].astype(f"U{LSN_WIDTH}"))
        counts = matrix[group] * is_end[:, None]
        children = {
            "status": pa.array(np.where(is_end, "END", "BEGIN")),
            "id": names,
            "event_count": pa.array(counts.sum(axis=1), mask=~is_end),
            "data_collections": self._by_collection(counts, is_end),
            "ts_ms": pa.array(times[group]),
        }
        suffix = pa.array(np.where(is_end, f"{_AFTER_ALL}/{self._database}", f"{_BEFORE_ALL}/{self._database}"))
        size = len(chosen)
        columns = [
            pc.binary_join_element_wise(names, suffix, ""),
            assemble(TOPIC_SCHEMA.field("key").type, {"id": names}, size),
            assemble(TOPIC_SCHEMA.field("value").type, children, size),
            pa.MapArray.from_arrays(
                pa.array(np.zeros(size + 1, np.int32)), pa.array([], pa.string()), pa.array([], pa.string())
            ),
            pa.repeat(pa.scalar(self._window_id, pa.int64()), size),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=TOPIC_SCHEMA)

    def _by_collection(self, counts: Numbers, is_end: Numbers) -> pa.Array:
        row, table = np.nonzero(counts)
        element = TOPIC_SCHEMA.field("value").type.field("data_collections").type.value_type
        children = {
            "data_collection": pa.array(self._collections, pa.string()).take(pa.array(table)),
            "event_count": pa.array(counts[row, table]),
        }
        offsets = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(counts)))]).astype(np.int32)
        hidden = pa.array(np.append(~is_end, False))
        return pa.ListArray.from_arrays(
            pc.if_else(hidden, pa.scalar(None, pa.int32()), pa.array(offsets)),
            assemble(element, children, len(row)),
            type=TOPIC_SCHEMA.field("value").type.field("data_collections").type,
        )


def _commit_times(batches: Sequence[pa.RecordBatch]) -> Numbers:
    """`source.ts_ms` of each event; a tombstone has that of its delete, which comes just before it."""
    columns = [pc.struct_field(batch.column("value"), ["source", "ts_ms"]) for batch in batches]
    values = pa.chunked_array(columns).combine_chunks()
    filled: Numbers = pc.fill_null_forward(values).fill_null(0).to_numpy(zero_copy_only=False)
    return filled
