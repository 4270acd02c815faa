"""One capture, as Dagster and the command line use it.

A `Capture` is opened for one run. It begins with the steps of `opening`, and then
takes snapshots or streams. It connects to nothing and writes nothing before the
first call that needs it.
"""

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cdc_assets.capture.account import Account
from cdc_assets.capture.activities import Activities
from cdc_assets.capture.housekeeping import MakeRetention, keep_all
from cdc_assets.capture.loop import StreamLoop
from cdc_assets.capture.new_tables import NewTables
from cdc_assets.capture.opening import Opening
from cdc_assets.capture.selection import included_by, remembered, select, troubled_by_database
from cdc_assets.capture.until_now import UntilNow
from cdc_assets.config.filters import TableFilter
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.capture_runner import CaptureRunner
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.ports import BulkSource, Clock, Source, TaskRunner
from cdc_assets.core.schema import TableSchema
from cdc_assets.core.signal import SignalChannel
from cdc_assets.envelope.plan import ConnectorIdentity
from cdc_assets.errors import DATABASE_ERRORS, CdcError, DatabaseRestoredError, FencedError, describe_error
from cdc_assets.history.store import SchemaHistory
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.hindrances import THE_RUN, RecordedHindrances
from cdc_assets.ledger.ledger import Ledger
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.ledger.state import CaptureState
from cdc_assets.ledger.transitions import log_stopped
from cdc_assets.shared.lake import Lake
from cdc_assets.shared.parts import CaptureParts
from cdc_assets.shared.progress import (
    OnProgress,
    OnRead,
    Progress,
    RangesRead,
    ShouldYield,
    SnapshotSummary,
    StreamSummary,
)
from cdc_assets.shared.server import Server
from cdc_assets.snapshot.plan import Request
from cdc_assets.streaming.window_report import troubled_table
from cdc_assets.system_topics.notifications import Listener, Notifier

log = logging.getLogger(__name__)


def _ignore(_: Progress | RangesRead) -> None:
    pass


def _never() -> bool:
    return False


def _none(_: TableId) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What a run works with beside its settings, the server and who runs its tasks.

    Args:
        run_id: run id in the context headers of events; generated if empty.
        channels: signal channels that need an external client (Kafka).
        listener: called with every notification.
        tables: Delta tables of the lake; opened from the settings if None.
        on_progress: called after each committed window and round.
        on_read: called after each snapshot of a table, or of some of its ranges.
        retention: makes what drops old events from topics; by default none are.
    """

    run_id: str = ""
    channels: Sequence[SignalChannel] = ()
    listener: Listener | None = None
    tables: TopicTables | None = None
    on_progress: OnProgress = _ignore
    on_read: OnRead = _ignore
    retention: MakeRetention = keep_all


_PLAIN = RunOptions()


class Capture:
    """Snapshots and streams one capture into the lake, exactly once.

    Args:
        source: control plane of the server.
        bulk: data plane; serialized and sent to tasks.
        options: what has a default.

    Raises:
        ConfigurationError: settings contradict each other.
    """

    def __init__(
        self,
        config: CaptureConfig,
        source: Source,
        bulk: BulkSource,
        runner: TaskRunner,
        clock: Clock,
        options: RunOptions = _PLAIN,
    ) -> None:
        tables = options.tables or TopicTables.of(config)
        own = CaptureRunner(runner, config.name)
        notifier = Notifier(tables, config.notifications, config.events.topic_prefix, options.listener)
        connector = ConnectorIdentity(run_id=options.run_id or str(uuid.uuid4()))
        self._config, self._notifier = config, notifier
        manifest = Manifest(tables, config.events.topic_prefix, notifier, own.account)
        history = SchemaHistory(tables, config.events, config.history, connector, manifest.require_writer)
        self._server = Server(source, bulk, config.streaming, history)
        self._lake = Lake(tables, history, config.events, connector)
        self._ledger = Ledger(manifest, clock)
        account = Account(options.on_progress, options.on_read, own.account)
        self._activities = Activities(self.parts, own, notifier, options.channels, account, options.retention)
        self._opening = Opening(self.parts, self._activities)
        self._hindrances = self._recorded_hindrances()
        self._snapshotted: set[TableId] = set()
        """Tables that this run has snapshotted."""
        self._requested: set[TableId] = set()
        """Tables that were named to be snapshotted; they may not have been read yet."""
        self._lasting: Mapping[str, Exception] = {}
        """What hinders the stream, by what cannot continue."""

    def discover(self) -> Sequence[TableSchema]:
        """Structures of the captured tables that pass the filters, in snapshot order.

        For a database that cannot be captured now, the tables and structures come from the schema history.

        Raises:
            ConfigurationError: no table matches although some are enabled, or two tables would share a topic before
                anything is captured.
            CdcError: the server cannot be reached.
        """
        selection = select(self._config, self._server, self._ledger.manifest.read())
        found = list(self._server.described(self._server.source.table_schemas(_flat(selection.tables))).values())
        if not selection.unavailable:
            return found
        return [*found, *remembered(self._lake.history, self._ledger.manifest, selection.unavailable)]

    def claim(self) -> None:
        """Become the only writer of this capture. `snapshot` and `stream` call it.

        Raises:
            LakeError: the lake cannot be written; nothing has changed.
            FencedError: another run claimed it at the same moment.
        """
        self._opening.claim()

    @property
    def parts(self) -> CaptureParts:
        """What its activities share."""
        return CaptureParts(self._config, self._server, self._lake, self._ledger)

    def snapshot(
        self, tables: Sequence[TableId] | None = None, partitions: Sequence[int] | None = None
    ) -> SnapshotSummary:
        """Snapshot tables.

        A table that cannot be read does not stop the others; the next run tries it again.

        Args:
            tables: tables whose rows are read whatever the snapshot mode is; if their database was restored, a new
                history of it begins. None reads the captured tables that need a snapshot according to `snapshot.mode`.
            partitions: numbers, from 0, of the key-range partitions to read; None reads whole tables.

        Returns:
            Tables that were snapshotted, and tables that could not be read.

        Raises:
            DatabaseRestoredError: the only database was restored to a moment before what was read from it.
            CdcError: the server or the lake failed as a whole. If it is retryable, the next call continues where this
                one stopped.
        """
        selected, unavailable = self._opening.begin()
        whole = (tables or ()) if partitions is None else ()
        asked = {table.database for table in whole} & self._opening.restored.keys()
        if not selected and not asked:
            raise next(problem for problem in unavailable.values() if isinstance(problem, DatabaseRestoredError))
        done = self._opening.finish(selected, unavailable, tables or ())
        self._snapshotted.update(done.tables)
        for database in sorted(asked):
            self._opening.begin_history(database, selected, unavailable)
        if not selected:
            raise next(problem for name, problem in unavailable.items() if name in asked or not asked)
        ranges = None if partitions is None else tuple(partitions)
        for database in list(selected):
            if tables is None:
                requests = self._due(database, selected, unavailable)
            else:
                requests = self._activities.due.whole([table for table in tables if table.database == database], ranges)
            done += self._opening.snapshot(database, requests)
        refused = [trouble for trouble in self._opening.refused if tables is None or trouble.table in tables]
        left_out = {name: describe_error(why) for name, why in unavailable.items() if tables is None}
        done += SnapshotSummary(failed=(*troubled_by_database(tables or (), unavailable), *refused), left_out=left_out)
        self._snapshotted.update(done.tables)
        self._activities.readings.wait_briefly()
        self._requested.update(tables or ())
        if tables is None and not (self._snapshotted or self._requested or done.failed):
            self._notifier.send(self._ledger.notice("Initial Snapshot", "SKIPPED"))
        self._ledger.manifest.record_sent(self._ledger.clock.now())
        return done

    def stream(
        self,
        *,
        should_yield: ShouldYield = _never,
        is_added: Callable[[TableId], bool] = _none,
    ) -> StreamSummary:
        """Read windows until there were no changes for `streaming.idle_timeout_s`, `max_duration_s` is over, or another run waits.

        First a snapshot that an earlier run left unfinished is finished. Tables that still need a snapshot according to
        `snapshot.mode` are left out and listed in the summary; with `no_data` they start here. A table that is enabled
        while the loop runs is added at a window border, with its rows if the mode reads rows.

        Args:
            should_yield: called at each window border; the loop ends when it returns True.
            is_added: whether a table that waits for its first snapshot is added at once, as if it had been enabled
                while the loop runs.

        Raises:
            CdcError: the server or the lake failed more often than the retries allow; the next call continues.
        """
        self._lasting, self._hindrances = {}, self._recorded_hindrances()
        self._hindrances.begin("stream")
        try:
            summary = self._stream(should_yield, is_added)
        except FencedError:
            raise
        except CdcError as error:
            self._hindered({THE_RUN: error}, last_word=True)
            raise
        self._hindered(self._lasting, last_word=True)  # nothing, if the loop had nothing to do
        return summary

    def _recorded_hindrances(self) -> RecordedHindrances:
        return RecordedHindrances(self._lake.tables.location, self._config.events.topic_prefix)

    def _hindered(self, errors: Mapping[str, Exception], *, last_word: bool = False) -> None:
        """Record what hinders the stream now."""
        self._lasting = errors
        now, claim = self._ledger.clock.now(), self._ledger.manifest.claimed
        self._hindrances.write("stream", errors, now, claim, last_word=last_word)

    def _stream(self, should_yield: ShouldYield, is_added: Callable[[TableId], bool]) -> StreamSummary:
        selected, unavailable = self._opening.begin()
        recovered = self._opening.finish(selected, unavailable)
        self._snapshotted.update(recovered.tables)
        if not self._activities.due.streams:
            log.info("Streaming is disabled for snapshot mode %s.", self._config.snapshot.mode)
            return StreamSummary("nothing", 0, {}, (), ())
        for database in list(selected):
            starting = [request for request in self._due(database, selected, unavailable) if not request.data]
            self._snapshotted.update(self._opening.snapshot(database, starting).tables)
        if self._snapshotted and (delay := self._config.streaming.delay_s):
            log.info("Streaming starts in %s s (streaming.delay.ms).", delay)
            self._ledger.clock.sleep(delay)
        known = self._ledger.state.tables
        waiting_now = [table for table in _flat(selected) if table not in known and not is_added(table)]
        for entry in self._ledger.state.tables.values():
            log_stopped(entry)
        activities, account = self._activities, self._activities.account
        new_tables = NewTables(
            self._config, self._ledger, self._activities.due, activities.snapshotter, waiting_now, self._opening.refused
        )
        loop = StreamLoop(self.parts, activities, new_tables, unavailable, self._hindered)
        ended = loop.run([*selected, *unavailable], should_yield)
        activities.housekeeper.tidy()
        state, included = self._ledger.state, included_by(self._config)
        entries = [entry for entry in state.tables.values() if included(entry.table)]
        troubled = [troubled_table(entry) for entry in entries if entry.status != "healthy"]
        troubled += new_tables.refused.values()
        reported = {trouble.table for trouble in troubled}
        troubled += troubled_by_database(
            (entry.table for entry in entries if entry.table not in reported), loop.unavailable
        )
        waiting = tuple(table for table in _flat(selected) if table not in state.tables and table not in reported)
        databases = {table.database for table in state.tables}
        left_out = {name: describe_error(why) for name, why in loop.unavailable.items() if name not in databases}
        self._ledger.manifest.record_sent(self._ledger.clock.now())
        return StreamSummary(
            ended, account.windows, dict(account.rows), tuple(troubled), waiting, tuple(account.unread), left_out
        )

    def _due(
        self, database: str, selected: dict[str, list[TableId]], unavailable: dict[str, CdcError]
    ) -> list[Request]:
        """What the mode requires of a database; one that does not answer is left out, if there are others."""
        try:
            return self._activities.due.requests(database, selected[database], self._snapshotted)
        except DATABASE_ERRORS as error:
            if len(selected) == 1:
                raise
            log.error("Database %s is left out: %s", database, error)
            del selected[database]
            unavailable[database] = error
            return []

    def check_includes(self) -> None:
        """Check that the include lists match a table, after a run that found none: while it runs, one may still come.

        Raises:
            ConfigurationError: they match none.
            CdcError: the server cannot be queried.
        """
        source = self._server.source
        databases = source.databases()
        if not any(source.trouble(database) for database in databases):
            found = (table for database in databases for table in source.user_tables(database))
            TableFilter(self._config.filters).check_includes(found)

    def until_now(self) -> UntilNow:
        """What is committed until now, for a run that ends when the lake holds it; before anything is read.

        Raises:
            CdcError: the server cannot be queried.
        """
        mirror = self._config.mirror
        return UntilNow(self._server.source, self._ledger, mirror.settle_s, mirrored=mirror.enabled)

    def structures(self) -> Mapping[TableId, TableSchema]:
        """Columns of future events by table, from the schema history of this run."""
        history = self._lake.history
        latest = {table: history.latest(table) for table in self._ledger.state.tables}
        return {table: entry.events_of for table, entry in latest.items() if entry is not None}

    def state(self) -> CaptureState:
        """State recorded in the manifest, read without claiming the capture.

        Raises:
            LakeError: the manifest cannot be read.
        """
        return self._ledger.manifest.read()


def _flat(selected: Mapping[str, Sequence[TableId]]) -> list[TableId]:
    return [table for tables in selected.values() for table in tables]
