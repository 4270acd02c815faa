"""The names, keys and specs of the assets of a capture by an embedded connector.

Each table has a source (external), a `snapshot` and a `changes` asset, as a table of a SQL Server. The connector reads one
log in one thread, so a run of it serves all tables: the `changes` are one multi-asset, and a run writes whatever the
connector sends, READ events of a first snapshot included. The `snapshot`s are another multi-asset; a run of it asks the
connector to read the selected tables again. Both share a pool with one slot, and the ledger's fence protects what a pool
cannot.
"""

import copy
from collections.abc import Mapping, Sequence

import dagster as dg

from cdc_assets.config.engine import EngineConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import TableSchema
from cdc_assets.defs.catalog import Names
from cdc_assets.defs.checks.check import Of
from cdc_assets.defs.columns import COLUMNS
from cdc_assets.defs.keys import ROLE, TABLE, TOPIC, Role, require_distinct_keys
from cdc_assets.defs.runs import CaptureRuns
from cdc_assets.defs.translator import CdcTranslator, column_schema, word
from cdc_assets.engine.named import identifier
from cdc_assets.engine.topics import BATCHES, HISTORY, system_topics, table_of

_SYSTEM = {
    BATCHES: "The batches that were planned and completed, with the connector's offsets behind each.",
    HISTORY: "The connector's schema history, in its own form: what it needs to read on in the log.",
    "schema_changes": "Events of the connector that publish each structure to consumers.",
    "transactions": "BEGIN and END of each transaction, with its number of events by table.",
    "heartbeat": "Heartbeats of the connector: up to their place in the log it has read everything.",
    "notifications": "What the connector reports of its snapshots.",
}


class ConnectorCatalog:
    """The assets of one capture.

    Args:
        config: the capture's settings.
        tables: structures of its tables by their topics.
        translator: keys, groups and tags of the assets.
        problem: why the database could not be asked; empty if it could.
    """

    def __init__(
        self, config: EngineConfig, tables: Mapping[str, TableSchema], translator: CdcTranslator, problem: str = ""
    ) -> None:
        self.config, self.problem = config, problem
        self.translator = copy.copy(translator)
        self.translator.source = config.kind
        self.prefix, self.names = config.topic_prefix, Names(config.name)
        self.tables = dict(sorted(tables.items()))
        self.system = system_topics(config)
        self.batches_key = self.system_key(BATCHES)
        require_distinct_keys((schema.table for schema in self.tables.values()), self.key)

    def key(self, table: TableId, role: Role) -> dg.AssetKey:
        """Key of an asset."""
        return self.translator.asset_key(self.prefix, table, role)

    def table(self, topic: str) -> TableId:
        """The table of a topic, also of one that is newer than the loaded code location."""
        return self.tables[topic].table if topic in self.tables else table_of(topic, self.config)

    def has(self, table: TableId, role: Role) -> bool:
        """Whether a table has an asset of a role; rows of the signal table are requests, so it has no snapshot."""
        return role != "snapshot" or not self._is_signal_table(table)

    def _is_signal_table(self, table: TableId) -> bool:
        name = self.config.properties.get("signal.data.collection", "").lower()
        return bool(name) and name in (str(table).lower(), table.within_database.lower())

    def keys(self, role: Role) -> Mapping[dg.AssetKey, TableId]:
        """Keys of one role and their tables."""
        return {self.key(schema.table, role): schema.table for _, schema in self._of(role)}

    def _of(self, role: Role) -> list[tuple[str, TableSchema]]:
        return [(topic, schema) for topic, schema in self.tables.items() if self.has(schema.table, role)]

    @property
    def record(self) -> str:
        """Address of the capture's record, which has one writer at a time."""
        return self.uri(self.system[BATCHES])

    def uri(self, directory: str) -> str:
        """Location of a topic's table."""
        return f"{self.config.lake.path.rstrip('/')}/{directory}"

    def specs(self, role: Role, deps: Role | None) -> list[dg.AssetSpec]:
        """Specs of one role for all tables, with the metadata by which the IO manager finds the table."""
        return [self._spec(topic, schema, role, deps) for topic, schema in self._of(role)]

    def _spec(self, topic: str, schema: TableSchema, role: Role, deps: Role | None) -> dg.AssetSpec:
        needed = [self.key(schema.table, deps)] if deps else []
        spec = self.translator.spec(self.prefix, schema, role, self.uri(topic), needed)
        if COLUMNS not in spec.metadata:
            spec = spec.merge_attributes(metadata={COLUMNS: column_schema(schema)})
        spec = spec.merge_attributes(metadata={TABLE: str(schema.table), TOPIC: topic, ROLE: role})
        return spec if role == "source" else spec.with_io_manager_key(self.names.envelope_io)

    def system_specs(self) -> list[dg.AssetSpec]:
        """Assets of the capture as a whole, written by the same run."""
        return [
            dg.AssetSpec(
                self.system_key(name),
                description=_SYSTEM[name] + (self._trouble() if name == BATCHES else ""),
                group_name=f"{word(self.prefix)}_system",
                kinds={"delta", "debezium"},
                owners=["team:cdc"],
                tags={"cdc/capture": word(self.prefix)},
                metadata={"dagster/uri": self.uri(directory), TOPIC: directory},
                skippable=True,
            ).with_io_manager_key(self.names.history_io if name == HISTORY else self.names.envelope_io)
            for name, directory in self.system.items()
        ]

    def _trouble(self) -> str:
        if self.problem:
            return (
                "\n\n**The database could not be asked for its tables when the code location was loaded; those that are "
                f"known from before, and those in the lake, are shown: {self.problem}**"
            )
        if self.tables:
            return ""
        return (
            "\n\n**No table is known yet. Run the capture; its tables are listed after the next reload of the code "
            "location.**"
        )

    def system_key(self, name: str) -> dg.AssetKey:
        """Key of one of these assets by its short name."""
        return dg.AssetKey([self.prefix, name])

    def checked(self, of: Of) -> list[dg.AssetKey]:
        """Assets that have such checks."""
        return [self.batches_key] if of == "capture" else []

    def runs(self) -> CaptureRuns:
        """Recognizes runs of this capture."""
        assets = {*self.keys("snapshot"), *self.keys("changes"), *map(self.system_key, self.system)}
        names = self.names
        return CaptureRuns(
            frozenset({names.snapshot, names.changes}),
            frozenset(assets),
            frozenset({names.snapshot_op, names.changes_op}),
        )

    @property
    def sensor(self) -> str:
        """Name of the sensor."""
        return f"{word(self.config.name)}_log"


def patterns(catalog: ConnectorCatalog, tables: Sequence[TableId]) -> list[str]:
    """Regular expressions of tables as a signal to the connector names them."""
    return [identifier(catalog.config, table).replace(".", "\\.") for table in tables]
