"""What snapshot and stream of one capture share."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from cdc_assets.capture.instances import by_table
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.notification import Aggregate, Notification
from cdc_assets.core.ports import BulkSource, Clock, Source, TaskRunner
from cdc_assets.core.schema import CaptureInstance
from cdc_assets.core.signal import SignalChannel
from cdc_assets.envelope.plan import ConnectorIdentity, EventPlan, plan_events
from cdc_assets.heartbeat import Heartbeat
from cdc_assets.history.records import HistoryEntry
from cdc_assets.history.store import SchemaHistory
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.notifications import Notifier

log = logging.getLogger(__name__)


@dataclass
class Context:
    """Adapters, settings and the lake of one capture.

    Args:
        config: all settings.
        source: control plane.
        bulk: data plane; travels to tasks.
        runner: runs tasks.
        clock: time.
        tables: the lake's Delta tables.
        manifest: window manifest.
        history: schema history.
        connector: who writes events.
        heartbeat: signs of life.
        notifier: tells about snapshots and capture instances.
        channels: signal channels that need an external client (Kafka).
    """

    config: CaptureConfig
    source: Source
    bulk: BulkSource
    runner: TaskRunner
    clock: Clock
    tables: TopicTables
    manifest: Manifest
    history: SchemaHistory
    connector: ConnectorIdentity
    heartbeat: Heartbeat
    notifier: Notifier
    channels: Sequence[SignalChannel] = ()
    _plans: dict[tuple[object, ...], tuple[EventPlan, str]] = field(default_factory=dict)
    _recorded: set[tuple[object, ...]] = field(default_factory=set)
    """Structures recorded now whose plan was not made yet."""
    _instances: dict[str, dict[TableId, list[CaptureInstance]]] = field(default_factory=dict)

    def destination(self, entry: HistoryEntry) -> tuple[EventPlan, str]:
        """Plan of a structure's events and the directory of the topic generation that holds them.

        The Delta table is made, or given the fields it lacks, at the first use: before any data of this structure.

        Raises:
            ConfigurationError: the settings do not fit the table.
            LakeError: the table cannot be made or changed.
        """
        key = (entry.schema, entry.captured)
        known = self._plans.get(key)
        if known is None:
            plan = plan_events(entry.schema, entry.captured, self.config.events, connector=self.connector)
            directory = self.tables.directory_for(plan.topic, plan.topic_schema)
            self.tables.ensure(directory, plan.topic_schema)
            known = self._plans[key] = (plan, directory)
            if key in self._recorded:
                _warn(plan)
        return known

    def record(self, window_id: int, entries: Sequence[HistoryEntry]) -> None:
        """Write structures into the schema history, once for each window, and say once what events lack of them.

        Raises:
            LakeError: the lake cannot be written.
        """
        if not self.history.commit(window_id, entries):
            return
        for entry in entries:
            key = (entry.schema, entry.captured)
            if entry.kind != "DROP" and key in self._plans:
                _warn(self._plans[key][0])
            self._recorded.add(key)

    def notice(self, aggregate: Aggregate, kind: str, signal: str = "", **data: str) -> Notification:
        """A notification, to be recorded with what it tells; `signal` is the id of the signal that asked for it."""
        return Notification(aggregate, kind, data, self.clock.now(), signal)

    def instances(self, database: str, *, anew: bool = True) -> dict[TableId, list[CaptureInstance]]:
        """Capture instances by table, without those that the settings leave out.

        Args:
            database: whose.
            anew: ask the server; otherwise the last answer will do.
        """
        if anew or database not in self._instances:
            self._instances[database] = by_table(self.source.capture_instances(database), self.config.streaming)
        return self._instances[database]


def _warn(plan: EventPlan) -> None:
    for text in plan.warnings:
        log.warning("%s", text)
