"""Carries out a planned window: structures, slices, commits, completion.

There is one job of the task runner per window, for all tables. *Crash between any two
steps:* the window stays pending in the manifest with its bounds, so the next
run repeats it. Recorded structures come from the history, and
topic tables that have reached the window are skipped. The others are read again, with
the same rows, because the bounds are the same and the log does not change.

A table that has lost data since the window was planned (`losses`) is left out of it.

*Problems of one table.* Its files are not committed, its position stays, its
state holds the reason, and the window completes for the others. So a table either has
everything up to its position, or it is marked.
"""

import dataclasses
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from uuid import uuid4

from cdc_assets.capture.endings import split_commit_reason
from cdc_assets.capture.forks import check_recovery_fork
from cdc_assets.capture.instances import Gap
from cdc_assets.capture.lake import Lake
from cdc_assets.capture.ledger import Ledger
from cdc_assets.capture.progress import (
    Progress,
    ProgressListener,
    StructureChange,
    TableProgress,
    TroubledTable,
    rows_of,
    seconds_behind,
)
from cdc_assets.capture.server import Server
from cdc_assets.config.settings import StreamingSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.notification import Notification
from cdc_assets.core.ports import TaskRunner
from cdc_assets.core.steps import step
from cdc_assets.errors import CdcError, LakeFullError
from cdc_assets.history.drift import changes_between
from cdc_assets.lake.files import DataFile, remove_attempt
from cdc_assets.ledger.state import TableState, Window
from cdc_assets.streaming.gaps import with_gap
from cdc_assets.streaming.structures import Structures, WindowStructures
from cdc_assets.streaming.tasks import PlannedRead, SliceResult, run_slice
from cdc_assets.streaming.window_tasks import WindowTasks
from cdc_assets.transactions import transaction_topic

log = logging.getLogger(__name__)

_COMMIT_THREADS = 8
"""Commits of different tables overlap, since a commit mostly waits (spec spark §3)."""

Files = dict[tuple[TableId, str], list[DataFile]]


class WindowExecutor:
    """Carries out windows of the log.

    Args:
        server: server whose changes are read.
        listener: called after each window.
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
        self._structures = WindowStructures(server, lake, ledger)
        self._tasks = WindowTasks(server, lake, ledger, runner, settings)

    def execute(self, window: Window, *, repeated: bool) -> None:
        """Read, write, commit and complete the pending window.

        Args:
            window: the manifest's pending one.
            repeated: whether an earlier attempt may have committed some of its tables.

        Raises:
            RetryableError: the server is away or busy; the window stays pending.
            DatabaseRestoredError: the database is no longer in the history that was read; nothing was committed.
            LakeFullError: no space is left; the window stays pending, and its uncommitted files are removed.
            LakeError: the lake cannot be written; the window stays pending.
            FencedError: another writer has taken over.
        """
        states = self._ledger.state.tables
        window = dataclasses.replace(window, reads=tuple(read for read in window.reads if states[read.table].streams))
        structures = self._structures.of(window, repeated)
        if structures.recorded:
            check_recovery_fork(self._ledger, self._server.source, window.database)
        self._lake.record(window.window_id, structures.recorded)
        step("history-written")
        planned = self._planned(window, structures, repeated)
        attempt = uuid4().hex[:8]
        try:
            progress = self._carry_out(window, structures, planned, attempt, repeated)
        except LakeFullError:
            self._remove_attempt(window, planned, attempt)
            raise
        self._listener.note_commit(progress)

    def _carry_out(
        self, window: Window, structures: Structures, planned: Sequence[PlannedRead], attempt: str, repeated: bool
    ) -> Progress:
        results = self._runner.run(run_slice, self._tasks.of(window, planned, attempt))
        step("files-written")
        check_recovery_fork(self._ledger, self._server.source, window.database)
        committed = _committed(planned)
        moved = {table for result in results for table in result.moved} - committed | structures.moved
        split = moved & self._begun(window, structures) if repeated else set()
        moved -= split
        failed = {**structures.failed, **dict.fromkeys(split, split_commit_reason("It was altered"))}
        changed = self._troubled(window, failed, results, committed, moved)
        for table in moved:
            log.info("%s or its capture instances changed while it was read; the next window reads it again.", table)
        behind = {state.table for state in changed} | moved
        files = _files(results, without=behind)
        self._check_files(files, results)
        self._commit(window, files)
        self._commit_transactions(window, results)
        changed += self._handed_over(window, behind)
        return self._complete(window, files, changed, behind)

    def _check_files(self, files: Files, results: Sequence[SliceResult]) -> None:
        """Check that all files to be committed exist, before any is committed."""
        written = {directory: list(data_files) for (_, directory), data_files in files.items()}
        if transactions := [file for result in results for file in result.transactions]:
            written[transaction_topic(self._lake.events)] = transactions
        self._lake.tables.see(written)

    def _remove_attempt(self, window: Window, planned: Sequence[PlannedRead], attempt: str) -> None:
        """Remove this attempt's files from tables that have not committed the window; they are written again."""
        tables, directories = self._lake.tables, {entry.directory for entry in planned}
        if self._lake.events.transaction_metadata:
            directories.add(transaction_topic(self._lake.events))
        for directory in directories:
            tables.forget(directory)
        lacking = [directory for directory in directories if tables.reached(directory) < window.window_id]
        remove_attempt(tables.location, lacking, window.window_id, attempt)

    def _planned(self, window: Window, structures: Structures, repeated: bool) -> list[PlannedRead]:
        planned = []
        for read in window.reads:
            if read.table in structures.failed or read.table in structures.moved:
                continue
            plan, directory = self._lake.destination(structures.entries[read.table, read.instance])
            committed = repeated and self._lake.tables.reached(directory) >= window.window_id
            if not committed or self._lake.events.transaction_metadata:
                planned.append(PlannedRead(read, plan, directory, committed, structures.altered.get(read.instance)))
        return planned

    def _commit_transactions(self, window: Window, results: Sequence[SliceResult]) -> None:
        files = [file for result in results for file in result.transactions]
        if files:
            metadata = {"from_lsn": str(window.after), "to_lsn": str(window.until), "window_id": str(window.window_id)}
            directory = transaction_topic(self._lake.events)
            self._lake.tables.commit(directory, None, files, window.window_id, metadata)
            step("transactions-committed")

    def _begun(self, window: Window, structures: Structures) -> set[TableId]:
        """Tables of which an earlier attempt has committed a generation."""
        return {
            table
            for (table, _), entry in structures.entries.items()
            if self._lake.tables.reached(self._lake.destination(entry)[1]) >= window.window_id
        }

    def _troubled(
        self,
        window: Window,
        failed: dict[TableId, str],
        results: Sequence[SliceResult],
        committed: Set[TableId],
        moved: Collection[TableId],
    ) -> list[TableState]:
        """States of tables that fail or have a gap, at their old position; tables already committed are complete."""
        tables = self._ledger.state.tables
        policy = self._settings.gap_policy
        gaps: dict[TableId, Gap] = {}
        for result in results:
            failed |= {table: reason for table, reason in result.failed.items() if table not in failed}
            gaps |= result.gaps
        for table in committed & (failed.keys() | gaps.keys()):
            log.warning(
                "%s was committed by an earlier attempt and can no longer be read: transaction metadata may lack its events.",
                table,
            )
            failed.pop(table, None)
            gaps.pop(table, None)
        instances = self._server.instances(window.database) if gaps else {}
        marked = [with_gap(tables[table], gap, policy, instances.get(table, [])) for table, gap in gaps.items()]
        return marked + [
            dataclasses.replace(tables[table], status="failed", reason=reason)
            for table, reason in failed.items()
            if table not in gaps and table not in moved
        ]

    def _commit(self, window: Window, files: Files) -> None:
        def commit(item: tuple[tuple[TableId, str], list[DataFile]]) -> None:
            (table, directory), written = item
            metadata = {
                "from_lsn": str(min(read.after for read in window.reads if read.table == table)),
                "to_lsn": str(window.until),
                "rows": str(sum(file.rows for file in written)),
                "window_id": str(window.window_id),
            }
            self._lake.tables.commit(directory, None, written, window.window_id, metadata)

        if len(files) < 2:
            for item in files.items():
                commit(item)
                step("table-committed")
            return
        with ThreadPoolExecutor(min(_COMMIT_THREADS, len(files))) as pool:
            for _ in pool.map(commit, files.items()):
                step("table-committed")

    def _handed_over(self, window: Window, troubled: set[TableId]) -> list[TableState]:
        """New states of tables that are read from another capture instance from now on."""
        last = {read.table: read.instance for read in window.reads}
        tables = self._ledger.state.tables
        found = self._server.instances(window.database, refresh=False)
        made = {instance.name: instance.created for instances in found.values() for instance in instances}
        return [
            dataclasses.replace(tables[table], instance=instance, made=made.get(instance))
            for table, instance in last.items()
            if table not in troubled and tables[table].instance != instance
        ]

    def _complete(self, window: Window, files: Files, changed: Sequence[TableState], behind: set[TableId]) -> Progress:
        before = self._ledger.state.tables
        by_table: dict[TableId, list[DataFile]] = {}
        for (table, _), written in files.items():
            by_table.setdefault(table, []).extend(written)
        rows = {str(table): rows_of(written) for table, written in by_table.items()}
        notifications = self._removable(window, changed, behind)
        self._ledger.manifest.complete(self._ledger.clock.now(), changed, behind, rows, notifications)
        times, lag = self._times(window, by_table)
        tables = {
            table: TableProgress(
                rows=rows[str(table)],
                size=sum(file.size for file in written),
                from_lsn=before[table].position,
                to_lsn=window.until,
                committed=times.get(table),
            )
            for table, written in by_table.items()
        }
        troubled = tuple(troubled_table(state) for state in changed if state.status != "healthy")
        structures = tuple(
            StructureChange(entry, changes_between(old, entry) if old else ())
            for old, entry in self._lake.history.recorded(window.window_id)
            if entry.table not in behind
        )
        return Progress(
            "stream",
            window.database,
            window.window_id,
            window.after,
            window.until,
            tables,
            troubled,
            lag_s=lag,
            structures=structures,
        )

    def _removable(self, window: Window, changed: Sequence[TableState], behind: Set[TableId]) -> Iterator[Notification]:
        """Notifications that the older capture instance may be dropped after a hand-over (spec debezium-sqlserver §1.5, §10.1)."""
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
        """`start_lsn` of a capture instance, unless it was dropped."""
        instances = self._server.instances(table.database).get(table, [])
        return next(({"start_lsn": str(instance.start_lsn)} for instance in instances if instance.name == name), {})

    def _times(
        self, window: Window, files: Mapping[TableId, Sequence[DataFile]]
    ) -> tuple[dict[TableId, datetime], float | None]:
        """Newest commit time of each table, and the seconds from the window's end to the server's clock.

        Only for display: the window is complete, so an error of the server here is ignored.
        """
        newest = {
            table: Lsn.parse(max(file.greatest for file in written)[:22]) for table, written in files.items() if written
        }
        try:
            times = self._server.source.commit_times(window.database, sorted({*newest.values(), window.until}))
            now = self._server.source.server_time()
        except CdcError:
            return {}, None
        lag = seconds_behind(now, times.get(window.until))
        return {table: times[lsn] for table, lsn in newest.items() if lsn in times}, lag


def troubled_table(state: TableState) -> TroubledTable:
    """A table's state, as progress reports it."""
    return TroubledTable(state.table, state.status, state.reason, state.gap_after, state.gap_until)


def _committed(planned: Sequence[PlannedRead]) -> set[TableId]:
    """Tables that an earlier attempt committed completely and that are read again only for transaction metadata."""
    return {entry.read.table for entry in planned} - {entry.read.table for entry in planned if not entry.committed}


def _files(results: Sequence[SliceResult], without: set[TableId]) -> Files:
    """Files by table and directory, in the order of the slices."""
    files: Files = {}
    for result in results:
        for written in result.written:
            if written.table not in without and written.files:
                files.setdefault((written.table, written.directory), []).extend(written.files)
    return files
