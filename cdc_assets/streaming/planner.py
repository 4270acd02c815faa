"""Chooses the next window of a database: bounds, slices, and which table is read from which instance.

*Upper bound.* The newest captured transaction behind the watermark, or the N-th
one (`max.iteration.transactions`). The capture job writes change rows and the
row of `cdc.lsn_time_mapping` in one transaction, so everything at or below a
commit LSN that we see there can be read. When no transaction is new, positions
move to `fn_cdc_get_max_lsn()` from time to time, asked *before* the second look
for a transaction: then nothing lies between, and idle tables do not fall behind
the clean-up job's low-water mark.

*Lower bounds* are each table's own position. A table that was snapshotted later
than the others, or was troubled in an earlier window, catches up by itself.

*Idle tables* are found by one probe for all instances; they are neither read
nor committed. They still advance with the window, which is why the gap guard
looks at them too, with marks read after the probe: had the clean-up job removed
rows between position and mark before the probe looked, the mark tells.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.schema import CaptureInstance
from cdc_assets.lake.state import CaptureState, TableRead, TableState, Window
from cdc_assets.streaming.context import Context
from cdc_assets.streaming.forks import look
from cdc_assets.streaming.instances import Gap, gap_of, newest, reads_of
from cdc_assets.streaming.retire import retire

IDLE_CHECK = timedelta(seconds=30)
"""How often an idle database's tables are looked at and positions moved over foreign transactions."""

_SLICE_ROWS = 10_000
"""Change rows that are worth a task of their own: to begin one takes as long, and makes another file of each table."""

_KEEP_GAPS = 100
"""Gaps a table's state remembers; the manifest's rows and Delta's versions hold older ones."""

Instances = Mapping[TableId, Sequence[CaptureInstance]]


class Planner:
    """Plans windows and records states of tables on the way.

    Args:
        context: of the capture.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._checked: dict[str, datetime] = {}
        self.strangers: frozenset[TableId] = frozenset()
        """Tables with a capture instance, by the last look, of which it is not known from where on they are read."""

    @property
    def _state(self) -> CaptureState:
        return self._context.manifest.state

    def plan(self, database: str) -> Window | None:
        """Plan and record the next window, or None if there is nothing to read.

        Raises:
            RetryableError: the server is away or busy.
            DatabaseRestoredError: the database is not in the history that was read.
            FencedError: another writer has taken over.
        """
        source, streaming = self._context.source, self._context.config.streaming
        after = self._state.watermark(database)
        if after is None:
            return None
        until = source.max_transaction_lsn(database, after, streaming.max_iteration_transactions)
        if until is None:
            self._idle(database, after)
            return None
        look(self._context, database)
        reads = self._active(database, self._guarded(database, until), until)
        if reads is None:
            return self.plan(database)
        if not self._streaming(database):
            return None
        if not reads:
            self._context.manifest.advance(self._context.clock.now(), database, until)
            return None
        window = Window(
            window_id=self._state.next_window,
            kind="stream",
            database=database,
            after=min(read.after for read in reads),
            until=until,
            bounds=self._cut(database, reads, until),
            reads=tuple(reads),
        )
        self._context.manifest.plan(self._context.clock.now(), window)
        return window

    def _idle(self, database: str, after: Lsn) -> None:
        now = self._context.clock.now()
        if database in self._checked and now - self._checked[database] < IDLE_CHECK:
            return
        self._checked[database] = now
        look(self._context, database)
        captured = self._context.source.max_captured_lsn(database)
        if captured is None or self._context.source.max_transaction_lsn(database, after, 1) is not None:
            return
        reads = self._guarded(database, max(captured, after))
        lost = self._marked_after(database, reads, self._context.source.low_water_marks(database))
        if captured > after and not lost and self._streaming(database):
            self._context.manifest.advance(now, database, captured)

    def _streaming(self, database: str) -> list[TableState]:
        return [state for state in self._state.tables.values() if state.table.database == database and state.streams]

    def _guarded(self, database: str, until: Lsn) -> dict[TableId, list[TableRead]]:
        """What each streaming table would read up to `until`; tables that cannot go on are marked."""
        instances = self._context.instances(database)
        self.strangers = frozenset(table for table in instances if not self._state.has_position(table))
        self._retire(database, instances)
        changed: list[TableState] = []
        reads: dict[TableId, list[TableRead]] = {}
        for state in self._streaming(database):
            own = instances.get(state.table, [])
            state, parts = self._without_gap(state, own, until)
            if state != self._state.tables[state.table]:
                changed.append(state)
            if state.streams:
                reads[state.table] = parts
        self._context.manifest.mark(self._context.clock.now(), database, changed)
        return reads

    def take_leave(self, database: str) -> None:
        """Look for tables that are gone, without reading anything."""
        self._retire(database, self._context.instances(database))

    def _retire(self, database: str, instances: Instances) -> None:
        gone = []
        for state in self._state.tables.values():
            if state.status == "excluded":
                continue
            known = state.streams or (state.position is not None and self._context.history.latest(state.table))
            if state.table.database == database and known:
                problem = identity_problem(state, instances.get(state.table, []), instances)
                gone += [dataclasses.replace(state, status="failed", reason=problem)] if problem else []
        retire(self._context, database, gone)

    def _without_gap(
        self, state: TableState, own: Sequence[CaptureInstance], until: Lsn
    ) -> tuple[TableState, list[TableRead]]:
        """The table's reads, after its gap policy was applied to what cannot be read."""
        marks = {instance.name: instance.start_lsn for instance in own}
        assert state.position is not None  # noqa: S101 - it streams
        parts = reads_of(state.table, own, state.position, max(until, state.position))
        gap = gap_of(parts, marks)
        if gap is None:
            return state, parts
        state = with_gap(state, gap, self._context.config.streaming.gap_policy)
        if not state.streams or state.position is None or state.position >= until:
            return state, []
        return state, reads_of(state.table, own, state.position, until)

    def _active(self, database: str, reads: Mapping[TableId, list[TableRead]], until: Lsn) -> list[TableRead] | None:
        """Reads of instances that have rows; None if a table lost changes meanwhile, so that all must be asked again."""
        flat = [read for parts in reads.values() for read in parts]
        if not flat:
            return []
        active = self._context.source.active_instances(database, {read.instance: read.after for read in flat}, until)
        lost = self._marked_after(database, reads, self._context.source.low_water_marks(database))
        return None if lost else [read for read in flat if read.instance in active]

    def _marked_after(
        self, database: str, reads: Mapping[TableId, list[TableRead]], marks: Mapping[str, Lsn]
    ) -> set[TableId]:
        gaps = [gap for parts in reads.values() if (gap := gap_of(parts, marks))]
        self.record_gaps(database, gaps)
        return {gap.table for gap in gaps}

    def record_gaps(self, database: str, gaps: Iterable[Gap]) -> None:
        """Mark tables whose changes are gone, by the gap policy."""
        policy = self._context.config.streaming.gap_policy
        changed = [with_gap(self._state.tables[gap.table], gap, policy) for gap in gaps]
        self._context.manifest.mark(self._context.clock.now(), database, changed)

    def _cut(self, database: str, reads: Sequence[TableRead], until: Lsn) -> tuple[Lsn, ...]:
        wanted, tasks = self._context.config.streaming.slices, self._context.runner.parallelism
        slices, least = (wanted, 1) if wanted else (tasks, _SLICE_ROWS)
        names = list(dict.fromkeys(read.instance for read in reads))
        after = min(read.after for read in reads)
        bounds = self._context.source.slice_bounds(database, names, after, until, slices, least)
        return tuple(bounds) if bounds and bounds[-1] == until else (*bounds, until)


def with_gap(state: TableState, gap: Gap, policy: str) -> TableState:
    """The table's state after a gap; with policy `ignore` it goes on behind it."""
    after = state.position or gap.after
    marked = dataclasses.replace(state, gaps=(*state.gaps, (after, gap.until))[-_KEEP_GAPS:])
    if policy == "ignore":
        return dataclasses.replace(marked, position=gap.until)
    reason = (
        f"Changes after {after} up to {gap.until} were removed by the clean-up job before they were read. "
        f"Next: materialize the table's snapshot asset, or set gap.policy=resnapshot."
    )
    return dataclasses.replace(marked, status="gap", reason=reason)


def identity_problem(state: TableState, own: Sequence[CaptureInstance], instances: Instances) -> str:
    """Why a table is no longer the one its position belongs to, or nothing."""
    last = newest(own)
    if last is None:
        renamed = next(
            (name for name, found in instances.items() if found[0].source_object_id == state.object_id), None
        )
        if renamed:
            return (
                f"{state.table} was renamed or moved to {renamed}; its changes stop at {state.position}. "
                f"Next: capture {renamed} and materialize its snapshot asset."
            )
        return (
            f"{state.table} was dropped or has no capture instance any more; its changes stop at {state.position}. "
            "Next: enable it again with sys.sp_cdc_enable_table and materialize its snapshot asset."
        )
    if last.source_object_id != state.object_id:
        return (
            f"{state.table} was dropped and created again (object {state.object_id}, now {last.source_object_id}); "
            f"its old changes stop at {state.position}. Next: materialize its snapshot asset."
        )
    return ""
