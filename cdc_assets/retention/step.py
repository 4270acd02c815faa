"""The step with which events leave a topic: files go, or give way to others with the events that stay (`lake.rewriting`).

Before the first file goes, the manifest records what the topic holds from now on, and readers are informed by the properties of its
first table. How many rows a table should still have, its log says (`lake.replacing`).

| after | state | a crash here |
|---|---|---|
| the tasks of a compaction | files that no commit names | vacuum removes them; the next pass decides again |
| the manifest's row `retained` | fenced: what the topic holds | nothing is dropped, no reader is informed; the next pass decides again |
| the properties of the topic's first table | readers are informed | they are refused events that are still there; the next pass continues |
| the commit of one table | its files are in no new version | the same for the other tables of the topic |
| the last property, of a compaction | the topic is compacted up to the LSN | |
| the manifest's second row | the marks of its tables, so that their logs may be cleaned up | the next comparison or commit makes them |

*Why no reader is misled.* It lists files and then requests the property (`lake.retained`), which is older than any
removal. *Why a publisher loses nothing:* one that begins says so in the lake, which is looked at again after readers were informed.
*Why a mirror loses nothing:* only events below its own LSN go, which no later step of it reads. It may be rebuilt at this
very moment. If its plan is seen after readers were informed, nothing is removed. Else it was made with files that were listed
before, which stay on disk for `lake.retention.hours`.

*What a topic says of itself never goes back*, though a run that was overtaken may sleep before it says it: an announcement is
refused by the table if another one came since it was decided (`lake.retained.announce`).

*Two writers.* Only the writer of the manifest decides. One that was overtaken after its row checks its fence before each removal and stops; if
it sleeps after the check, it removes only files that the row allowed and that the newest version still has.

*If nothing goes after all*, because a reader turned up, or another program has replaced one of a table's files, the former record
is written again; and the next pass decides again.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.ports import Clock
from cdc_assets.core.steps import step
from cdc_assets.errors import LakeConflictError
from cdc_assets.lake.expected import settled
from cdc_assets.lake.files import DataFile
from cdc_assets.lake.replacing import Replacement
from cdc_assets.lake.retained import Retained, announce
from cdc_assets.lake.rewriting import Rewrite, rewriting
from cdc_assets.lake.step import carry_out
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.retention.limits import Limit

log = logging.getLogger(__name__)


@dataclass
class TableRemoval:
    """Files of one table that go.

    Args:
        paths: their names.
        instead: files with those of their events that stay. Readers of the log see no new events in them.
        gone: how many events go.
    """

    paths: list[str] = field(default_factory=list)
    instead: list[DataFile] = field(default_factory=list)
    gone: int = 0


@dataclass(frozen=True)
class TopicRemoval:
    """What leaves a topic.

    Args:
        former: what the topic holds now.
        found: what it holds afterwards.
        tables: by directory.
        compacts: whether what goes is what later events have replaced.
    """

    table: TableId
    topic: str
    former: Retained
    found: Retained
    tables: Mapping[str, TableRemoval]
    compacts: bool


class TopicRemover:
    """Has events leave topics; for a capture's only writer, between two windows.

    Args:
        manifest: claimed.
        limit: up to where readers of a topic have its events now.
    """

    def __init__(
        self, tables: TopicTables, manifest: Manifest, clock: Clock, limit: Callable[[TableId, str], Limit]
    ) -> None:
        self._tables, self._manifest, self._clock, self._limit = tables, manifest, clock, limit

    def carry_out(self, removal: TopicRemoval) -> None:
        """Have events leave a topic, once its readers are informed.

        Raises:
            LakeConflictError: another writer has announced something since, or one of them needs the events; none goes.
            FencedError: another writer has taken over.
            LakeError: the lake cannot be read or written.
        """
        rewrites = [self._rewrite(removal, directory, one) for directory, one in removal.tables.items()]
        announce, complete = partial(self._announce, removal), partial(self._complete, removal, rewrites)
        carry_out(rewriting(rewrites, announce, complete), self._tables.require_files)

    def _rewrite(self, removal: TopicRemoval, directory: str, one: TableRemoval) -> Rewrite:
        about = {"complete_after": removal.found.after}
        wanted = Replacement(one.paths, one.instead, one.gone, metadata=about)
        name = "topic-compacted" if removal.compacts else "topic-dropped"
        return Rewrite(self._tables, directory, wanted, self._manifest.require_writer, name)

    def _announce(self, removal: TopicRemoval) -> None:
        topic, former, found = removal.topic, removal.former, removal.found
        self._manifest.record_retained(self._clock.now(), {topic: found}, {})
        try:
            announce(self._tables, topic, former.number, found)
            step("retention-announced")
            limit = self._limit(removal.table, topic)
            is_published = limit.window is None or found.window <= max(limit.window, former.window)
            if not (limit.allows(found.after) and is_published):
                announce(self._tables, topic, former.number + 1, former)
                raise LakeConflictError(
                    f"Events of {topic} up to {found.after} were about to be dropped, but stay: {limit.reason}. "
                    "Next: nothing, it is tried again."
                )
        except LakeConflictError:
            self._manifest.record_retained(self._clock.now(), {topic: former}, {})
            raise

    def _complete(self, removal: TopicRemoval, rewrites: Iterable[Rewrite]) -> None:
        stay = {one.directory: one.conflict for one in rewrites if one.conflict is not None}
        for directory, conflict in stay.items():
            log.warning("Old events stay in %s for now: %s", directory, conflict)
        if removal.compacts:
            if not stay:
                done = replace(removal.found, compacted=removal.found.after)
                announce(self._tables, removal.topic, removal.former.number + 1, done)
            step("compaction-complete")
        self._mark(removal.tables.keys() - stay.keys())
        gone = sum(one.gone for directory, one in removal.tables.items() if directory not in stay)
        log.info(
            "%s: %d events up to %s are dropped%s.",
            removal.topic, gone, removal.found.after, ", which others have replaced" if removal.compacts else "",
        )  # fmt: skip

    def _mark(self, directories: Iterable[str]) -> None:
        marks = {**self._manifest.state.marks, **self._tables.fresh_marks()}
        former = {name: marks[name] for name in directories if name in marks}
        if former:
            now = {name: settled(self._tables, name, mark) for name, mark in former.items()}
            self._manifest.record_retained(self._clock.now(), {}, now)
            self._tables.forget_marks(former)
            for name, mark in now.items():
                self._tables.expect(name, mark)
