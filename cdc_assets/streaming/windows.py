"""Carries out planned windows of one or several databases: structures, slices, commits, completion.

One job of the task runner for all windows in flight, and for all their tables.

*Why it is right.* Windows in flight share a number, and each table is of one
database, so it reaches the number with the rows of its own window. The schema
history and the transaction topic are shared by all databases: they get one commit
under the number, with the parts of every window that is carried out.

*The step* can be read twice, since its bounds are fixed and the log does not change (`lake.step`: order, and what a crash
does). Before its tasks the structures are recorded; a repeat takes them from the history. The transactions of all databases
are committed after all tables.

*Trouble of one database.* A database cannot be read any more, or not this time (a deadlock, a lost connection), or was restored.
Then its window is given up and the others continue; the server is queried only before the first commit. Windows are
given up before anything is recorded in the history, and again before anything is
committed: after a crash later than that, only the others are pending. So nothing
that was left out of a commit for all databases can be repeated under its number;
the next window begins at each table's position. A trouble that may pass does not
give a window up between the commits of two generations of a topic, where that would
fail the table: the turn is repeated. If no window can be carried out, all stay
pending, and the caller decides.

Other numbers of change rows than the planner counted are such a trouble too (`row_counts`).

A table that has lost data since the window was planned (`losses`) is left out of it.

*Trouble of one table* (`evaluation`). Its files are not committed, its position stays, its
state says why, and the window completes for the others. So a table has
everything up to its position, and is tried again from there (`retries`).

If transactions are numbered, such a table's events were counted with those of the others; so
the window is read again without it, and END counts the events that have a block, no others.
The table's events have none when it catches up.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TypeVar
from uuid import uuid4

from cdc_assets.core.ports import TaskRunner
from cdc_assets.core.steps import step as reach
from cdc_assets.envelope.plan import EventPlan
from cdc_assets.errors import (
    DATABASE_ERRORS,
    LAKE_ERRORS,
    TURN_ERRORS,
    CdcDisabledError,
    CdcError,
    DatabaseRestoredError,
    LakeFullError,
)
from cdc_assets.history.records import HistoryEntry
from cdc_assets.lake.step import Change, Step, carry_out
from cdc_assets.ledger.state import TableRead, Unpublished, Window
from cdc_assets.shared.endings import give_up, is_split, unpublished
from cdc_assets.shared.forks import check_recovery_fork
from cdc_assets.shared.parts import CaptureParts
from cdc_assets.shared.progress import ProgressListener, rows_of
from cdc_assets.streaming.destinations import Destinations
from cdc_assets.streaming.evaluation import Evaluation
from cdc_assets.streaming.structures import Structures, WindowStructures
from cdc_assets.streaming.tasks import PlannedRead, run_slice
from cdc_assets.streaming.window_commits import TransactionsChange, events_of, remove_uncommitted
from cdc_assets.streaming.window_parts import Part, job_of, reasons_of
from cdc_assets.streaming.window_report import WindowReport
from cdc_assets.streaming.window_tasks import WindowTasks

log = logging.getLogger(__name__)

P = TypeVar("P", Window, Part)
R = TypeVar("R")


class WindowExecutor:
    """Carries out windows of the log.

    Args:
        listener: called with the progress of each window.
    """

    def __init__(self, parts: CaptureParts, runner: TaskRunner, listener: ProgressListener) -> None:
        self.server, self.lake, self.ledger = parts.server, parts.lake, parts.ledger
        self.runner, self.listener = runner, listener
        self.structures = WindowStructures(self.server, self.lake, self.ledger)
        self.destinations = Destinations(self.lake, self.ledger)
        self.evaluation = Evaluation(parts, self.destinations)
        self.report = WindowReport(self.server.source, self.lake)
        self.tasks = WindowTasks(parts, runner)

    def execute(self, windows: Sequence[Window], *, repeated: bool) -> Mapping[str, CdcError]:
        """Read, write, commit and complete the pending windows.

        Args:
            windows: all that are pending in the manifest.
            repeated: whether an earlier attempt may have committed some of their tables.

        Returns:
            By database, the reason for which its window was given up, so that the others could be carried out; if
            none could, all stay pending.

        Raises:
            RetryableError: the server is away or busy; the windows stay pending.
            LakeFullError: the store is full; they stay pending and leave no uncommitted file.
            LakeError: the lake cannot be written; they stay pending.
            FencedError: another writer has taken over.
        """
        self.runner.get_ready()
        attempt = WindowAttempt(self, self._with_skipped(windows), repeated=repeated)
        try:
            if parts := attempt.read():
                carry_out(attempt.step(parts), self.lake.tables.require_files)
        except LakeFullError:
            with suppress(*LAKE_ERRORS):
                remove_uncommitted(self.lake, attempt.number, attempt.begun, attempt.name)
            raise
        return attempt.troubles

    def _with_skipped(self, windows: Sequence[Window]) -> Sequence[Window]:
        """The windows with what the settings of today leave out of a repeat, too; recorded before anything is read."""
        own = self.lake.events.skipped_changes
        found = [replace(window, skipped="".join(sorted({*window.skipped, *own}))) for window in windows]
        if found != list(windows):
            self.ledger.manifest.record_destinations(self.ledger.clock.now(), found)
        return found


class WindowAttempt:
    """An attempt to carry out all windows in flight, which share their number.

    Args:
        windows: all that are pending in the manifest.
        repeated: whether an earlier attempt may have committed some of their tables.
    """

    def __init__(self, executor: WindowExecutor, windows: Sequence[Window], *, repeated: bool) -> None:
        self._executor, self._windows, self._repeated = executor, windows, repeated
        self._lake, self._ledger, self._tasks = executor.lake, executor.ledger, executor.tasks
        self.number, self.name = windows[0].window_id, uuid4().hex[:8]
        self.begun: list[Part] = []
        self.troubles: dict[str, CdcError] = {}
        """By database, why its window was given up."""

    def read(self) -> list[Part]:
        """Record structures, read the windows, evaluate what came back; empty if none of them can be carried out now."""
        # structures first: they decide how rows are read and where they go
        self.begun = self._each(self._windows, self._begin)
        entries = [entry for part in self.begun for entry in part.structures.recorded]
        if self.begun and self._repeated and not entries and self._lake.history.close(self.number):
            # a run that was believed dead has recorded some
            self._windows = self._ledger.state.pending
            return self.read()
        if not self.begun:
            return []
        # before any row of it is committed, so that no reader meets a row whose structure the history lacks
        self._lake.record(self.number, entries)
        reach("history-written")
        offset = self._tasks.offset_minutes()
        planned = self._each(self.begun, lambda part: self._plan(part, offset))
        if not planned:
            return []
        # before a file is written, so that a repetition writes to the same generations
        self._executor.destinations.record(planned)
        tasks = [task for part in planned for task in part.tasks]
        # one job for the slices of all databases; results come in the order of the tasks
        results = iter(self._executor.runner.run(run_slice, tasks, job_of(planned)))
        for part in planned:
            part.results = list(islice(results, len(part.tasks)))
        reach("files-written")
        # which tables may be committed is decided from what all tasks report, before any of them is
        evaluate = self._executor.evaluation.evaluate
        return self._each(planned, lambda part: evaluate(self._numbered(part, offset), repeated=self._repeated))

    def step(self, parts: Sequence[Part]) -> Step:
        """The commits of what was read: the tables of all windows, and after them the transactions."""
        tables: list[Change] = [change for part in parts for change in events_of(self._lake.tables, part)]
        numbered = bool(parts[0].window.transactions)
        transactions = TransactionsChange(self._lake, parts, repeated=self._repeated) if numbered else None
        commits: list[Sequence[Change]] = [tables, [transactions] if transactions else []]
        return Step(self.number, commits, complete=partial(self._complete, parts, transactions))

    def _complete(self, parts: Sequence[Part], transactions: TransactionsChange | None) -> None:
        """Record that the windows are complete, and report it."""
        before, published = self._ledger.state.tables, transactions is None or transactions.published
        left = {} if published else {part.database: self._unpublished(part) for part in parts}
        self._ledger.manifest.complete(
            self._ledger.clock.now(),
            [state for part in parts for state in part.changed],
            [table for part in parts for table in part.behind],
            {str(table): rows_of(files) for part in parts for table, files in part.written().items()},
            [notification for part in parts for notification in part.notifications],
            unpublished={database: entry for database, entry in left.items() if entry},
            published=published,
        )
        for progress in self._executor.report.of(parts, before):
            self._executor.listener.note_commit(progress)

    def _unpublished(self, part: Part) -> Unpublished | None:
        torn = {entry.read for entry in part.planned if entry.committed}
        reads = [
            read for read in part.window.reads if not read.counted and (read.table not in part.behind or read in torn)
        ]
        return unpublished(self._ledger, part.window, reads)

    def _each(self, parts: Sequence[P], action: Callable[[P], R]) -> list[R]:
        """Results of an action for each window; windows of databases in trouble are given up if there are others."""
        done: list[R] = []
        found: dict[str, CdcError] = {}
        for part in parts:
            try:
                done.append(action(part))
            except (CdcDisabledError, DatabaseRestoredError, *DATABASE_ERRORS) as error:
                found[part.database] = error
        for database, trouble in found.items() if done else ():
            if isinstance(trouble, TURN_ERRORS) and is_split(self._ledger, self._lake, database):
                raise trouble
        for database, trouble in found.items() if done else ():
            log.warning("The window of database %s is given up: %s", database, trouble)
            give_up(self._ledger, self._lake, database, trouble, repeated=self._repeated)
        self.troubles.update(found)
        return done

    def _begin(self, window: Window) -> Part:
        states = self._ledger.state.tables
        stopped = [
            read
            for read in window.reads
            if read.table not in states or not (read.counted or states[read.table].streams)
        ]
        if self._repeated:
            self._executor.destinations.leave_out_stopped(window, stopped)
        window = replace(window, reads=tuple(read for read in window.reads if read not in stopped))
        structures = self._executor.structures.of(window, self._repeated)
        if structures.recorded:
            check_recovery_fork(self._ledger, self._executor.server.source, window.database)
        return Part(window, structures, self.name)

    def _plan(self, part: Part, offset: int) -> Part:
        self._executor.destinations.take(part, repeated=self._repeated)
        part.dropped = {*part.structures.failed, *part.structures.moved}
        part.planned = self._planned(part.window, part.structures)
        part.tasks = self._tasks.of(part.window, part.planned, part.attempt, offset)
        return part

    def _planned(self, window: Window, structures: Structures) -> list[PlannedRead]:
        planned = []
        for read in window.reads:
            is_left_out = read.table in structures.failed or read.table in structures.moved
            if read in structures.uncounted or (is_left_out and not read.counted):
                continue
            plan, directory = self._destination(read, structures.entries[read.table, read.instance])
            committed = read.counted or (self._repeated and self._lake.tables.committed(directory, window.window_id))
            if not committed or window.transactions:
                planned.append(PlannedRead(read, plan, directory, committed, structures.altered.get(read.instance)))
        return planned

    def _destination(self, read: TableRead, entry: HistoryEntry) -> tuple[EventPlan, str]:
        """How the rows of a read become events, and where they belong; what is only counted touches no topic."""
        if read.counted:
            return self._lake.plan(entry.schema, entry.captured), read.directory
        plan, directory = self._lake.destination(entry)
        return plan, read.directory or directory

    def _numbered(self, part: Part, offset: int) -> Part:
        """The part; if transactions are numbered, read again without the tables that keep their position, whose events counted."""
        while part.window.transactions and (tables := part.left_out()):
            part.dropped |= tables
            part.planned = [entry for entry in part.planned if entry.committed or entry.read.table not in tables]
            part.tasks = self._tasks.of(part.window, part.planned, part.attempt, offset)
            part.results = [
                *map(reasons_of, part.results),
                *self._executor.runner.run(run_slice, part.tasks, job_of([part])),
            ]
        return part
