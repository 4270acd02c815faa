"""One round of an incremental snapshot in flight: its markers, and the rows read between them.

Tasks read rows while the loop carries out windows, so the stream never waits for them; a thread waits for the
tasks. The thread uses only the bulk source and the runner. The loop itself writes the markers: the open marker before
the thread starts, the close marker after it has ended, so everything was read between them.
"""

import contextlib
import dataclasses
import json
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from cdc_assets.core.jobs import Job
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.ports import BulkSource, TaskRunner
from cdc_assets.core.steps import step
from cdc_assets.errors import LAKE_ERRORS, CdcError
from cdc_assets.incremental.chunked_table import ChunkedTable, next_spans
from cdc_assets.incremental.chunks import rows_query
from cdc_assets.incremental.staging import BuildTask, Staged, StageTask, Staging, build, stage
from cdc_assets.lake.files import remove_attempt
from cdc_assets.ledger.signal_state import Key, QueuedTable, RoundReads
from cdc_assets.ledger.table_state import TableState
from cdc_assets.shared.parts import CaptureParts
from cdc_assets.signals.table import INSERT, Row

T = TypeVar("T")

MAX_CHUNKS = 1024
"""Maximum number of chunks that share a pair of markers, so that all of them wait for the capture job only once."""
GROWTH = 8
"""Maximum growth from one round to the next, as a factor of its rows."""
ROUND_BYTES = 256 * 1024 * 1024
"""Approximate size of a round in bytes, by the row width of the round before; the rows are in staged files."""
ROUND_S = 10.0
"""Approximate duration of a round in seconds, by the speed of the round before; if few tasks run at once, windows wait for it."""


@dataclass(frozen=True, slots=True)
class RoundRows:
    """The rows read in a round.

    Args:
        files: staged files, in the order of their spans.
        last: key at the end of the last span.
        finished: whether that is the end of the table.
        seconds: wall-clock time of the read in seconds; decides the size of the next round.
    """

    files: tuple[Staged, ...]
    last: Key
    finished: bool
    seconds: float


@dataclass(slots=True)
class Round:
    """A round in flight.

    Args:
        marker: common part of its markers' ids.
        data: data of the open marker.
        entry: the queued table as it was when the round began.
        chunked: its key order and row identity.
        wanted: number of rows requested.
        is_deleted: whether the open marker is deleted to close the round (`insert_delete`); else somebody's clean-up deletes it.
        server_time: the server's clock when the round began.
        floor: LSN up to which every server that is read has the log: the table's position when the round began.
        reading: rows being read.
        staging: its staged files.
        closing: whether the close marker is written.
        opened: commit LSN of the open marker, once the stream has read it.
        closed: commit LSN of the close marker, likewise.
    """

    marker: str
    data: dict[str, str]
    entry: QueuedTable
    chunked: ChunkedTable
    wanted: int
    server_time: datetime
    floor: Lsn
    reading: Future[RoundRows]
    staging: Staging
    is_deleted: bool = False
    closing: bool = False
    opened: Lsn | None = None
    closed: Lsn | None = None

    def note(self, rows: Sequence[Row]) -> None:
        """Find the round's markers among new rows of the signal table."""
        for row in rows:
            if row.signal.id == f"{self.marker}-close":
                self.closed = row.lsn
            elif row.signal.id == f"{self.marker}-open":
                if row.operation == INSERT:
                    self.opened = row.lsn
                elif self.is_deleted:
                    self.closed = row.lsn

    def is_of(self, entry: QueuedTable) -> bool:
        """Whether the round was read for this entry of the queue, which may have advanced since.

        A table that was stopped and queued again, perhaps under the same id, is another entry: it has no maximum yet.
        """
        return dataclasses.replace(self.entry, last=entry.last, rows=entry.rows) == entry


class RoundReader:
    """Begins, closes and discards rounds."""

    def __init__(self, parts: CaptureParts, runner: TaskRunner) -> None:
        self._server, self._lake, self._ledger, self._runner = parts.server, parts.lake, parts.ledger, runner
        self._settings = parts.config.signals
        self._staging = Staging(parts.lake.tables.location, f"{parts.lake.events.topic_prefix}.__staging")
        self._thread: ThreadPoolExecutor | None = None
        self._running: set[Future[RoundRows]] = set()

    @property
    def _deletes(self) -> bool:
        return self._settings.watermarking == "insert_delete"

    def _tasks(self) -> int:
        """Number of tasks that may read a round: all but one, which is left for the stream if there are more than two."""
        slots = self._runner.parallelism
        return slots - 1 if slots > 2 else slots

    def clean(self) -> None:
        """Remove staged files of earlier runs; the capture must be claimed.

        Raises:
            LakeError: the folder cannot be emptied.
        """
        self._staging.remove()

    def begin(
        self, entry: QueuedTable, chunked: ChunkedTable, markers: TableState, before: Round | None, *, small: bool
    ) -> Round:
        """Write the open marker and begin to read.

        Args:
            entry: the queued table.
            chunked: its key order and row identity.
            markers: state of the signal table, into which the markers are written.
            before: the previous round, read but perhaps not committed; None continues after `entry.last`.
            small: whether the round is one chunk: larger ones were changed while they were read.

        Raises:
            CdcError: the server rejects the marker or is away.
        """
        source, marker = self._server.source, str(uuid.uuid4())
        data = {"openWindowTimestamp": self._moment()}
        source.write_signal(markers.table, (f"{marker}-open", "snapshot-window-open", json.dumps(data)))
        step("marker-written")
        wanted = self._settings.chunk_rows if small else self._wanted(chunked, before)
        low = before.reading.result().last if before else entry.last
        server_time = source.server_time()
        self._thread = self._thread or ThreadPoolExecutor(1, "incremental-snapshot")
        position = self._ledger.state.tables[entry.table].position or ZERO_LSN
        bulk = self._server.reaching(entry.table.database, position, captured=False)
        staging = dataclasses.replace(self._staging, prefix=marker)
        reading = self._thread.submit(self._read, bulk, staging, entry, chunked, low, wanted)
        self._running.add(reading)
        reading.add_done_callback(self._running.discard)
        return Round(marker, data, entry, chunked, wanted, server_time, position, reading, staging, self._deletes)

    def _wanted(self, chunked: ChunkedTable, before: Round | None) -> int:
        """Number of rows of the next round."""
        chunk = self._settings.chunk_rows
        if before is None:
            width, max_rows = chunked.declared_width, chunk if chunked.large else chunk * MAX_CHUNKS
        else:
            read = before.reading.result()
            rows = max(1, sum(staged.rows for staged in read.files))
            width = sum(staged.size for staged in read.files) // rows
            max_rows = min(chunk * MAX_CHUNKS, before.wanted * GROWTH, int(rows * ROUND_S / read.seconds))
        return max(chunk, min(max_rows, ROUND_BYTES // max(1, width)))

    def _read(
        self,
        bulk: BulkSource,
        staging: Staging,
        entry: QueuedTable,
        chunked: ChunkedTable,
        low: Key | None,
        wanted: int,
    ) -> RoundRows:
        """Find the bounds, then read the rows between them; runs in the thread."""
        settings, begun = self._settings, time.perf_counter()
        parts = max(1, min(self._tasks(), wanted // settings.chunk_rows))
        spans = next_spans(bulk, chunked, entry, low, [-(-wanted // parts)] * parts, recompile=settings.recompile)
        statements = (
            rows_query(chunked.plan, chunked.lacking, chunked.ordered, span, recompile=settings.recompile)
            for span in spans
        )
        staged = self._runner.run(
            stage,
            [StageTask(text, staging, bulk) for text in statements],
            Job("incremental", f"read: {chunked.directory}"),
        )
        last = spans[-1].high
        assert last is not None  # noqa: S101 - the table has a greatest key
        files = tuple(file for written in staged for file in written)
        return RoundRows(files, last, last == entry.maximum, time.perf_counter() - begun)

    def close(self, current: Round, markers: TableState) -> bool:
        """Write the close marker, after everything was read.

        Returns:
            False if the open marker, whose deletion would be the close marker, was deleted by somebody else, perhaps while rows
            were still read.

        Raises:
            CdcError: the error of the read; or the server rejects the marker or is away.
        """
        current.reading.result()
        step("chunk-read")
        source, table = self._server.source, markers.table
        if self._deletes:
            history = self._lake.history.latest(table)
            assert history is not None  # noqa: S101 - the table streams
            if not source.delete_signal(table, history.schema.columns[0].name, f"{current.marker}-open"):
                return False
        else:
            data = current.data | {"closeWindowTimestamp": self._moment()}
            source.write_signal(table, (f"{current.marker}-close", "snapshot-window-close", json.dumps(data)))
        current.closing = True
        step("marker-written")
        return True

    def _moment(self) -> str:
        """The current time as the connector writes it into a marker: `Z` for UTC."""
        return self._ledger.clock.now().astimezone(UTC).isoformat().replace("+00:00", "Z")

    def build(self, current: Round, changed: tuple[Staged, ...], position: Lsn) -> RoundReads | None:
        """Write READ events of the rows that have not changed; None if that is not known of all of them, or a value in no event.

        Args:
            current: a round that is read.
            changed: staged files of `changed_rows`.

        Raises:
            CdcError: a value does not fit its event type, or the lake cannot be read or written.
        """
        read, chunked = current.reading.result(), current.chunked
        numbered, window_id, attempt = list(enumerate(read.files)), self._ledger.state.next_window, uuid.uuid4().hex
        tasks = [
            BuildTask(
                tuple(share), current.staging, window_id, position, current.server_time,
                chunked.plan, chunked.directory, attempt, chunked.identity, changed, chunked.unique,
            )
            for share in _shares(numbered, self._runner.parallelism)
        ]  # fmt: skip
        try:
            built = self._runner.run(build, tasks, Job("incremental", f"written: {chunked.directory}"))
        except CdcError:
            remove_attempt(self._staging.location, [chunked.directory], window_id, attempt)
            raise
        if None in built:
            remove_attempt(self._staging.location, [chunked.directory], window_id, attempt)
            return None
        files = tuple(file for written in built if written is not None for file in written)
        return RoundReads(
            window_id, chunked.directory, files, read.last, read.finished, current.entry, chunked.plan.hidden
        )

    def discard(self, current: Round) -> None:
        """Remove a round's staged files, at once or as soon as it is read; the next claim removes any that remain."""

        def remove(_: Future[RoundRows]) -> None:
            with contextlib.suppress(*LAKE_ERRORS):
                current.staging.remove()

        if not current.reading.cancel():
            current.reading.add_done_callback(remove)

    def wait_for_slot(self, seconds: float) -> None:
        """Wait up to `seconds` for a free task slot, if the current round uses all of them."""
        running = tuple(self._running)
        if running and self._tasks() == self._runner.parallelism:
            wait(running, seconds, FIRST_COMPLETED)

    def wait_for_read(self, seconds: float) -> None:
        """Wait up to `seconds`, or until a read has ended."""
        if self._running:
            wait(tuple(self._running), seconds, FIRST_COMPLETED)
        else:
            self._ledger.clock.sleep(seconds)

    def stop(self) -> None:
        """Stop reading; waits for running tasks."""
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)
            self._thread = None


def _shares(items: Sequence[T], parts: int) -> list[Sequence[T]]:
    """Divide items, in order, into at most `parts` parts of about equal length."""
    size = -(-len(items) // parts)
    return [items[start : start + size] for start in range(0, len(items), size)] if items else []
