"""Compacts topics by key: behind an LSN, each row keeps the events that make it, and those that others replaced go.

*Up to which LSN.* As retention by age: the events up to it are older than `lake.topic.retention.hours`, and readers have them
(`limits`). A topic is compacted when at least as many events came since the last time as were left then; so an event is written a
few times in all, and a topic has about twice as many as the table has rows, and the young ones.

*Which events go* is in `replaced`; tombstones go, too, and events from before the newest moment since which the whole table
was read again after changes were lost. The newest event of each of the topic's tables stays, because its
bounds tell how far the table is. Events above the LSN are not touched.

| after | state | a crash here |
|---|---|---|
| the tasks | files that nobody names | vacuum removes them; the next look decides anew |
| the manifest's row `retained` | fenced: what the topic holds, and that its tables may hold fewer rows from now on | nothing is dropped, no reader is told |
| the properties of its first table | readers are told | they are refused events that are still there; the next look goes on |
| the commit of one table | it has what stays in place of what was there | the same for the other tables of the topic |
| the last property | the topic is compacted up to the LSN | |

If another program has rewritten a file meanwhile, its table stays as it was, nobody is told that the topic is compacted, and the
marks of that table are recorded as before.

*Why what is left makes the table's rows* at the LSN and every later one, also between two commits: of each row a suffix of its
events stays, and no deletion goes without all that it deletes. A mirror that is made anew from it ends its first step not
before the LSN. *Why no reader is misled, why a mirror loses nothing, and two writers:* as in `drop`.

Events that another key tells, or a shortened one, all go when the table was read again (`plan`).

A topic of a table without a key stays as it is: its events are not about one row each.
"""

import logging
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.jobs import Job
from cdc_assets.core.ports import TaskRunner
from cdc_assets.core.steps import step
from cdc_assets.errors import LAKE_ERRORS, LakeConflictError
from cdc_assets.lake.folder import Folder
from cdc_assets.lake.marks import Mark
from cdc_assets.lake.retained import Retained, announce, remove
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.mirror.events import EventFile, TopicReader
from cdc_assets.retention.limits import Limit
from cdc_assets.retention.plan import CompactionPlan, CompactionPlanner
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

log = logging.getLogger(__name__)

_RANGE_ROWS = 500_000
"""Events of a range of keys, which a task holds, and of the files that a task reads."""
_SAMPLED_FILES = 32


@dataclass(frozen=True)
class Compacted:
    """What a compaction has written and not yet committed.

    Args:
        found: what the topic holds afterwards.
        files: by directory.
    """

    topic: str
    former: Retained
    found: Retained
    files: dict[str, list[Rewritten]]

    def marks(self, known: dict[str, Mark]) -> dict[str, Mark]:
        """Content of the tables that are recorded, afterwards."""
        gone = {directory: sum(one.gone for one in found) for directory, found in self.files.items()}
        return {
            name: replace(known[name], rows=max(0, known[name].rows - rows))
            for name, rows in gone.items()
            if name in known
        }


class Compaction:
    """Compacts the topics of a capture; for its only writer, between two windows.

    Args:
        tables: the lake's Delta tables.
        manifest: claimed.
        planner: says what is to be done.
    """

    def __init__(
        self,
        tables: TopicTables,
        manifest: Manifest,
        planner: CompactionPlanner,
        config: CaptureConfig,
        runner: TaskRunner,
    ) -> None:
        self._tables, self._manifest = tables, manifest
        self._planner, self._config, self._runner = planner, config, runner

    def write(self, table: TableId, topic: str, limit: Limit, oldest_ms: int) -> Compacted | None:
        """Write what stays of a topic; None if it is not compacted now, or nothing goes.

        Args:
            oldest_ms: events of commits before it are old, in milliseconds since the epoch.

        Raises:
            LakeError: the lake cannot be read or written.
        """
        plan = self._planner.plan(table, topic, limit, oldest_ms)
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
        window = max(plan.former.window, *(one.window for found in rewritten.values() for one in found))
        rows = plan.until if plan.whole else ""
        return Compacted(topic, plan.former, Retained(plan.until, window, rows, plan.former.compacted), rewritten)

    def commit(self, made: Compacted) -> list[str]:
        """Have the topic's tables hold what stays; readers were told.

        Returns:
            Directories of tables that stay as they were, because another writer has replaced a file; the next look goes on.

        Raises:
            LakeConflictError: another writer was first to change the first table's properties.
            FencedError: another writer has taken over.
            LakeError: the store refuses.
        """
        until, left, gone = made.found.after, list[str](), 0
        for directory, found in made.files.items():
            files = [file for one in found for file in one.files]
            count = sum(one.gone for one in found)
            paths = [one.path for one in found]
            try:
                remove(self._tables, directory, paths, until, count, self._manifest.require_writer, files)
            except LakeConflictError as error:
                log.warning("Events that others replaced stay in %s for now: %s", directory, error)
                left.append(directory)
                continue
            gone += count
            step("topic-compacted")
        if not left:
            announce(self._tables, made.topic, made.former.number + 1, replace(made.found, compacted=until))
        step("compaction-complete")
        log.info("%s holds every event after %s, and of those before the last ones of each row; %d are dropped.",
                 made.topic, until, gone)  # fmt: skip
        return left

    def _rewritten(self, plan: CompactionPlan, staging: str) -> dict[str, list[Rewritten]]:
        """Files from which events go, written again, by directory."""
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
        made: dict[str, list[Rewritten]] = {}
        for task, found in zip(tasks, self._runner.run(rewrite, tasks, job), strict=True):
            if found is not None:
                made.setdefault(task.directory, []).append(found)
        return made

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
