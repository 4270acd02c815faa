"""Chooses the next window of a database: bounds, slices, and which table is read from which instance.

*Several databases* each get a window in one turn. All windows are drafted first, one database after another, and then
recorded together. No draft depends on another one: LSNs of two databases are never compared, and what is recorded
meanwhile about one database (a table that is gone, a mark) changes no position of another.

*Upper bound.* The newest captured transaction after the watermark, or the N-th
one (`max.iteration.transactions`), or an earlier one at which there are enough rows
for a window (`slices`). In a backlog the next windows request about as many
transactions as the one before contained, so that rows are not counted
in vain. The capture job writes change rows and the
row of `cdc.lsn_time_mapping` in one transaction, so everything at or below a
commit LSN seen there can be read. When no transaction is new, positions
move to `fn_cdc_get_max_lsn()` from time to time, queried *before* the second query
for a transaction: then nothing lies between, and idle tables do not fall behind
the clean-up job's low-water mark. (A replica that lags has no transactions that another one has: so a server that answers that
query must have the log as far as the first answer.)

*Lower bounds* are each table's own position. A table that was snapshotted later
than the others, or stopped in an earlier window, catches up by itself.

*Idle tables* are found by one probe for all instances. They are neither read
nor committed. They still advance with the window, so the gap guard
checks them too, with marks read after the probe: if the clean-up job removed
rows between position and mark before the probe, the mark shows it.

*A new capture instance is taken over when the log has passed its start*, whether
or not it has a row. The first window that ends after that start reads it; if
no transaction comes, a window that ends at `fn_cdc_get_max_lsn()` does. Both instances
existed when that window was planned, so everything before the start is read from the
older one, which may then be dropped. This should happen early: once the older one is dropped
without that, its changes are unknown (`gaps`). So the instances of an idle database are
queried often, and the whole database is checked if they have changed or one waits
for the log to pass its start. A replica that lags would not show the new one, and its columns would be left out of the
events: so instances come from a server that has captured the log up to the window's end.
"""

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial

from cdc_assets.core.collection import gc_paused
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn, Position
from cdc_assets.core.ports import TaskRunner
from cdc_assets.core.schema import CaptureInstance
from cdc_assets.ledger.state import CaptureState, TableRead, Unpublished, Window
from cdc_assets.ledger.table_state import TableState
from cdc_assets.shared.forks import check_recovery_fork
from cdc_assets.shared.instances import clip, gap_behind, gap_of, instance_of, newest, reads_of
from cdc_assets.shared.losses import Losses
from cdc_assets.shared.parts import CaptureParts
from cdc_assets.shared.statements import skipped_numbers
from cdc_assets.streaming.destinations import plan_destinations
from cdc_assets.streaming.gaps import Instances, with_gap
from cdc_assets.streaming.gone import GoneTables
from cdc_assets.streaming.retries import Retries
from cdc_assets.streaming.row_counts import counted, together
from cdc_assets.streaming.slices import cut_window, end_of_window, parts_of, rows_of_window, share_of, worth_tasks

log = logging.getLogger(__name__)

IDLE_CHECK = timedelta(seconds=30)
"""How often the tables of an idle database are checked and positions moved over foreign transactions."""

HAND_OVER_CHECK = timedelta(seconds=5)
"""How often an idle database is queried whether its capture instances have changed: one small query."""


class Planner:
    """Drafts and records windows, and records states of tables meanwhile.

    Args:
        runner: task runner whose number of parallel tasks decides the number of slices.
        losses: checks topics before they are written to.
    """

    def __init__(self, parts: CaptureParts, runner: TaskRunner, losses: Losses) -> None:
        self._server, self._lake, self._ledger = parts.server, parts.lake, parts.ledger
        self._runner, self._settings, self._losses = runner, parts.config.streaming, losses
        self._skipped = skipped_numbers(parts.lake.events.skipped_operations)
        self._retries = Retries(parts.ledger)
        self._gone = GoneTables(parts.server, parts.lake, parts.ledger)
        self._checked: dict[str, timedelta] = {}
        self._asked: dict[str, timedelta] = {}
        self._names: dict[str, frozenset[str]] = {}
        """Names of the capture instances by database, at the last check."""
        self._passed: set[str] = set()
        """Databases whose last plan has left out all transactions up to a limit."""
        self._awaited: set[str] = set()
        """Databases with a capture instance that is not taken over yet."""
        self._rows: dict[str, int] = {}
        """Change rows of the window that was drafted last, by database."""
        self._shares: dict[str, int] = {}
        """Change rows of the windows that were recorded together last, by database."""
        self._enough: dict[str, int] = {}
        """Number of transactions with rows enough for two windows, by database with a backlog."""
        self._without_position: dict[str, frozenset[TableId]] = {}
        """Tables by database that have a capture instance but no position yet."""

    @property
    def _state(self) -> CaptureState:
        return self._ledger.state

    def plan(self, database: str) -> Window | None:
        """Draft the next window, without a number (`record`), or None if there is nothing to read.

        Raises:
            RetryableError: the server is away or busy.
            DatabaseRestoredError: the database is no longer in the history that was read.
            FencedError: another writer has taken over.
        """
        source, streaming = self._server.source, self._settings
        self._retries.begin(database)
        self._passed.discard(database)
        after = self._state.watermark(database)
        if after is None:
            self._check_for_tables(database)
            return None
        limits = [limit for limit in (streaming.max_iteration_transactions, self._enough.get(database, 0)) if limit]
        limit, left = min(limits, default=0), self._state.unpublished.get(database)
        until = left.until if left else source.max_transaction_lsn(database, after, limit)
        if until is None:
            return self._idle(database, after)
        # what is left was read already: a server that has not got that may be one that was restored
        check_recovery_fork(self._ledger, source, database, ZERO_LSN if left else until)
        reads = self._active(database, self._guarded(database, until, until), until)
        if reads is not None:
            self._losses.before_commit({read.table for read in reads})
        if reads is None or not all(self._state.tables[read.table].streams for read in reads):
            return self.plan(database)
        if not self._streaming(database):
            return None
        if left:
            reads = [*reads, *self._counted(database, left)]
        if not reads:
            self._ledger.manifest.advance(self._ledger.clock.now(), database, until)
            enough = self._enough.pop(database, 0)  # of transactions that are read: many others are passed in few steps
            if not left and self._is_cut(database, after, until, limit):
                self._passed.add(database)
                self._enough |= {database: 2 * enough} if enough else {}
            return None
        with gc_paused():  # thousands of counts that are gone after it
            return self._drafted(database, reads, until)

    def has_passed(self, database: str) -> bool:
        """Whether the last plan of a database has left out all transactions up to a limit, so that more may wait behind it."""
        return database in self._passed

    def _is_cut(self, database: str, after: Lsn, until: Lsn, limit: int) -> bool:
        """Whether a limit has kept out transactions. Where it has not, those that were made since are within it: they do not count, or a
        run would not end beside a steady trickle of them."""
        nth = self._server.source.max_transaction_lsn
        return limit > 0 and nth(database, until, 1, until) is not None and nth(database, after, limit, until) == until

    def _counted(self, database: str, left: Unpublished) -> list[TableRead]:
        """Reads of tables whose events were committed before their transactions were published."""
        instances = self._server.instances(database, refresh=False)
        reads = [read for read in left.reads if read.table in self._state.tables]
        parts = [part for read in reads if (part := clip(read, left.known, left.until))]
        there = [part for part in parts if instance_of(part, instances.get(part.table, []))]
        if lost := sorted({part.instance for part in parts if part not in there}):
            log.warning(
                "Transactions of database %s in (%s, %s] are published without the events of %s, dropped meanwhile.",
                database, left.known, left.until, ", ".join(lost),
            )  # fmt: skip
        return there

    def record(self, drafts: Sequence[Window]) -> Sequence[Window]:
        """Record windows that are carried out together, under the next number.

        Raises:
            FencedError: another writer has taken over.
        """
        number = self._state.next_window
        self._shares = {draft.database: self._rows.get(draft.database, 0) for draft in drafts}
        tables = self._state.tables
        skipped = self._lake.events.skipped_changes
        topic = self._lake.transactions(wanted=any(draft.database in self._state.unpublished for draft in drafts))
        windows = [
            plan_destinations(dataclasses.replace(draft, window_id=number, transactions=topic, skipped=skipped), tables)
            for draft in drafts
        ]
        self._ledger.manifest.plan(self._ledger.clock.now(), *windows)
        return windows

    def _drafted(self, database: str, reads: Sequence[TableRead], until: Lsn) -> Window:
        self._runner.get_ready()
        streaming = self._settings
        names: dict[str, Lsn] = {}
        for read in reads:  # one instance may be read for new changes and, before them, to be counted
            names[read.instance] = min(read.after, names.get(read.instance, read.after))
        found = self._server.source.rows_per_commit(database, names, until, self._skipped)
        counts = together(found)
        tasks = self._runner.parallelism if worth_tasks(sum(rows for _, rows in counts)) else 1
        max_rows = share_of(database, rows_of_window(streaming.window_rows, tasks), self._shares)
        end = self._bounded(database, counts, until, max_rows)
        if end < until:
            until, counts = end, [(lsn, rows) for lsn, rows in counts if lsn <= end]
        self._rows[database] = sum(rows for _, rows in counts)
        parts = streaming.slices or parts_of(self._rows[database], tasks)
        places = partial(self._server.source.positions_in_commit, database, list(names))
        borders = cut_window(counts, until, parts, places if streaming.query_mode == "direct" else None)
        clipped = [counted(part, found) for read in reads if (part := clip(read, read.after, until))]
        return Window(
            window_id=0,
            kind="stream",
            database=database,
            after=min(read.after for read in clipped),
            until=until,
            bounds=tuple(border for border in borders if isinstance(border, Lsn)),
            reads=tuple(clipped),
            cuts=tuple(border for border in borders if isinstance(border, Position)),
        )

    def _bounded(self, database: str, counts: Sequence[tuple[Lsn, int]], until: Lsn, max_rows: int) -> Lsn:
        """Upper bound of the window by its rows; also decides how many transactions the next window requests."""
        end = end_of_window(counts, until, max_rows)
        rows = sum(count for _, count in counts)
        self._enough.pop(database, None)
        if rows > max_rows:
            self._enough[database] = max(1, 2 * max_rows * len(counts) // rows)
        return end

    def _idle(self, database: str, after: Lsn) -> Window | None:
        """Check a database without new transactions, from time to time; returns a window if an instance is taken over."""
        now = self._ledger.clock.elapsed()
        if not self._is_check_due(database, now):
            return None
        self._checked[database] = self._asked[database] = now
        captured = self._server.source.max_captured_lsn(database)
        check_recovery_fork(self._ledger, self._server.source, database, captured or ZERO_LSN)
        if captured is None or self._server.source.max_transaction_lsn(database, after, 1, captured) is not None:
            return None
        reads = self._guarded(database, max(captured, after), captured)
        is_lost = self._mark_gaps(database, reads)
        if captured <= after or is_lost or not self._streaming(database):
            return None
        if new := [read for parts in reads.values() for read in parts if self._is_new(read)]:
            return self._drafted(database, new, captured)
        self._ledger.manifest.advance(self._ledger.clock.now(), database, captured)
        return None

    def _check_for_tables(self, database: str) -> None:
        """Look for tables of a database from which nothing streams yet, from time to time."""
        now = self._ledger.clock.elapsed()
        if database not in self._asked or now - self._asked[database] >= HAND_OVER_CHECK:
            self._asked[database] = now
            self._find_tables_without_position(database, self._server.instances(database))

    def tables_without_position(self, database: str) -> frozenset[TableId]:
        """Tables that had a capture instance but no position when a database was last examined."""
        return self._without_position.get(database, frozenset())

    def _find_tables_without_position(self, database: str, instances: Instances) -> None:
        self._without_position[database] = frozenset(
            table for table in instances if not self._state.has_position(table)
        )

    def _is_check_due(self, database: str, now: timedelta) -> bool:
        if database not in self._checked or now - self._checked[database] >= IDLE_CHECK:
            return True
        if now - self._asked[database] < HAND_OVER_CHECK:
            return False
        self._asked[database] = now
        known = self._names.get(database)
        return database in self._awaited or frozenset(self._marks(database)) != known

    def _is_new(self, read: TableRead) -> bool:
        """Whether the read is of a capture instance that is to be taken over."""
        return read.identity != self._state.tables[read.table].identity

    def _marks(self, database: str) -> Mapping[str, Lsn]:
        """Low-water marks, read now."""
        marks = self._server.source.low_water_marks(database)
        self._names[database] = frozenset(marks)
        return marks

    def _streaming(self, database: str) -> list[TableState]:
        return [state for state in self._state.tables.values() if state.table.database == database and state.streams]

    def _guarded(self, database: str, until: Lsn, known: Lsn) -> dict[TableId, list[TableRead]]:
        """What each streaming table would read up to `until`; tables with a gap are marked by the gap policy.

        Args:
            known: up to where the log was seen to be captured.
        """
        instances = self._gone.retire(database, known)
        self._find_tables_without_position(database, instances)
        changed: list[TableState] = []
        reads: dict[TableId, list[TableRead]] = {}
        waiting = False
        for state in self._streaming(database):
            found = instances.get(state.table, [])
            state, parts = self._without_gap(state, found, until)
            if state != self._state.tables[state.table]:
                changed.append(state)
            if state.streams:
                reads[state.table] = parts
                waiting |= (last := newest(found)) is not None and last.identity != state.identity
        (self._awaited.add if waiting else self._awaited.discard)(database)
        self._ledger.manifest.mark(self._ledger.clock.now(), database, changed)
        return reads

    def end_missing_tables(self, database: str) -> None:
        """Retire tables that are gone, without reading anything."""
        self._gone.retire(database)

    def _without_gap(
        self, state: TableState, instances: Sequence[CaptureInstance], until: Lsn
    ) -> tuple[TableState, list[TableRead]]:
        """The table's reads, after the gap policy was applied to changes that cannot be read."""
        assert state.position is not None  # noqa: S101 - it streams
        gap = gap_behind(state, instances)
        if gap is None:
            parts = reads_of(state.table, instances, state.position, max(until, state.position))
            return state, [dataclasses.replace(part, begins=state.begins) for part in parts] if state.begins else parts
        state = with_gap(state, gap, self._settings.gap_policy, instances)
        if not state.streams or state.position is None or state.position >= until:
            return state, []
        return state, reads_of(state.table, instances, state.position, until)

    def _active(self, database: str, reads: Mapping[TableId, list[TableRead]], until: Lsn) -> list[TableRead] | None:
        """Reads of instances that have rows or are taken over; None if a table lost changes, so that planning starts again."""
        flat = [read for parts in reads.values() for read in parts]
        if not flat:
            return []
        active = self._server.source.active_instances(database, {read.instance: read.after for read in flat}, until)
        is_lost = self._mark_gaps(database, reads)
        return None if is_lost else [read for read in flat if read.instance in active or self._is_new(read)]

    def _mark_gaps(self, database: str, reads: Mapping[TableId, list[TableRead]]) -> bool:
        """Mark tables whose changes are gone by now, according to the gap policy; returns whether there are any."""
        policy, marks = self._settings.gap_policy, self._marks(database)
        gaps = [gap for parts in reads.values() if (gap := gap_of(parts, marks))]
        instances = self._server.instances(database) if gaps else {}
        changed = [with_gap(self._state.tables[gap.table], gap, policy, instances.get(gap.table, [])) for gap in gaps]
        self._ledger.manifest.mark(self._ledger.clock.now(), database, changed)
        return bool(gaps)
