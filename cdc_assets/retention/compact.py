"""Compacts topics by key: after an LSN, each row keeps the events that make it, and those that others replaced go.

*Up to which LSN.* As retention by age: the events up to it are older than `lake.topic.retention.hours`, and readers have them
(`limits`). A topic is compacted when at least as many events came since the last time as were left then; so an event is written a
few times in all, and a topic has about twice as many as the table has rows, and the young ones.

*Which events go* is in `replaced`; tombstones go, too, and events from before the newest moment since which the whole table
was read again after changes were lost. The newest event of each of the topic's tables stays, because its
bounds show how far the table is. Events above the LSN are not touched.

*How it goes*, what a crash does, and two writers: `step`.

*Why what is left makes the table's rows* at the LSN and every later one, also between two commits: of each row a suffix of its
events stays, and no deletion goes without all that it deletes. A mirror that is rebuilt from it ends its first step not
before the LSN.

Events of another key, or of a shortened one, all go when the table was read again (`plan`).

A topic of a table without a key stays as it is: its events are not about one row each.
"""

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.jobs import Job
from cdc_assets.core.ports import TaskRunner
from cdc_assets.core.steps import step
from cdc_assets.errors import LAKE_ERRORS
from cdc_assets.lake.events import EventFile, TopicReader
from cdc_assets.lake.folder import Folder
from cdc_assets.lake.retained import Retained, announce
from cdc_assets.lake.topics import TopicTables
from cdc_assets.retention.files import TopicFile
from cdc_assets.retention.limits import Limit
from cdc_assets.retention.plan import CompactionPlan, CompactionPlanner
from cdc_assets.retention.step import TableRemoval, TopicRemoval
from cdc_assets.retention.tasks import (
    ChooseTask,
    MarkTask,
    Numbered,
    RewriteTask,
    Rewritten,
    choose,
    mark,
    rewrite,
    sample,
)

_RANGE_ROWS = 500_000
"""Events of a range of keys, which a task holds, and of the files that a task reads."""
_SAMPLED_FILES = 32


class Compaction:
    """Writes what stays of the topics of a capture; for its only writer, between two windows.

    Args:
        tables: the lake's Delta tables.
        planner: says what is to be done.
    """

    def __init__(self, tables: TopicTables, planner: CompactionPlanner, runner: TaskRunner) -> None:
        self._tables, self._planner, self._runner = tables, planner, runner

    def write(
        self, table: TableId, topic: str, files: Sequence[TopicFile], limit: Limit, oldest_ms: int
    ) -> TopicRemoval | None:
        """Write what stays of a topic; None if it is not compacted now, or nothing goes.

        Args:
            files: of the topic.
            oldest_ms: events of commits before it are old, in milliseconds since the epoch.

        Raises:
            LakeConflictError: another writer has announced something about the topic since.
            LakeError: the lake cannot be read or written.
        """
        plan = self._planner.plan(table, topic, files, limit, oldest_ms)
        if plan is None:
            return None
        staging = f"{topic}.__compacting"
        try:
            rewritten = self._rewritten(plan, staging)
        finally:
            with suppress(*LAKE_ERRORS):
                Folder(self._tables.location, staging).drop()
        if not rewritten:
            announce(self._tables, topic, plan.former.number, replace(plan.former, compacted=plan.until))
            return None
        step("compaction-written")
        tables: dict[str, TableRemoval] = {}
        for directory, one in rewritten:
            removal = tables.setdefault(directory, TableRemoval())
            removal.paths.append(one.path)
            removal.instead += one.files
            removal.gone += one.gone
        window = max(plan.former.window, *(one.window for _, one in rewritten))
        found = Retained(plan.until, window, plan.until if plan.whole else "", plan.former.compacted)
        return TopicRemoval(table, topic, plan.former, found, tables, compacts=True)

    def _rewritten(self, plan: CompactionPlan, staging: str) -> list[tuple[str, Rewritten]]:
        """Files from which events go, written again, with their directory."""
        location = self._tables.location
        reader = TopicReader(location, plan.about.shape, plan.about.generations)
        numbers = {one.directory: at for at, one in enumerate(plan.about.generations)}
        numbered = [
            Numbered(at, EventFile(numbers[file.directory], file.path, file.rows, file.least, file.until))
            for at, file in enumerate(plan.files)
        ]
        first = MarkTask(reader, (), plan.telling, (b"",), staging)
        job = Job("retention", f"compacted: {plan.topic}")
        counting = [one for one in numbered if plan.files[one.number].directory not in plan.unread]
        bounds = self._bounds(first, counting, job)
        marks = [replace(first, files=share, bounds=bounds) for share in _shares(counting)]
        by_range, by_file = defaultdict(list), defaultdict(list)
        for pieces in self._runner.run(mark, marks, job):
            for piece in pieces:
                by_range[piece.number].append(piece)
        chosen = [ChooseTask(reader, staging, tuple(pieces)) for _, pieces in sorted(by_range.items())]
        for pieces in self._runner.run(choose, chosen, job) if chosen else ():
            for piece in pieces:
                by_file[piece.number].append(piece)
        tasks = [
            RewriteTask(
                location,
                file.directory,
                file.path,
                plan.may_go,
                staging,
                tuple(by_file[at]),
                (file.directory, file.path) in plan.newest,
            )
            for at, file in enumerate(plan.files)
        ]
        made = zip(tasks, self._runner.run(rewrite, tasks, job), strict=True)
        return [(task.directory, found) for task, found in made if found is not None]

    def _bounds(self, first: MarkTask, numbered: Sequence[Numbered], job: Job) -> tuple[bytes, ...]:
        """Where ranges of keys begin: about as many events in each, as some files show."""
        count = sum(one.file.rows for one in numbered) // _RANGE_ROWS
        if count < 2:
            return (b"",)
        chosen = numbered[:: max(1, len(numbered) // _SAMPLED_FILES)]
        keys = sorted(
            key
            for found in self._runner.run(sample, [replace(first, files=(one,)) for one in chosen], job)
            for key in found
        )
        bounds = {keys[len(keys) * at // count] for at in range(1, count)} if keys else set()
        return (b"", *sorted(bounds - {b""}))


def _shares(files: Sequence[Numbered]) -> list[tuple[Numbered, ...]]:
    """Files of one table each, with about so many rows as are worth a task."""
    shares: list[list[Numbered]] = []
    for one in sorted(files, key=lambda one: (one.file.generation, one.file.least, one.file.path)):
        last = shares[-1] if shares else []
        rows = sum(other.file.rows for other in last) + one.file.rows
        if last and last[0].file.generation == one.file.generation and rows <= _RANGE_ROWS:
            last.append(one)
        else:
            shares.append([one])
    return [tuple(share) for share in shares]
