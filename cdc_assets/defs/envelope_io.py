"""Topic tables as inputs and outputs of Spark assets.

*Loading.* An asset that depends on `[prefix, database, schema, "table.snapshot"]` gets the table's READ events, on
`"table.changes"` its changes, as a Spark data frame; the key without the role gets both. It is read as without Dagster
(`lake_reader`); the input's metadata chooses LSNs and a generation. Partitions of a snapshot get the rows of their key
ranges (`key_range_filter`).

*Mirrors.* On `"table.current"` and `"table.history"` an asset gets the rows of that table in natural types.

*Appending.* Spark's tasks write Parquet files below the table's directory, and one Delta commit adds them to the table. The
commit carries the application transaction `(run, step)`, so a step that is retried in its run appends once. A crash
before the commit leaves files that no version refers to; vacuum removes them.

*The capture's own events.* Dagster calls an IO manager once per output, but a loop commits many windows. So the loop
commits each window through the IO manager's `sink`, and its output is `Committed`: `handle_output` only
reports it. A crash in between loses a report and no event; the next run's report begins where that one ended.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import dagster as dg
import pyarrow as pa
from deltalake import Schema
from pydantic import Field, PrivateAttr
from pyspark.sql import DataFrame
from pyspark.sql.functions import lit

from cdc_assets.adapters.spark.lake_reader import LakeReader
from cdc_assets.adapters.spark.lake_source import write_files
from cdc_assets.adapters.spark.lsn_range import LsnRange
from cdc_assets.capture.system_topics import system_topics
from cdc_assets.config.settings import CaptureConfig, EventSettings, LakeSettings
from cdc_assets.defs.configuration import settings_of
from cdc_assets.defs.key_range_filter import of_partitions
from cdc_assets.defs.keys import ROLE, TABLE, TOPIC, asset_facts, table_and_role
from cdc_assets.defs.spark import SparkResource
from cdc_assets.envelope.naming import key_parts, sanitized
from cdc_assets.errors import InvalidValueError
from cdc_assets.lake.files import DataFile
from cdc_assets.lake.location import Location
from cdc_assets.lake.retained import retained
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.mirror.delta import current_directory, history_directory

SNAPSHOT, CHANGES = "snapshot", "changes"
FROM_LSN, TO_LSN, GENERATION = "cdc/from_lsn", "cdc/to_lsn", "cdc/generation"
"""Metadata keys of an input (`AssetIn(metadata=…)`): commit LSNs in (from, to], and the table's generation."""
_MIRRORS = {"current": current_directory, "history": history_directory}
NO_WINDOW = 0
"""`window_id` of appended rows; the capture's windows count from 1."""


@dataclass(frozen=True, slots=True)
class EnvelopeFiles:
    """Files that are already written and wait for their commit: an output without a Spark job.

    Args:
        schema: Arrow schema of the rows.
        files: data files below the topic table's directory.
        metadata: metadata of the commit.
    """

    schema: pa.Schema
    files: Sequence[DataFile]
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Committed:
    """Rows that a run has already committed, window by window, through the IO manager's sink; only the report is open.

    Args:
        facts: metadata of the materialization: rows by operation, LSNs, windows.
    """

    topic: str
    facts: Mapping[str, Any]


def account_of(tables: TopicTables, topic: str) -> dict[str, Any]:
    """Metadata of every materialization of a table besides the run's own: its total number of rows, its location, and after
    which LSN it holds every event, if older ones were dropped."""
    facts = {"dagster/row_count": tables.row_count(topic), "dagster/uri": tables.location.uri(topic)}
    holds = retained(tables, topic)
    return facts | ({"complete_after": holds.after} if holds.after else {})


class LakeIOManager(dg.ConfigurableIOManager):
    """Shared by the IO managers of one lake: loads a table's files and commits new ones."""

    config_file: str = Field(default="", description="Configuration file of the lake's capture; or set `lake`.")
    properties: dict[str, Any] = Field(default={}, description="The same as connector properties, instead of a file.")
    lake: str = Field(default="", description="Directory or object-store URL that holds one Delta table per topic.")
    storage_options: dict[str, str] = Field(default={}, description="Options of the object store's client; use EnvVar.")
    delimiter: str = Field(
        default=".", description="Separator between the parts of a topic's name (`topic.delimiter`)."
    )
    from_lsn: str = Field(
        default="",
        description="Load only changes after this commit LSN, or `earliest`: those that the topic still holds; unless the "
        "input's metadata sets one.",
    )
    to_lsn: str = Field(
        default="", description="Load only changes up to this commit LSN, unless the input's metadata sets one."
    )
    spark: dg.ResourceDependency[SparkResource]
    _sink: TopicTables | None = PrivateAttr(default=None)

    def load(self, directory: str, lsns: LsnRange | None = None) -> DataFrame:
        """The rows of a Delta table.

        Raises:
            LakeError: the table is missing or cannot be read.
        """
        return self._reader.table(directory, lsns)

    def append(self, context: dg.OutputContext, topic: str, output: "DataFrame | EnvelopeFiles") -> None:
        """Append rows in one commit, once per run and step.

        Raises:
            LakeError: the commit failed.
        """
        tables = self.tables(f"dagster:{context.run_id}:{context.step_key}:{context.name}")
        if isinstance(output, EnvelopeFiles):
            directory = tables.directory_for(topic, output.schema)
        else:
            directory, output = self._written(tables, topic, output)
        landed = tables.commit(directory, output.schema, output.files, 1, dict(output.metadata))
        rows = sum(file.rows for file in output.files)
        uri = tables.location.uri(directory)
        context.add_output_metadata({"dagster/row_count": rows, "dagster/uri": uri, "appended": landed})

    def sink(self) -> TopicTables:
        """The tables that a capture's loop commits its windows to; shared by the whole run, so that Delta logs are read once.

        Raises:
            InvalidValueError: the IO manager has no configuration of a capture.
        """
        if self._config is None:
            raise InvalidValueError(
                "IO manager", "no configuration", "config_file or properties", "give one of the two"
            )
        if self._sink is None:
            self._sink = TopicTables.of(self._config)
        return self._sink

    def close_account(self, context: dg.OutputContext, committed: Committed) -> None:
        """Report what was committed through the sink: the table's total number of rows, its location, and the run's own metadata."""
        context.add_output_metadata({**committed.facts, **account_of(self.sink(), committed.topic)})

    def range_of(self, metadata: Mapping[str, Any]) -> LsnRange:
        """The LSN range requested by an input's metadata."""
        return LsnRange.parse(metadata.get(FROM_LSN) or self.from_lsn, metadata.get(TO_LSN) or self.to_lsn)

    def tables(self, application: str) -> TopicTables:
        """The lake's tables; `application` identifies the writer in commits."""
        plain = LakeSettings(self.lake, tuple(sorted(self.storage_options.items())))
        settings = self._config.lake if self._config else plain
        return TopicTables(Location.of(settings), application, settings)

    @property
    def _reader(self) -> LakeReader:
        return LakeReader(self.tables(""), lambda: self.spark.spark_session)

    @cached_property
    def _config(self) -> CaptureConfig | None:
        named = self.config_file or self.properties
        return settings_of(self.config_file, self.properties) if named else None

    @staticmethod
    def _written(tables: TopicTables, topic: str, frame: DataFrame) -> tuple[str, EnvelopeFiles]:
        """Write the data frame as Parquet files below its table's directory."""
        frame = frame.withColumn("window_id", lit(NO_WINDOW).cast("long"))
        schema = pa.schema(Schema.from_json(frame.schema.json()).to_arrow())
        directory = tables.directory_for(topic, schema)
        folder = f"spark-{uuid.uuid4().hex}"
        path = f"{directory}/{folder}"
        files = write_files(frame, tables.location, path, schema, NO_WINDOW)
        return directory, EnvelopeFiles(schema, [replace(file, path=f"{folder}/{file.path}") for file in files])


class EnvelopeIOManager(LakeIOManager):
    """Loads topic tables as Spark data frames and appends data frames to them."""

    def load_input(self, context: dg.InputContext) -> DataFrame:
        """The upstream asset's events; of a mirror's asset its rows.

        Raises:
            EventsDroppedError: the topic no longer holds all that is asked for.
            InvalidValueError: there is no such generation.
            LakeError: the table is missing or cannot be read; or only some partitions are requested, and they are
                bounded by a key that only the server can order.
        """
        facts, metadata = asset_facts(context), context.definition_metadata or {}
        role = facts.get(ROLE) or table_and_role(context.asset_key)[1]
        topic = facts.get(TOPIC) or self.topic(context.asset_key)
        if role in _MIRRORS:
            return self.load(_MIRRORS[role](topic))
        frame = self._reader.events(topic, self.range_of(metadata), metadata.get(GENERATION))
        if role == SNAPSHOT:
            return self._of_partitions(context, frame.where("value.op = 'r'"))
        return frame.where("value is null or value.op <> 'r'") if role == CHANGES else frame

    def handle_output(self, context: dg.OutputContext, obj: "DataFrame | EnvelopeFiles | Committed | None") -> None:
        """Append a data frame of events, or files that are already written; or report what a loop has committed.

        Raises:
            LakeError: the commit failed.
        """
        if isinstance(obj, Committed):
            self.close_account(context, obj)
        elif obj is not None:
            self.append(context, asset_facts(context).get(TOPIC) or self.topic(context.asset_key), obj)

    def _of_partitions(self, context: dg.InputContext, reads: DataFrame) -> DataFrame:
        """READ events of the input's partitions; all of them if it has none."""
        if not context.has_asset_partitions:
            return reads
        order = {name: number for number, name in enumerate(context.asset_partitions_def.get_partition_keys())}
        numbers = {order[name] for name in context.asset_partition_keys}
        (prefix, *names), _ = table_and_role(context.asset_key)
        if self._config:
            prefix = self._config.events.topic_prefix
        name = asset_facts(context).get(TABLE)
        states = Manifest(self.tables(""), prefix).read().tables
        state = next(
            (at for table, at in states.items() if (str(table) == name if name else key_parts(table) == tuple(names))),
            None,
        )
        if state is None or len(numbers) == len(order):
            return reads
        return of_partitions(reads, state.ranges, numbers, len(order))

    def topic(self, key: dg.AssetKey) -> str:
        """The topic of an asset key; also for the assets of the capture as a whole, if there is a configuration."""
        if self._config and len(key.path) == 2 and (system := system_topics(self._config).get(key.path[1])):
            return system
        parts, _ = table_and_role(key)
        events = self._config.events if self._config else EventSettings(parts[0], self.delimiter)
        return sanitized(events.topic_delimiter.join(parts), events)
