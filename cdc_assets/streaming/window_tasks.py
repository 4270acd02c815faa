"""The tasks of a window, one for each slice.

Bounds and cuts are the manifest's, so a repeat makes the same tasks. Where
transactions are numbered and the window cuts some, a job before the window's own
counts what each slice holds of the transaction that it ends inside of; sums over
the slices before tell each slice what it goes on from. Nothing is kept of that
job: a repeat counts again, the same rows.
"""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

from cdc_assets.capture.instances import before, clip
from cdc_assets.capture.lake import Lake
from cdc_assets.capture.ledger import Ledger
from cdc_assets.capture.server import Server
from cdc_assets.config.settings import StreamingSettings
from cdc_assets.core.lsn import Lsn, Position
from cdc_assets.core.ports import TaskRunner
from cdc_assets.ledger.state import Window
from cdc_assets.streaming.slices import in_order
from cdc_assets.streaming.tasks import PlannedRead, SliceTask, TransactionTopic, count_open
from cdc_assets.transactions import TOPIC_SCHEMA, Carried, transaction_topic


class WindowTasks:
    """Makes tasks of windows.

    Args:
        server: where changes are read.
        runner: runs the job that counts.
    """

    def __init__(
        self, server: Server, lake: Lake, ledger: Ledger, runner: TaskRunner, settings: StreamingSettings
    ) -> None:
        self._server, self._lake, self._ledger = server, lake, ledger
        self._runner, self._settings = runner, settings

    def of(self, window: Window, planned: Sequence[PlannedRead], attempt: str) -> list[SliceTask]:
        """What a window's job does.

        Args:
            window: pending in the manifest.
            planned: what it reads.
            attempt: becomes part of file names.

        Raises:
            RetryableError: the server is away or busy.
            LakeError: the transaction topic cannot be made.
        """
        offset = self._server.source.server_time().utcoffset() or timedelta()
        whole = SliceTask(
            window_id=window.window_id,
            database=window.database,
            reads=(),
            location=self._lake.tables.location,
            bulk=self._server.bulk,
            mode=self._settings.query_mode,
            offset_minutes=round(offset.total_seconds() / 60),
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
        """Where BEGIN and END go, and what earlier windows told: a table that only was snapshotted streamed nothing yet."""
        if not self._lake.events.transaction_metadata:
            return None
        directory = transaction_topic(self._lake.events)
        self._lake.tables.ensure(directory, TOPIC_SCHEMA)
        streamed = [
            state.position
            for state in self._ledger.state.tables.values()
            if state.table.database == window.database and state.position and state.position != state.snapshot_lsn
        ]
        return TransactionTopic(directory, max(streamed, default=window.after))

    def _with_counts(self, tasks: Sequence[SliceTask]) -> list[SliceTask]:
        """The tasks, each with the events of the slices before in the transaction that it begins inside of."""
        cut = [task for task in tasks if task.ends is not None]
        if not cut:
            return list(tasks)
        counts = iter(self._runner.run(count_open, cut))
        commits = sorted({task.ends.commit_lsn for task in cut if task.ends})
        times = self._server.source.commit_times(cut[0].database, commits)
        found: list[SliceTask] = []
        sums: Counter[str] = Counter()
        for task in tasks:
            commit = task.begins.commit_lsn if task.begins else None
            if commit is not None and sums.total():
                time = times.get(commit)
                carried = Carried(commit, dict(sums), 0 if time is None else int(time.timestamp() * 1000))
                task = dataclasses.replace(task, carried=carried)
            found.append(task)
            own = next(counts) if task.ends is not None else {}
            goes_on = task.ends is not None and task.ends.commit_lsn == commit
            sums = (sums if goes_on else Counter()) + Counter(own)
        return found


def _within(planned: Sequence[PlannedRead], low: Lsn, high: Lsn) -> tuple[PlannedRead, ...]:
    parts = [(entry, clip(entry.read, low, high)) for entry in planned]
    return tuple(dataclasses.replace(entry, read=part) for entry, part in parts if part is not None)
