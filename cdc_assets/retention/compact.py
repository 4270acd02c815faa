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

*Why what is left makes the table's rows* at the LSN and every later one, also between two commits: of each row a suffix of its
events stays, and no deletion goes without all that it deletes. A mirror that is made anew from it ends its first step not
before the LSN. *Why no reader is misled, why a mirror loses nothing, and two writers:* as in `drop`.

A topic of a table without a key stays as it is: its events are not about one row each.
"""

import logging
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.ports import Clock, TaskRunner
from cdc_assets.core.steps import step
from cdc_assets.errors import LakeError
from cdc_assets.lake.folder import Folder
from cdc_assets.lake.marks import Mark
from cdc_assets.lake.presence import require_files
from cdc_assets.lake.retained import Retained, announce, remove, retained
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.describe import Description
from cdc_assets.mirror.events import EventFile, EventRange, TopicReader
from cdc_assets.retention.files import TopicFile, listed, newest_in
from cdc_assets.retention.limits import Limit
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
_NEVER = 2**62


@dataclass(frozen=True)
class _Plan:
    """What is to be compacted.

    Args:
        files: that may hold events which go.
        newest: files that may hold the newest event of their table, as directory and path.
        until: commit LSN up to which events may go.
        after: commit LSN up to which all of them go.
        whole: whether what stays makes the table's rows.
    """

    topic: str
    about: Description
    former: Retained
    files: Sequence[TopicFile]
    newest: frozenset[tuple[str, str]]
    until: str
    after: str
    window: int
    whole: bool

    @property
    def may_go(self) -> EventRange:
        """Events that go unless they are chosen to stay."""
        return EventRange("", self.until, _NEVER, self.window)

    @property
    def telling(self) -> EventRange:
        """Events of which some stay."""
        return replace(self.may_go, after=self.after)


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
    """

    def __init__(
        self, tables: TopicTables, manifest: Manifest, config: CaptureConfig, clock: Clock, runner: TaskRunner
    ) -> None:
        self._tables, self._manifest, self._config = tables, manifest, config
        self._clock, self._runner = clock, runner

    def write(self, table: TableId, topic: str, limit: Limit, oldest_ms: int) -> Compacted | None:
        """Write what stays of a topic; None if it is not compacted now, or nothing goes.

        Args:
            oldest_ms: events of commits before it are old, in milliseconds since the epoch.

        Raises:
            LakeError: the lake cannot be read or written.
        """
        plan = self._planned(table, topic, limit, oldest_ms)
        if plan is None:
            return None
        staging = f"{topic}.__compacting"
        try:
            rewritten = self._rewritten(plan, staging)
        finally:
            with suppress(LakeError):
                Folder(self._tables.location, staging).drop()
        if not rewritten:
            announce(self._tables, topic, replace(plan.former, compacted=plan.until))
            return None
        step("compaction-written")
        window = max(plan.former.window, *(one.window for found in rewritten.values() for one in found))
        rows = plan.until if plan.whole else ""
        return Compacted(topic, plan.former, Retained(plan.until, window, rows, plan.former.compacted), rewritten)

    def commit(self, made: Compacted) -> None:
        """Have the topic's tables hold what stays; readers were told.

        Raises:
            LakeConflictError: another writer was first; the next look goes on.
            LakeError: the store refuses.
        """
        until = made.found.after
        for directory in self._tables.generations(made.topic):
            found = made.files.get(directory, [])
            there = {file.path for file in listed(self._tables, directory) or ()}
            if found and {one.path for one in found} <= there:
                files = [file for one in found for file in one.files]
                require_files(self._tables.location, {directory: files})
                remove(self._tables, directory, [one.path for one in found], until, files)
            if found:
                step("topic-compacted")
        announce(self._tables, made.topic, replace(made.found, compacted=until))
        step("compaction-complete")
        gone = sum(one.gone for found in made.files.values() for one in found)
        log.info("%s holds every event after %s, and of those before the last ones of each row; %d are dropped.",
                 made.topic, until, gone)  # fmt: skip

    # ---- what is to be done ------------------------------------------------------------------------------------------

    def _planned(self, table: TableId, topic: str, limit: Limit, oldest_ms: int) -> _Plan | None:
        directories = self._tables.generations(topic)
        parts = [listed(self._tables, directory) for directory in directories]
        files = [file for part in parts for file in part or ()]
        if not limit.below or None in parts:
            log.debug("%s is not compacted: %s.", topic, limit.reason)
            return None
        former = retained(self._tables, topic)
        until = self._until(files, former, limit, oldest_ms)
        if not until or until < max(former.after, former.compacted):
            return None
        chosen = [file for file in files if file.least <= until]
        new = sum(file.rows for file in chosen if file.until > former.compacted)
        if not former.is_begun and (until == former.compacted or new < sum(file.rows for file in chosen) - new):
            return None
        about = self._description(table, topic)
        if about is None:
            return None
        read = self._manifest.state.tables[table].snapshot_lsn
        known = not former.after or bool(former.rows)
        read_again = read is not None and former.after < str(read) <= until
        after = max(_before(limit.since), "" if known or not read_again else former.after)
        newest = frozenset((file.directory, file.path) for file in files if file.until == _end(files, file.directory))
        window = _NEVER if limit.window is None else limit.window
        return _Plan(topic, about, former, chosen, newest, until, after, window, known or read_again)

    def _until(self, files: Sequence[TopicFile], former: Retained, limit: Limit, oldest_ms: int) -> str:
        """Commit LSN up to which events may go; empty for none."""
        until = ""
        for file in sorted(files, key=lambda file: (file.until, file.directory, file.path)):
            if not limit.allows(file.until):
                break
            if file.until > former.compacted:
                about = newest_in(self._tables.location, file)
                is_old = about.committed_ms < oldest_ms
                if not is_old or (limit.window is not None and about.window > limit.window):
                    break
            until = file.until
        return until

    def _description(self, table: TableId, topic: str) -> Description | None:
        """How events tell rows apart; None if they do not."""
        found, troubles = CaptureMirrors(self._config, self._runner, self._clock).found([table])
        if not found:
            log.debug("%s is not compacted: %s.", topic, troubles.get(topic, "it has no rows"))
            return None
        about = found[0].description
        shape = about.shape
        if not shape.keyed:
            log.debug("%s is not compacted: its table has no key.", topic)
            return None
        names = {part.name for part in shape.key} | set(shape.large)
        shape = replace(shape, columns=tuple(column for column in shape.columns if column.name in names))
        generations = [
            replace(one, columns=tuple(column for column in one.columns if column.name in names))
            for one in about.generations
        ]
        return Description(shape, tuple(generations))

    # ---- the tasks ---------------------------------------------------------------------------------------------------

    def _rewritten(self, plan: _Plan, staging: str) -> dict[str, list[Rewritten]]:
        """Files from which events go, written again, by directory."""
        location = self._tables.location
        reader = TopicReader(location, plan.about.shape, plan.about.generations, self._config.events.unavailable_value)
        numbers = {one.directory: at for at, one in enumerate(plan.about.generations)}
        numbered = [
            Numbered(at, EventFile(numbers[file.directory], file.path, file.rows, file.least, file.until))
            for at, file in enumerate(plan.files)
        ]
        first = MarkTask(reader, (), plan.telling, (b"",), staging)
        bounds = self._bounds(first, numbered)
        marks = [replace(first, files=share, bounds=bounds) for share in _shares(numbered)]
        by_range, by_file = defaultdict(list), defaultdict(list)
        for pieces in self._runner.run(mark, marks):
            for piece in pieces:
                by_range[piece.number].append(piece)
        chosen = [ChooseTask(reader, staging, tuple(pieces)) for _, pieces in sorted(by_range.items())]
        for pieces in self._runner.run(choose, chosen) if chosen else ():
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
        for task, found in zip(tasks, self._runner.run(rewrite, tasks), strict=True):
            if found is not None:
                made.setdefault(task.directory, []).append(found)
        return made

    def _bounds(self, first: MarkTask, numbered: Sequence[Numbered]) -> tuple[bytes, ...]:
        """Where ranges of keys begin: about as many events in each, as some files show."""
        count = sum(one.file.rows for one in numbered) // _RANGE_ROWS
        if count < 2:
            return (b"",)
        chosen = numbered[:: max(1, len(numbered) // _SAMPLED_FILES)]
        keys = sorted(
            key for found in self._runner.run(sample, [replace(first, files=(one,)) for one in chosen]) for key in found
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


def _end(files: Sequence[TopicFile], directory: str) -> str:
    """Commit LSN of a table's newest event."""
    return max(file.until for file in files if file.directory == directory)


def _before(lsn: str) -> str:
    value = int(Lsn.parse(lsn)) if lsn else 0
    return str(Lsn.from_int(value - 1)) if value else ""
