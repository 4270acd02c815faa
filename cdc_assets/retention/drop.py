"""Drops old events from topics: whole files, once every reader of this capture has them; or has topics compacted (`compact`).

*What is dropped* by age only. Files in the order of their newest event, as long as their newest commit is older than
`lake.topic.retention.hours`, readers have them (`limits`), and no earlier file has to stay. So what remains is a suffix:
the topic holds every event after the newest LSN that was dropped, and perhaps some before it, in files that straddle it.
The newest file of each table stays, because its bounds show how far the table is; and so does a file in which somebody else's rows are, which
have no position, or none of an event.

*How it goes*, what a crash does, and two writers: `step`, a topic at a time. A topic for which it does not work this time, whatever the
reason is, waits for the next pass, and the others continue. Each pass also removes from disk what earlier ones have dropped, for a topic that gets no new
events is not tidied otherwise.
"""

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.interruption import check
from cdc_assets.core.ports import Clock, TaskRunner
from cdc_assets.envelope.naming import topic_name
from cdc_assets.errors import (
    LAKE_ERRORS,
    CdcError,
    EngineError,
    FencedError,
    LakeConflictError,
    LakeError,
    RetryableError,
    describe_error,
)
from cdc_assets.lake.retained import Retained, retained
from cdc_assets.lake.topics import TopicTables
from cdc_assets.lake.upkeep import Upkeep
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.publish.offset import Published
from cdc_assets.publish.recorded import RecordedOffset, kept_for_former_lake
from cdc_assets.retention.compact import Compaction
from cdc_assets.retention.files import TopicFile, latest, listed, newest_in, untouched
from cdc_assets.retention.limits import Limit, Readers
from cdc_assets.retention.plan import CompactionPlanner
from cdc_assets.retention.ports import Mirrors
from cdc_assets.retention.step import TableRemoval, TopicRemoval, TopicRemover

log = logging.getLogger(__name__)

_PAUSE_SHARE = 0.1
"""Time between two passes, as a share of the age."""


class Retention:
    """Drops what is old from the topics of a capture; for its only writer, between two windows.

    Args:
        tables: the lake's Delta tables.
        manifest: claimed.
        mirrors: say which events they still need, and how events identify rows.
    """

    def __init__(
        self,
        tables: TopicTables,
        manifest: Manifest,
        config: CaptureConfig,
        clock: Clock,
        runner: TaskRunner,
        mirrors: Mirrors,
    ) -> None:
        self._tables, self._manifest, self._config, self._clock = tables, manifest, config, clock
        self._mirrors = mirrors
        self._age = timedelta(hours=config.lake.topic_hours)
        self._remover = TopicRemover(tables, manifest, clock, self._limit)
        self._removal = self._dropped
        if config.lake.topic_policy == "compact":
            self._removal = Compaction(tables, CompactionPlanner(tables, manifest, mirrors), runner).write

    def run_when_due(self) -> None:
        """Drop what may be dropped, if that was not tried for a while; after a failure the next pass continues.

        A pass far in the future was recorded by a clock that was set back since, and counts as none.
        """
        looked = self._manifest.state.looked
        if not self._age or (looked is not None and abs(self._clock.now() - looked) < self._age * _PAUSE_SHARE):
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
        now, readers = self._clock.now(), self._readers()
        if kept := kept_for_former_lake(self._recorded(), self._manifest.identity):
            log.warning("%s.", kept)
        self._manifest.record_retained(now, {}, {})
        for topic, table in self._in_turn():
            check()
            self._manifest.record_kept(now, topic, self._dropped_from(topic, table, readers, self._oldest_ms(now)))
        for topic in self._manifest.state.kept.keys() - {topic for topic, _ in self._in_turn()}:
            self._manifest.record_kept(now, topic, "")  # its table is captured no more
        upkeep = Upkeep(self._tables, self._config.lake)
        for topic in sorted(self._manifest.state.retained):
            check()
            try:
                for directory in self._tables.generations(topic):
                    upkeep.try_vacuum(directory)
            except LakeError as error:
                log.warning("Files of %s that were dropped stay for now: %s", topic, error)

    def _dropped_from(self, topic: str, table: TableId, readers: Readers, oldest_ms: int) -> str:
        """Drop what may be dropped of a topic; says why old events stay, if that does not end by itself."""
        try:
            limit = readers.limit(self._manifest.state, table, topic)
            if not limit.below:
                log.debug("Nothing is dropped from %s: %s.", topic, limit.reason)
                return ""
            files = listed(self._tables, topic)
            removal = self._removal(table, topic, files, limit, oldest_ms)
            if removal is not None:
                self._remover.carry_out(removal)
        except LakeConflictError as error:
            log.warning("Old events of %s stay for now: %s", topic, error)
            return ""
        except (FencedError, EngineError, RetryableError):
            raise
        except Exception as error:
            is_known = isinstance(error, CdcError)
            log.warning("Old events of %s stay for now: %s", topic, error, exc_info=not is_known)
            return f"Old events stay in {topic}: {describe_error(error)}"
        return untouched(topic, files) if self._config.lake.topic_policy == "delete" else ""

    def _in_turn(self) -> list[tuple[str, TableId]]:
        """Topics and their tables, those first of which the oldest windows are left: a pass may be interrupted each time. LSNs of
        several databases tell no order."""
        state = self._manifest.state
        topics = [(topic_name(table, self._config.events), table) for table in sorted(state.tables)]
        known = {topic: state.retained.get(topic, Retained()) for topic, _ in topics}
        return sorted(topics, key=lambda one: (known[one[0]].window, known[one[0]].compacted))

    def _oldest_ms(self, now: datetime) -> int:
        """Since when commits are young, in milliseconds since the epoch."""
        return int((now - self._age).timestamp() * 1000)

    def _readers(self) -> Readers:
        published, lake = self._recorded(), self._manifest.identity
        if published is not None and published.lake != lake:
            published = Published(lake)  # windows of a former lake had the same numbers
        return Readers(self._config, self._mirrors, published)

    def _recorded(self) -> Published | None:
        """How far topics are published, as the lake knows it."""
        return RecordedOffset(self._tables.location, self._config.events.topic_prefix).read()

    def _limit(self, table: TableId, topic: str) -> Limit:
        """Up to where readers have a topic at this moment."""
        return self._readers().limit(self._manifest.state, table, topic)

    def _dropped(
        self, table: TableId, topic: str, files: Sequence[TopicFile], limit: Limit, oldest_ms: int
    ) -> TopicRemoval | None:
        """What may be dropped from a topic; None if it is nothing."""
        former = retained(self._tables, topic)
        newest, found = latest(self._tables.location, files), former
        tables: dict[str, TableRemoval] = {}
        for file in sorted(files, key=lambda file: (file.until, file.directory, file.path)):
            if file.unplaced or not file.greatest or (file.directory, file.path) in newest:
                continue
            about = newest_in(self._tables.location, file) if limit.allows(file.until) else None
            if about is None or about.committed_ms >= oldest_ms:
                break
            if limit.window is not None and about.window > limit.window:
                break
            one = tables.setdefault(file.directory, TableRemoval())
            one.paths.append(file.path)
            one.gone += file.rows
            found = Retained(max(found.after, file.until), max(found.window, about.window))
        return (
            TopicRemoval(table, topic, former, found, dict(sorted(tables.items())), compacts=False) if tables else None
        )
