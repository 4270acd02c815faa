"""The catalogue of the assets of a capture by an embedded connector.

The connector reads one log in one thread, so a run of it serves all tables: the `changes` are one multi-asset, and a run writes whatever the
connector sends, READ events of a first snapshot included. The `snapshot`s are another multi-asset; a run of it has the
connector to read the selected tables again.
"""

import copy
from collections.abc import Mapping

import dagster as dg

from cdc_assets.config.engine import EngineConfig
from cdc_assets.connectors.engine.topics import BATCHES, HISTORY, system_topics, table_of
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import TableSchema
from cdc_assets.defs.catalog import Catalog
from cdc_assets.defs.columns import COLUMNS
from cdc_assets.defs.keys import TOPIC, Role
from cdc_assets.defs.translator import CdcTranslator, column_schema

_SYSTEM = {
    BATCHES: "The batches that were planned and completed, with the connector's offsets after each.",
    HISTORY: "The connector's schema history, in its own form: what it needs to continue in the log.",
    "schema_changes": "Events of the connector that publish each structure to consumers.",
    "transactions": "BEGIN and END of each transaction, with its number of events by table.",
    "heartbeat": "Heartbeats of the connector: it has read everything up to their place in the log.",
    "notifications": "What the connector reports of its snapshots.",
}


class ConnectorCatalog(Catalog):
    """The assets of one capture.

    Args:
        config: the capture's settings.
        topics: structures of its tables by their topics.
        translator: keys, groups and tags of the assets.
        problem: why the database could not be queried; empty if it could.
    """

    config: EngineConfig
    kinds = frozenset({"delta", "debezium"})
    page, system_texts = BATCHES, _SYSTEM
    no_table = (
        "No table is known yet. Run the capture; its tables are listed after the next reload of the code location."
    )

    def __init__(
        self, config: EngineConfig, topics: Mapping[str, TableSchema], translator: CdcTranslator, problem: str = ""
    ) -> None:
        self.problem, self.topics = problem, dict(sorted(topics.items()))
        self._topics = {schema.table: topic for topic, schema in self.topics.items()}
        own = copy.copy(translator)
        own.source = config.kind
        super().__init__(config, config.topic_prefix, list(self.topics.values()), own, system_topics(config))

    def topic(self, table: TableId) -> str:
        """Name of a table's topic."""
        return self._topics[table]

    def table(self, topic: str) -> TableId:
        """The table of a topic, also of one that is newer than the loaded code location."""
        return self.topics[topic].table if topic in self.topics else table_of(topic, self.config)

    def has(self, table: TableId, role: Role) -> bool:
        """Whether a table has an asset of a role; rows of the signal table are requests, so it has no snapshot."""
        if role in self.mirror_roles:
            return False
        name = self.config.properties.get("signal.data.collection", "").lower()
        is_signal_table = bool(name) and name in (str(table).lower(), table.within_database.lower())
        return role != "snapshot" or not is_signal_table

    def _spec(self, schema: TableSchema, role: Role, deps: Role | None) -> dg.AssetSpec:
        """With the columns as far as they are known before a run, as Dagster shows them."""
        spec = super()._spec(schema, role, deps)
        return spec if COLUMNS in spec.metadata else spec.merge_attributes(metadata={COLUMNS: column_schema(schema)})

    def _system_spec(self, name: str, directory: str) -> dg.AssetSpec:
        return super()._system_spec(name, directory).merge_attributes(metadata={TOPIC: directory})
