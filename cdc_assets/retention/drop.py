"""Drops old events from topics: whole files, once every reader of this capture has them; or has topics compacted (`compact`).

*What is dropped* by age alone. Files in the order of their newest event, as long as their newest commit is older than
`lake.topic.retention.hours`, readers have them (`limits`), and no earlier file has to stay. So what remains is a suffix:
the topic holds every event after the newest LSN that was dropped, and perhaps some before it, in files that straddle it.
The newest file of each table stays, because its bounds tell how far the table is.

| after | state | a crash here |
|---|---|---|
| the manifest's row `retained` | fenced: what topics hold, and that their tables may hold fewer rows from now on | nothing is dropped, no reader is told; the next look decides anew |
| the property of a topic's first table | readers are told | they are refused events that are still there; the next look goes on |
| the removal from one table | its files are in no new version | the same for the other tables of the topic |

*Why no reader is misled.* It lists files and then asks for the property (`lake.retained`), which is older than any
removal. *Why a mirror loses nothing:* only files below its own LSN go, which no later step of it reads. If it is made
anew at this very moment, its plan is either seen after readers were told, and then nothing is removed, or it was made
with files that were listed before, which stay on disk for `lake.retention.hours`. Each look also removes from disk what earlier looks have dropped, for a topic
that gets no new events is not tidied otherwise.

*What a topic says of itself never goes back*, though a run that was overtaken may sleep before it says it: an announcement is
refused by the table if another one came since it was decided (`lake.retained.announce`).

*Two writers.* Only the writer of the manifest decides. One that was overtaken after its row asks before each removal and stops; if
it sleeps behind the question, it removes only files that the row allowed and that the newest version still has. If another
program has replaced one of them, nothing goes from that table, and the next look decides anew.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.ports import Clock, TaskRunner
from cdc_assets.core.steps import step
from cdc_assets.envelope.naming import topic_name
from cdc_assets.errors import LAKE_ERRORS, LakeConflictError
from cdc_assets.lake.marks import Mark
from cdc_assets.lake.retained import Retained, announce, remove, retained
from cdc_assets.lake.topics import TopicTables
from cdc_assets.lake.upkeep import Upkeep
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.mirror.delta import MirrorTables, current_directory
from cdc_assets.mirror.ledger import MirrorLedger
from cdc_assets.publish.recorded import RecordedPlace
from cdc_assets.retention.compact import Compaction
from cdc_assets.retention.files import TopicFile, latest, listed, newest_in
from cdc_assets.retention.limits import Limit, Readers
from cdc_assets.retention.plan import CompactionPlanner

log = logging.getLogger(__name__)

_LOOK_SHARE = 0.1
"""Time between two looks, as a share of the age."""


@dataclass(frozen=True)
class _Drop:
    """What is to be dropped from a topic.

    Args:
        former: what it holds now.
        found: what it holds afterwards.
        files: those of all its generations.
        gone: those that are dropped, as directory and path.
    """

    table: TableId
    topic: str
    former: Retained
    found: Retained
    files: Sequence[TopicFile]
    gone: frozenset[tuple[str, str]]

    def marks(self, known: Mapping[str, Mark]) -> dict[str, Mark]:
        """Content of the tables that are recorded, afterwards."""
        left: dict[str, int] = {}
        for file in self.files:
            stays = (file.directory, file.path) not in self.gone
            left[file.directory] = left.get(file.directory, 0) + (file.rows if stays else 0)
        return {
            name: replace(known[name], rows=min(known[name].rows, rows)) for name, rows in left.items() if name in known
        }


class Retention:
    """Drops what is old from the topics of a capture; for its only writer, between two windows.

    Args:
        tables: the lake's Delta tables.
        manifest: claimed.
    """

    def __init__(
        self, tables: TopicTables, manifest: Manifest, config: CaptureConfig, clock: Clock, runner: TaskRunner
    ) -> None:
        self._tables, self._manifest, self._config, self._clock = tables, manifest, config, clock
        planner = CompactionPlanner(tables, manifest, config, clock, runner)
        self._compaction = Compaction(tables, manifest, planner, config, runner)
        self._age = timedelta(hours=config.lake.topic_hours)

    def run_when_due(self) -> None:
        """Drop what may be dropped, if nobody has looked for a while; after a failure the next look goes on.

        A look far in the future was recorded by a clock that was set back since, and counts as none.
        """
        looked = self._manifest.state.looked
        if not self._age or (looked is not None and abs(self._clock.now() - looked) < self._age * _LOOK_SHARE):
            return
        try:
            self.run()
        except LAKE_ERRORS as error:
            log.warning("Old events could not be dropped from topics; it is tried again: %s", error)

    def run(self) -> None:
        """Drop what may be dropped.

        Raises:
            FencedError: another writer has taken over.
            LakeError: the lake cannot be read or written.
        """
        now, state = self._clock.now(), self._manifest.state
        readers = self._readers()
        topics = {table: topic_name(table, self._config.events) for table in sorted(state.tables)}
        if self._config.lake.topic_policy == "compact":
            self._compact(topics, readers, now)
        else:
            self._drop_old(topics, readers, now)
        upkeep = Upkeep(self._tables, self._config.lake)
        for topic in sorted(self._manifest.state.retained):
            for directory in self._tables.generations(topic):
                upkeep.try_vacuum(directory)

    def _drop_old(self, topics: Mapping[TableId, str], readers: Readers, now: datetime) -> None:
        state = self._manifest.state
        drops = [
            drop
            for table, topic in topics.items()
            if (drop := self._drop(table, topic, readers.limit(state, table, topic), now)) is not None
        ]
        marks = self._marks()
        changed = {name: mark for drop in drops for name, mark in drop.marks(marks).items()}
        self._manifest.record_retained(now, {drop.topic: drop.found for drop in drops}, changed)
        for drop in drops:
            if self._is_told(drop.table, drop.topic, drop.former, drop.found, marks):
                self._restore(now, self._carry_out(drop), marks)

    def _compact(self, topics: Mapping[TableId, str], readers: Readers, now: datetime) -> None:
        self._manifest.record_retained(now, {}, {})
        for table, topic in topics.items():
            limit = readers.limit(self._manifest.state, table, topic)
            made = self._compaction.write(table, topic, limit, self._oldest_ms(now))
            if made is not None:
                marks = self._marks()
                self._manifest.record_retained(now, {topic: made.found}, made.marks(marks))
                if self._is_told(table, topic, made.former, made.found, marks):
                    self._restore(now, self._compaction.commit(made), marks)

    def _restore(self, now: datetime, left: Sequence[str], marks: Mapping[str, Mark]) -> None:
        """Record the content of tables from which nothing went after all, so that a later loss of as many rows is seen."""
        if left:
            self._manifest.record_retained(now, {}, {name: marks[name] for name in left if name in marks})

    def _marks(self) -> dict[str, Mark]:
        return {**self._manifest.state.marks, **self._tables.fresh_marks()}

    def _oldest_ms(self, now: datetime) -> int:
        """Since when commits are young, in milliseconds since the epoch."""
        return int((now - self._age).timestamp() * 1000)

    def _readers(self) -> Readers:
        mirrors, prefix = MirrorTables.of(self._config), self._config.events.topic_prefix
        return Readers(
            self._config,
            MirrorLedger(mirrors.tables, prefix).read(),
            _stands(mirrors),
            RecordedPlace(self._tables.location, prefix).read(),
        )

    def _drop(self, table: TableId, topic: str, limit: Limit, now: datetime) -> _Drop | None:
        """What may be dropped from a topic; None if it is nothing."""
        if not limit.below:
            log.debug("Nothing is dropped from %s: %s.", topic, limit.reason)
            return None
        parts = [listed(self._tables, directory) for directory in self._tables.generations(topic)]
        files = [file for part in parts for file in part or ()]
        if None in parts or not files:
            return None
        former = retained(self._tables, topic)
        newest, found = latest(files), former
        gone: list[TopicFile] = []
        oldest_ms = self._oldest_ms(now)
        for file in sorted(files, key=lambda file: (file.until, file.directory, file.path)):
            if (file.directory, file.path) in newest:
                continue
            about = newest_in(self._tables.location, file) if limit.allows(file.until) else None
            if about is None or about.committed_ms >= oldest_ms:
                break
            if limit.window is not None and about.window > limit.window:
                break
            gone.append(file)
            found = Retained(max(found.after, file.until), max(found.window, about.window))
        if not gone:
            return None
        return _Drop(table, topic, former, found, files, frozenset((file.directory, file.path) for file in gone))

    def _is_told(
        self, table: TableId, topic: str, former: Retained, found: Retained, marks: Mapping[str, Mark]
    ) -> bool:
        """Tell readers what a topic holds from now on; whether that may come true. If not, its former content is recorded again."""
        announce(self._tables, topic, former.number, found)
        step("retention-announced")
        limit = self._readers().limit(self._manifest.state, table, topic)
        if limit.allows(found.after):
            return True
        announce(self._tables, topic, former.number + 1, former)  # the mirror is being made anew since a moment ago
        before = {name: marks[name] for name in self._tables.generations(topic) if name in marks}
        self._manifest.record_retained(self._clock.now(), {topic: former}, before)
        return False

    def _carry_out(self, drop: _Drop) -> list[str]:
        """Remove the files; tables of which another writer has replaced one stay as they are, and are returned."""
        rows = {(file.directory, file.path): file.rows for file in drop.files}
        left: list[str] = []
        for directory in sorted({directory for directory, _ in drop.gone}):
            paths = sorted(path for name, path in drop.gone if name == directory)
            gone = sum(rows[directory, path] for path in paths)
            try:
                remove(self._tables, directory, paths, drop.found.after, gone, self._manifest.require_writer)
            except LakeConflictError as error:
                log.warning("Old events stay in %s for now: %s", directory, error)
                left.append(directory)
                continue
            step("topic-dropped")
            log.info("%s: %d files of events up to %s are dropped.", directory, len(paths), drop.found.after)
        return left


def _stands(mirrors: MirrorTables) -> Callable[[str], bool]:
    def stands(topic: str) -> bool:
        return (
            mirrors.leaves(current_directory(topic)) is not None
            and mirrors.schema(current_directory(topic)) is not None
        )

    return stands
