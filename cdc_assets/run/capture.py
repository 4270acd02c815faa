"""One capture, as Dagster and the command line use it.

A `Capture` is opened for one run. What comes first is in `opening`; then it
snapshots, or streams. Nothing is connected and nothing is written before the
first call that needs it.
"""

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence

from cdc_assets.capture.lake import Lake
from cdc_assets.capture.ledger import Ledger
from cdc_assets.capture.progress import (
    OnProgress,
    Progress,
    ShouldYield,
    SnapshotSummary,
    StreamSummary,
)
from cdc_assets.capture.server import Server
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.ports import BulkSource, Clock, Source, TaskRunner
from cdc_assets.core.schema import TableSchema
from cdc_assets.core.signal import SignalChannel
from cdc_assets.envelope.plan import ConnectorIdentity
from cdc_assets.errors import DatabaseRestoredError
from cdc_assets.history.store import SchemaHistory
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.ledger.state import CaptureState
from cdc_assets.ledger.transitions import tell_stopped
from cdc_assets.notifications import Listener, Notifier
from cdc_assets.run.account import Account
from cdc_assets.run.activities import Activities
from cdc_assets.run.loop import StreamLoop
from cdc_assets.run.newcomers import Newcomers
from cdc_assets.run.opening import Opening
from cdc_assets.run.selection import (
    included_by,
    remembered,
    select,
    troubled_by_database,
)
from cdc_assets.streaming.windows import troubled_table

log = logging.getLogger(__name__)


def _ignore(_: Progress) -> None:
    pass


def _never() -> bool:
    return False


def _none(_: TableId) -> bool:
    return False


class Capture:
    """Snapshot and stream of one capture into the lake, exactly once.

    Args:
        source: control plane of the server.
        bulk: data plane; travels to tasks.
        run_id: goes into the context headers of events; made if empty.
        channels: signal channels that need an external client (Kafka).
        listener: told of every notification.
        tables: the lake's Delta tables; opened by the settings if None.
        on_progress: told of each window and round when it is committed.

    Raises:
        ConfigurationError: settings contradict one another.
    """

    def __init__(
        self,
        config: CaptureConfig,
        source: Source,
        bulk: BulkSource,
        runner: TaskRunner,
        clock: Clock,
        run_id: str = "",
        channels: Sequence[SignalChannel] = (),
        listener: Listener | None = None,
        tables: TopicTables | None = None,
        on_progress: OnProgress = _ignore,
    ) -> None:
        tables = tables or TopicTables.of(config)
        notifier = Notifier(tables, config.notifications, config.events.topic_prefix, listener)
        connector = ConnectorIdentity(run_id=run_id or str(uuid.uuid4()))
        self._config, self._notifier = config, notifier
        self._server = Server(source, bulk, config.streaming)
        history = SchemaHistory(tables, config.events, config.history, connector)
        self._lake = Lake(tables, history, config.events, connector)
        self._ledger = Ledger(Manifest(tables, config.events.topic_prefix, notifier), clock)
        parts = config, self._server, self._lake, self._ledger
        self._activities = Activities(*parts, runner, notifier, channels, Account(on_progress))
        self._opening = Opening(*parts, self._activities)
        self._through: set[TableId] = set()
        """Tables that this start has snapshotted."""

    def discover(self) -> Sequence[TableSchema]:
        """Structures of the captured tables, in snapshot order: those that the filters let through.

        Tables of a database that cannot be captured now are those that the schema history knows.

        Raises:
            ConfigurationError: no table matches although some are enabled, or two tables would share a topic from the beginning.
            CdcError: the server cannot be asked.
        """
        selection = select(self._config, self._server, self._lake, self._ledger.manifest)
        found = list(self._server.source.table_schemas(_flat(selection.tables)).values())
        if not selection.away:
            return found
        return [*found, *remembered(self._lake.history, self._ledger.manifest, selection.away)]

    def claim(self) -> None:
        """Become the only writer of this capture. Called by `snapshot` and `stream`.

        Raises:
            LakeError: the lake cannot be written; nothing was changed.
            FencedError: another run claimed it at the same moment.
        """
        self._opening.claim()

    def snapshot(
        self, tables: Sequence[TableId] | None = None, partitions: Sequence[int] | None = None
    ) -> SnapshotSummary:
        """Snapshot tables.

        A table that cannot be read does not stop the others; it is as due as before.

        Args:
            tables: which; their rows are read whatever the mode says, and if their database was restored, a new history
                of it begins. None takes the captured tables that `snapshot.mode` wants now.
            partitions: numbers, from 0, of the key-range partitions to read; None reads whole tables.

        Returns:
            Tables that were snapshotted, and those that could not be read.

        Raises:
            DatabaseRestoredError: the only database was put back behind what was read from it.
            CdcError: the server or the lake failed as a whole. If it is retryable, the next call goes on where this one stopped.
        """
        selected, away = self._opening.begin()
        whole = (tables or ()) if partitions is None else ()
        asked = {table.database for table in whole} & self._opening.restored.keys()
        if not selected and not asked:
            raise next(problem for problem in away.values() if isinstance(problem, DatabaseRestoredError))
        done = self._opening.finish([*_flat(selected), *(tables or ())], away)
        self._through.update(done.tables)
        for database in asked:
            self._opening.begin_anew(database, selected, away)
        ranges = None if partitions is None else tuple(partitions)
        for database, captured in selected.items():
            if tables is None:
                requests = self._activities.due.requests(database, captured, self._through)
            else:
                requests = self._activities.due.whole([table for table in tables if table.database == database], ranges)
            done += self._opening.snapshot(database, requests)
        refused = [trouble for trouble in self._opening.refused if tables is None or trouble.table in tables]
        done += SnapshotSummary(failed=(*troubled_by_database(tables or (), away), *refused))
        self._through.update(done.tables)
        if tables is None and not done.tables and not done.failed:
            self._notifier.send(self._ledger.notice("Initial Snapshot", "SKIPPED"))
        self._ledger.manifest.settle(self._ledger.clock.now())
        return done

    def stream(
        self,
        *,
        should_yield: ShouldYield = _never,
        takes_in: Callable[[TableId], bool] = _none,
    ) -> StreamSummary:
        """Read windows until nothing is new for `streaming.idle_timeout_s`, `max_duration_s` are over, or another run waits.

        A snapshot that an earlier run left is finished first. Tables that `snapshot.mode` wants to read, and were not,
        are left out and named in the summary; with `no_data` they start here. A table that is enabled while the loop
        runs joins at a window border, with its rows if the mode reads rows.

        Args:
            should_yield: asked at each window border.
            takes_in: which tables that wait for their first snapshot join at once, as if they were enabled while the loop
                runs.

        Raises:
            CdcError: the server or the lake failed longer than the retries allow; the next call goes on.
        """
        selected, away = self._opening.begin()
        recovered = self._opening.finish(_flat(selected), away)
        self._through.update(recovered.tables)
        if not self._activities.due.streams:
            log.info("Streaming is disabled for snapshot mode %s.", self._config.snapshot.mode)
            return StreamSummary("nothing", 0, {}, (), ())
        for database, captured in selected.items():
            due = self._activities.due.requests(database, captured, self._through)
            starting = [request for request in due if not request.data]
            self._through.update(self._opening.snapshot(database, starting).tables)
        if self._through and (delay := self._config.streaming.delay_s):
            log.info("Streaming begins in %s s (streaming.delay.ms).", delay)
            self._ledger.clock.sleep(delay)
        known = self._ledger.state.tables
        waiting_now = [table for table in _flat(selected) if table not in known and not takes_in(table)]
        for entry in self._ledger.state.tables.values():
            tell_stopped(entry)
        activities, account = self._activities, self._activities.account
        newcomers = Newcomers(
            self._config, self._ledger, self._activities.due, activities.snapshotter, waiting_now, self._opening.refused
        )
        loop = StreamLoop(self._config, self._server, self._lake, self._ledger, activities, newcomers, away)
        ended = loop.run([*selected, *away], should_yield)
        state, included = self._ledger.state, included_by(self._config)
        own = [entry for entry in state.tables.values() if included(entry.table)]
        troubled = [troubled_table(entry) for entry in own if entry.status != "healthy"]
        troubled += newcomers.refused.values()
        told = {trouble.table for trouble in troubled}
        troubled += troubled_by_database((entry.table for entry in own if entry.table not in told), loop.away)
        waiting = tuple(table for table in _flat(selected) if table not in state.tables and table not in told)
        self._ledger.manifest.settle(self._ledger.clock.now())
        activities.housekeeper.tidy()
        return StreamSummary(
            ended, account.windows, dict(account.rows), tuple(troubled), waiting, tuple(account.unread)
        )

    def structures(self) -> Mapping[TableId, TableSchema]:
        """Columns that events of each table have from now on, by the schema history of this run."""
        history = self._lake.history
        latest = {table: history.latest(table) for table in self._ledger.state.tables}
        return {table: entry.events_of for table, entry in latest.items() if entry is not None}

    def state(self) -> CaptureState:
        """What the manifest says, read without claiming it.

        Raises:
            LakeError: it cannot be read.
        """
        return self._ledger.manifest.read()


def _flat(selected: Mapping[str, Sequence[TableId]]) -> list[TableId]:
    return [table for tables in selected.values() for table in tables]
