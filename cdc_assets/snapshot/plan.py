"""Fixes what a snapshot reads before it reads anything: watermarks, key ranges, slices.

*Low watermark.* Before the first row is read, the server is queried how far the capture job
has read the log (`fn_cdc_get_max_lsn`). A change at or below that LSN was
committed before the read, so the rows contain it. Anything later is streamed
and sorts after the READ, which carries the watermark. So applying a
topic table in its order ends in the server's state, whatever was written during
the read. A capture instance that is younger than the watermark raises it to just
before its own start: earlier changes were committed before the instance was created,
and so before the read. That holds of a server whose log has got that far; so each session that reads rows is queried
first (`core.ports.BulkSource.reaching`): it may be one of a replica that lags behind the server that was queried here.
A lower watermark is as right, if all changes after it can be read: READs of an earlier attempt carry one, and it is taken
up again.

The server that was queried may be a readable secondary that lags, too. Where a table does not keep its position, changes that the lake has
would be streamed again, and a loss behind the watermark would count as made good. So a watermark below what is known of the log or of the
table is refused until the server has caught up (`_require_no_lag`); the server that is written to has nothing to catch up with.

*Tables without a key* are read at a moment of their own, whose place in the log takes that of the watermark when they
are read (`moment`). They have one range: READs of one reading show how many copies of a row there are.

*No waiting for locks.* The tables' row counts come from the server's catalogue, in one query. Key ranges are found without waiting
for row locks (`core.ports`): a locked table delays no other.
A table that cannot be divided fails by itself; the others are planned.
"""

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from cdc_assets.config.settings import SnapshotSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.partitions import ranges_of, ranges_wanted
from cdc_assets.core.ports import KeyExtent, KeyRange, TaskRunner
from cdc_assets.core.ranges import fit
from cdc_assets.core.schema import CaptureInstance, TableSchema
from cdc_assets.envelope.plan import EventPlan
from cdc_assets.errors import CaptureNotReadyError, CdcError, ConfigurationError
from cdc_assets.history.structure import without_namesakes
from cdc_assets.ledger.snapshot_state import SnapshotRun, SnapshotSlice, SnapshotTable
from cdc_assets.ledger.state import CaptureState
from cdc_assets.shared.forks import captured_until, check_recovery_fork, lagging
from cdc_assets.shared.instances import before, gap_after, gap_behind, newest
from cdc_assets.shared.parts import CaptureParts
from cdc_assets.snapshot.slices import MAX_SLICE, MIN_SLICE, slices_of
from cdc_assets.snapshot.tasks import TABLE_ERRORS


@dataclass(frozen=True, slots=True)
class Request:
    """What to read of one table.

    Args:
        partitions: numbers of the partitions to read; None reads all.
        data: whether rows are read; otherwise only the structure and the position are recorded.
        keeps_position: keep the stored position instead of setting a new one.
        joins: whether the table was enabled while the capture runs: if its rows are not read, it starts at the start
            LSN of its capture instance.
        select: a complete SELECT statement whose rows are read instead of the table's; overrides
            `snapshot.select.statement.overrides`. Its rows are a part of the table, so no position is set.
    """

    table: TableId
    partitions: tuple[int, ...] | None = None
    data: bool = True
    select: str = ""
    keeps_position: bool = False
    joins: bool = False

    @property
    def whole(self) -> bool:
        """Whether the table's position is set afterwards."""
        return self.partitions is None and not self.select and not self.keeps_position


@dataclass(frozen=True, slots=True)
class Draft:
    """A request with the table's structure, row count and key ranges."""

    request: Request
    schema: TableSchema
    rows: int
    ranges: tuple[KeyRange, ...]


def readers_of(settings: SnapshotSettings, runner: TaskRunner) -> int:
    """Number of slices that are read at once."""
    return max(1, settings.threads or runner.parallelism)


class SnapshotPlanner:
    """Plans snapshots of one capture.

    Args:
        runner: task runner whose number of parallel tasks decides the size of slices.
    """

    def __init__(self, parts: CaptureParts, runner: TaskRunner) -> None:
        self._server, self._lake, self._ledger = parts.server, parts.lake, parts.ledger
        self._runner, self._settings = runner, parts.config.snapshot

    @property
    def _state(self) -> CaptureState:
        return self._ledger.state

    def draft(self, requests: Sequence[Request]) -> tuple[list[Draft], dict[TableId, CdcError]]:
        """Structures and key ranges of some tables, read before any lock: ranges only decide where tables are cut.

        Args:
            requests: one per table, in the order in which they are read.

        Returns:
            The tables that can be planned, in the order of `snapshot.tables.order.by.row.count`; and those that cannot,
            with the reason.

        Raises:
            CdcError: the server is away.
        """
        if any(request.data for request in requests):
            self._runner.get_ready()
        failed: dict[TableId, CdcError] = {}
        drafts = list(self._drafts(requests, failed))
        order = self._settings.order_by_row_count
        if order != "disabled":
            drafts.sort(key=lambda draft: draft.rows, reverse=order == "descending")
        return drafts, failed

    def plan(self, database: str, drafts: Sequence[Draft], signal: str = "") -> SnapshotRun:
        """Watermarks and slices of some tables.

        Args:
            drafts: at least one, in the order in which they are read.
            signal: id of the signal that requested the snapshot, or empty.

        Raises:
            CaptureNotReadyError: the capture job has not read the log yet.
            IncompleteReadError: the server is a readable secondary that lags.
            CdcError: the server is away.
        """
        instances = self._server.instances(database)
        low = self._low_watermark(database, captured=any(draft.schema.table in instances for draft in drafts))
        if low != ZERO_LSN:  # rows read from there on have the columns of all instances that have begun by then
            instances = self._server.instances(database, known=low)
        tables: list[SnapshotTable] = []
        slices: list[SnapshotSlice] = []
        rows = sum(draft.rows for draft in drafts)
        for draft in drafts:
            target = self._target(draft.schema.table, rows)
            last = newest(instances.get(draft.schema.table, []))
            joins = last is not None and self._joins(database, draft.request)
            start = self._joined_at(draft.schema.table, last) if last and joins else low
            chosen = self._chosen(draft.request, len(draft.ranges))
            lost = self._has_lost(draft, instances.get(draft.schema.table, []))
            start = max(start, before(last.start_lsn)) if last else start
            taken_up = self._taken_up(draft.schema, instances.get(draft.schema.table, []))
            if low != ZERO_LSN and not (joins or taken_up):
                self._require_no_lag(draft.schema.table, start)
            overridden = bool(self._settings.override_of(draft.schema.table))
            tables.append(_entry(draft, last, taken_up or start, lost=lost, overridden=overridden))
            slices += slices_of(draft.schema.table, draft.ranges, chosen, draft.rows, target, len(slices))
        number, captured = self._state.next_window, None if low == ZERO_LSN else low
        return SnapshotRun(number, database, tuple(tables), tuple(slices), signal=signal, captured=captured)

    def again(self, run: SnapshotRun) -> SnapshotRun:
        """The same snapshot from its beginning. The watermarks stay: the rows still contain every change below them."""
        number, planned = self._state.next_window, {table.table for table in run.tables}
        unplanned = tuple(entry for entry in run.failed if entry[0] not in planned)
        return dataclasses.replace(run, snapshot_id=number, done=0, held=None, scanned=(), failed=unplanned)

    def outdated(self, run: SnapshotRun, captured: Collection[TableId]) -> str:
        """Why a planned snapshot no longer fits the server or the settings; empty if it does."""
        instances = self._server.instances(run.database, known=run.known)
        schemas = self._server.source.table_schemas([entry.table for entry in run.tables], run.known)
        for entry in run.tables:
            schema = schemas.get(entry.table)
            if schema is None or schema.object_id != entry.object_id:
                return f"{entry.table} was dropped or created again"
            if entry.table not in captured:
                return f"{entry.table} is no longer captured"
            found = instances.get(entry.table, [])
            if entry.identity and not any(instance.identity == entry.identity for instance in found):
                return f"{entry.table} has lost its capture instance {entry.instance}"
        return ""

    def streams(self, database: str) -> bool:
        """Whether any table of a database has a position."""
        return any(state.table.database == database and state.position for state in self._state.tables.values())

    def _joins(self, database: str, request: Request) -> bool:
        """Whether a table without data is added to a capture that streams: no change since it was enabled may be left out."""
        new = not request.data and not self._state.has_position(request.table)
        return new and (request.joins or self.streams(database))

    def _joined_at(self, table: TableId, instance: CaptureInstance) -> Lsn:
        """Where such a table begins: with its instance, or behind what the lake has of it from before a reset."""
        early, start = self._state.early.get(table), before(instance.start_lsn)
        return start if early is None else max(start, early.low)

    def _taken_up(self, schema: TableSchema, instances: Sequence[CaptureInstance]) -> Lsn | None:
        """Watermark of READs of an earlier snapshot that was given up, if all changes after them can still be read, be it from
        an older instance: then they are streamed from there, as if it had been finished."""
        early = self._state.early.get(schema.table)
        if early is None or not instances or early.object_id != schema.object_id:
            return None
        is_lost = gap_after(schema.table, early.low, instances) is not None
        return early.low if schema.key and not is_lost else None

    def _has_lost(self, draft: Draft, instances: Sequence[CaptureInstance]) -> bool:
        """Whether rows are read of a table after whose position changes are gone, though no window has found that yet."""
        state = self._state.tables.get(draft.schema.table)
        return draft.request.data and state is not None and gap_behind(state, instances) is not None

    def _low_watermark(self, database: str, *, captured: bool) -> Lsn:
        if not captured:
            return ZERO_LSN
        low = self._server.source.max_captured_lsn(database)
        if low is not None:
            check_recovery_fork(self._ledger, self._server.source, database, low)
            return low
        running = self._server.source.agent_running(database)
        reason = (
            "the SQL Server Agent is not running" if running is False else "the capture job has not scanned the log"
        )
        raise CaptureNotReadyError(
            f"Database {database} has no maximum LSN: {reason}. "
            "Next: start the Agent, or sys.sp_cdc_start_job @job_type = N'capture', and run again."
        )

    def _require_no_lag(self, table: TableId, start: Lsn) -> None:
        """Check that rows of a table are not read as of a moment before what is known.

        Raises:
            IncompleteReadError: the server lags behind it.
        """
        read, reached = captured_until(self._state, table.database), self._reached(table)
        if read is not None and start < read:
            raise lagging(table.database, f"it is captured up to {start}, and changes up to {read} were read already")
        if reached is None or start >= reached:
            return
        # a table may be known to begin, or to lack changes, above all that is captured so far: the primary does not lag
        now = self._server.source.captured_by(table.database)
        if now.is_of_replica or now.lsn is None or now.lsn >= reached:
            raise lagging(table.database, f"it is captured up to {start}, and {table} has come to {reached} already")

    def _reached(self, table: TableId) -> Lsn | None:
        """The greatest LSN up to which something of a table is in the lake, or known to be lost.

        The end of a loss in the lake is one above a position, where nothing is.
        """
        state, early = self._state.tables.get(table), self._state.early.get(table)
        found = [state.reached if state else None, early.low if early else None]
        known = [gap for one in (state, early) if one is not None for gap in (*one.gaps, *one.ignored_gaps)]
        return max((lsn for lsn in [*found, *(before(end) for _, end in known)] if lsn is not None), default=None)

    def _drafts(self, requests: Sequence[Request], failed: dict[TableId, CdcError]) -> Iterator[Draft]:
        schemas = self._server.source.table_schemas([request.table for request in requests])
        read = [schemas[r.table] for r in requests if r.data and not r.select and r.table in schemas]
        rows = self._server.source.row_counts(read) if read else {}
        extents = self._server.source.key_extents([schema for schema in read if self._is_cut(schema)], rows)
        databases = dict.fromkeys(table.database for table in schemas)
        instances = {table: found for name in databases for table, found in self._server.instances(name).items()}
        for request in requests:
            schema = schemas.get(request.table)
            try:
                if schema is None:
                    raise ConfigurationError(
                        "table", str(request.table), "a table that exists", "check its name and the filters"
                    )
                whole = not self._require_events(schema, newest(instances.get(request.table, []))).key
                yield self._draft(request, schema, rows.get(request.table, 0), extents.get(request.table), whole=whole)
            except TABLE_ERRORS as error:
                failed[request.table] = error

    def _require_events(self, schema: TableSchema, last: CaptureInstance | None) -> EventPlan:
        """How the table's rows become events; checked before anything is planned for other tables too.

        Raises:
            ConfigurationError: a name or a key does not fit the settings.
        """
        readable = without_namesakes(schema, last) if last else schema
        captured = last.columns if last else None
        return self._lake.plan(readable, captured)

    def _draft(
        self, request: Request, schema: TableSchema, rows: int, extent: KeyExtent | None, *, whole: bool
    ) -> Draft:
        """The draft of a request.

        Args:
            whole: whether the table is read as one range, because its events have no key: equal ones must be of one reading.
        """
        if not request.data:
            return Draft(request, schema, 0, ())
        if whole:
            schema = dataclasses.replace(schema, key=())
        return Draft(request, schema, rows, self._ranges(request, schema, rows, extent))

    def _is_cut(self, schema: TableSchema) -> bool:
        """Whether the key ranges of a table are still to be decided."""
        return not self._settings.override_of(schema.table) and not self._known_ranges(schema)

    def _known_ranges(self, schema: TableSchema) -> tuple[KeyRange, ...]:
        """Key ranges of an earlier snapshot; empty if there was none, or they were made for another key or table."""
        known = self._state.tables.get(schema.table)
        same = known is not None and known.object_id == schema.object_id and fit(known.ranges, schema)
        return known.ranges if known is not None and same else ()

    def _ranges(
        self, request: Request, schema: TableSchema, rows: int, extent: KeyExtent | None
    ) -> tuple[KeyRange, ...]:
        """Key ranges of a table; one whose rows come from a SELECT statement has one, since each part would read all rows."""
        if request.select or self._settings.override_of(schema.table):
            return tuple(self._server.source.key_ranges(dataclasses.replace(schema, key=()), rows, 1))
        if known := self._known_ranges(schema):
            return known
        wanted = ranges_wanted(rows, self._settings.partitions)
        return tuple(self._server.source.key_ranges(schema, rows, wanted, extent))

    def _chosen(self, request: Request, ranges: int) -> list[int]:
        if request.partitions is None:
            return list(range(ranges))
        return ranges_of(request.partitions, ranges, self._settings.partitions)

    def _target(self, table: TableId, rows: int) -> int:
        readers = readers_of(self._settings, self._runner) * self._settings.slices_of(table)
        return min(MAX_SLICE, max(MIN_SLICE, rows // (2 * readers)))


def _entry(draft: Draft, instance: CaptureInstance | None, low: Lsn, *, lost: bool, overridden: bool) -> SnapshotTable:
    request, schema = draft.request, draft.schema
    return SnapshotTable(
        schema.table,
        schema.object_id,
        instance.name if instance else None,
        low,
        draft.ranges,
        request.whole,
        request.select,
        instance.created if instance else None,
        instance.change_table_id if instance else None,
        request.data,
        lost,
        overridden,
    )
