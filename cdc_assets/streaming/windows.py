"""Carries out planned windows of one or several databases: structures, slices, commits, completion.

One job of the task runner for all windows in flight, and for all their tables.

*Why it is right.* Windows in flight share a number, and each table is of one
database, so it reaches the number with the rows of its own window. The schema
history and the transaction topic are shared by all databases: they get one commit
under the number, with the parts of every window that is carried out.

*Crash between any two steps:* the windows stay pending in the manifest with their
bounds, so the next run carries them out again. Structures that were recorded come
from the history, topic tables that have reached the number are skipped, and the rest
is read again: the same rows, because the bounds are the same and the log does not
change.

*Trouble of one database.* If a database cannot be read any more, or not this time
(a deadlock, a lost connection), or was restored, its window is given up and the
others continue; the server is queried only before the first commit. Windows are
given up before anything is recorded in the history, and again before anything is
committed: after a crash later than that, only the others are pending. So nothing
that was left out of a commit for all databases can be repeated under its number;
the next window begins at each table's position. A trouble that may pass does not
give a window up between the commits of two generations of a topic, where that would
fail the table: the turn is repeated. If no window can be carried out, all stay
pending, and the caller decides.

Other numbers of change rows than the planner counted are such a trouble too (`row_counts`).

A table that has lost data since the window was planned (`losses`) is left out of it.

*Trouble of one table.* Its files are not committed, its position stays, its
state says why, and the window completes for the others. So a table has
everything up to its position, and is tried again from there (`retries`); unless an earlier
attempt has committed a part of the window for it, for which no position is right.

If transactions are numbered, such a table's events were counted with those of the others; so
the window is read again without it, and END counts the events that have a block, no others.
The table's events have none when it catches up.
"""

import dataclasses
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from itertools import islice
from operator import attrgetter
from typing import TypeVar
from uuid import uuid4

from cdc_assets.capture.endings import give_up, is_split, split_commit_reason, unpublished
from cdc_assets.capture.forks import check_recovery_fork
from cdc_assets.capture.instances import Gap
from cdc_assets.capture.lake import Lake
from cdc_assets.capture.ledger import Ledger
from cdc_assets.capture.progress import (
    Progress,
    ProgressListener,
    rows_of,
)
from cdc_assets.capture.server import Server
from cdc_assets.capture.statements import skipped_numbers
from cdc_assets.config.settings import StreamingSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.notification import Notification
from cdc_assets.core.ports import TaskRunner
from cdc_assets.core.steps import step
from cdc_assets.errors import (
    DATABASE_ERRORS,
    TURN_ERRORS,
    CdcDisabledError,
    CdcError,
    DatabaseRestoredError,
    LakeFullError,
)
from cdc_assets.ledger.state import TableState, Unpublished, Window
from cdc_assets.streaming.gaps import with_gap
from cdc_assets.streaming.places import Places
from cdc_assets.streaming.row_counts import check_rows
from cdc_assets.streaming.structures import Structures, WindowStructures
from cdc_assets.streaming.tasks import PlannedRead, run_slice
from cdc_assets.streaming.window_commits import WindowCommits
from cdc_assets.streaming.window_parts import Part, files_of, job_of, reasons_of
from cdc_assets.streaming.window_report import WindowReport
from cdc_assets.streaming.window_tasks import WindowTasks

log = logging.getLogger(__name__)

_AGAIN = "It is tried again by itself, from its position."
P = TypeVar("P", Window, Part)
R = TypeVar("R")


class WindowExecutor:
    """Carries out windows of the log.

    Args:
        server: server whose changes are read.
        listener: called with the progress of each window.
    """

    def __init__(
        self,
        server: Server,
        lake: Lake,
        ledger: Ledger,
        runner: TaskRunner,
        settings: StreamingSettings,
        listener: ProgressListener,
    ) -> None:
        self._server, self._lake, self._ledger = server, lake, ledger
        self._runner, self._settings, self._listener = runner, settings, listener
        self._structures, self._places = WindowStructures(server, lake, ledger), Places(lake, ledger)
        self._commits, self._report = WindowCommits(lake), WindowReport(server.source, lake)
        self._tasks = WindowTasks(server, lake, ledger, runner, settings)

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
        self._runner.get_ready()
        troubles: dict[str, CdcError] = {}
        attempt = uuid4().hex[:8]
        begun = self._each(windows, lambda window: self._begun_part(window, attempt, repeated), troubles, repeated)
        if not begun:
            return troubles
        number = windows[0].window_id
        entries = [entry for part in begun for entry in part.structures.recorded]
        if (
            repeated and not entries and self._lake.history.close(number)
        ):  # a run that was believed dead has recorded some
            return troubles | dict(self.execute(self._ledger.state.pending, repeated=True))
        self._lake.record(number, entries)
        step("history-written")
        try:
            done = self._carry_out(begun, repeated, troubles)
        except LakeFullError:
            self._commits.remove_uncommitted(number, begun, attempt)
            raise
        for progress in done:
            self._listener.note_commit(progress)
        return troubles

    def _each(
        self, parts: Sequence[P], action: Callable[[P], R], troubles: dict[str, CdcError], repeated: bool
    ) -> list[R]:
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
            give_up(self._ledger, self._lake, database, trouble, repeated=repeated)
        troubles.update(found)
        return done

    def _begun_part(self, window: Window, attempt: str, repeated: bool) -> Part:
        states = self._ledger.state.tables
        stopped = [read for read in window.reads if read.table not in states or not states[read.table].streams]
        if repeated:
            self._places.leave_out_stopped(window, stopped)
        window = dataclasses.replace(window, reads=tuple(read for read in window.reads if read not in stopped))
        structures = self._structures.of(window, repeated)
        if structures.recorded:
            check_recovery_fork(self._ledger, self._server.source, window.database)
        return Part(window, structures, attempt)

    def _carry_out(self, begun: Sequence[Part], repeated: bool, troubles: dict[str, CdcError]) -> Sequence[Progress]:
        offset = self._tasks.offset_minutes()

        def plan(part: Part) -> Part:
            self._places.take(part, repeated=repeated)
            part.planned = self._planned(part.window, part.structures, repeated)
            part.tasks = self._tasks.of(part.window, part.planned, part.attempt, offset)
            return part

        planned = self._each(begun, plan, troubles, repeated)
        if not planned:
            return []
        self._places.record(planned)
        results = iter(self._runner.run(run_slice, [task for part in planned for task in part.tasks], job_of(planned)))
        for part in planned:
            part.results = list(islice(results, len(part.tasks)))
        step("files-written")
        judged = self._each(
            planned, lambda part: self._judged(self._numbered(part, offset), repeated), troubles, repeated
        )
        if not judged:
            return []
        published = self._commits.commit(judged, repeated=repeated)
        return self._complete(judged, published=published)

    def _numbered(self, part: Part, offset: int) -> Part:
        """The part; if transactions are numbered, read again without the tables that stay behind, whose events counted."""
        while self._lake.events.transaction_metadata and (tables := part.left_out()):
            part.planned = [entry for entry in part.planned if entry.read.table not in tables]
            part.tasks = self._tasks.of(part.window, part.planned, part.attempt, offset)
            part.results = [*map(reasons_of, part.results), *self._runner.run(run_slice, part.tasks, job_of([part]))]
        return part

    def _judged(self, part: Part, repeated: bool) -> Part:
        """The part with the files to commit and the changed states of tables."""
        window, structures, results = part.window, part.structures, part.results
        for trouble in (result.trouble for result in results if result.trouble):
            raise trouble
        check_recovery_fork(self._ledger, self._server.source, window.database)
        whole = part.whole()
        moved = {table for result in results for table in result.moved} - whole | structures.moved
        failed, committed, torn = dict(structures.failed), set[TableId](), set[TableId]()
        if repeated:
            behind = moved.union(failed, *(result.failed.keys() | result.gaps.keys() for result in results)) - whole
            committed, torn = self._places.leave_behind(window, behind)
            failed |= dict.fromkeys(torn, split_commit_reason("It was altered, or could not be read,"))
            whole |= committed
            moved -= torn | whole
        changed = self._troubled(part, failed, whole, moved, torn)
        for table in moved:
            log.info("%s or its capture instances changed while it was read; the next window reads it again.", table)
        part.behind = {state.table for state in changed} | moved
        unread = part.behind.union(committed, *(result.failed.keys() | result.gaps.keys() for result in results))
        check_rows(
            self._server.source,
            [entry.read for entry in part.planned if entry.read.table not in unread],
            [result.rows for result in results],
            skipped_numbers(self._lake.events.skipped_operations),
        )
        part.files = files_of(results, without=part.behind | committed)
        part.changed = changed + self._handed_over(window, part.behind)
        part.notifications = list(self._removable(window, part.changed, part.behind))
        return part

    def _planned(self, window: Window, structures: Structures, repeated: bool) -> list[PlannedRead]:
        planned = []
        for read in window.reads:
            if read.table in structures.failed or read.table in structures.moved:
                continue
            plan, directory = self._lake.destination(structures.entries[read.table, read.instance])
            directory = read.directory or directory
            committed = read.counted or (repeated and self._lake.tables.committed(directory, window.window_id))
            if not committed or self._lake.events.transaction_metadata:
                planned.append(PlannedRead(read, plan, directory, committed, structures.altered.get(read.instance)))
        return planned

    def _troubled(
        self,
        part: Part,
        failed: dict[TableId, str],
        whole: Set[TableId],
        moved: Collection[TableId],
        torn: Collection[TableId],
    ) -> list[TableState]:
        """States of tables that cannot take part, at their old position; those that are committed lack nothing.

        Those of which a part is committed (`torn`) cannot go on from it, all others can.
        """
        tables = self._ledger.state.tables
        policy = self._settings.gap_policy
        gaps: dict[TableId, Gap] = {}
        for result in part.results:
            failed |= {table: reason for table, reason in result.failed.items() if table not in failed}
            gaps |= {
                table: max(gap, gaps.get(table, gap), key=attrgetter("until")) for table, gap in result.gaps.items()
            }
        for table in whole & (failed.keys() | gaps.keys() | part.structures.moved):
            if self._lake.events.transaction_metadata:
                log.warning(
                    "%s was committed by an earlier attempt and can no longer be read: transaction metadata may lack its events.",
                    table,
                )
            failed.pop(table, None)
            gaps.pop(table, None)
        instances = self._server.instances(part.database) if gaps else {}
        marked = [with_gap(tables[table], gap, policy, instances.get(table, [])) for table, gap in gaps.items()]
        return marked + [
            tables[table].stopped(
                reason if table in torn else f"{reason.rstrip('.')}. {_AGAIN}", again=table not in torn
            )
            for table, reason in failed.items()
            if table not in gaps and table not in moved
        ]

    def _handed_over(self, window: Window, troubled: set[TableId]) -> list[TableState]:
        """States of tables that are read from another instance, or written to another directory, from now on."""
        last = {read.table: read for read in window.reads if not read.counted and read.table not in troubled}
        found: list[TableState] = []
        for table, read in last.items():
            known = self._ledger.state.tables[table]
            state = dataclasses.replace(known, directory=read.directory)
            if read.made is not None or read.instance != known.instance:  # otherwise an earlier release planned it
                made, number = read.made, read.change_table_id
                state = dataclasses.replace(state, instance=read.instance, made=made, change_table_id=number)
            found += [state] if state != known else []
        return found

    def _complete(self, parts: Sequence[Part], *, published: bool) -> list[Progress]:
        before = self._ledger.state.tables
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
        return self._report.of(parts, before)

    def _unpublished(self, part: Part) -> Unpublished | None:
        begun = {read.table for read in part.window.reads if not read.counted} - part.behind
        return unpublished(self._ledger, self._lake, part.window, begun)

    def _removable(self, window: Window, changed: Sequence[TableState], behind: Set[TableId]) -> Iterator[Notification]:
        """After a hand-over the older capture instance may be dropped (spec debezium-sqlserver §1.5, §10.1)."""
        for state in changed:
            old = self._ledger.state.tables[state.table].instance
            if state.table in behind or old is None or old == state.instance:
                continue
            start = next(read.after for read in window.reads if read.instance == state.instance)
            yield self._ledger.notice(
                "Capture Instance",
                "COMPLETED",
                server=self._lake.events.topic_prefix,
                database=window.database,
                capture_instance=old,
                **self._start_of(state.table, old),
                stop_lsn=str(start.next()),
                commit_lsn=str(window.until),
            )

    def _start_of(self, table: TableId, name: str) -> dict[str, str]:
        """`start_lsn` of a capture instance, unless it was dropped already."""
        instances = self._server.instances(table.database).get(table, [])
        return next(({"start_lsn": str(instance.start_lsn)} for instance in instances if instance.name == name), {})
