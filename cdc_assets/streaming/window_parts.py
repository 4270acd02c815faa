"""One of the windows in flight: the results and files of one attempt to carry it out."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.jobs import Job, named
from cdc_assets.core.notification import Notification
from cdc_assets.lake.files import DataFile
from cdc_assets.ledger.state import Window
from cdc_assets.ledger.table_state import TableState
from cdc_assets.streaming.row_counts import rows_of_reads
from cdc_assets.streaming.structures import Structures
from cdc_assets.streaming.tasks import PlannedRead, SliceResult, SliceTask

Files = dict[tuple[TableId, str], list[DataFile]]


@dataclass
class Part:
    """A window in flight with the results of one attempt, which are filled in step by step.

    Args:
        attempt: part of the names of its files.
        files: the files to commit, by table and directory.
        dropped: tables that are left out, also after they were read, so that of them only what is committed is counted.
        behind: tables that keep their position.
        changed: states of tables that the window changes.
        notifications: notifications that are recorded with its completion.
    """

    window: Window
    structures: Structures
    attempt: str
    planned: Sequence[PlannedRead] = ()
    tasks: Sequence[SliceTask] = ()
    results: Sequence[SliceResult] = ()
    files: Files = field(default_factory=dict)
    dropped: set[TableId] = field(default_factory=set)
    behind: set[TableId] = field(default_factory=set)
    changed: Sequence[TableState] = ()
    notifications: Sequence[Notification] = ()

    @property
    def database(self) -> str:
        """Database that it reads."""
        return self.window.database

    def whole(self) -> set[TableId]:
        """Tables that an earlier attempt committed and that are read again only to be counted."""
        lacking = {entry.read.table for entry in self.planned if not entry.committed}
        return {entry.read.table for entry in self.planned} - lacking - self.dropped

    def left_out(self) -> set[TableId]:
        """Tables among the planned ones whose rows cannot be committed; none if nothing of the database can be."""
        if any(result.trouble for result in self.results):
            return set()
        behind = self.unread() | self.moved()
        return behind & {entry.read.table for entry in self.planned} - self.whole() - self.dropped

    def unread(self) -> set[TableId]:
        """Tables that a task could not read."""
        return set[TableId]().union(*(result.failed.keys() | result.gaps.keys() for result in self.results))

    def moved(self) -> set[TableId]:
        """Tables that were altered, or lost a capture instance, while they were read."""
        return set[TableId]().union(*(result.moved for result in self.results))

    def written(self) -> dict[TableId, list[DataFile]]:
        """Files by table, whatever their generation."""
        by_table: dict[TableId, list[DataFile]] = {}
        for (table, _), files in self.files.items():
            by_table.setdefault(table, []).extend(files)
        return by_table


def reasons_of(result: SliceResult) -> SliceResult:
    """A result of which only the reasons of tables that stay behind still count."""
    return dataclasses.replace(result, written=(), transactions=(), counts={}, rows={})


def files_of(results: Sequence[SliceResult], without: set[TableId]) -> Files:
    """Files by table and directory, slice after slice."""
    files: Files = {}
    for result in results:
        for written in result.written:
            if written.table not in without and written.files:
                files.setdefault((written.table, written.directory), []).extend(written.files)
    return files


def transaction_files(parts: Sequence[Part]) -> list[DataFile]:
    """Files of the transaction topic, of all windows."""
    return [file for part in parts for result in part.results for file in result.transactions]


def job_of(parts: Sequence[Part]) -> Job:
    """What a job that reads windows says of itself."""
    reads = [entry.read for part in parts for entry in part.planned]
    return Job("window", f"{parts[0].window.window_id}: {named({read.table for read in reads})}", rows_of_reads(reads))
