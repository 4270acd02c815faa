"""Reads whole tables, or ranges of them, and makes READ events of their rows.

`plan` fixes watermarks, ranges and slices, `structures` writes the schema
history, `rounds` reads. This module calls them in order:

| crash after | next run |
|---|---|
| plan of the snapshot | records structures and begins |
| a part of a round | see `lake.step` |
| the last round | sets the positions and ends the snapshot |

A snapshot whose rows must be from one moment restarts instead, unless all of them were read (`locks`).

*Positions* are set when the whole snapshot is complete: a table that was not
streamed before, or has lost changes, or was created again, streams from its
watermark. What the lake has of it ends before: at a former position, or at READs of a snapshot that was given up and whose
watermark could not be reused (`plan`): then changes in between are read by nobody, and exactly that interval is recorded as a
gap. A table whose rows are not read (`no_data`) may be enabled while its database streams. It starts at the start LSN of its
capture instance, so that no change since then is left out. A table whose position is good keeps it, whether it is healthy, left out, or failed and
tried again, so a repeated snapshot loses no event. A position is not good if changes after it are in no capture instance any
more, though no window has found that yet: because nothing was committed since the instance was made again, or because
the rows are read before the next window. Kept, it would lead to the same gap again, after the snapshot that repairs it.
A part of a table never changes the position. A snapshot makes losses good only if it reads all rows: after one that reads none, or those of a
SELECT of `snapshot.select.statement.overrides`, the table goes on and lacks them (`ignored_gaps`). A table that could not be read is tried again by the next run.

*Blocking snapshots* are requested by a signal and run between two windows. They
differ in which rows they read and in the kind of their notifications. The
commit that records the plan also removes the request from the signals' state,
so a signal acts once. A crash after it resumes the snapshot like any other.
"""

import dataclasses
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.notification import Notification
from cdc_assets.core.outages import warn_seldom
from cdc_assets.core.ports import KeyRange
from cdc_assets.core.signal import signal_table
from cdc_assets.errors import CdcError, LakeError, describe_error
from cdc_assets.ledger.gaps import ending_at, skipped_before, with_lost
from cdc_assets.ledger.signal_state import SignalState
from cdc_assets.ledger.snapshot_state import SnapshotRun, SnapshotTable
from cdc_assets.ledger.state import CaptureState
from cdc_assets.ledger.table_state import TableState
from cdc_assets.shared.endings import leave_out_snapshot
from cdc_assets.shared.losses import Losses
from cdc_assets.shared.parts import CaptureParts
from cdc_assets.shared.progress import ProgressListener, RangesRead, SnapshotSummary, TroubledTable
from cdc_assets.snapshot.locks import SnapshotLocks, of_one_moment
from cdc_assets.snapshot.notices import Notices
from cdc_assets.snapshot.plan import Request, SnapshotPlanner
from cdc_assets.snapshot.rounds import Rounds
from cdc_assets.snapshot.structures import Structures
from cdc_assets.system_topics.heartbeat import Heartbeat

__all__ = ["Request", "Snapshotter"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SnapshotWork:
    """What snapshots of a capture are made with.

    Args:
        planner: fixes what is read.
        structures: records structures before rows are read.
        notices: sends notifications about tables and the whole.
    """

    planner: SnapshotPlanner
    structures: Structures
    rounds: Rounds
    notices: Notices


class Snapshotter:
    """Carries out snapshots of one capture.

    Args:
        losses: checks topics before they are written to.
        heartbeat: sends a heartbeat at the end.
        listener: called when the rows of a table are read.
    """

    def __init__(
        self, parts: CaptureParts, losses: Losses, work: SnapshotWork, heartbeat: Heartbeat, listener: ProgressListener
    ) -> None:
        self._lake, self._ledger, self._losses, self._heartbeat = parts.lake, parts.ledger, losses, heartbeat
        self._planner, self._structures = work.planner, work.structures
        self._rounds, self._notices = work.rounds, work.notices
        self._source, self._settings, self._listener = parts.server.source, parts.config.snapshot, listener
        self._signals: Sequence[TableId] = parts.config.signals.collections
        """Signal tables, which are never locked: rows are written into them while others are."""

    @property
    def _state(self) -> CaptureState:
        return self._ledger.state

    def resume(self, database: str, captured: Collection[TableId]) -> SnapshotSummary:
        """Finish a snapshot that an earlier run left unfinished, if its tables are still those that it was planned for.

        Args:
            captured: tables that pass the filters now.

        Raises:
            CdcError: see `run`.
        """
        run = self._state.snapshots.get(database)
        if run is None:
            return SnapshotSummary()
        problem = self._planner.outdated(run, captured)
        if problem:
            again = "The signal must be sent again" if run.signal else "Tables that still need one get another"
            log.warning("The unfinished snapshot of %s is given up, because %s. %s.", database, problem, again)
            self.give_up(database, [self._notices.ended(run, "ABORTED")])
            return SnapshotSummary()
        unread = not self._all_read(run)
        with self._locks([entry.table for entry in run.tables if unread]) as locks:
            if unread and of_one_moment(self._settings):
                log.warning(
                    "The snapshot of %s restarts: its rows must be from one moment, and its locks ended.", database
                )
                leave_out_snapshot(self._ledger, self._lake, database)
                self._ledger.manifest.start_snapshot(self._ledger.clock.now(), self._planner.again(run))
            return self._carry_out(database, locks, repeated=True)

    def commit_recorded(self, database: str) -> None:
        """Commit the round in flight of a database if its files are recorded. The server is not queried.

        Raises:
            LakeError: the lake cannot be written.
            FencedError: another writer has taken over.
        """
        if self._state.written is not None and database in self._state.snapshots and self._state.in_flight(database):
            self._rounds.finish(database, self._structures.record(database, repeated=True))

    def give_up(self, database: str, notifications: Sequence[Notification]) -> None:
        """End the snapshot in flight of a database, which is not carried out further.

        Raises:
            LakeError: the lake cannot be written.
            FencedError: another writer has taken over.
        """
        leave_out_snapshot(self._ledger, self._lake, database)
        self._ledger.manifest.finish_snapshot(self._ledger.clock.now(), database, [], notifications)

    def _locks(self, tables: Sequence[TableId]) -> SnapshotLocks:
        locked = [table for table in tables if signal_table(self._signals, table.database, [table]) is None]
        return SnapshotLocks(self._source, self._settings, locked)

    def _all_read(self, run: SnapshotRun) -> bool:
        """Whether every row was read and recorded, so that only commits are missing."""
        written = self._state.written
        recorded = written.done if written and self._state.in_flight(run.database) else 0
        return max(run.done, recorded) == len(run.slices)

    def run(
        self,
        database: str,
        requests: Sequence[Request],
        signal: str = "",
        signals: Mapping[str, SignalState] | None = None,
    ) -> SnapshotSummary:
        """Snapshot some tables of a database. No snapshot of it may be in flight (`resume`).

        A table that cannot be read does not stop the others; a notification and the summary report it.

        Args:
            requests: one per table, in the order in which they are read.
            signal: id of the signal that requested it, for a blocking snapshot; or empty.
            signals: signal states by database, recorded together with the plan.

        Raises:
            CaptureNotReadyError: the capture job has not read the log yet.
            RetryableError: the server is away or busy; the next call continues where this one stopped.
            LakeError: the lake cannot be written.
            FencedError: another writer has taken over.
        """
        if not requests:
            return SnapshotSummary()
        if delay := self._settings.delay_s:
            log.info("The snapshot of %s starts in %s s (snapshot.delay.ms).", database, delay)
            self._ledger.clock.sleep(delay)
        unfit = self._prepare([request.table for request in requests])
        drafts, failed = self._planner.draft([request for request in requests if request.table not in unfit])
        failed |= unfit
        unplanned = tuple(TroubledTable(table, "failed", describe_error(error)) for table, error in failed.items())
        for trouble in unplanned:
            warn_seldom(log, f"{trouble.table} could not be read: {trouble.reason}")
        notifications = list(self._notices.unplanned(signal, failed))
        if not drafts:
            self._record_unread(database, {trouble.table: trouble.reason for trouble in unplanned})
            self._report_unreadable(list(self._notices.aborted_without_tables(signal, notifications)), signals)
            return SnapshotSummary(failed=unplanned)
        with self._locks([draft.schema.table for draft in drafts]) as locks:
            run = self._planner.plan(database, drafts, signal)
            run = dataclasses.replace(run, failed=tuple((trouble.table, trouble.reason) for trouble in unplanned))
            notifications.insert(0, self._notices.began(run))
            self._ledger.manifest.start_snapshot(self._ledger.clock.now(), run, signals, notifications)
            return self._carry_out(database, locks, repeated=False) + SnapshotSummary(failed=unplanned)

    def _prepare(self, tables: Sequence[TableId]) -> dict[TableId, CdcError]:
        """Prepare the topics of tables that lost data; returns the tables for which that fails, with the reason."""
        unfit = dict[TableId, CdcError]()
        self._losses.before_commit(tables)
        for table in tables:
            known = self._state.tables.get(table)
            try:
                if known is not None and known.status != "healthy":
                    self._losses.clear(table)
            except LakeError as error:
                unfit[table] = error
        return unfit

    def _record_unread(self, database: str, failed: Mapping[TableId, str]) -> None:
        """Record why nothing of new tables could be read, once."""
        new = {table: reason for table, reason in failed.items() if table not in self._state.tables}
        if new.items() - self._state.unread.items():
            self._ledger.manifest.record_unread(self._ledger.clock.now(), database, new)

    def _report_unreadable(
        self, notifications: Sequence[Notification], signals: Mapping[str, SignalState] | None
    ) -> None:
        """Send the notifications of a snapshot without readable tables; if a signal requested it, remove the request."""
        if signals:
            self._ledger.manifest.record_signals(self._ledger.clock.now(), signals, notifications)
            return
        self._notices.send(notifications)

    def _carry_out(self, database: str, locks: SnapshotLocks, *, repeated: bool) -> SnapshotSummary:
        entries = self._structures.record(database, repeated=repeated)
        locks.structures_are_recorded()
        self._rounds.carry_out(database, entries, locks.check)
        return self._end(database)

    def _end(self, database: str) -> SnapshotSummary:
        run = self._state.snapshots[database]
        failed = dict(run.failed)
        finished = [table for table in run.tables if table.table not in failed]
        states = [state for table in finished for state in self._final(table, run.snapshot_id)]
        notifications = self._notices.ended(run, "ABORTED" if failed else "COMPLETED")
        self._ledger.manifest.finish_snapshot(self._ledger.clock.now(), database, states, [notifications])
        for table in finished:
            if table.data and not table.select:  # a signal's own statement reads whatever it says
                self._listener.note_read(_read(run, table))
        for table in run.tables:
            if table.table in failed:
                warn_seldom(log, f"{table.table} could not be read: {failed[table.table]}")
        self._heartbeat.beat(self._ledger.clock, self._state.watermark(database), forced=True)
        troubled = tuple(TroubledTable(table, "failed", reason) for table, reason in failed.items())
        return SnapshotSummary(tuple(table.table for table in finished), troubled)

    def _final(self, table: SnapshotTable, number: int) -> Iterator[TableState]:
        known = self._state.tables.get(table.table)
        same = known if known is not None and known.object_id == table.object_id else None
        ranges = self._ranges(table, same)
        if not table.whole:
            if same is not None and same.ranges != ranges:
                yield dataclasses.replace(same, ranges=ranges)
            return
        # one that was interrupted may have read parts of it under other settings
        overridden = table.overridden or bool(self._settings.override_of(table.table))
        read: Lsn | None = table.low
        reads_all: bool | None = not overridden
        snapshot_id: int | None = number
        if not table.data:
            former = (None, None, None) if same is None else (same.snapshot_lsn, same.reads_all, same.snapshot_id)
            read, reads_all, snapshot_id = former
        early = self._state.early.get(table.table)
        ignored = () if table.data or known is None else known.ignored_gaps
        # rows of a signal table are never read, so none of its gaps stays open for that; a statement may leave out a row whose change is lost
        is_signals = signal_table(self._signals, table.table.database, [table.table]) is not None
        is_unread = not is_signals and (overridden or not table.data)
        if is_unread:
            ignored = known.unrepaired_gaps if known else early.ignored_gaps if early else ()
        if same is not None and same.keeps_position and not table.lost:
            kept = same.tried_again() if same.resumes else same
            directory = self._losses.directory_of(table.table, same.directory)
            yield dataclasses.replace(
                kept,
                ranges=ranges,
                snapshot_lsn=read,
                reads_all=reads_all,
                ignored_gaps=ignored,
                directory=directory,
                snapshot_id=snapshot_id,
            )
            return
        since = self._state.wanted_after(table.table, table.object_id)
        gaps = known.gaps if known else early.gaps if early else ()
        skipped = known.skipped if known else early.skipped if early else ()
        if table.instance and since is not None and since < table.low:
            gaps = with_lost(gaps, since, table.low, joined=True)
            ignored = with_lost(ignored, since, table.low, joined=True) if is_unread else ignored
        yield TableState(
            table=table.table,
            object_id=table.object_id,
            position=table.low if table.instance else None,
            instance=table.instance,
            ranges=ranges,
            snapshot_lsn=read,
            gaps=ending_at(gaps, table.low),
            ignored_gaps=ending_at(ignored, table.low),
            made=table.made,
            change_table_id=table.change_table_id,
            directory=self._losses.directory_of(table.table, known.directory if known else ""),
            skipped=skipped_before(skipped, table.low),
            reads_all=reads_all,
            snapshot_id=snapshot_id,
        )

    def _ranges(self, table: SnapshotTable, known: TableState | None) -> tuple[KeyRange, ...]:
        """The table's key ranges from now on: a statement is read as one range, which is not how the table is cut."""
        if known is None:
            return table.ranges
        if table.select:
            return known.ranges
        if self._settings.override_of(table.table):
            return known.ranges or table.ranges
        return table.ranges or known.ranges


def _read(run: SnapshotRun, table: SnapshotTable) -> RangesRead:
    """What a snapshot that is complete has read of a table."""
    if table.whole:
        return RangesRead(table.table, table.ranges)
    slices = (entry.partition for entry in run.slices if entry.table == table.table)
    numbers = frozenset(number for first, last in slices for number in range(first, last + 1))
    return RangesRead(table.table, table.ranges, numbers)
