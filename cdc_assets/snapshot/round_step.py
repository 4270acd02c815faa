"""A round of a snapshot as a step: its slices are read once, and one commit a table follows (`lake.step`).

Reading a table twice may give different rows, so the files of a round are recorded in the manifest before any of them is
committed. A round that an earlier run has recorded is committed from its files; a table whose files are lost fails.

The LSN that READs of a table without a key carry (`moment`) is recorded with the files that hold them.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from cdc_assets.core.identifiers import TableId
from cdc_assets.envelope.plan import EventPlan
from cdc_assets.errors import ConfigurationError, describe_error
from cdc_assets.history.records import HistoryEntry
from cdc_assets.history.structure import read_otherwise
from cdc_assets.lake.files import DataFile, TopicWriter
from cdc_assets.lake.step import Events, Step, lost_files, window_facts
from cdc_assets.ledger.snapshot_state import HeldRow, RoundFiles, SnapshotRun
from cdc_assets.ledger.state import Window
from cdc_assets.shared.forks import check_recovery_fork
from cdc_assets.shared.losses import topic_of
from cdc_assets.shared.parts import CaptureParts
from cdc_assets.shared.progress import Progress, ProgressListener, SliceProgress, TableProgress
from cdc_assets.snapshot.markers import MarkedRow, Markers, row_of
from cdc_assets.snapshot.notices import Notices
from cdc_assets.snapshot.readers import Found, Readers
from cdc_assets.snapshot.tasks import RoundResult, SliceEnds, TableReading

Entries = Mapping[TableId, HistoryEntry]
"""Structures of a snapshot's tables, by table."""


@dataclass(frozen=True)
class RoundContext:
    """What the rounds of a capture are read and recorded with.

    Args:
        readers: runs the tasks of a round.
        notices: sends notifications about rounds.
        listener: called after each round.
    """

    parts: CaptureParts
    readers: Readers
    notices: Notices
    listener: ProgressListener


class RoundInFlight:
    """The round in flight.

    Args:
        window: as it is planned.
        run: the snapshot before it.
        entries: structures of the snapshot's tables.
        check_locks: called when the round was read, before it is recorded; raises if its locks are lost.
        slices_read: what this process has read of the round last, by the round's number.
    """

    def __init__(
        self,
        context: RoundContext,
        window: Window,
        run: SnapshotRun,
        entries: Entries,
        check_locks: Callable[[], None],
        slices_read: dict[int, tuple[SliceProgress, ...]],
    ) -> None:
        self._context, self._lake, self._ledger = context, context.parts.lake, context.parts.ledger
        self._source = context.parts.server.source
        self._window, self._run, self._entries, self._check_locks = window, run, entries, check_locks
        self._slices = [run.slices[number] for number in window.slices]
        self._slices_read = slices_read
        self._unfit: dict[TableId, str] = {}
        """Tables that the settings do not fit any more, or whose row that is held back they do not, with the reason."""

    def step(self) -> Step:
        """The files of the round, recorded by an earlier run or written now, and one commit a table."""
        recorded = self._recorded()
        written = self._written() if recorded is None else recorded
        number, run, tables = self._window.window_id, str(self._run.snapshot_id), self._lake.tables
        commits = [
            Events(tables, directory, files, window_facts(number, files, snapshot_id=run))
            for directory, files in written.files
        ]
        record, complete = partial(self._record, written), partial(self._complete, written)
        return Step(number, [commits], record, complete, is_recorded=recorded is not None)

    def _recorded(self) -> RoundFiles | None:
        """The files that an earlier run has recorded; a table of which some are lost has failed."""
        recorded = self._ledger.state.written
        if recorded is None:
            return None
        lost = lost_files(self._lake.tables, self._window.window_id, dict(recorded.files))
        if lost:
            recorded = self._without(lost, recorded)
            self._record(recorded)
        return recorded

    def _written(self) -> RoundFiles:
        """The files of the slices, which are read now."""
        self._context.notices.send(self._context.notices.reading(self._run, self._slices))
        written = self._read()
        self._check_locks()
        check_recovery_fork(self._ledger, self._source, self._window.database)
        return written

    def _record(self, written: RoundFiles) -> None:
        """Record the files: the rows are not read again."""
        self._ledger.manifest.record_files(self._ledger.clock.now(), written)

    def _complete(self, written: RoundFiles) -> None:
        """Continue with the slices behind these."""
        behind = self._run.behind(written)
        notifications = self._context.notices.read(self._run, behind, self._slices)
        self._ledger.manifest.complete_round(self._ledger.clock.now(), notifications)
        self._context.listener.note_commit(self._progress(behind, written))

    def _read(self) -> RoundFiles:
        """The files that the tasks of a round wrote, and the state of the snapshot after it."""
        run, window = self._run, self._window
        readings = self._readings()
        if run.held is not None:
            self._check_held(run.held)
        slices = [entry for entry in self._slices if entry.table in readings]
        found = self._context.readers.read(window, slices, readings) if slices else Found(())
        results = found.results
        failed = {**self._unfit, **dict(run.failed)}
        for result in results:
            for failure in result.failures:
                failed.setdefault(failure.table, failure.reason)
        for table, reason in self._altered(readings).items():
            failed.setdefault(table, reason)
        ends = [end for result in results for end in result.ends if end.table not in failed]
        ends.sort(key=lambda end: end.number)
        self._slices_read.clear()
        self._slices_read[self._window.window_id] = tuple(_slice_progress(run, end) for end in ends)
        scanned = Counter(dict(run.scanned))
        for end in ends:
            scanned[end.table] += end.rows
        done = run.next_place(window.slices[-1] + 1, failed)
        markers = Markers(run.held)
        decided = [row for end in ends for row in markers.add(end)]
        if done == len(run.slices):
            decided += markers.finish()
        lost = {readings[table].directory for table in failed if table in readings}
        files = self._with_decided(results, decided, lost)
        return RoundFiles(
            tuple(files.items()), done, markers.held, tuple(sorted(scanned.items())), tuple(failed.items()),
            tuple((table, low) for table, low in found.lows.items() if table not in failed),
        )  # fmt: skip

    def _altered(self, readings: Mapping[TableId, TableReading]) -> dict[TableId, str]:
        """Tables that were altered since their structure was recorded, so that rows may have been read by a wrong one."""
        schemas = self._source.table_schemas(list(readings), self._run.known)
        found = {}
        for table, reading in readings.items():
            schema = schemas.get(table)
            names = {column.name for column in reading.plan.columns}
            if schema is None or schema.object_id != self._run.of(table).object_id:
                found[table] = "It was dropped, or hidden from the login, while it was read."
            elif altered := read_otherwise(reading.schema, schema, names):
                found[table] = f"{', '.join(altered)} was altered while the table was read. Next: read it again."
        return found

    def _destination(self, table: TableId) -> tuple[EventPlan, str] | None:
        """How a table's rows become events, and where they go; None if the settings do not fit it any more."""
        try:
            return self._lake.destination(self._entries[table])
        except ConfigurationError as error:  # concerns one table; the others continue
            self._unfit[table] = describe_error(error)
            return None

    def _check_held(self, held: HeldRow) -> None:
        """Have a table fail if its row that is held back cannot be written, or would mean something else now."""
        found = self._destination(held.table)
        if found and not row_of(held).schema.equals(found[0].topic_schema, check_metadata=True):
            self._unfit[held.table] = "The settings of its events were changed while it was read. Next: read it again."

    def _directories(self) -> dict[TableId, str]:
        return {table: found[1] for table in self._entries if (found := self._destination(table))}

    def _without(self, lost: Mapping[str, str], recorded: RoundFiles) -> RoundFiles:
        """A recorded round in which the tables with lost files count as failed."""
        self._directories()  # notes which tables the settings do not fit any more
        why = {topic_of(name): reason for name, reason in lost.items()}  # settings may lead to another generation now
        tables = {table: self._lake.topic(table) for table in self._entries}
        reasons = {
            table: self._unfit.get(table, f"Its rows are lost: {why[topic]}.")
            for table, topic in tables.items()
            if topic in why
        }
        failed = {**reasons, **dict(recorded.failed)}
        files = tuple((name, data_files) for name, data_files in recorded.files if name not in lost)
        return dataclasses.replace(
            recorded, files=files, done=self._run.next_place(recorded.done, failed), failed=tuple(failed.items())
        )

    def _readings(self) -> dict[TableId, TableReading]:
        server_time = self._source.server_time()
        tables = {entry.table: entry for entry in self._run.tables}
        readings: dict[TableId, TableReading] = {}
        for table in dict.fromkeys(entry.table for entry in self._slices):
            if (destination := self._destination(table)) is None:
                continue
            plan, directory = destination
            planned = tables[table]
            override = planned.select or self._context.parts.config.snapshot.override_of(table) or None
            readings[table] = TableReading(
                plan, self._entries[table].schema, directory, planned.low, server_time, override, planned.ranges,
                is_keyless=not plan.key and planned.instance is not None,
            )  # fmt: skip
        return readings

    def _with_decided(
        self,
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
            if row.table not in self._unfit:
                by_table.setdefault(row.table, []).append(row.batch)
        for table, batches in by_table.items():
            plan, directory = self._lake.destination(self._entries[table])
            location = self._lake.tables.location
            with TopicWriter(location, directory, plan.topic_schema, self._window.window_id) as writer:
                writer.write(iter(batches))
            files[directory] = (*files.get(directory, ()), *writer.files)
        return {directory: written for directory, written in files.items() if written}

    def _progress(self, run: SnapshotRun, written: RoundFiles) -> Progress:
        tables = {}
        by_directory, directories = dict(written.files), self._directories()
        for entry in run.tables:
            if files := by_directory.get(directories.get(entry.table, "")):
                tables[entry.table] = TableProgress.of(files, entry.low, entry.low)
        return Progress(
            "snapshot",
            self._window.database,
            self._window.window_id,
            self._window.after,
            self._window.until,
            tables,
            slices_done=written.done,
            slices=len(run.slices),
            slices_read=self._slices_read.get(self._window.window_id, ()),
        )


def _slice_progress(run: SnapshotRun, end: SliceEnds) -> SliceProgress:
    return SliceProgress(end.table, run.slices[end.number].partition, end.rows, end.seconds, end.by_range)
