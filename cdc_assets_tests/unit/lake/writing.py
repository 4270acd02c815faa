"""Events of a small topic, written as a task writes them."""

from dataclasses import replace

import pyarrow as pa

from cdc_assets.config.settings import LakeSettings
from cdc_assets.core.one_by_one import OneByOne
from cdc_assets.lake.files import DataFile, TopicWriter
from cdc_assets.lake.joining import SmallFiles
from cdc_assets.lake.tables import DeltaTables
from cdc_assets.lake.topics import TopicTables


def schema_of(**columns: pa.DataType) -> pa.Schema:
    row = pa.struct([pa.field(name, kind, metadata={"connect.type": "x"}) for name, kind in columns.items()])
    value = pa.struct([pa.field("before", row), pa.field("after", row), pa.field("op", pa.string())])
    return pa.schema([pa.field("position", pa.string()), pa.field("value", value), pa.field("window_id", pa.int64())])


def batch_of(schema: pa.Schema, window_id: int, *rows: dict[str, object] | None) -> pa.RecordBatch:
    found = [
        {
            "position": f"{window_id:04d}/{place:04d}",
            "value": None if row is None else {"before": None, "after": row, "op": "c"},
            "window_id": window_id,
        }
        for place, row in enumerate(rows)
    ]
    return pa.RecordBatch.from_pylist(found, schema)


def write(
    tables: TopicTables, schema: pa.Schema, window_id: int, *rows: dict[str, object] | None, topic: str = "topic"
) -> list[DataFile]:
    with TopicWriter(tables.location, topic, schema, window_id) as writer:
        writer.write([batch_of(schema, window_id, *rows)])
    return writer.files


def nobody_else() -> None:
    """The fence of a writer that is not overtaken."""


def join_all(tables: DeltaTables, directory: str, settings: LakeSettings | None = None) -> bool:
    """Join the files of a topic table, however few there are; whether any were."""
    small = SmallFiles(tables, replace(settings or LakeSettings(""), compact_after_files=1), OneByOne(), nobody_else)
    return bool(small.join([directory]))
