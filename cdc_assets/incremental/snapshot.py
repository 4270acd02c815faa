"""Incremental snapshots: tables are read again, round by round, while the stream continues.

*A round.* An open marker is inserted into the signal table, tasks read the rows of some spans after the last key into
staged files, a close marker is written. Meanwhile, and until the table's position is at or after the close marker,
windows of the log are streamed as usual. Then tasks build READ events at that position from the rows, except those that have a
change between what was seen for certain and the position. The events are committed. A second round is read while the
first one waits for its close marker, so that capture delay is only noticed at the end. The close marker is written just
before a window is planned, so that this window reads it. If at most two tasks run at once, the tasks of a window would have to
wait for those of the round. So the window is planned when these have ended.

*Why it is right.* The read sees nothing after the close marker, and at least everything up to the table's position when the
round began: each server that is read is asked whether it has the log so far (one that is written to has it up to the open
marker, a replica may lag). A row without a change behind that is therefore the row as it is at the position: it
sorts after each older event of its key, all of which are committed, and before each newer one, none of which is. A row
with such a change is dropped, since its newer event is committed and holds the row. If the newest one is an update that omits a
large value, perhaps no event holds that. If all of them only do that, the large values are still as they were read, and with the
newest image they are the row at the position. If not, the round is read again, in smaller ones, until there is no such row; if that
does not come about, the table is given up. Markers go through the same log as the data, so capture delay
only makes the round wait. The change table shows which rows have changed (`chunked_table`, *identity*), and the
clean-up job must not have removed anything of it: that is checked afterwards.

*State* (queue, last and greatest key) is in the manifest.

| crash after | next run |
|---|---|
| open marker, reading, close marker, events written | removes staged files, and reads after the last committed key between new markers |
| a round was of no use, any number of times | the same; it counts them from the first again |
| their files recorded | commits them (`chunk_step`); if they are lost, reads again. A table that a signal stopped meanwhile keeps its READs, and is not read further |
| their commit | advances the queue, to the next round or the next table |

The greatest key is fixed when a table is begun, so the end is reached however fast rows are added; rows with greater
keys come from the stream. If the columns of its key order change in between, or their types, the table starts again.
"""

import dataclasses
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest
from typing import Literal

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import LSN_WIDTH, ZERO_LSN, Lsn
from cdc_assets.envelope.rules import shown_key
from cdc_assets.errors import (
    CdcDisabledError,
    CdcError,
    DatabaseRestoredError,
    EngineError,
    FencedError,
    InvariantError,
    LakeError,
    LoginError,
)
from cdc_assets.incremental.changed import StaleError, changed_rows
from cdc_assets.incremental.chunk_step import chunk_commits
from cdc_assets.incremental.chunked_table import ChunkedTable, UnreadableError, chunked_table, find_maximum
from cdc_assets.incremental.rounds import Round, RoundReader
from cdc_assets.lake.step import Step, carry_out, leave_out_if_readable, lost_files
from cdc_assets.ledger.signal_state import Key, QueuedTable, RoundReads
from cdc_assets.ledger.table_state import TableState
from cdc_assets.shared.forks import check_recovery_fork
from cdc_assets.shared.losses import Losses
from cdc_assets.shared.parts import CaptureParts
from cdc_assets.shared.progress import Progress, ProgressListener, RangesRead, TableProgress, TroubledTable
from cdc_assets.shared.shown import read_otherwise
from cdc_assets.signals.notices import ends, in_progress, scanned
from cdc_assets.signals.table import NewRows, is_readable
from cdc_assets.signals.watch import SignalWatch

log = logging.getLogger(__name__)

Turn = Literal["worked", "waiting", "nothing"]

_NOT_OF_THE_TABLE = (
    LoginError | LakeError | FencedError | InvariantError | CdcDisabledError | DatabaseRestoredError | EngineError
)
"""Errors that do not concern one table: no executor of Spark may be free now, and the login may be granted again. But a statement
may be refused for another database, which its condition or its view names (`_abandon`)."""
_READ = ("SUCCEEDED", "EMPTY")
"""Statuses of a table that was read; all others are failures."""
_IN_FLIGHT = 2
"""Rounds of a table at a time: one waits for the stream, the other is read."""

_MAX_REPEATS = 10
"""How often a round that is of no use is read again before the table is given up."""

_ALTERED = (
    "Its structure or its capture instance changed during each of {} reads. Next: request this snapshot again when the table is no "
    "longer altered."
)
_ALIKE = (
    "it has no key, and rows like them have changed meanwhile",
    "It has no key, and rows equal to those being read changed during each of {} reads. "
    "Next: request a blocking snapshot, or this one again when less is written.",
)
_OMITTED = (
    "of some, large values were changed meanwhile, and omitted by a later update",
    "Rows got large values during each of {} reads, and then updates that omit large values. "
    "Next: request a blocking snapshot, or this one again when less is written.",
)


class IncrementalSnapshot:
    """Carries out queued tables between windows.

    Args:
        reader: reads and builds rounds.
        losses: checks topics before they are written to.
        listener: called after each round with rows, and for each table that is given up.
    """

    def __init__(
        self,
        reader: RoundReader,
        parts: CaptureParts,
        watch: SignalWatch,
        losses: Losses,
        listener: ProgressListener,
    ) -> None:
        self.reader, self._server, self._lake, self._ledger = reader, parts.server, parts.lake, parts.ledger
        self._watch, self._losses, self._listener = watch, losses, listener
        self._rounds: dict[str, list[Round]] = {}
        self._chunked: dict[str, ChunkedTable] = {}
        """The first queued table at the last round, by database."""
        self._repeats = Counter[tuple[str, TableId]]()
        """How often the newest round of a queued table was read again (`_repeat`), by what requested it."""

    def recover(self, database: str) -> None:
        """Commit files that are recorded and perhaps not committed. Must be called before any window is planned.

        Raises:
            LakeError: the lake cannot be written.
            FencedError: another writer has taken over.
        """
        state = self._watch.state(database)
        if state.reads is None:
            return
        table = self._ledger.state.tables.get(state.reads.entry.table)
        is_given_up = self._is_lost if table is not None and table.streams else self._is_left_out
        if is_given_up(state.reads) or self._is_late(state.reads):
            # its topic has lost data since and may not be written; or the files are lost, and the rows are read again
            self._watch.record(database, dataclasses.replace(state, reads=None))
        else:
            self._commit(database, state.reads)

    def _is_lost(self, reads: RoundReads) -> bool:
        """Whether recorded files that are not committed no longer exist, or must not be committed any more."""
        lost = lost_files(self._lake.tables, reads.window_id, {reads.directory: reads.files} if reads.files else {})
        for directory, reason in lost.items():
            log.warning("Rows of an incremental snapshot are read again: in %s %s.", directory, reason)
        return bool(lost)

    def _is_left_out(self, reads: RoundReads) -> bool:
        """Make sure that no run that was believed dead commits recorded files; False if it has."""
        return not reads.files or leave_out_if_readable(self._lake.tables, reads.directory, reads.window_id)

    def _is_late(self, reads: RoundReads) -> bool:
        """Whether the number under which it must be recorded what was hidden from READs has passed, and nobody commits them any more."""
        has_passed = self._lake.tables.reached(self._lake.history.directory) >= reads.window_id
        return has_passed and read_otherwise(self._lake, self._ledger, reads) is not None and self._is_left_out(reads)

    def discard_rounds(self, database: str) -> None:
        """Discard rounds in flight; they are read again between new markers."""
        for current in self._rounds.pop(database, []):
            self.reader.discard(current)

    def stop(self) -> None:
        """Discard rounds in flight; the next run reads them again."""
        for database in list(self._rounds):
            self.discard_rounds(database)
        self._chunked.clear()
        self.reader.stop()

    def close(self, database: str) -> None:
        """Write the close marker of a round that was read, before a window is planned, so that this window reads it.

        Raises:
            CdcError: see `turn`.
        """
        rounds, queue = self._rounds.get(database), self._watch.state(database).queue
        if not (rounds and queue and rounds[-1].is_of(queue[0])):
            return  # there is no round, or a signal stopped it
        if rounds[-1].reading.done() and not rounds[-1].closing:
            self._guarded(database, lambda: self._close(database, rounds[-1]))

    def note_markers(self, database: str, new: NewRows) -> None:
        """Find markers of the rounds in flight. Each row is passed once, so anything that may fail must come later.

        Args:
            new: rows of the signal table; all changes up to the watermark are committed. If the clean-up was faster, there may
                have been markers among them, for which nobody must wait: the rounds are read again.
        """
        if not new.are_all:
            self.discard_rounds(database)
        for current in self._rounds.get(database, ()):
            current.note(new.rows)

    def turn(self, database: str) -> Turn:
        """Carry out one step, at a window border.

        Raises:
            RetryableError: the server is away or busy; the rounds in flight are read again.
            LakeError: the lake cannot be written.
            FencedError: another writer has taken over.
        """
        return self._guarded(database, lambda: self._turn(database))

    def _guarded(self, database: str, action: Callable[[], Turn]) -> Turn:
        """Run an action; if it fails because of one table, give up that table, or read its rounds again."""
        try:
            return action()
        except UnreadableError as problem:
            self._end_table(database, problem.status, problem.reason)
        except CdcError as error:
            tried = [current.chunked for current in self._rounds.get(database, ())]
            tried += [self._chunked[database]] if database in self._chunked else []
            self.discard_rounds(database)  # else the error of a read would be raised again when its cause is gone
            is_in_doubt = type(error) is LoginError  # if this database refuses it, `_abandon` meets that again
            if error.retryable or (isinstance(error, _NOT_OF_THE_TABLE) and not is_in_doubt):
                raise
            self._abandon(database, error, tried)
        return "worked"

    def _turn(self, database: str) -> Turn:
        self.recover(database)
        rounds = self._rounds.setdefault(database, [])
        state = self._watch.state(database)
        if rounds and not (state.queue and rounds[0].is_of(state.queue[0])):
            self.discard_rounds(database)  # a signal stopped it
            self._repeats.pop(_request(rounds[0].entry), None)
            return "worked"
        if not state.queue:
            return "nothing"
        markers = self._markers(database)
        if markers is None:
            self._end_table(
                database,
                "SKIPPED",
                f"Database {database} has no captured signal table with three columns. "
                "Next: set signal.data.collection and enable change data capture for three columns of that table.",
            )
            return "worked"
        done = [
            not state.paused and self._begin(database, rounds, markers),
            bool(rounds) and self._finish(database, rounds[0]),
        ]
        if any(done):
            return "worked"
        return "waiting" if rounds else "nothing"

    def _markers(self, database: str) -> TableState | None:
        """The signal table, if markers written there are read back from the log."""
        state = self._watch.table(database)
        return state if state is not None and state.streams and is_readable(self._server, state.table) else None

    def _close(self, database: str, current: Round) -> Turn:
        markers = self._markers(database)  # if there is none, it is given up at the window border
        if markers and not self.reader.close(current, markers):
            self._repeat(
                database,
                current.entry.table,
                "somebody has deleted its marker in the signal table",
                f"Its markers in {markers.table} are deleted by somebody else during each of {{}} reads. Next: keep others from "
                "deleting them, or set incremental.snapshot.watermarking.strategy=insert_insert.",
            )
        return "worked"

    def _begin(self, database: str, rounds: list[Round], markers: TableState) -> bool:
        """Begin to read after the last key that is committed or in flight; returns whether there was anything to read."""
        before = rounds[-1] if rounds else None
        if len(rounds) >= _IN_FLIGHT or (before and (not before.closing or before.reading.result().finished)):
            return False
        entry = self._watch.state(database).queue[0]
        self._losses.before_commit([entry.table])
        chunked = self._chunked[database] = self._chunked_table(entry)
        if before is not None and (chunked.names, chunked.types) != (before.chunked.names, before.chunked.types):
            return False
        if not chunked.continues(entry):
            entry = self._fix(database, entry, chunked)
        rounds.append(self.reader.begin(entry, chunked, markers, before, small=self._repeats[_request(entry)] > 0))
        return True

    def _fix(self, database: str, entry: QueuedTable, chunked: ChunkedTable) -> QueuedTable:
        """Record the greatest key of a table before its first row is read; returns the new entry."""
        if entry.maximum is not None:
            log.warning("The key of %s has changed from %s to %s: its incremental snapshot starts again.",
                        entry.table, _words(entry.order, entry.types), _words(chunked.names, chunked.types))  # fmt: skip
        position = self._ledger.state.tables[entry.table].position or ZERO_LSN
        maximum = find_maximum(self._server.reaching(database, position, captured=False), chunked)
        order, types = chunked.names, chunked.types
        begun = dataclasses.replace(entry, maximum=maximum, order=order, types=types, last=None)
        state = self._watch.state(database)
        self._watch.record(database, dataclasses.replace(state, queue=(begun, *state.queue[1:])))
        return begun

    def _finish(self, database: str, current: Round) -> bool:
        """Commit a round's rows if the stream has passed its close marker; returns whether anything was done."""
        state = self._ledger.state
        table = state.tables[current.entry.table]
        if table.position is None or not current.chunked.holds(self._lake, table):
            self._repeat(database, table.table, "its structure or capture instance has changed", _ALTERED)
            return True
        if current.opened is None or current.closed is None or not current.closing:
            return False
        if table.position < current.closed or state.pending:
            return False
        try:
            seen = min(current.floor, current.opened)
            changed = changed_rows(self._server, current.chunked, current.staging, seen, table.position)
        except StaleError as reason:
            self._repeat(
                database,
                table.table,
                str(reason),
                f"Which rows changed during the read was not known in any of {{}} reads, at last because {reason}. Next: see "
                "whether the clean-up job keeps changes for long enough and replicas agree, and request this snapshot again.",
            )
            return True
        reads = self.reader.build(current, changed, table.position)
        if reads is None:
            self._repeat(database, table.table, *(_OMITTED if current.chunked.unique else _ALIKE))
            return True
        self._repeats.pop(_request(current.entry), None)
        self._commit(database, dataclasses.replace(reads, entry=self._watch.state(database).queue[0]), current)
        self.reader.discard(current)
        return True

    def _repeat(self, database: str, table: TableId, why: str, reason: str) -> None:
        """Read a round again that is of no use.

        Args:
            why: for the log.
            reason: why it is given up in the end, with the next step; `{}` for the number of reads.

        Raises:
            UnreadableError: it was read again too often.
        """
        self.discard_rounds(database)
        request = _request(self._watch.state(database).queue[0])
        self._repeats[request] += 1
        if self._repeats[request] > _MAX_REPEATS:
            raise UnreadableError("SKIPPED", reason.replace("{}", str(self._repeats[request])))
        log.warning("Rows of %s are read again for its incremental snapshot: %s.", table, why.rstrip("."))

    def _commit(self, database: str, reads: RoundReads, built: Round | None = None) -> None:
        """Commit READs, and advance the queue.

        Args:
            built: the round of which they are; None if an earlier run has recorded them.
        """

        def record() -> None:
            signals = self._watch.state(database)
            self._watch.record(database, dataclasses.replace(signals, reads=reads))
            if built is not None:
                self._rounds[database].remove(built)
                self._record_shown(reads)

        if built is not None:
            check_recovery_fork(self._ledger, self._server.source, database)
        else:
            self._record_shown(reads)
        complete = partial(self._advance, database, reads)
        commits = chunk_commits(self._lake.tables, reads)
        step = Step(reads.window_id, commits, record, complete, is_recorded=built is None)
        carry_out(step, self._lake.tables.require_files)

    def _record_shown(self, reads: RoundReads) -> None:
        """Record what the settings hid from READs, if no change has come by them; nothing if an earlier run has recorded it."""
        other = read_otherwise(self._lake, self._ledger, reads)
        self._lake.record(reads.window_id, [] if other is None else [other])

    def _advance(self, database: str, reads: RoundReads) -> None:
        """Record that READs are committed, and go on with the queue."""
        state, rows = self._watch.state(database), sum(file.rows for file in reads.files)
        if not state.queue or reads.entry != state.queue[0]:
            self._watch.record(database, dataclasses.replace(state, reads=None))  # it was stopped before the commit
            return
        entry, *others = state.queue
        entry = dataclasses.replace(entry, last=reads.last, rows=entry.rows + rows)
        state = dataclasses.replace(state, queue=(entry, *others), reads=None)

        def shown(entry: QueuedTable, key: Key) -> Key:
            return shown_key(entry.table, entry.order, key, self._lake.events)

        self._watch.record(database, state, [in_progress(state.queue, shown)])
        if reads.files:
            self._listener.note_commit(_progress(entry.table, reads))
        if reads.finished:
            self._end_table(database, "SUCCEEDED")

    def _chunked_table(self, entry: QueuedTable) -> ChunkedTable:
        return chunked_table(self._ledger.state, self._server.source, self._lake, entry)

    def _abandon(self, database: str, error: CdcError, tried: Sequence[ChunkedTable]) -> None:
        """Give up a table that cannot be read, and may be gone; or read it again if its structure has changed."""
        entry, status, reason = self._watch.state(database).queue[0], "SQL_EXCEPTION", str(error)
        try:
            chunked = self._chunked_table(entry)
            if any(chunked != before for before in tried):
                self._repeat(database, entry.table, f"its structure has changed, and {error}", _ALTERED)
                return
            if isinstance(error, LoginError):  # it may have been this database that refused it, and does no more
                self._repeat(database, entry.table, str(error), f"Each of {{}} reads failed: {error}")
                return
        except UnreadableError as problem:
            status, reason = problem.status, problem.reason or reason
        except CdcError as again:  # its present structure cannot be read either
            if again.retryable or isinstance(again, _NOT_OF_THE_TABLE):
                raise
        self._end_table(database, status, reason)

    def _end_table(self, database: str, status: str, reason: str = "") -> None:
        """Record the end of a table, and continue with the next one."""
        self.discard_rounds(database)
        self._chunked.pop(database, None)
        state = self._watch.state(database)
        entry, *others = state.queue
        self._repeats.pop(_request(entry), None)
        tables = [queued.table for queued in state.queue]
        notices = [scanned(entry.table, entry.signal, status, entry.rows, tables, reason)]
        is_read = status in _READ
        failed = () if is_read else ((entry.signal, str(entry.table)),)
        state = dataclasses.replace(
            state, queue=tuple(others), paused=state.paused and bool(others), failed=(*state.failed, *failed)
        )
        end, state = ends(entry.signal, state)
        self._watch.record(database, state, [*notices, *end])
        log.info("Incremental snapshot of %s: %s, %d rows.", entry.table, status, entry.rows)
        if is_read and not entry.condition:
            self._listener.note_read(RangesRead(entry.table, self._ledger.state.tables[entry.table].ranges))
        if failed:
            log.warning("The incremental snapshot of %s is given up (%s). %s", entry.table, status, reason)
            why = f"The snapshot requested by signal {entry.signal!r} ended as {status} after {entry.rows} rows. {reason}".rstrip()
            self._listener.note_unread(TroubledTable(entry.table, "failed", why))


def _request(entry: QueuedTable) -> tuple[str, TableId]:
    """What a queued table is known by, whatever was read of it."""
    return entry.signal, entry.table


def _words(names: Sequence[str], types: Sequence[str]) -> str:
    return ", ".join(" ".join(pair) for pair in zip_longest(names, types, fillvalue=""))


def _progress(table: TableId, reads: RoundReads) -> Progress:
    """Progress of a round; all its READ events have one LSN, the table's position when they were built."""
    lsn = Lsn.parse(reads.files[0].greatest[:LSN_WIDTH])
    part = TableProgress.of(reads.files, lsn, lsn)
    return Progress("incremental", table.database, reads.window_id, lsn, lsn, {table: part})
