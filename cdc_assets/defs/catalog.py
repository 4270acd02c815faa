"""The names, keys and specs of all assets of one capture.

Each captured table has a source (external), a `snapshot` and a `changes` asset. The
`changes` of a capture are one multi-asset: one run and one
loop over the log for all tables, even if only some are selected. The `snapshot`s
are another one, which reads only the selected tables. Everything that writes to
the capture shares a pool with one slot; the fence of its record protects it where
a pool cannot (a dead host).

`Catalog` is what both kinds of capture have; `CaptureCatalog` is that of SQL Server, `engines.catalog` that of connectors.
"""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

import dagster as dg

from cdc_assets.config.engine import EngineConfig
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import TableSchema
from cdc_assets.core.signal import signal_table
from cdc_assets.defs.keys import ROLE, TABLE, TOPIC, Role, require_distinct_keys
from cdc_assets.defs.names import Names
from cdc_assets.defs.partitions import range_partitions
from cdc_assets.defs.runs import CaptureRuns
from cdc_assets.defs.translator import CdcTranslator, word
from cdc_assets.envelope.naming import topic_name
from cdc_assets.lake.location import Location
from cdc_assets.lake.system_topics import HISTORY, WINDOWS, system_topics
from cdc_assets.lake.topics import TopicTables
from cdc_assets.mirror.capture import has_mirror
from cdc_assets.mirror.ledger import ledger_directory
from cdc_assets.overview.checks.check import Of, Subject

_SYSTEM = {
    WINDOWS: "The LSN intervals that were planned and completed, and the state of each table.",
    "schema_history": "Every structure that a captured table has had, recorded before the data with that structure.",
    "schema_changes": "Events that publish each structure to consumers: CREATE, ALTER and DROP.",
    "transactions": "BEGIN and END of each transaction, with its number of events by table.",
    "heartbeat": "Heartbeats: every table is complete to the position of the last one.",
    "notifications": "Progress of snapshots, and changes of capture instances, with the signal that requested them.",
}

PAGE = "cdc/capture_page"
"""Metadata key of the link from a table's `changes` to the page that says whether their capture is healthy."""
_IO_MANAGER = "dagster/io_manager_key"
"""The metadata key that `AssetSpec.with_io_manager_key` sets."""

_MAX_EDGES = 200
"""Edges from topics to the asset of topics in Kafka."""

_LAST_KNOWN = "The captured tables could not be read from the server when the code location was loaded; the last known ones are shown: "
_NO_TABLE = (
    "No table is captured yet: when the code location was loaded, no table passed the filters. Enable one with "
    "EXEC sys.sp_cdc_enable_table @source_schema = N'…', @source_name = N'…', @role_name = NULL; the sensor starts its capture "
    "within seconds, and it is listed here after the next reload of the code location."
)


class Catalog:
    """The assets of one capture in Dagster, whichever connector makes it.

    Args:
        config: the capture's settings.
        system: directories of the tables that belong to the capture as a whole, by short name.
    """

    kinds: ClassVar[frozenset[str]] = frozenset({"delta"})
    page: ClassVar[str] = WINDOWS
    """Short name of the record, the asset that carries the page."""
    system_texts: ClassVar[Mapping[str, str]] = _SYSTEM
    """Descriptions of the tables that belong to the capture as a whole, by short name."""
    no_table: ClassVar[str] = _NO_TABLE
    problem: str = ""
    """Why the tables could not be read when the code location was loaded."""
    mirror_roles: Final[tuple[Role, ...]] = ("current", "history")

    def __init__(
        self,
        config: CaptureConfig | EngineConfig,
        prefix: str,
        tables: Sequence[TableSchema],
        translator: CdcTranslator,
        system: Mapping[str, str],
    ) -> None:
        self.config, self.names, self.prefix = config, Names(config.name), prefix
        self.tables, self.translator, self.system = tables, translator, system
        self._location = Location.of(config.lake)
        self._code: dict[str, Any] = {}
        """Metadata that shows where the capture is configured."""
        self.page_key = self.system_key(self.page)
        self._page = dg.MetadataValue.asset(self.page_key)
        self._keys: dict[Role, dict[dg.AssetKey, TableId]] = {}
        require_distinct_keys((schema.table for schema in tables), self.key)

    def topic(self, table: TableId) -> str:
        """Name of a table's topic."""
        raise NotImplementedError

    def has(self, table: TableId, role: Role) -> bool:
        """Whether a table has an asset of a role, even if it is newer than the loaded code location."""
        raise NotImplementedError

    def about(self, name: str) -> str:
        """Description of a table that belongs to the capture as a whole; that of the page says what hindered the load."""
        problem = _LAST_KNOWN + self.problem if self.problem else "" if self.tables else self.no_table
        return self.system_texts[name] + (f"\n\n**{problem}**" if problem and name == self.page else "")

    def key(self, table: TableId, role: Role) -> dg.AssetKey:
        """Key of an asset."""
        return self.translator.asset_key(self.prefix, table, role)

    def keys(self, role: Role) -> Mapping[dg.AssetKey, TableId]:
        """Keys of one role and their tables; cached, since a sensor needs them at each tick."""
        if role not in self._keys:
            self._keys[role] = {self.key(schema.table, role): schema.table for schema in self._of(role)}
        return self._keys[role]

    def system_key(self, name: str) -> dg.AssetKey:
        """Key of an asset of the capture as a whole by its short name."""
        return dg.AssetKey([self.prefix, name])

    def uri(self, table: TableId) -> str:
        """Location of the table's topic."""
        return self._location.uri(self.topic(table))

    @property
    def record(self) -> str:
        """Address of the capture's record, which has one writer at a time."""
        return self._location.uri(self.system[self.page])

    def checked(self, of: Of) -> Mapping[dg.AssetKey, Subject]:
        """Assets that have such checks, and what they are of."""
        return {self.page_key: None} if of == "capture" else {}

    def specs(self, role: Role, deps: Role | None) -> list[dg.AssetSpec]:
        """Specs of one role for all tables."""
        return [self._spec(schema, role, deps) for schema in self._of(role)]

    def _of(self, role: Role) -> list[TableSchema]:
        """Tables that have an asset of a role; signal tables have no snapshot asset, since their rows are requests."""
        return [schema for schema in self.tables if self.has(schema.table, role)]

    def _spec(self, schema: TableSchema, role: Role, deps: Role | None) -> dg.AssetSpec:
        """A spec from the translator, with the metadata by which the IO managers find the table, whatever its key is."""
        needed = [self.key(schema.table, deps)] if deps else []
        uri = self.uri(schema.table) + (f".__{role}" if role in self.mirror_roles else "")
        if role in self.mirror_roles and self.has(schema.table, "snapshot"):
            needed.append(self.key(schema.table, "snapshot"))
        spec = self.translator.spec(self.prefix, schema, role, uri, needed)
        facts: dict[str, Any] = {TABLE: str(schema.table), TOPIC: self.topic(schema.table), ROLE: role}
        facts |= {PAGE: self._page} if role == "changes" else {}
        managed = facts if role in ("source", *self.mirror_roles) else facts | {_IO_MANAGER: self.names.envelope_io}
        code = self._code if role == "changes" else {}  # Dagster sends it with each asset to each of its processes
        return spec.merge_attributes(metadata=managed | code)  # one copy; `with_io_manager_key` would be another

    def system_specs(self) -> list[dg.AssetSpec]:
        """Assets of the capture as a whole, written by the same loop."""
        return [self._system_spec(name, directory) for name, directory in self.system.items()]

    def _system_spec(self, name: str, directory: str) -> dg.AssetSpec:
        return dg.AssetSpec(
            self.system_key(name),
            description=self.about(name),
            metadata={"dagster/uri": self._location.uri(directory)} | self._code,
            **self._whole(self.kinds),
        ).with_io_manager_key(self.names.history_io if name == HISTORY else self.names.envelope_io)

    def _whole(self, kinds: frozenset[str]) -> dict[str, Any]:
        """Attributes of assets of the capture as a whole."""
        return {
            "group_name": f"{word(self.prefix)}_system",
            "kinds": set(kinds),
            "owners": ["team:cdc"],
            "tags": {"cdc/capture": word(self.prefix)},
            "skippable": True,
        }

    def runs(self) -> CaptureRuns:
        """Recognizes runs of this capture."""
        assets = {*self.keys("snapshot"), *self.keys("changes"), *map(self.system_key, self.system)}
        names = self.names
        return CaptureRuns(
            frozenset({names.snapshot, names.changes, names.follow}),
            frozenset(assets),
            frozenset({names.snapshot_op, names.changes_op}),
        )


class CaptureCatalog(Catalog):
    """The assets of a capture from SQL Server.

    Args:
        config: the capture's settings.
        translator: keys, groups and tags of the assets.
        problem: why the tables could not be read from the server; empty if they could.
        file: the capture's configuration file, which the asset pages name; empty if there is none.
    """

    config: CaptureConfig

    def __init__(
        self,
        config: CaptureConfig,
        tables: Sequence[TableSchema],
        translator: CdcTranslator,
        problem: str = "",
        file: str = "",
    ) -> None:
        self.problem = problem
        super().__init__(config, config.events.topic_prefix, tables, translator, system_topics(config))
        self._code = _code_reference(file)
        self.partitions = range_partitions(config.snapshot.partitions)
        self.kafka_key = self.system_key("kafka")
        self.has_kafka = config.kafka.enabled

    def has(self, table: TableId, role: Role) -> bool:
        """Whether a table has an asset of a role, even if it is newer than the loaded code location."""
        if role in ("source", "changes"):
            return True
        is_signal_table = signal_table(self.config.signals.collections, table.database, [table]) is not None
        return not is_signal_table and (role == "snapshot" or has_mirror(self.config, table))

    def topic(self, table: TableId) -> str:
        """Name of the table's topic."""
        return topic_name(table, self.config.events)

    @property
    def mirror_record(self) -> str:
        """Address of the record of the capture's mirrors, likewise."""
        return self._location.uri(ledger_directory(self.prefix))

    def topics(self) -> TopicTables:
        """The lake's tables; they cache what they have read of the Delta logs."""
        return TopicTables.of(self.config)

    def kafka_spec(self) -> dg.AssetSpec:
        """The topics in Kafka as one asset, which depends on those that it publishes; of very many, on the window manifest only."""
        topics = [key for role in ("snapshot", "changes") for key in self.keys(role)]
        return dg.AssetSpec(
            self.kafka_key,
            deps=[self.page_key, *(topics if len(topics) <= _MAX_EDGES else ())],
            description="The topics of the lake in Kafka, as a connector would have written them, each event once for consumers "
            "that read committed records.",
            metadata={"bootstrap_servers": self.config.kafka.servers} | self._code,
            **self._whole(frozenset({"kafka"})),
        )

    def checked(self, of: Of) -> Mapping[dg.AssetKey, Subject]:
        """Assets that have such checks, and what they are of."""
        if of == "kafka":
            return {self.kafka_key: None} if self.has_kafka else {}
        return super().checked(of) if of == "capture" else self.keys("current" if of == "mirror" else "changes")

    def mirror_runs(self) -> CaptureRuns:
        """Recognizes runs that let mirrors follow by themselves."""
        assets = frozenset(key for role in self.mirror_roles for key in self.keys(role))
        return CaptureRuns(frozenset({self.names.mirror}), assets, frozenset({self.names.mirror_op}))

    def publishing_runs(self) -> CaptureRuns:
        """Recognizes runs that publish to Kafka only."""
        return CaptureRuns(
            frozenset({self.names.publish}), frozenset({self.kafka_key}), frozenset({self.names.publish_op})
        )


def _code_reference(file: str) -> dict[str, Any]:
    """Metadata that shows where an asset is defined."""
    if not file:
        return {}
    path = str(Path(file).absolute())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)  # of these classes; who uses the library cannot change that
        reference = dg.LocalFileCodeReference(file_path=path, label="configuration of the capture")
        return {"dagster/code_references": dg.CodeReferencesMetadataValue(code_references=[reference])}
