"""Reads tables as a whole, or ranges of them, and makes READ events of their rows.

*Low watermark.* Before the first row is read we ask how far the capture job
has read the log (`fn_cdc_get_max_lsn`). A change at or below that LSN was
committed before our read, so the rows contain it. Anything later is streamed
again and sorts behind the READ, which carries the watermark. So applying a
topic table in its order ends in the server's state, whatever was written while
we read. A capture instance that is younger than the watermark raises it to just
before its own start: what lies below was committed before the instance was made,
and that was before our read.

*Repeating.* Ranges and watermarks are fixed in the manifest before the first
row is read. Slices are read in rounds, a round being one job and one commit per
table. A table cannot be read twice with the same result, so what a round wrote
is recorded in the manifest before any of it is committed:

| crash after | next run |
|---|---|
| plan of the snapshot | records structures and begins |
| plan of a round | reads its slices again; nothing of them was committed |
| record of its files | commits those files to the tables that lack them |
| completion of a round | goes on with the next slices |
| the last round | sets the positions and ends the snapshot |

*Positions* are set when the whole snapshot is complete: a table that was not
streamed before, or lost changes, or was created anew, streams from its
watermark. A table whose rows are not read (`no_data`) and that is enabled while
its database streams starts where its capture instance does, so that no change
since is left out. A healthy table keeps its position, so a re-snapshot loses no event;
a part of a table never changes it.
"""

import dataclasses
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.ports import KeyRange
from cdc_assets.core.schema import CaptureInstance, TableSchema
from cdc_assets.errors import CaptureNotReadyError, ConfigurationError, InvariantError
from cdc_assets.history.records import HistoryEntry
from cdc_assets.lake.files import DataFile, TopicWriter
from cdc_assets.lake.state import (
    CaptureState,
    RoundFiles,
    SnapshotRun,
    SnapshotSlice,
    SnapshotTable,
    TableState,
    Window,
)
from cdc_assets.lake.steps import step
from cdc_assets.snapshot.markers import MarkedRow, Markers
from cdc_assets.snapshot.slices import bundles, ranges_of, ranges_wanted, slices_of
from cdc_assets.snapshot.tasks import RoundResult, RoundTask, TableReading, run_bundle
from cdc_assets.streaming.context import Context
from cdc_assets.streaming.instances import before, newest
from cdc_assets.streaming.progress import OnProgress, Progress, TableProgress, rows_of

log = logging.getLogger(__name__)

_ROUND_SLICES = 4
"""Slices of a round per parallel task: what a crash repeats at most."""
_MIN_SLICE, _MAX_SLICE = 20_000, 1_000_000
"""Rows of a slice, if the ranges allow it."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to read of a table.

    Args:
        table: which.
        partitions: numbers of its partitions; None reads all.
        data: whether rows are read; otherwise only the structure and the position are recorded.
    """

    table: TableId
    partitions: tuple[int, ...] | None = None
    data: bool = True


class Snapshotter:
    """Carries out snapshots of one capture.

    Args:
        context: of the capture.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    @property
    def _state(self) -> CaptureState:
        return self._context.manifest.state

    def resume(self, database: str, captured: Collection[TableId], on_progress: OnProgress) -> None:
        """Finish a snapshot that an earlier run left, if its tables are still the ones it was planned for.

        Args:
            database: where.
            captured: tables that the filters let through now.
            on_progress: called after each round.

        Raises:
            CdcError: as `run`.
        """
        run = self._state.snapshots.get(database)
        if run is None:
            return
        problem = self._outdated(run, captured)
        if problem:
            log.warning("The unfinished snapshot of %s is given up, for %s. It is planned again.", database, problem)
            self._context.manifest.finish_snapshot(self._context.clock.now(), database, [])
            self._notify("ABORTED", run)
            return
        self._carry_out(database, on_progress)

    def _outdated(self, run: SnapshotRun, captured: Collection[TableId]) -> str:
        """Why a planned snapshot no longer fits the server or the settings, or nothing."""
        instances = self._context.instances(run.database)
        for entry in run.tables:
            schema = self._context.source.table_schema(entry.table)
            if schema is None or schema.object_id != entry.object_id:
                return f"{entry.table} was dropped or created again"
            if entry.table not in captured:
                return f"{entry.table} is no longer captured"
            names = [instance.name for instance in instances.get(entry.table, [])]
            if entry.instance is not None and entry.instance not in names:
                return f"{entry.table} has lost its capture instance {entry.instance}"
        return ""

    def run(self, database: str, requests: Sequence[Request], on_progress: OnProgress) -> None:
        """Snapshot some tables of a database; there must be none in flight (`resume`).

        Raises:
            ConfigurationError: a table does not exist.
            CaptureNotReadyError: the capture job has not read the log yet.
            RetryableError: the server is away or busy; the next call goes on where this one stopped.
            LakeError: the lake cannot be written.
            FencedError: another writer has taken over.
        """
        if requests:
            self._start(database, requests)
            self._carry_out(database, on_progress)

    def _start(self, database: str, requests: Sequence[Request]) -> None:
        """Fix watermarks, ranges and slices."""
        instances = self._context.instances(database)
        low = self._low_watermark(database, captured=any(request.table in instances for request in requests))
        tables: list[SnapshotTable] = []
        slices: list[SnapshotSlice] = []
        rows: dict[TableId, int] = {}
        schemas = {request.table: self._schema(request.table) for request in requests}
        for request in requests:
            rows[request.table] = self._context.source.row_count(request.table) if request.data else 0
        target = self._target(sum(rows.values()))
        for request in requests:
            schema = schemas[request.table]
            last = newest(instances.get(request.table, []))
            ranges = self._ranges(schema, rows[request.table]) if request.data else ()
            chosen = self._chosen(request, len(ranges))
            start = before(last.start_lsn) if last and self._joins(database, request) else low
            tables.append(self._entry(schema, last, start, ranges, whole=request.partitions is None))
            slices += slices_of(request.table, ranges, chosen, rows[request.table], target, len(slices))
        run = SnapshotRun(self._state.next_window, database, tuple(tables), tuple(slices))
        self._context.manifest.start_snapshot(self._context.clock.now(), run)
        self._notify("STARTED", run)

    def _joins(self, database: str, request: Request) -> bool:
        """Whether a table without data joins a capture that streams: nothing since its enabling may be left out."""
        return not request.data and request.table not in self._state.tables and self._streams(database)

    def _joined(self, table: SnapshotTable) -> bool:
        """Whether a planned table is such a one; the state says the same until the snapshot is complete."""
        new = table.table not in self._state.tables
        return new and table.instance is not None and not table.ranges and self._streams(table.table.database)

    def _streams(self, database: str) -> bool:
        return any(state.table.database == database and state.position for state in self._state.tables.values())

    def _low_watermark(self, database: str, *, captured: bool) -> Lsn:
        if not captured:
            return ZERO_LSN
        low = self._context.source.max_captured_lsn(database)
        if low is not None:
            return low
        running = self._context.source.agent_running(database)
        reason = "the SQL Server Agent does not run" if running is False else "the capture job has not scanned the log"
        raise CaptureNotReadyError(
            f"Database {database} has no maximum LSN: {reason}. "
            "Next: start the Agent, or sys.sp_cdc_start_job @job_type = N'capture', and run again."
        )

    def _schema(self, table: TableId) -> TableSchema:
        schema = self._context.source.table_schema(table)
        if schema is None:
            raise ConfigurationError("table", str(table), "a table that exists", "check its name and the filters")
        return schema

    def _ranges(self, schema: TableSchema, rows: int) -> tuple[KeyRange, ...]:
        known = self._state.tables.get(schema.table)
        if known and known.ranges and known.object_id == schema.object_id:
            return known.ranges
        if self._override(schema.table):
            return tuple(self._context.source.key_ranges(dataclasses.replace(schema, key=()), 1))
        return tuple(
            self._context.source.key_ranges(schema, ranges_wanted(rows, self._context.config.snapshot.partitions))
        )

    def _chosen(self, request: Request, ranges: int) -> list[int]:
        if request.partitions is None:
            return list(range(ranges))
        return ranges_of(request.partitions, ranges, self._context.config.snapshot.partitions)

    def _target(self, rows: int) -> int:
        readers = self._readers() * self._context.config.snapshot.slices_per_thread
        return min(_MAX_SLICE, max(_MIN_SLICE, rows // (2 * readers)))

    def _readers(self) -> int:
        return max(1, self._context.config.snapshot.threads or self._context.runner.parallelism)

    @staticmethod
    def _entry(
        schema: TableSchema, instance: CaptureInstance | None, low: Lsn, ranges: tuple[KeyRange, ...], *, whole: bool
    ) -> SnapshotTable:
        if instance is None:
            return SnapshotTable(schema.table, schema.object_id, None, low, ranges, whole)
        start = max(low, before(instance.start_lsn))
        return SnapshotTable(schema.table, schema.object_id, instance.name, start, ranges, whole)

    def _carry_out(self, database: str, on_progress: OnProgress) -> None:
        run = self._state.snapshots[database]
        entries = self._record_structures(run)
        if self._state.pending is not None:
            self._finish_round(entries, on_progress)
        while self._state.snapshots[database].done < len(run.slices):
            self._plan_round(database)
            self._finish_round(entries, on_progress)
        self._end(database)

    def _record_structures(self, run: SnapshotRun) -> Mapping[TableId, HistoryEntry]:
        """CREATE records of tables whose structure is new, before any data; structures of all tables."""
        history, now = self._context.history, self._context.clock.now()
        recorded: list[HistoryEntry] = []
        if not history.written(run.snapshot_id):
            for table in [*run.tables, *self._bystanders(run)]:
                entry = self._current(table, now)
                if self._joined(table):
                    entry = dataclasses.replace(entry, lsn=table.low.next(), snapshot=None)
                known = history.of_instance(entry.table, entry.instance)
                if known is None or not known.same_structure(entry) or known.schema.object_id != entry.schema.object_id:
                    recorded.append(entry)
            if recorded and not run.slices and recorded[-1].snapshot:
                recorded[-1] = dataclasses.replace(recorded[-1], last=True)
            history.commit(run.snapshot_id, recorded)
        step("history-written")
        entries = {table.table: history.of_instance(table.table, table.instance) for table in run.tables}
        missing = [table for table, entry in entries.items() if entry is None]
        if missing:
            raise InvariantError(f"The schema history lacks {missing[0]}. Next: set snapshot.mode=recovery.")
        return {table: entry for table, entry in entries.items() if entry is not None}

    def _current(self, table: SnapshotTable, now: datetime) -> HistoryEntry:
        schema = self._schema(table.table)
        own = self._context.instances(table.table.database).get(table.table, [])
        captured = next((found.columns for found in own if found.name == table.instance), None)
        if table.instance is not None and captured is None:
            raise InvariantError(
                f"{table.table} lost its capture instance {table.instance} during its snapshot. "
                "Next: enable it again and materialize its snapshot asset."
            )
        return HistoryEntry("CREATE", schema, captured, table.instance, table.low, now, "INITIAL")

    def _bystanders(self, run: SnapshotRun) -> list[SnapshotTable]:
        """User tables that are only recorded in the history, if the settings want all (spec §6.1)."""
        known = any(table.database == run.database for table in self._state.tables)
        if known or self._context.config.history.only_captured_tables:
            return []
        own = {table.table for table in run.tables}
        others = [table for table in self._context.source.user_tables(run.database) if table not in own]
        instances = self._context.instances(run.database)
        found = []
        for table in others:
            last = newest(instances.get(table, []))
            found.append(SnapshotTable(table, 0, last.name if last else None, run.tables[0].low, (), whole=False))
        return found

    def _plan_round(self, database: str) -> None:
        run = self._state.snapshots[database]
        size = self._readers() * _ROUND_SLICES
        numbers = tuple(entry.number for entry in self._next_slices(run, size))
        low = run.of(run.slices[run.done].table).low
        window = Window(self._state.next_window, "snapshot", database, low, low, slices=numbers)
        self._context.manifest.plan(self._context.clock.now(), window)

    @staticmethod
    def _next_slices(run: SnapshotRun, size: int) -> Sequence[SnapshotSlice]:
        """Slices of the next round: so many full ones, or many small ones of about as many rows."""
        budget, chosen = size * _MIN_SLICE, 0
        rows = 0
        for entry in run.slices[run.done :]:
            if chosen >= size and rows + entry.rows > budget:
                break
            rows += entry.rows
            chosen += 1
        return run.slices[run.done : run.done + chosen]

    def _finish_round(self, entries: Mapping[TableId, HistoryEntry], on_progress: OnProgress) -> None:
        """Read the pending round unless that was recorded, commit its files, complete it."""
        window = self._state.pending
        if window is None:
            raise InvariantError("No round of the snapshot is in flight. Next: report this.")
        run = self._state.snapshots[window.database]
        if self._state.written is None:
            self._context.manifest.record_files(self._context.clock.now(), self._read_round(window, run, entries))
        written = self._state.written
        assert written is not None  # noqa: S101 - recorded just now
        for directory, files in written.files:
            metadata = {"window_id": str(window.window_id), "snapshot_id": str(run.snapshot_id)}
            metadata["rows"] = str(sum(file.rows for file in files))
            self._context.tables.commit(directory, None, files, window.window_id, metadata)
            step("table-committed")
        self._context.manifest.complete_round(self._context.clock.now())
        on_progress(self._progress(window, run, written, entries))

    def _read_round(self, window: Window, run: SnapshotRun, entries: Mapping[TableId, HistoryEntry]) -> RoundFiles:
        slices = [run.slices[number] for number in window.slices]
        readings = self._readings(run, entries, slices)
        tasks = [
            RoundTask(window.window_id, bundle, readings, self._context.tables.location, self._context.bulk)
            for bundle in bundles(slices, self._readers() * 2)
        ]
        results = self._context.runner.run(run_bundle, tasks)
        done = window.slices[-1] + 1
        markers = Markers(run.held)
        decided = [row for result in results for ends in result.ends for row in markers.add(ends)]
        if done == len(run.slices):
            decided += markers.finish()
        files = self._with_decided(window, run, entries, results, decided)
        return RoundFiles(tuple(files.items()), done, markers.held)

    def _readings(
        self, run: SnapshotRun, entries: Mapping[TableId, HistoryEntry], slices: Sequence[SnapshotSlice]
    ) -> dict[TableId, TableReading]:
        server_time = self._context.source.server_time()
        readings: dict[TableId, TableReading] = {}
        for table in dict.fromkeys(entry.table for entry in slices):
            plan, directory = self._context.destination(entries[table])
            low, override = run.of(table).low, self._override(table)
            readings[table] = TableReading(plan, entries[table].schema, directory, low, server_time, override)
        return readings

    def _with_decided(
        self,
        window: Window,
        run: SnapshotRun,
        entries: Mapping[TableId, HistoryEntry],
        results: Sequence[RoundResult],
        decided: Sequence[MarkedRow],
    ) -> dict[str, tuple[DataFile, ...]]:
        """The tasks' files, and one small file per table with the slice ends that are decided now."""
        files: dict[str, tuple[DataFile, ...]] = {}
        for result in results:
            for directory, written in result.files.items():
                files[directory] = (*files.get(directory, ()), *written)
        by_table: dict[TableId, list[pa.RecordBatch]] = {}
        for row in decided:
            by_table.setdefault(row.table, []).append(row.batch)
        for table, batches in by_table.items():
            plan, directory = self._context.destination(entries[table])
            location = self._context.tables.location
            with TopicWriter(location, directory, plan.topic_schema, window.window_id) as writer:
                writer.write(batch.cast(plan.topic_schema) for batch in batches)
            files[directory] = (*files.get(directory, ()), *writer.files)
        return {directory: written for directory, written in files.items() if written}

    def _progress(
        self, window: Window, run: SnapshotRun, written: RoundFiles, entries: Mapping[TableId, HistoryEntry]
    ) -> Progress:
        tables = {}
        by_directory = dict(written.files)
        for table in run.tables:
            _, directory = self._context.destination(entries[table.table])
            if files := by_directory.get(directory):
                size = sum(file.size for file in files)
                tables[table.table] = TableProgress(rows_of(files), size, table.low, table.low)
        return Progress(
            "snapshot",
            window.database,
            window.window_id,
            window.after,
            window.until,
            tables,
            slices_done=written.done,
            slices=len(run.slices),
        )

    def _end(self, database: str) -> None:
        run = self._state.snapshots[database]
        states = [state for table in run.tables for state in self._final(table)]
        self._context.manifest.finish_snapshot(self._context.clock.now(), database, states)
        self._notify("COMPLETED", run)
        now = self._context.clock.now()
        self._context.heartbeat.beat(now, self._state.watermark(database), forced=True)

    def _notify(self, kind: str, run: SnapshotRun) -> None:
        tables = ", ".join(str(entry.table) for entry in run.tables)
        self._context.notify("Initial Snapshot", kind, data_collections=tables)

    def _final(self, table: SnapshotTable) -> Iterator[TableState]:
        known = self._state.tables.get(table.table)
        same = known is not None and known.object_id == table.object_id
        if not table.whole:
            if known is not None and same and not known.ranges:
                yield dataclasses.replace(known, ranges=table.ranges)
            return
        if known is not None and same and known.streams:
            yield dataclasses.replace(known, ranges=table.ranges or known.ranges, snapshot_lsn=table.low)
            return
        yield TableState(
            table=table.table,
            object_id=table.object_id,
            position=table.low if table.instance else None,
            instance=table.instance,
            ranges=table.ranges or (known.ranges if known is not None and same else ()),
            snapshot_lsn=table.low,
            gaps=known.gaps if known else (),
        )

    def _override(self, table: TableId) -> str | None:
        """The table's SELECT of `snapshot.select.statement.overrides`."""
        names = {table.within_database.lower(), str(table).lower()}
        found = self._context.config.snapshot.overrides
        return next((statement for name, statement in found if name.lower() in names), None)
