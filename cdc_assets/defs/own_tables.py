"""Tables of users' own assets: what a returned data frame does to its table, and which tables are not theirs to overwrite.

A data frame is its asset's table from then on, as with other IO managers, or its partition (`lake.overwriting`). It is
appended where events belong: to topics of a capture, whose assets are known by their metadata or their key; and where
the asset requests that (`metadata={"cdc/write": "append"}`).

*Not overwritten* are tables to which a capture of this lake commits, whatever the key of the asset: they have an application
transaction of the capture, and that is checked before anything is written and again before each attempt of the commit; and
the library's own records, by their names.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final
from uuid import uuid4

import dagster as dg
import pyarrow as pa
from deltalake import Schema
from deltalake.exceptions import DeltaError
from pyspark.sql import DataFrame

from cdc_assets.adapters.spark.lake_source import write_files
from cdc_assets.config.settings import LakeSettings
from cdc_assets.connectors.engine.ledger import batches_directory
from cdc_assets.defs.keys import TOPIC, asset_facts, table_and_role
from cdc_assets.errors import InvalidValueError
from cdc_assets.lake.commits import rows_by_path
from cdc_assets.lake.files import DataFile
from cdc_assets.lake.location import Location
from cdc_assets.lake.overwriting import columns_of, overwrite, partition_folder
from cdc_assets.lake.system_topics import manifest_directory
from cdc_assets.lake.tables import DeltaTables
from cdc_assets.lake.topics import generation
from cdc_assets.lake.upkeep import Upkeep

WRITE: Final = "cdc/write"
"""Metadata key of an asset: `append` or `overwrite`."""
_NO_WINDOW = 0
"""Number in the names of files that are of no window."""
_APPEND, _OVERWRITE = "append", "overwrite"
_RECORD = ".__"
"""Part of the names of the library's own records, and of mirrors."""
_KEPT_HOURS = 24
"""Least age of files at which they are removed: another run of the asset may be writing for hours."""


def is_topic(context: dg.OutputContext) -> bool:
    """Whether an asset is a topic of a capture, by its metadata or its key."""
    return TOPIC in asset_facts(context) or table_and_role(context.asset_key)[1] is not None


def is_appended(context: dg.OutputContext) -> bool:
    """Whether a data frame is appended to the table of its asset.

    Raises:
        InvalidValueError: `cdc/write` has another value, or would overwrite a topic.
    """
    wanted = asset_facts(context).get(WRITE, _APPEND if is_topic(context) else _OVERWRITE)
    if wanted not in (_APPEND, _OVERWRITE):
        raise InvalidValueError(WRITE, wanted, f"{_APPEND} or {_OVERWRITE}", "correct the asset's metadata")
    if wanted == _OVERWRITE and is_topic(context):
        raise InvalidValueError(WRITE, wanted, f"{_APPEND}: this asset is a topic", "give your own asset another key")
    return bool(wanted == _APPEND)


def require_frame(output: object) -> DataFrame:
    """What an asset has returned, if it is a data frame of Spark.

    Raises:
        InvalidValueError: it is something else.
    """
    if not isinstance(output, DataFrame):
        kind = f"{type(output).__module__}.{type(output).__qualname__}"
        raise InvalidValueError(
            "output", kind, "a data frame of Spark", "convert it by spark.createDataFrame, or choose another IO manager"
        )
    return output


def columns_in(frame: DataFrame) -> pa.Schema:
    """Columns of a data frame.

    Raises:
        InvalidValueError: a type has none of its kind in Delta.
    """
    try:
        return pa.schema(Schema.from_json(frame.schema.json()).to_arrow())
    except (DeltaError, ValueError) as error:
        raise InvalidValueError(
            "columns of a data frame", frame.schema.simpleString(), "types that Delta has", f"cast them ({error})"
        ) from error


def written(
    frame: DataFrame, location: Location, directory: str, schema: pa.Schema, within: str = ""
) -> list[DataFile]:
    """Write a data frame as Parquet files, which no version names yet.

    Args:
        schema: of the files.
        within: folder below the directory.

    Returns:
        The files, by their path below the directory.

    Raises:
        LakeError: Spark does not write to this lake.
    """
    folder = f"{within}/spark-{uuid4().hex}".lstrip("/")
    files = write_files(frame, location, f"{directory}/{folder}", schema, _NO_WINDOW)
    return [replace(file, path=f"{folder}/{file.path}") for file in files]


class OwnTable:
    """The table of an asset that overwrites it.

    Args:
        writer: run, step and output: it writes once.
    """

    def __init__(self, location: Location, settings: LakeSettings, writer: str, directory: str) -> None:
        hours = max(settings.retention_hours, _KEPT_HOURS)
        self._settings = replace(settings, retention_hours=hours)
        self._tables, self._directory = DeltaTables(location, writer, self._settings), directory
        self._captures = [
            name.removesuffix(record)
            for name in location.directories()
            for record in (manifest_directory(""), batches_directory(""))
            if name.endswith(record)
        ]

    def overwrite(self, frame: DataFrame, partition: str | None = None) -> Mapping[str, Any]:
        """Have a data frame be the table's content, or a partition's; metadata of the materialization.

        Args:
            partition: its key; None for all.

        Raises:
            InvalidValueError: the table belongs to a capture, or its columns do not fit the other partitions'.
            LakeError: the store refuses.
        """
        tables, directory = self._tables, self._directory
        self._require_own()
        schema = columns_of(columns_in(frame))
        within = "" if partition is None else partition_folder(partition)
        files = written(frame, tables.location, directory, schema, within)
        landed = overwrite(tables, directory, schema, files, self._fence, partition)
        Upkeep(tables, self._settings).try_vacuum(directory)
        part = {} if partition is None else {"dagster/partition_row_count": _rows(file.rows for file in files)}
        return {
            "dagster/row_count": self._row_count(),
            **part,
            "dagster/uri": tables.location.uri(directory),
            "overwritten": landed,
        }

    def _row_count(self) -> int:
        handle = self._tables.open(self._directory)
        return 0 if handle is None else _rows(rows_by_path(handle).values())

    def _require_own(self) -> None:
        """Check before anything is written."""
        directory = self._directory
        if _RECORD in directory:
            raise self._refusal("one of the library's own tables")
        if self._tables.open(generation(directory, 2)) is not None:
            raise InvalidValueError(
                "asset",
                directory,
                f"one table: rows of other columns were appended to {generation(directory, 2)}, which would be read with it",
                f"move the folders {directory}@2, @3, … away",
            )
        if self._tables.open(directory) is not None:
            self._fence()

    def _fence(self) -> None:
        """Check the version that is about to be replaced."""
        handle = self._tables.kept(self._directory)
        for capture in self._captures:
            if self._tables.transaction(handle, self._directory, capture) is not None:
                raise self._refusal(f"a topic of the capture {capture}")

    def _refusal(self, what: str) -> InvalidValueError:
        return InvalidValueError(
            "asset",
            self._directory,
            f"a table of its own; this is {what}, which is not overwritten",
            f'give the asset another key; or say metadata={{"{WRITE}": "{_APPEND}"}}, if it adds events to a topic',
        )


def _rows(counts: Iterable[int | None]) -> int:
    return sum(count or 0 for count in counts)


def partition_of(context: dg.OutputContext) -> str | None:
    """The partition that an output is; None if its asset has none.

    Raises:
        InvalidValueError: it is of several.
    """
    if not context.has_asset_partitions:
        return None
    if len(keys := context.asset_partition_keys) != 1:
        raise InvalidValueError(
            "partitions of one run",
            f"{len(keys)}",
            "one: it is not known which rows of a data frame are whose",
            "set backfill_policy=dg.BackfillPolicy.multi_run(max_partitions_per_run=1), or return None and write them yourself",
        )
    return keys[0]
