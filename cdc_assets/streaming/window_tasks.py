"""Makes the tasks of a window, one for each slice; those of all windows in flight are one job.

Bounds and cuts come from the manifest, so a repeat makes the same tasks. If
transactions are numbered and the window cuts some, an extra job before the window's own
counts the events of each slice in the transaction that the slice ends inside. The sums over
the earlier slices show each slice where to continue numbering. The result of that
job is not stored: a repeat counts the same rows again.
"""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

from cdc_assets.core.jobs import Job
from cdc_assets.core.lsn import Lsn, Position
from cdc_assets.core.ports import TaskRunner
from cdc_assets.ledger.state import Window
from cdc_assets.shared.instances import before, clip
from cdc_assets.shared.parts import CaptureParts
from cdc_assets.streaming.slices import in_order
from cdc_assets.streaming.tasks import PlannedRead, SliceTask, TransactionTopic, count_open
from cdc_assets.system_topics.transactions import TOPIC_SCHEMA, Carried


class WindowTasks:
    """Makes tasks of windows.

    Args:
        runner: runs the counting job.
    """

    def __init__(self, parts: CaptureParts, runner: TaskRunner) -> None:
        self._server, self._lake, self._ledger = parts.server, parts.lake, parts.ledger
        self._runner, self._settings = runner, parts.config.streaming

    def offset_minutes(self) -> int:
        """The server's offset from UTC, now.

        Raises:
            RetryableError: the server is away or busy.
        """
        offset = self._server.source.server_time().utcoffset() or timedelta()
        return round(offset.total_seconds() / 60)

    def of(self, window: Window, planned: Sequence[PlannedRead], attempt: str, offset_minutes: int) -> list[SliceTask]:
        """The tasks of a window, part of the job of all windows in flight.

        Args:
            window: pending in the manifest.
            planned: reads of the window.
            attempt: part of the names of its files.
            offset_minutes: the server's offset from UTC.

        Raises:
            RetryableError: the server is away or busy.
            LakeError: the transaction topic cannot be created.
        """
        whole = SliceTask(
            window_id=window.window_id,
            database=window.database,
            reads=(),
            location=self._lake.tables.location,
            bulk=self._server.reaching(window.database, window.until),
            mode=self._settings.query_mode,
            offset_minutes=offset_minutes,
            transactions=self._transaction_topic(window),
            attempt=attempt,
        )
        tasks: list[SliceTask] = []
        low = min((entry.read.after for entry in planned), default=window.after)
        begins: Position | None = None
        for border in in_order(window.bounds, window.cuts):
            ends, high = (border, border.commit_lsn) if isinstance(border, Position) else (None, border)
            reads = _within(planned, before(begins.commit_lsn) if begins else low, high)
            if reads:
                tasks.append(dataclasses.replace(whole, reads=reads, begins=begins, ends=ends))
            low, begins = high, ends
        return self._with_counts(tasks) if whole.transactions else tasks

    def _transaction_topic(self, window: Window) -> TransactionTopic | None:
        """The transaction topic, and the LSN up to which transactions were published."""
        if not window.transactions:
            return None
        self._lake.tables.ensure(window.transactions, TOPIC_SCHEMA)
        return TransactionTopic(window.transactions, self._ledger.state.published_until(window))

    def _with_counts(self, tasks: Sequence[SliceTask]) -> list[SliceTask]:
        """The tasks, each with the number of earlier events in the transaction that it begins inside."""
        cut = [task for task in tasks if task.ends is not None]
        opened, sums = _delivered(tasks)
        if not cut and opened is None:
            return list(tasks)
        counts = iter(self._runner.run(count_open, cut, _job(tasks[0])) if cut else [])
        commits = {task.ends.commit_lsn for task in cut if task.ends} | ({opened} if opened else set())
        times = self._server.source.commit_times(tasks[0].database, sorted(commits), max(commits))
        found: list[SliceTask] = []
        for number, task in enumerate(tasks):
            commit = task.begins.commit_lsn if task.begins else opened if number == 0 else None
            if commit is not None and sums.total():
                time = times.get(commit)
                carried = Carried(commit, dict(sums), 0 if time is None else int(time.timestamp() * 1000))
                task = dataclasses.replace(task, carried=carried)
            found.append(task)
            inside = next(counts) if task.ends is not None else {}
            continues = task.ends is not None and task.ends.commit_lsn == commit
            sums = (sums if continues else Counter()) + Counter(inside)
        return found


def _delivered(tasks: Sequence[SliceTask]) -> tuple[Lsn | None, Counter[str]]:
    """The transaction inside which a window begins after another reader, and that reader's events of it by table."""
    reads = [planned.read for planned in (tasks[0].reads if tasks else ())]
    begins = {read.table: read.begins for read in reads if read.begins and read.begins.events}
    counts = Counter({str(table): start.events for table, start in begins.items()})
    return next((start.position.commit_lsn for start in begins.values()), None), counts


def _within(planned: Sequence[PlannedRead], low: Lsn, high: Lsn) -> tuple[PlannedRead, ...]:
    parts = [(entry, clip(entry.read, low, high)) for entry in planned]
    return tuple(dataclasses.replace(entry, read=part) for entry, part in parts if part is not None)


def _job(task: SliceTask) -> Job:
    return Job("window", f"{task.window_id}: transactions that are cut")
