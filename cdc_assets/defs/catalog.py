"""The names, keys and specs of all assets of one capture.

Per captured table a source (external), a `snapshot` and a `changes` asset. The
`changes` of a capture are one multi-asset: one run, one Spark application, one
loop over the log for all tables, also if only some are selected. The `snapshot`s
are another one, which reads just the selected tables. Both share a pool of one
with everything else that writes to the capture; the manifest's fence holds where
a pool cannot (a dead host).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import dagster as dg

from cdc_assets.capture.system_topics import HISTORY, WINDOWS, system_topics
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import TableSchema
from cdc_assets.core.signal import signal_table
from cdc_assets.defs.keys import ROLE, TABLE, TOPIC
from cdc_assets.defs.partitions import range_partitions
from cdc_assets.defs.runs import CaptureRuns
from cdc_assets.defs.translator import CdcTranslator, Role, word
from cdc_assets.envelope.naming import topic_name
from cdc_assets.errors import ConfigurationError
from cdc_assets.lake.topics import TopicTables

_SYSTEM = {
    WINDOWS: "Which LSN intervals were planned and completed, and the state of each table.",
    "schema_history": "Every structure that a captured table has had, recorded before the data that needs it.",
    "schema_changes": "Events that tell consumers of each structure: CREATE, ALTER and DROP.",
    "transactions": "BEGIN and END of each transaction, with its number of events by table.",
    "heartbeat": "Signs of life: every table is complete to the position of the last one.",
    "notifications": "What happened to snapshots and capture instances, and which signal asked for it.",
}
"""What the tables of a capture as a whole hold, by short name."""


_IO_MANAGER = "dagster/io_manager_key"
"""What `AssetSpec.with_io_manager_key` sets."""

_NO_TABLE = (
    "No table is captured yet: when this page was loaded the filters let none through. Make one and enable it with "
    "EXEC sys.sp_cdc_enable_table @source_schema = N'…', @source_name = N'…', @role_name = NULL; the sensor has it captured "
    "within seconds, and it is listed here after the next reload of the code location."
)


@dataclass(frozen=True, slots=True)
class Names:
    """What things of one capture are called in Dagster."""

    capture: str

    @property
    def resource(self) -> str:
        """Key of its `CaptureResource`."""
        return f"cdc_{word(self.capture)}"

    @property
    def server(self) -> str:
        """Key of its `SqlServerCdcResource`."""
        return f"{word(self.capture)}_sqlserver"

    @property
    def pool(self) -> str:
        """Pool that lets one run at a time write."""
        return f"cdc_{word(self.capture)}"

    @property
    def snapshot(self) -> str:
        """Job that reads tables as a whole."""
        return f"{word(self.capture)}_snapshot"

    @property
    def snapshot_op(self) -> str:
        """Its one step."""
        return f"{word(self.capture)}_read_tables"

    @property
    def changes(self) -> str:
        """Job that follows the log."""
        return f"{word(self.capture)}_changes"

    @property
    def changes_op(self) -> str:
        """Its one step."""
        return f"{word(self.capture)}_follow_log"

    @property
    def signal(self) -> str:
        """Job that asks for snapshots."""
        return f"{word(self.capture)}_signal"

    @property
    def signal_op(self) -> str:
        """Its one step."""
        return f"{word(self.capture)}_ask"

    @property
    def headroom(self) -> str:
        """Job of the check of that name."""
        return f"{word(self.capture)}_headroom"

    @property
    def sensor(self) -> str:
        """Sensor that asks for the newest LSN."""
        return f"{word(self.capture)}_lsn"

    @property
    def envelope_io(self) -> str:
        """Key of the IO manager that loads and appends its topic tables."""
        return f"{word(self.capture)}_envelope_io"

    @property
    def history_io(self) -> str:
        """Key of the IO manager of its schema history."""
        return f"{word(self.capture)}_schema_history_io"


class CaptureCatalog:
    """What one capture looks like in Dagster.

    Args:
        config: the capture's settings.
        translator: how they look in Dagster.
        problem: why the tables could not be asked for; empty if they could.
    """

    def __init__(
        self, config: CaptureConfig, tables: Sequence[TableSchema], translator: CdcTranslator, problem: str = ""
    ) -> None:
        self.config, self.tables, self.translator, self.problem = config, tables, translator, problem
        self.prefix = config.events.topic_prefix
        self.names = Names(config.name)
        self.partitions = range_partitions(config.snapshot.partitions)
        self.system = system_topics(config)
        self.windows_key = self.system_key(WINDOWS)
        self._keys: dict[Role, dict[dg.AssetKey, TableId]] = {}
        self._check_keys()

    def _check_keys(self) -> None:
        """See that Dagster can tell all tables apart: it makes names of their keys in which `.` and `-` are `_`, too.

        Raises:
            ConfigurationError: two tables have one name.
        """
        owners: dict[str, TableId] = {}
        for schema in self.tables:
            key = self.key(schema.table, "changes")
            other = owners.setdefault(key.to_python_identifier(), schema.table)
            if other != schema.table:
                raise ConfigurationError(
                    "asset key",
                    key.to_user_string(),
                    "a key that only one table has",
                    f"exclude {other} or {schema.table}, or override CdcTranslator.asset_key",
                )

    def key(self, table: TableId, role: Role) -> dg.AssetKey:
        """An asset's key."""
        return self.translator.asset_key(self.prefix, table, role)

    def keys(self, role: Role) -> Mapping[dg.AssetKey, TableId]:
        """Keys of one role and their tables; made once, for a sensor asks at each tick."""
        if role not in self._keys:
            self._keys[role] = {self.key(schema.table, role): schema.table for schema in self._of(role)}
        return self._keys[role]

    def specs(self, role: Role, deps: Role | None) -> list[dg.AssetSpec]:
        """Specs of one role for all tables."""
        return [self._spec(schema, role, deps) for schema in self._of(role)]

    def _spec(self, schema: TableSchema, role: Role, deps: Role | None) -> dg.AssetSpec:
        """A spec as the translator makes it, with what the IO managers know the table by, whatever its key."""
        needed = [self.key(schema.table, deps)] if deps else []
        spec = self.translator.spec(self.prefix, schema, role, self.uri(schema.table), needed)
        facts = {TABLE: str(schema.table), TOPIC: self.topic(schema.table), ROLE: role}
        managed = facts if role == "source" else facts | {_IO_MANAGER: self.names.envelope_io}
        return spec.merge_attributes(metadata=managed)  # one copy of the spec; `with_io_manager_key` would be another

    def _of(self, role: Role) -> list[TableSchema]:
        """Tables that have an asset of a role: rows of signal tables are requests, and never snapshotted."""
        return [schema for schema in self.tables if self.has(schema.table, role)]

    def has(self, table: TableId, role: Role) -> bool:
        """Whether a table has an asset of a role, also one that is younger than the loaded code location."""
        return role != "snapshot" or table != signal_table(self.config.signals.collections, table.database)

    def uri(self, table: TableId) -> str:
        """Where the table's topic lies."""
        return f"{self.config.lake.path.rstrip('/')}/{self.topic(table)}"

    def topics(self) -> TopicTables:
        """The lake's tables; they keep what they have read of the Delta logs."""
        return TopicTables.of(self.config)

    def topic(self, table: TableId) -> str:
        """Name of the table's topic."""
        return topic_name(table, self.config.events)

    def system_specs(self) -> list[dg.AssetSpec]:
        """Assets of the capture as a whole, written by the same loop."""
        about = (
            "The captured tables could not be asked for when this page was loaded, so the last known ones are shown: "
        )
        problem = about + self.problem if self.problem else "" if self.tables else _NO_TABLE
        trouble = f"\n\n**{problem}**" if problem else ""
        return [
            dg.AssetSpec(
                self.system_key(name),
                description=_SYSTEM[name] + (trouble if name == WINDOWS else ""),
                group_name=f"{word(self.prefix)}_system",
                kinds={"delta"},
                owners=["team:cdc"],
                tags={"cdc/capture": word(self.prefix)},
                metadata={"dagster/uri": f"{self.config.lake.path.rstrip('/')}/{directory}"},
                skippable=True,
            ).with_io_manager_key(self.names.history_io if name == HISTORY else self.names.envelope_io)
            for name, directory in self.system.items()
        ]

    def system_key(self, name: str) -> dg.AssetKey:
        """Key of one of these assets by its short name, see `capture.system_topics`."""
        return dg.AssetKey([self.prefix, name])

    def runs(self) -> CaptureRuns:
        """How runs of this capture are recognised."""
        own = {*self.keys("snapshot"), *self.keys("changes"), *map(self.system_key, self.system)}
        return CaptureRuns(frozenset({self.names.snapshot, self.names.changes}), frozenset(own))
