"""Topic tables as inputs and outputs of Spark assets.

*Loading.* An asset that depends on `[prefix, database, schema, "table.snapshot"]` gets the table's READ events, on
`"table.changes"` its changes, as a Spark data frame; the key without the role gets both. It is read as without Dagster
(`lake_reader`); the input's metadata chooses LSNs and a generation. Partitions of a snapshot get the rows of their key
ranges (`key_range_filter`).

*Mirrors.* On `"table.current"` and `"table.history"` an asset gets the rows of that table in natural types.

*Returned data frames* are their asset's table from then on, or its partition (`own_tables`). Where an asset appends, because it
is a topic of a capture or says so, Spark's tasks write Parquet files below the table's directory, and one Delta commit adds them.
Either commit carries the application transaction `(run, step)`, so a step that is retried in its run commits once. A crash
before the commit leaves files that no version refers to; vacuum removes them.

*The capture's own events.* Dagster calls an IO manager once per output, but a loop commits many windows. So the tables
that the loop writes (`topics`) hand each append to `write`, and the loop's output is `Committed`: `handle_output`
compares it with what `write` has counted, and reports it. A crash in between loses a report and no event; the next
run's report begins where that one ended.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import dagster as dg
import pyarrow as pa
from pydantic import Field, PrivateAttr
from pyspark.sql import DataFrame
from pyspark.sql.functions import lit

from cdc_assets.adapters.spark.lake_reader import LakeReader
from cdc_assets.adapters.spark.lsn_range import LsnRange
from cdc_assets.config.settings import LakeSettings
from cdc_assets.defs.homes import BareLake, Home, home_of
from cdc_assets.defs.key_range_filter import of_partitions
from cdc_assets.defs.keys import ROLE, TABLE, TOPIC, asset_facts, table_and_role
from cdc_assets.defs.own_tables import (
    OwnTable,
    columns_in,
    is_appended,
    is_topic,
    partition_of,
    require_frame,
    written,
)
from cdc_assets.defs.spark import OnAnySpark, SparkDependency
from cdc_assets.defs.write_counts import WriteCounts
from cdc_assets.envelope.naming import key_parts
from cdc_assets.errors import ConfigurationError, InvalidValueError
from cdc_assets.lake.files import DataFile
from cdc_assets.lake.location import Location
from cdc_assets.lake.retained import retained
from cdc_assets.lake.sink import Append, Sink, commit
from cdc_assets.lake.tables import arrow_schema
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.mirror.delta import current_directory, history_directory

SNAPSHOT, CHANGES = "snapshot", "changes"
FROM_LSN, TO_LSN, GENERATION = "cdc/from_lsn", "cdc/to_lsn", "cdc/generation"
"""Metadata keys of an input (`AssetIn(metadata=…)`): commit LSNs in (from, to], and the table's generation."""
_MIRRORS = {"current": current_directory, "history": history_directory}
_WINDOW, NO_WINDOW = "window_id", 0
"""Column and its value in rows that assets append to topics; the capture's windows count from 1."""


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
    """Rows that a run has already committed, window by window, through the IO manager's `write`; only the report is open.

    Args:
        facts: metadata of the materialization: rows by operation, LSNs, windows.
        rows: what the run says to have brought since it began, by operation; empty if it does not count the topic.
    """

    topic: str
    facts: Mapping[str, Any]
    rows: Mapping[str, int] = field(default_factory=dict)


def account_of(tables: TopicTables, topic: str) -> dict[str, Any]:
    """Metadata of every materialization of a table besides the run's own: its total number of rows, its location, and after
    which LSN it holds every event, if older ones were dropped."""
    facts = {"dagster/row_count": tables.row_count(topic), "dagster/uri": tables.location.uri(topic)}
    holds = retained(tables, topic)
    return facts | ({"complete_after": holds.after} if holds.after else {})


class LakeIOManager(OnAnySpark, dg.ConfigurableIOManager):
    """Shared by the IO managers of one lake: loads a table's files and commits new ones. It is the `Sink` of their tables."""

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
    spark: SparkDependency
    _topics: TopicTables | None = PrivateAttr(default=None)
    _counts: WriteCounts = PrivateAttr(default_factory=WriteCounts)

    def load(self, directory: str, lsns: LsnRange | None = None) -> DataFrame:
        """The rows of a Delta table.

        Raises:
            LakeError: the table is missing or cannot be read.
        """
        return self._reader.table(directory, lsns)

    def append(self, context: dg.OutputContext, topic: str, output: "DataFrame | EnvelopeFiles") -> None:
        """Append rows in one commit, once per run and step. Columns that the table lacks are added to it, and logged.

        Raises:
            InvalidValueError: the output is something else, or a type has none of its kind in Delta.
            LakeError: the commit failed.
        """
        tables = self.tables(_writer(context))
        columns = _columns(tables, topic)
        if isinstance(output, EnvelopeFiles):
            directory = tables.directory_for(topic, output.schema)
        else:
            directory, output = self._written(tables, topic, _numbered(context, require_frame(output), columns))
        landed = tables.commit(directory, output.schema, output.files, 1, dict(output.metadata))
        facts: dict[str, Any] = {"rows_appended": sum(file.rows for file in output.files), "appended": landed}
        if added := sorted(set(output.schema.names) - columns) if columns else []:
            context.log.warning(f"{topic} has got new columns, null in its other rows: {', '.join(added)}.")
            facts["columns_added"] = added
        uri = tables.location.uri(directory)
        context.add_output_metadata({"dagster/row_count": tables.row_count(topic), "dagster/uri": uri, **facts})

    def write(self, append: Append) -> bool:
        """Commit rows to a table of the lake. All that a capture appends comes here, and what assets append; override it to
        inspect it, or to add metadata to its commit, and call `super().write(append)`: nothing else commits.

        Each window, round or batch makes one call for each table that it writes, from several threads. A call is
        repeated, under the same number, if something failed after it: then the table may have the rows already.
        Whatever an override does, rows are neither lost nor doubled. If it raises, the append is repeated, as after any
        error of the lake (`errors.max.retries`); a `TerminalError` ends the run, and the next one repeats it.

        Args:
            append: the files, their table, number and metadata.

        Returns:
            Whether this call committed them; False if the table has the number already.

        Raises:
            CdcError: the commit failed.
        """
        landed = commit(append)
        self._counts.add(append, landed=landed)
        return landed

    def topics(self, others: Mapping[str, Sink] | None = None) -> TopicTables:
        """The tables that a capture's loop commits to, by `write`; shared by the whole run, so that Delta logs are read once.

        Args:
            others: sinks of single directories, from the first caller.

        Raises:
            InvalidValueError: the IO manager has no configuration of a capture.
        """
        if not self._home.prefix:
            raise InvalidValueError(
                "IO manager", "no configuration", "config_file or properties", "give one of the two"
            )
        if self._topics is None:
            self._topics = self.tables(self._home.prefix, others)
        return self._topics

    def account(self, committed: Committed) -> dict[str, Any]:
        """Metadata of what a run has committed to a topic: what the run says, what `write` has counted since the run began, the
        table's total number of rows and its location.

        Raises:
            InvariantError: the run says more than was counted.
        """
        self._counts.check(committed.topic, committed.rows)
        count = self._counts.of(committed.topic)
        rows = sum(count.rows[operation] for operation in committed.rows or count.rows)
        own = {"commits": count.commits, "rows_committed": rows} if count.rows else {}
        return {**committed.facts, **own, **account_of(self.topics(), committed.topic)}

    def range_of(self, metadata: Mapping[str, Any]) -> LsnRange:
        """The LSN range requested by an input's metadata."""
        return LsnRange.parse(metadata.get(FROM_LSN) or self.from_lsn, metadata.get(TO_LSN) or self.to_lsn)

    def tables(self, application: str, others: Mapping[str, Sink] | None = None) -> TopicTables:
        """The lake's tables; `application` identifies the writer in commits."""
        settings = self._home.lake
        return TopicTables(Location.of(settings), application, settings, self, others or {})

    @property
    def _reader(self) -> LakeReader:
        return LakeReader(self.tables(""), lambda: self.spark.spark_session)

    @cached_property
    def _home(self) -> Home:
        options = tuple(sorted(self.storage_options.items()))
        bare = BareLake(LakeSettings(self.lake, options), self.delimiter)
        home = home_of(self.config_file, self.properties, bare)
        if (lsn := self.from_lsn or self.to_lsn) and not home.has_lsns:
            raise ConfigurationError("from_lsn", lsn, "nothing: these tables have no LSNs", "remove it")
        return home

    @staticmethod
    def _written(tables: TopicTables, topic: str, frame: DataFrame) -> tuple[str, EnvelopeFiles]:
        """Write the data frame as Parquet files below its table's directory."""
        schema = columns_in(frame)
        directory = tables.directory_for(topic, schema)
        return directory, EnvelopeFiles(schema, written(frame, tables.location, directory, schema))


def _writer(context: dg.OutputContext) -> str:
    """Application id of what a step commits: it commits once."""
    return f"dagster:{context.run_id}:{context.step_key}:{context.name}"


def _columns(tables: TopicTables, topic: str) -> set[str]:
    """Names of a topic's columns, in all its generations; none if it has no table."""
    handles = [tables.open(directory) for directory in tables.generations(topic)]
    return {name for handle in handles if handle is not None for name in arrow_schema(handle).names}


def _numbered(context: dg.OutputContext, frame: DataFrame, columns: Collection[str]) -> DataFrame:
    """The rows with a `window_id`, if they are a topic's, or their table has that column."""
    if not (is_topic(context) or _WINDOW in columns):
        return frame
    return frame.withColumn(_WINDOW, lit(NO_WINDOW).cast("long"))


class EnvelopeIOManager(LakeIOManager):
    """Loads topic tables as Spark data frames, and keeps data frames that assets return as tables beside them."""

    def load_input(self, context: dg.InputContext) -> DataFrame:
        """The upstream asset's events; of a mirror's asset its rows; of an asset of your own what it has returned, for
        the partitions that are requested.

        Raises:
            EventsDroppedError: the topic no longer holds all that is requested.
            InvalidValueError: there is no such generation.
            LakeError: the table is missing or cannot be read; or only some partitions are requested, and they are
                bounded by a key that only the server can order.
        """
        facts, metadata = asset_facts(context), context.definition_metadata or {}
        role = facts.get(ROLE) or table_and_role(context.asset_key)[1]
        topic = facts.get(TOPIC) or self.topic(context.asset_key)
        if role in _MIRRORS:
            return self.load(_MIRRORS[role](topic))
        partitions = context.asset_partition_keys if context.has_asset_partitions else None
        frame = self._reader.events(topic, self.range_of(metadata), metadata.get(GENERATION), partitions)
        if role == SNAPSHOT:
            return self._of_partitions(context, frame.where("value.op = 'r'"))
        return frame.where("value is null or value.op <> 'r'") if role == CHANGES else frame

    def handle_output(self, context: dg.OutputContext, obj: "DataFrame | EnvelopeFiles | Committed | None") -> None:
        """Have a data frame be the asset's table, or its partition; or append it, to a topic of a capture or if the asset
        says `metadata={"cdc/write": "append"}`. Or append files that are written, or report what a loop has committed.

        Raises:
            InvalidValueError: the table is a capture's and not to be overwritten, or the output is no data frame of Spark, or it
                is of several partitions.
            InvariantError: the loop reports more than `write` has committed.
            LakeError: the commit failed.
        """
        if isinstance(obj, Committed):
            context.add_output_metadata(self.account(obj))
            return
        if obj is None:
            return
        topic = asset_facts(context).get(TOPIC) or self.topic(context.asset_key)
        if isinstance(obj, EnvelopeFiles) or is_appended(context):
            self.append(context, topic, obj)
        else:
            settings = self._home.lake
            table = OwnTable(Location.of(settings), settings, _writer(context), topic)
            context.add_output_metadata(table.overwrite(require_frame(obj), partition_of(context)))

    def _of_partitions(self, context: dg.InputContext, reads: DataFrame) -> DataFrame:
        """READ events of the input's partitions; all of them if it has none."""
        if not context.has_asset_partitions:
            return reads
        order = {name: number for number, name in enumerate(context.asset_partitions_def.get_partition_keys())}
        numbers = {order[name] for name in context.asset_partition_keys}
        (prefix, *names), _ = table_and_role(context.asset_key)
        prefix = self._home.prefix or prefix
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
        return self._home.topic(key)
