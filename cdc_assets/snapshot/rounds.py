"""Carries out a planned snapshot, round by round: one job, and one commit per table.

Reading a table twice may give different rows, so the files of a round are
recorded in the manifest before any of them is committed:

| crash after | next run |
|---|---|
| plan of a round | reads its slices again; none of their rows was committed |
| record of its files | commits those files to the tables that lack them; a table whose files are lost fails |
| completion of a round | continues with the next slices |

The LSN that READs of a table without a key carry (`moment`) is recorded with the files that hold them.

*A table that fails* (its statement is rejected, it is locked for too long, a
value fits no event, or it was altered since its structure was recorded, which is looked at behind each
round) takes part in no further round, and nothing of it is
committed from the round in which it failed. The others continue. READs of it that earlier
rounds committed stay, and their watermark is remembered (`EarlyReads`): rows that are deleted before its next snapshot
would otherwise stay for ever. That one takes up the watermark, so all changes after these READs are streamed; if they
are gone from the server, it records a gap (`run`). The same holds for a snapshot that is given up.
An error of the server or the lake as a whole ends the run.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from cdc_assets.capture.endings import leave_out_snapshot
from cdc_assets.capture.forks import check_recovery_fork
from cdc_assets.capture.lake import Lake
from cdc_assets.capture.ledger import Ledger
from cdc_assets.capture.progress import Progress, ProgressListener, SliceProgress, TableProgress, rows_of
from cdc_assets.capture.server import Server
from cdc_assets.config.settings import SnapshotSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.steps import step
from cdc_assets.errors import InvariantError
from cdc_assets.history.records import HistoryEntry
from cdc_assets.history.structure import read_otherwise
from cdc_assets.lake.files import DataFile, TopicWriter
from cdc_assets.lake.presence import missing_files
from cdc_assets.ledger.snapshot_state import RoundFiles, SnapshotRun, SnapshotSlice
from cdc_assets.ledger.state import CaptureState, Window
from cdc_assets.snapshot.locks import by_barrier
from cdc_assets.snapshot.markers import MarkedRow, Markers
from cdc_assets.snapshot.notices import Notices
from cdc_assets.snapshot.readers import Readers
from cdc_assets.snapshot.slices import MIN_SLICE
from cdc_assets.snapshot.tasks import RoundResult, SliceEnds, TableReading

_ROUND_SLICES = 4
"""Slices in a round per parallel task; a crash repeats at most one round."""

Entries = Mapping[TableId, HistoryEntry]
"""Structures of a snapshot's tables, by table."""


class Rounds:
    """Reads the slices of snapshots of one capture.

    Args:
        server: server whose rows are read.
        readers: runs the tasks of a round.
        notices: sends notifications about rounds.
        listener: called after each round.
    """

    def __init__(
        self,
        server: Server,
        lake: Lake,
        ledger: Ledger,
        readers: Readers,
        settings: SnapshotSettings,
        notices: Notices,
        listener: ProgressListener,
    ) -> None:
        self._server, self._lake, self._ledger, self._readers = server, lake, ledger, readers
        self._settings, self._notices, self._listener = settings, notices, listener
        self._slices_read: tuple[int, tuple[SliceProgress, ...]] = 0, ()
        """Number of the round that was read last, and its slices."""

    @property
    def _state(self) -> CaptureState:
        return self._ledger.state

    def carry_out(self, database: str, entries: Entries, check_locks: Callable[[], None]) -> None:
        """Finish the round in flight, then read the other slices.

        Args:
            entries: structures of the snapshot's tables.
            check_locks: called when a round was read, before it is recorded; raises if its locks are lost.

        Raises:
            CdcError: the server or the lake failed as a whole, or the database was restored.
        """
        if self._state.pending:
            self._finish(database, entries, check_locks)
        while self._state.snapshots[database].done < len(self._state.snapshots[database].slices):
            self._plan(database)
            self._finish(database, entries, check_locks)

    def give_up(self, database: str) -> None:
        """Make sure that nothing of a snapshot that is not carried out further is committed any more."""
        leave_out_snapshot(self._ledger, self._lake, database)

    def _plan(self, database: str) -> None:
        run = self._state.snapshots[database]
        slices = self._next_slices(run, self._readers.count * _ROUND_SLICES)
        low = run.of(slices[0].table).low
        numbers = tuple(entry.number for entry in slices)
        window = Window(self._state.next_window, "snapshot", database, low, low, slices=numbers)
        self._ledger.manifest.plan(self._ledger.clock.now(), window)

    def _next_slices(self, run: SnapshotRun, size: int) -> Sequence[SnapshotSlice]:
        """Slices of the next round: `size` full ones, or more small ones with about as many rows, or all if readers must meet."""
        if by_barrier(self._settings):
            size = len(run.slices)
        budget, rows = size * MIN_SLICE, 0
        failed = dict(run.failed)
        chosen: list[SnapshotSlice] = []
        for entry in run.slices[run.done :]:
            if entry.table in failed:
                continue
            if len(chosen) >= size and rows + entry.rows > budget:
                break
            rows += entry.rows
            chosen.append(entry)
        return chosen

    def _finish(self, database: str, entries: Entries, check_locks: Callable[[], None]) -> None:
        """Read the pending round unless it is recorded, commit its files, complete it."""
        window = self._state.in_flight(database)
        if window is None:
            raise InvariantError("No round of the snapshot is in flight. Next: report this.")
        run = self._state.snapshots[window.database]
        slices = [run.slices[number] for number in window.slices]
        if self._state.written is None:
            self._notices.send(self._notices.reading(run, slices))
            written = self._read(window, run, slices, entries)
            check_locks()
            check_recovery_fork(self._ledger, self._server.source, window.database)
            self._lake.tables.require_files(dict(written.files))
            self._ledger.manifest.record_files(self._ledger.clock.now(), written)
        elif lost := self._lost(window, self._state.written):
            without = _without(lost, self._state.written, run, self._directories(entries))
            self._ledger.manifest.record_files(self._ledger.clock.now(), without)
        recorded = self._state.written
        assert recorded is not None  # noqa: S101 - recorded just now
        for directory, files in recorded.files:
            metadata = {"window_id": str(window.window_id), "snapshot_id": str(run.snapshot_id)}
            metadata["rows"] = str(sum(file.rows for file in files))
            self._lake.tables.commit(directory, None, files, window.window_id, metadata)
            step("table-committed")
        notifications = self._notices.read(run, run.behind(recorded), slices)
        self._ledger.manifest.complete_round(self._ledger.clock.now(), notifications)
        self._listener.note_commit(self._progress(window, run.behind(recorded), recorded, entries))

    def _read(self, window: Window, run: SnapshotRun, slices: Sequence[SnapshotSlice], entries: Entries) -> RoundFiles:
        """The files that the tasks of a round wrote, and the state of the snapshot after it."""
        readings = self._readings(run, entries, slices)
        found = self._readers.read(window, slices, readings)
        results = found.results
        failed = dict(run.failed)
        for result in results:
            for failure in result.failures:
                failed.setdefault(failure.table, failure.reason)
        for table, reason in self._altered(run, readings).items():
            failed.setdefault(table, reason)
        ends = [end for result in results for end in result.ends if end.table not in failed]
        ends.sort(key=lambda end: end.number)
        self._slices_read = window.window_id, tuple(_slice_progress(run, end) for end in ends)
        scanned = Counter(dict(run.scanned))
        for end in ends:
            scanned[end.table] += end.rows
        done = run.next_place(window.slices[-1] + 1, failed)
        markers = Markers(run.held)
        decided = [row for end in ends for row in markers.add(end)]
        if done == len(run.slices):
            decided += markers.finish()
        lost = {readings[table].directory for table in failed if table in readings}
        files = self._with_decided(window, entries, results, decided, lost)
        return RoundFiles(
            tuple(files.items()), done, markers.held, tuple(sorted(scanned.items())), tuple(failed.items()),
            tuple((table, low) for table, low in found.lows.items() if table not in failed),
        )  # fmt: skip

    def _altered(self, run: SnapshotRun, readings: Mapping[TableId, TableReading]) -> dict[TableId, str]:
        """Tables that were altered since their structure was recorded, so that rows may have been read by a wrong one."""
        schemas = self._server.source.table_schemas(list(readings))
        found = {}
        for table, reading in readings.items():
            schema = schemas.get(table)
            names = {column.name for column in reading.plan.columns}
            if schema is None or schema.object_id != run.of(table).object_id:
                found[table] = "It was dropped while it was read."
            elif altered := read_otherwise(reading.schema, schema, names):
                found[table] = f"{', '.join(altered)} was altered while the table was read. Next: read it again."
        return found

    def _lost(self, window: Window, recorded: RoundFiles) -> dict[str, str]:
        """Files by directory that an earlier run recorded and that cannot be committed any more, described for users."""
        tables, number = self._lake.tables, window.window_id
        waiting = {name: files for name, files in recorded.files if not tables.committed(name, number)}
        lacking = missing_files(tables.location, waiting)
        lost = {name: ", ".join(f"{path} is {what}" for path, what in found.items()) for name, found in lacking.items()}
        for name in lost:
            tables.leave_out(name, number)
        return lost | {name: "the round was given up" for name in waiting if tables.left_out(name, number)}

    def _directories(self, entries: Entries) -> dict[TableId, str]:
        return {table: self._lake.destination(entry)[1] for table, entry in entries.items()}

    def _readings(
        self, run: SnapshotRun, entries: Entries, slices: Sequence[SnapshotSlice]
    ) -> dict[TableId, TableReading]:
        server_time = self._server.source.server_time()
        tables = {entry.table: entry for entry in run.tables}
        readings: dict[TableId, TableReading] = {}
        for table in dict.fromkeys(entry.table for entry in slices):
            plan, directory = self._lake.destination(entries[table])
            planned = tables[table]
            override = planned.select or self._settings.override_of(table) or None
            readings[table] = TableReading(
                plan, entries[table].schema, directory, planned.low, server_time, override, planned.ranges,
                is_keyless=not plan.key and planned.instance is not None,
            )  # fmt: skip
        return readings

    def _with_decided(
        self,
        window: Window,
        entries: Entries,
        results: Sequence[RoundResult],
        decided: Sequence[MarkedRow],
        lost: set[str],
    ) -> dict[str, tuple[DataFile, ...]]:
        """The tasks' files except those of failed tables, and a small file per table with the slice ends decided now."""
        files: dict[str, tuple[DataFile, ...]] = {}
        for result in results:
            for directory, written in result.files.items():
                if directory not in lost:
                    files[directory] = (*files.get(directory, ()), *written)
        by_table: dict[TableId, list[pa.RecordBatch]] = {}
        for row in decided:
            by_table.setdefault(row.table, []).append(row.batch)
        for table, batches in by_table.items():
            plan, directory = self._lake.destination(entries[table])
            location = self._lake.tables.location
            with TopicWriter(location, directory, plan.topic_schema, window.window_id) as writer:
                writer.write(batch.cast(plan.topic_schema) for batch in batches)
            files[directory] = (*files.get(directory, ()), *writer.files)
        return {directory: written for directory, written in files.items() if written}

    def _progress(self, window: Window, run: SnapshotRun, written: RoundFiles, entries: Entries) -> Progress:
        tables = {}
        by_directory, directories = dict(written.files), self._directories(entries)
        for entry in run.tables:
            if files := by_directory.get(directories.get(entry.table, "")):
                size, low = sum(file.size for file in files), entry.low
                tables[entry.table] = TableProgress(rows_of(files), size, low, low, files=len(files))
        return Progress(
            "snapshot",
            window.database,
            window.window_id,
            window.after,
            window.until,
            tables,
            slices_done=written.done,
            slices=len(run.slices),
            slices_read=self._slices_read[1] if self._slices_read[0] == window.window_id else (),
        )


def _slice_progress(run: SnapshotRun, end: SliceEnds) -> SliceProgress:
    return SliceProgress(end.table, run.slices[end.number].partition, end.rows, end.seconds, end.by_range)


def _without(
    lost: Mapping[str, str], recorded: RoundFiles, run: SnapshotRun, directories: Mapping[TableId, str]
) -> RoundFiles:
    """A recorded round in which the tables with lost files count as failed."""
    reasons = {table: f"Its rows are lost: {lost[name]}." for table, name in directories.items() if name in lost}
    failed = {**reasons, **dict(recorded.failed)}
    files = tuple((name, data_files) for name, data_files in recorded.files if name not in lost)
    return dataclasses.replace(
        recorded, files=files, done=run.next_place(recorded.done, failed), failed=tuple(failed.items())
    )
