"""What a capture writes: topic tables, and the structures of their events."""

import logging
from collections.abc import Sequence

from cdc_assets.config.settings import EventSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import TableSchema
from cdc_assets.envelope.naming import topic_name
from cdc_assets.envelope.plan import ConnectorIdentity, EventPlan, Hidden, hidden_columns, plan_events
from cdc_assets.history.records import HistoryEntry
from cdc_assets.history.store import SchemaHistory
from cdc_assets.lake.placeholders import note_placeholder
from cdc_assets.lake.system_topics import transaction_topic
from cdc_assets.lake.topics import TopicTables

log = logging.getLogger(__name__)


class Lake:
    """The lake of one capture.

    Args:
        events: settings that decide how rows become events.
        connector: identity written into the events.
    """

    def __init__(
        self, tables: TopicTables, history: SchemaHistory, events: EventSettings, connector: ConnectorIdentity
    ) -> None:
        self.tables, self.history, self.events, self._connector = tables, history, events, connector
        self._plans: dict[tuple[object, ...], tuple[EventPlan, str]] = {}
        self._recorded: set[tuple[object, ...]] = set()
        """Structures recorded by this run whose plan is not made yet."""

    def topic(self, table: TableId) -> str:
        """Name of a table's topic."""
        return topic_name(table, self.events)

    def transactions(self, *, wanted: bool = False) -> str:
        """Topic of BEGIN and END of windows that are planned now; empty if they are not published.

        Args:
            wanted: whether they are in any case, since earlier windows have left some.
        """
        return transaction_topic(self.events) if wanted or self.events.transaction_metadata else ""

    def plan(self, schema: TableSchema, captured: Sequence[str] | None) -> EventPlan:
        """The plan by which rows of a structure become events.

        Raises:
            ConfigurationError: the settings do not fit the table.
        """
        return plan_events(schema, captured, self.events, connector=self._connector)

    def hidden(self, schema: TableSchema, captured: Sequence[str] | None) -> Hidden:
        """Columns that events of a structure do not show as they are, by the settings."""
        known = self._plans.get((schema, captured))
        return hidden_columns(schema, captured, self.events) if known is None else known[0].hidden

    def destination(self, entry: HistoryEntry) -> tuple[EventPlan, str]:
        """Plan of a structure's events and the directory of the topic generation that holds them.

        The Delta table is created, or extended by missing fields, at the first use: before any data of this structure.

        Raises:
            ConfigurationError: the settings do not fit the table.
            LakeError: the table cannot be created or changed.
        """
        key = (entry.schema, entry.captured)
        known = self._plans.get(key)
        if known is None:
            plan = self.plan(entry.schema, entry.captured)
            directory = self.tables.prepare(plan.topic, plan.topic_schema)
            if any(column.placeholder is not None for column in plan.columns):
                note_placeholder(self.tables, directory, self.events.unavailable_value)
            known = self._plans[key] = (plan, directory)
            if key in self._recorded:
                _warn(plan)
        return known

    def forget(self, directory: str) -> None:
        """Have `destination` look for this directory's table again, since it is gone or cannot be read."""
        self._plans = {key: known for key, known in self._plans.items() if known[1] != directory}

    def record(self, window_id: int, entries: Sequence[HistoryEntry]) -> None:
        """Write structures into the schema history, once for each window, and warn once about what events lack of them.

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


def _warn(plan: EventPlan) -> None:
    for text in plan.warnings:
        log.warning("%s", text)
