"""One run of an engine into the lake: finish the planned batch, start the connector after it, commit batch by batch.

*Why exactly once.* A batch is a step that cannot be read twice (`batch_step`; order, and what a crash does: `lake.step`): its files and the
offsets after them are recorded in one row. So none of its events is needed again, and the connector, which starts at these offsets, sends none
again; if it does all the same, they are dropped by position (`positions`). Events that were sent and not recorded are sent again.
The connector's own stores of offsets and schema history are written at each start from what is recorded. An unfinished snapshot is one batch
that is not recorded, so it begins again.
"""

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final, Literal

import pyarrow as pa

from cdc_assets.config.engine import OVERRIDES, READ_LIST, EngineConfig
from cdc_assets.connectors.engine.batch_step import batch_commits
from cdc_assets.connectors.engine.feed import Chunk, EngineFeed, EngineStart, Habits
from cdc_assets.connectors.engine.history import History
from cdc_assets.connectors.engine.ledger import Batch, BatchLedger, Gap
from cdc_assets.connectors.engine.losses import BatchAudit
from cdc_assets.connectors.engine.notices import SnapshotNotices, notifications
from cdc_assets.connectors.engine.positions import Repetitions
from cdc_assets.connectors.engine.requested_reads import RequestedReads
from cdc_assets.connectors.engine.row_reads import still_read
from cdc_assets.connectors.engine.signal_targets import identifier, listed
from cdc_assets.connectors.engine.source import LogPoint, point_of_offset, recorded_point
from cdc_assets.connectors.engine.staging import Staging, history_directory
from cdc_assets.connectors.engine.stops import still_stopped, stream_of
from cdc_assets.connectors.engine.topics import notification_topic, routes, table_of, topics_of_tables
from cdc_assets.connectors.engine.upkeep import BatchUpkeep
from cdc_assets.core.interruption import check
from cdc_assets.core.signal import Signal
from cdc_assets.lake.known import refuse_if_known, remember_record
from cdc_assets.lake.owners import refuse_beside
from cdc_assets.lake.step import Step, carry_out
from cdc_assets.lake.system_topics import manifest_directory
from cdc_assets.lake.topics import TopicTables

log = logging.getLogger(__name__)

_CONNECTOR: Final = Habits()
_POLL_S: Final = 0.2
_COMMIT_TIMES: Final = 20.0
"""A backlog is collected for so many times what the last commit took, so that commits take a twentieth of the time."""
_LONGEST_S: Final = 30.0
_QUIET_S: Final = 10.0
"""Quiet that is recorded in a run that continues."""
_POLL_COUNTS_S: Final = 4.0
"""Quiet that one poll proves at most: time passes for a process that is stopped, too, and what has come meanwhile may not be there at once."""

Ending = Literal["idle", "deadline", "goal"]


@dataclass(frozen=True, slots=True)
class EngineSummary:
    """What a run did.

    Args:
        ended: why.
        batches: committed by this run.
        rows: events by topic table.
        unread: what signals requested and was not read, with the next step.
    """

    ended: Ending
    batches: int
    rows: Counter[str] = field(default_factory=Counter)
    unread: tuple[str, ...] = ()


class EngineRun:
    """Runs a connector until nothing is new.

    Args:
        config: how much a batch holds, and when the run ends.
        tables: the lake's Delta tables.
        start: starts the connector.
        on_batch: called with each batch that is committed.
        goal: place of the log at which the run ends, once the lake is complete up to it; None if it follows.
        habits: what is to be expected of the connector.
    """

    def __init__(
        self,
        config: EngineConfig,
        tables: TopicTables,
        start: EngineStart,
        on_batch: Callable[[Batch], None] = lambda _: None,
        goal: LogPoint | None = None,
        habits: Habits = _CONNECTOR,
    ) -> None:
        self._config, self._tables, self._start, self._on_batch = config, tables, start, on_batch
        self._goal, self._habits = goal, habits
        self._ledger = BatchLedger(tables, config.topic_prefix)
        self._audit = BatchAudit(tables, self._ledger)
        self._history = History(tables, config.topic_prefix)
        self._upkeep = BatchUpkeep(tables, self._ledger, config.lake)
        self._schemas: dict[int, pa.Schema] = {}
        self._rows: Counter[str] = Counter()
        self._batches, self._staging_since, self._commit_s = 0, 0.0, 0.0
        self._staging: Staging | None = None
        self._has_received = False
        self._repetitions = Repetitions(None, ())
        self._places: dict[str, dict[str, object]] = {}
        self._begun_at: LogPoint | None = None
        self._resumed_after: str | None = None
        self._notices = SnapshotNotices(self._captured)
        self._unread: list[str] = []
        self._nulled: Counter[str] = Counter()
        self._requests = RequestedReads(config, (), ())

    def run(self, handed: Sequence[Signal] = ()) -> EngineSummary:
        """Finish the planned batch, then commit what the connector sends until it is idle.

        Args:
            handed: signals that its start hands to the connector; may grow.

        Raises:
            EngineError: the connector or its process has ended by itself.
            FencedError: another run has taken over.
            LakeError, LakeFullError: the lake cannot be read or written, or a table of it is gone.
            Interrupted: the run was to end; what was complete is committed.
        """
        check()
        location, directory = self._tables.location, self._ledger.directory
        location.check_writable()
        if self._tables.open(directory) is None:
            refuse_if_known(location, directory, self._tables.capture)
            refuse_beside(self._tables, manifest_directory(self._config.topic_prefix))
        state = self._ledger.claim(_now())
        remember_record(location.uri(directory))
        self._audit.begin()
        if state.pending is not None:
            log.info("Batch %s was planned and is not complete; it is finished first.", state.pending.batch_id)
            self._carry_out(state.pending, is_recorded=True)
        self._audit.check()
        state = self._ledger.state
        if self._habits.repeats:
            self._repetitions = Repetitions(state.place, [offset for _, offset in state.pairs()], state.boundary)
        self._begun_at = recorded_point(state)
        self._resumed_after = str(self._begun_at or "the last batch") if state.offsets else None
        self._requests = RequestedReads(self._config, handed, state.pairs())
        feed = self._start(state.pairs(), self._history.read())
        try:
            ended = self._follow(feed)
        finally:
            feed.close()
        if ended == "idle":
            self._rest()
        self._upkeep.tidy()
        return EngineSummary(ended, self._batches, self._rows, tuple(self._unread))

    def _follow(self, feed: EngineFeed) -> Ending:
        """Commit what the connector sends until it is idle or time is up; the events of an unfinished batch are sent again later."""
        begun = heard = time.monotonic()
        polls = 0
        try:
            while True:
                chunk = feed.next(_POLL_S)
                if chunk is not None:
                    self._stage(chunk)
                self._note_stops()
                now, polls = time.monotonic(), polls + 1
                if (chunk is not None and self._is_news(chunk)) or not feed.started:
                    heard, polls = now, 0
                quiet_s = min(now - heard, polls * _POLL_COUNTS_S)
                ending, staging = self._ending(feed, now - begun, quiet_s), self._staging
                if staging is not None and (ending or self._is_full(staging, now, behind=chunk is not None)):
                    self._close(staging, feed)
                if ending is not None and (self._staging is None or ending != "idle"):
                    return ending
                if self._staging is None:
                    self._upkeep.check_when_due()
                    if quiet_s >= _QUIET_S:
                        self._rest()
                check()
        finally:
            if self._staging is not None:
                self._staging.abandon()
                self._staging = None

    def _rest(self) -> None:
        """Record that nothing is new: all streams are at their ends, but for those that are stopped."""
        stopped = self._habits.stopped()
        self._ledger.stop(_now(), stopped)
        if self._has_received and not stopped:  # a connector that has sent nothing at all may not have begun to read
            self._ledger.rest(_now())

    def _note_stops(self, moved: Collection[str] = ()) -> None:
        state = self._ledger.state
        self._ledger.stop(_now(), still_stopped(state.stopped, self._habits.stopped(), moved))

    def _is_news(self, chunk: Chunk) -> bool:
        """Whether a chunk holds more than heartbeats, which are sent even if nothing is new, or moves the offset."""
        before = dict(self._places)
        self._places |= {json.dumps(partition, sort_keys=True): dict(offset) for partition, offset in chunk.offsets}
        return before != self._places or any(lines.topic != self._config.heartbeat_topic for lines in chunk.lines)

    def _captured(self) -> str:
        """Tables with events in the lake, as a sentence, for somebody who has misspelt one."""
        if routes(self._config):
            return ""
        topics = topics_of_tables(self._ledger.state.tables, self._config)
        return f"Captured are: {listed(sorted(identifier(self._config, table_of(name, self._config)) for name in topics))}. "

    def _listen(self, chunk: Chunk) -> None:
        self._requests.take(chunk)
        for notification in notifications(chunk, notification_topic(self._config)):
            if trouble := self._notices.take(notification):
                log.error("%s", trouble)
                self._unread.append(trouble)

    def _stage(self, chunk: Chunk) -> None:
        self._has_received = True
        self._nulled.update(chunk.nulled)
        self._listen(chunk)
        if self._staging is None:
            number = self._ledger.state.next_batch
            prefix = self._config.topic_prefix
            self._staging = Staging(self._tables, prefix, number, self._repetitions, self._schemas)
            self._staging_since = time.monotonic()
        self._staging.add(replace(chunk, history=self._history.reached(chunk.history, chunk.offsets)))

    def _is_full(self, staging: Staging, now: float, *, behind: bool) -> bool:
        """Whether the batch is committed though the run goes on; while the connector lags, commits must not take the time of its events."""
        config = self._config
        longest = min(_COMMIT_TIMES * self._commit_s, _LONGEST_S) if behind else 0.0
        is_old = now - self._staging_since >= max(config.batch_s, longest)
        return not staging.unfinished and (staging.rows >= config.batch_rows or is_old)

    def _ending(self, feed: EngineFeed, passed_s: float, quiet_s: float) -> Ending | None:
        """Whether the run ends. No goal and no deadline ends a snapshot, which would begin again with the next run, and again."""
        if feed.snapshot or (self._staging is not None and self._staging.unfinished):
            return None
        if self._goal is not None and self._has_reached(self._goal):
            return "goal"
        if 0 < self._config.max_duration_s <= passed_s:
            return "deadline"
        patience = self._config.idle_timeout_s
        if not self._has_received:
            patience = max(patience, self._habits.warm_up_s / (4 if self._ledger.state.offsets else 1))
        return "idle" if self._config.idle_timeout_s > 0 and quiet_s >= patience else None

    def _has_reached(self, goal: LogPoint) -> bool:
        """Whether the lake is complete up to a place where the log ended before the run; what had been recorded beyond it is of a former log."""
        point = recorded_point(self._ledger.state)
        return point is not None and (point == goal or (point > goal and point != self._begun_at))

    def _close(self, staging: Staging, feed: EngineFeed) -> None:
        """Record and commit the current batch."""
        self._staging = None
        try:
            batch = self._with_reads(replace(self._with_gap(staging.close()), nulled=dict(self._nulled)))
        except BaseException:
            staging.abandon()
            raise
        begun = time.monotonic()
        self._nulled.clear()
        self._requests.read.clear()
        self._carry_out(batch, is_recorded=False)
        self._commit_s = time.monotonic() - begun
        feed.committed(staging.chunk)
        if self._upkeep.due:
            self._upkeep.tidy()

    def _with_gap(self, batch: Batch) -> Batch:
        """The batch with what is lost before it, if the connector was to continue and started over: the source had forgotten it."""
        if not batch.anew or self._resumed_after is None:
            return batch
        begin, self._resumed_after = self._resumed_after, None
        points = [point_of_offset(pair[1]) for pair in batch.offsets]
        end = str(min((point for point in points if point is not None), default="the new snapshot"))
        if begin == end:
            return batch
        gap = begin, end
        log.error("%s", Gap(*gap, batch.batch_id))
        return replace(batch, gap=gap)

    def _with_reads(self, batch: Batch) -> Batch:
        """The batch with what shows of which tables the rows were read: ends of scans; without notifications of these, rows."""
        if batch.anew:
            lists = self._config.read_lists if self._config.reads_rows else None
            return replace(batch, lists=lists, read=sorted(self._requests.read))
        state = self._ledger.state
        if state.lists is None:
            return batch
        files = {} if notification_topic(self._config) else batch.files
        read = {name.partition("@")[0] for name, own in files.items() if any(file.operations.get("r") for file in own)}
        known = [state.lists, *state.later_lists]
        last = {name: text for name, text in known[-1].items() if name not in (READ_LIST, OVERRIDES)}
        changed = None if last == self._config.lists else self._config.lists
        kept = [] if changed is None else still_read(self._config, [*known, changed], state.read_at)
        found = {*filter(self._requests.is_whole, read), *self._requests.read, *kept}
        return replace(batch, lists=changed, read=sorted(found))

    def _carry_out(self, batch: Batch, *, is_recorded: bool) -> None:
        commits = batch_commits(self._tables, batch, history_directory(self._config.topic_prefix))
        record, complete = lambda: self._ledger.plan(_now(), batch), lambda: self._complete(batch)
        step = Step(batch.batch_id, commits, record, complete, is_recorded=is_recorded)
        carry_out(step, self._tables.require_files)

    def _complete(self, batch: Batch) -> None:
        """Record that each table has its files, and report it."""
        history = history_directory(self._config.topic_prefix)
        self._rows.update(
            {name: sum(file.rows for file in files) for name, files in batch.files.items() if name != history}
        )
        self._ledger.complete(_now(), self._audit.marks(batch.batch_id))
        self._note_stops({stream_of(partition) for partition, _ in batch.offsets})
        self._upkeep.count(batch.files)
        self._batches += 1
        self._on_batch(batch)


def _now() -> datetime:
    return datetime.now(UTC)
