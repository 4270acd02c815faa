"""Incremental snapshots: tables are read again, chunk by chunk, while the stream goes on (design §4).

*A round.* An open marker is inserted into the signal table, rows behind the last
committed key are read in key order, a close marker is written. Then windows of
the log are streamed as ever until the table's position is at or behind the close
marker. Now the rows are committed as READ events at that position, without those
whose key has a change between the open marker and the position.

*Why it is right.* The read sees what was committed before it, so at least all up
to the open marker and nothing behind the close marker. A row without a change in
(open, position] is therefore the row as it is at the position: it sorts behind
each older event of its key, all of which are committed, and before each newer
one, none of which is. A row with such a change is dropped, for its newer event is
committed. Markers go through the same log as the data, so capture delay only
makes the round wait.

*Keys are compared exactly*, though the collation may fold them: the row that was
read is, byte for byte, the image behind its last change before the read or the
image before its first change after it, and all images are looked at.

*State* (queue, last and greatest key) is in the manifest. *Crash while a round
is read or waits:* nothing of it is recorded; the next run reads it again between
new markers. *After its files are recorded:* they are committed before any window
is planned, since newer events must come after them; the topic table's
application transaction tells whether they are there already. *After that:* the
queue moves on. The greatest key is fixed when a table is begun, so the end is
reached however fast rows are added; those behind it come from the stream.
"""

import dataclasses
import json
import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.ranges import can_bound
from cdc_assets.core.schema import Column
from cdc_assets.envelope.plan import EventPlan
from cdc_assets.envelope.reads import ReadContext, build_reads
from cdc_assets.errors import CdcError, FencedError, LakeError
from cdc_assets.lake.files import DataFile, TopicWriter
from cdc_assets.lake.state import TableState
from cdc_assets.lake.steps import step
from cdc_assets.signals.apply import Told, scanned
from cdc_assets.signals.state import Collection, Key, RoundReads, SignalState
from cdc_assets.signals.table import Row, signal_table
from cdc_assets.signals.watch import SignalWatch
from cdc_assets.snapshot.chunks import changed_query, chunk_query, maximum_query
from cdc_assets.streaming.context import Context

log = logging.getLogger(__name__)

Turn = Literal["worked", "waiting", "nothing"]

_CHUNKS_PER_ROUND = 64
"""Chunks that share a pair of markers, so that capture delay is waited for once for all of them."""
_ROUND_BYTES = 64 * 1024 * 1024
"""Bytes of a round: it is held in memory until its window is through."""


@dataclass(frozen=True, slots=True)
class Walk:
    """How a table is walked along.

    Args:
        plan: how its rows become events.
        directory: where its events go.
        instance: capture instance whose columns are read.
        order: columns that chunks are ordered by.
        key: places in `order` of the event key's columns.
    """

    plan: EventPlan
    directory: str
    instance: str
    order: tuple[Column, ...]
    key: tuple[int, ...]


@dataclass(slots=True)
class Round:
    """Rows between two markers.

    Args:
        marker: common part of the markers' ids.
        entry: what was read, as it stood in the queue then.
        walk: how.
        batches: rows, with the text forms of `walk.order` behind them.
        last: key of the last row.
        finished: whether the table has no further row.
        server_time: when it was read.
        opened: commit LSN of the open marker, once it was seen.
        closed: of the close marker.
    """

    marker: str
    entry: Collection
    walk: Walk
    batches: list[pa.RecordBatch]
    last: Key
    finished: bool
    server_time: datetime
    opened: Lsn | None = None
    closed: Lsn | None = None


class _UnreadableError(Exception):
    """A table cannot be walked along; holds the status that is told."""


class IncrementalSnapshot:
    """Carries out queued tables between windows.

    Args:
        context: of the capture.
        watch: of its signals.
    """

    def __init__(self, context: Context, watch: SignalWatch) -> None:
        self._context, self._watch = context, watch
        self._rounds: dict[str, Round] = {}

    def recover(self, database: str) -> None:
        """Commit what an earlier run recorded; must come before any window is planned.

        Raises:
            LakeError: the lake cannot be written.
            FencedError: another writer has taken over.
        """
        state = self._watch.state(database)
        if state.reads is not None:
            self._commit(database, state, state.reads)

    def set_aside(self, database: str) -> None:
        """Forget the round that waits for its markers; it is read again between new ones."""
        self._rounds.pop(database, None)

    def turn(self, database: str, rows: Sequence[Row]) -> Turn:
        """One step, at a window border.

        Args:
            database: where.
            rows: new rows of the signal table, all of whose changes up to the watermark are committed.

        Raises:
            RetryableError: the server is away or busy; the round is read again.
            LakeError: the lake cannot be written.
            FencedError: another writer has taken over.
        """
        try:
            return self._turn(database, rows)
        except CdcError:
            self._rounds.pop(database, None)
            raise

    def _turn(self, database: str, rows: Sequence[Row]) -> Turn:
        self.recover(database)
        current = self._rounds.get(database)
        if current is not None:
            _note_markers(current, rows)
            queue = self._watch.state(database).queue
            if not queue or queue[0] != current.entry:
                del self._rounds[database]  # a signal stopped it
                return "worked"
            return self._finish(database, current)
        return self._begin(database)

    def _begin(self, database: str) -> Turn:
        state = self._watch.state(database)
        if not state.queue or state.paused:
            return "nothing"
        entry = state.queue[0]
        markers = self._markers(database)
        if markers is None:
            log.warning(
                "The incremental snapshot of %s is given up: database %s has no signal table that is captured. "
                "Next: set signal.data.collection and enable change data capture for that table.",
                entry.table, database,
            )  # fmt: skip
            self._leave(database, "SKIPPED")
            return "worked"
        try:
            self._rounds.update(self._read(database, entry, markers))
        except (LakeError, FencedError):
            raise
        except _UnreadableError as problem:
            self._leave(database, str(problem))
        except CdcError as error:
            if error.retryable:
                raise
            log.warning("The incremental snapshot of %s is given up: %s", entry.table, error)
            self._leave(database, "SQL_EXCEPTION")
        return "worked"

    def _markers(self, database: str) -> TableState | None:
        table = signal_table(self._context.config.signals.collections, database)
        own = self._context.manifest.state.tables.get(table) if table else None
        return own if own is not None and own.streams else None

    def _read(self, database: str, entry: Collection, markers: TableState) -> dict[str, Round]:
        """Open, read, close; nothing if only the greatest key was found."""
        walk = self._walk(entry)
        if entry.maximum is None:
            self._fix_maximum(database, entry, walk)
            return {}
        marker, opened = str(uuid.uuid4()), self._context.clock.now()
        data = {"openWindowTimestamp": opened.isoformat()}
        self._context.source.write_signal(markers.table, (f"{marker}-open", "snapshot-window-open", json.dumps(data)))
        step("marker-written")
        server_time = self._context.source.server_time()
        batches, last, finished = self._chunks(entry, walk)
        step("chunk-read")
        self._close(markers, marker, data)
        step("marker-written")
        return {database: Round(marker, entry, walk, batches, last, finished, server_time)}

    def _close(self, markers: TableState, marker: str, data: dict[str, str]) -> None:
        source, table = self._context.source, markers.table
        if self._context.config.signals.watermarking == "insert_delete":
            history = self._context.history.latest(table)
            assert history is not None  # noqa: S101 - the table streams
            source.delete_signal(table, history.schema.columns[0].name, f"{marker}-open")
            return
        data = data | {"closeWindowTimestamp": self._context.clock.now().isoformat()}
        source.write_signal(table, (f"{marker}-close", "snapshot-window-close", json.dumps(data)))

    def _walk(self, entry: Collection) -> Walk:
        state = self._context.manifest.state.tables.get(entry.table)
        schema = self._context.source.table_schema(entry.table)
        if state is None or schema is None or schema.object_id != state.object_id or state.instance is None:
            raise _UnreadableError("UNKNOWN_SCHEMA")
        if not state.streams:
            raise _UnreadableError("SKIPPED")
        known = self._context.history.of_instance(entry.table, state.instance)
        history = known or self._context.history.latest(entry.table)
        if history is None:
            raise _UnreadableError("UNKNOWN_SCHEMA")
        plan, directory = self._context.destination(history)
        key = plan.key or ((entry.surrogate,) if entry.surrogate else ())
        if not key:
            log.warning("%s has no key, so it cannot be read in chunks; name a surrogate-key.", entry.table)
            raise _UnreadableError("NO_PRIMARY_KEY")
        names = tuple(dict.fromkeys([*([entry.surrogate] if entry.surrogate else []), *key, *history.schema.key]))
        columns = tuple(column for name in names if (column := history.schema.column(name)) is not None)
        captured = history.captured or [column.name for column in history.schema.columns]
        if len(columns) < len(names) or not all(can_bound(c) and c.name in captured for c in columns):
            log.warning("%s cannot be read in chunks along %s: not all are captured columns of an ordered type.",
                        entry.table, ", ".join(names))  # fmt: skip
            raise _UnreadableError("SKIPPED")
        return Walk(plan, directory, state.instance, columns, tuple(names.index(name) for name in key))

    def _fix_maximum(self, database: str, entry: Collection, walk: Walk) -> None:
        statement, parameters = maximum_query(entry.table, walk.order, entry.condition)
        batches = list(self._context.bulk.read(statement, parameters))
        maximum = _last_key(batches, len(walk.order))
        if maximum is None:
            raise _UnreadableError("EMPTY")
        state = self._watch.state(database)
        begun = dataclasses.replace(entry, maximum=maximum)
        self._watch.record(database, dataclasses.replace(state, queue=(begun, *state.queue[1:])))

    def _chunks(self, entry: Collection, walk: Walk) -> tuple[list[pa.RecordBatch], Key, bool]:
        """Rows of a round, its last key, and whether it is the table's last round."""
        settings = self._context.config.signals
        wanted = settings.chunk_rows * _CHUNKS_PER_ROUND
        statement, parameters = chunk_query(walk.plan, walk.order, entry, wanted, recompile=settings.recompile)
        batches: list[pa.RecordBatch] = []
        size = rows = 0
        whole = True
        for batch in self._context.bulk.read(statement, parameters):
            batches.append(batch)
            size, rows = size + batch.nbytes, rows + batch.num_rows
            if size >= _ROUND_BYTES:
                whole = False
                break
        last = _last_key(batches, len(walk.order))
        return batches, last or entry.last or (), whole and rows < wanted

    def _finish(self, database: str, current: Round) -> Turn:
        """Commit a round's rows once the stream is behind its close marker."""
        own = self._context.manifest.state.tables[current.entry.table]
        if not own.streams or own.instance != current.walk.instance or own.position is None:
            del self._rounds[database]  # its structure or its place in the stream has changed: read it again, or leave
            return "worked"
        if current.opened is None or current.closed is None or own.position < current.closed:
            return "waiting"
        rows = self._unchanged(current, current.opened, own.position)
        del self._rounds[database]
        if rows is None:
            return "worked"
        window_id = self._context.manifest.state.next_window
        files = self._write(current, rows, window_id, own.position)
        reads = RoundReads(window_id, current.walk.directory, files, current.last, current.finished)
        state = dataclasses.replace(self._watch.state(database), reads=reads)
        self._watch.record(database, state)
        self._commit(database, state, reads)
        return "worked"

    def _unchanged(self, current: Round, opened: Lsn, position: Lsn) -> list[pa.RecordBatch] | None:
        """Rows without a change in (opened, position]; None if that can no longer be told."""
        walk = current.walk
        keys = [walk.order[place] for place in walk.key]
        statement, parameters = changed_query(walk.plan, walk.instance, keys, opened, position)
        changed = pa.Table.from_batches(self._context.bulk.read(statement, parameters))
        mark = self._context.source.low_water_marks(current.entry.table.database).get(walk.instance)
        if mark is None or mark > opened.next():
            log.warning(
                "The log of %s was cleaned up during its incremental snapshot; it is read again.", walk.plan.table
            )
            return None
        first = len(walk.plan.columns)
        return [without(batch, [first + place for place in walk.key], changed) for batch in current.batches]

    def _write(
        self, current: Round, rows: Sequence[pa.RecordBatch], window_id: int, position: Lsn
    ) -> tuple[DataFile, ...]:
        plan, directory = current.walk.plan, current.walk.directory
        context = ReadContext(window_id, position, current.server_time, snapshot="incremental")
        with TopicWriter(self._context.tables.location, directory, plan.topic_schema, window_id) as writer:
            writer.write(build_reads(plan, iter(rows), context))
        return tuple(writer.files)

    def _commit(self, database: str, state: SignalState, reads: RoundReads) -> None:
        """Commit recorded files, and move the queue on."""
        rows = sum(file.rows for file in reads.files)
        if reads.files:
            metadata = {"window_id": str(reads.window_id), "rows": str(rows), "snapshot": "incremental"}
            self._context.tables.commit(reads.directory, None, list(reads.files), reads.window_id, metadata)
            step("reads-committed")
        entry, *others = state.queue
        entry = dataclasses.replace(entry, last=reads.last, rows=entry.rows + rows)
        if not reads.finished:
            state = dataclasses.replace(state, queue=(entry, *others), reads=None)
            self._watch.record(database, state)
            self._watch.tell([_in_progress(state, entry)])
            return
        self._watch.record(database, dataclasses.replace(state, queue=(entry, *others), reads=None))
        self._leave(database, "SUCCEEDED")

    def _leave(self, database: str, status: str) -> None:
        """Go on to the next table."""
        state = self._watch.state(database)
        entry, *others = state.queue
        self._watch.record(
            database, dataclasses.replace(state, queue=tuple(others), paused=state.paused and bool(others))
        )
        told = [scanned(entry.table, entry.signal, status, entry.rows)]
        if not others:
            told.append(Told("COMPLETED", entry.signal, {"scanned_collection": str(entry.table)}))
        self._watch.tell(told)
        log.info("Incremental snapshot of %s: %s, %d rows.", entry.table, status, entry.rows)


def without(batch: pa.RecordBatch, places: Sequence[int], changed: pa.Table) -> pa.RecordBatch:
    """Rows of a batch whose key is none of the changed ones; values are compared exactly, NULL equals NULL.

    Args:
        batch: rows with the text forms of their keys.
        places: of the key's columns in it.
        changed: the keys, one column each.
    """
    if not changed.num_rows or not batch.num_rows:
        return batch
    suspect = None
    for place, column in zip(places, changed.columns, strict=True):
        found = pc.is_in(batch.column(place), value_set=column.combine_chunks().cast(batch.column(place).type))
        suspect = found if suspect is None else pc.and_(suspect, found)
    if len(places) > 1:  # each column alone is not the key: look at the few suspects as a whole
        keys = set(zip(*(column.to_pylist() for column in changed.columns), strict=True))
        rows = pc.indices_nonzero(suspect).to_pylist()
        values = batch.select(list(places)).take(pa.array(rows, pa.int64())).to_pydict().values()
        hit = {row for row, key in zip(rows, zip(*values, strict=True), strict=True) if key in keys}
        suspect = pa.array([row in hit for row in range(batch.num_rows)])
    return batch.filter(pc.invert(suspect))


def _last_key(batches: Sequence[pa.RecordBatch], columns: int) -> Key | None:
    """Key of the last row, from the columns at the end."""
    filled = [batch for batch in batches if batch.num_rows]
    if not filled:
        return None
    batch = filled[-1]
    return tuple(batch.column(batch.num_columns - columns + place)[-1].as_py() for place in range(columns))


def _note_markers(current: Round, rows: Sequence[Row]) -> None:
    for row in rows:
        if row.signal.id == f"{current.marker}-open":
            if row.operation == 2:
                current.opened = row.lsn
            else:
                current.closed = row.lsn
        elif row.signal.id == f"{current.marker}-close":
            current.closed = row.lsn


def _in_progress(state: SignalState, entry: Collection) -> Told:
    data = {
        "data_collections": ", ".join(str(queued.table) for queued in state.queue),
        "current_collection_in_progress": str(entry.table),
        "maximum_key": ", ".join(map(str, entry.maximum or ())),
        "last_processed_key": ", ".join(map(str, entry.last or ())),
    }
    return Told("IN_PROGRESS", entry.signal, data)


def tables_to_signal(collections: Sequence[str], databases: Sequence[str]) -> list[TableId]:
    """Signal tables of the databases."""
    return [table for database in databases if (table := signal_table(collections, database)) is not None]
