"""Small files of a topic are joined by tasks of a Spark job."""

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from cdc_assets.adapters.spark.runner import SparkTaskRunner
from cdc_assets.config.settings import LakeSettings
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets.lake.upkeep import tidy
from cdc_assets_tests.unit.lake.writing import nobody_else, schema_of, write


def test_small_files_are_joined_by_spark(runner: SparkTaskRunner, tmp_path: Path) -> None:
    tables, schema = TopicTables(Location(str(tmp_path)), "shop"), schema_of(id=pa.int32())
    for window in range(1, 6):
        tables.commit("topic", schema, write(tables, schema, window, {"id": window}), window, {})
    settings = LakeSettings(str(tmp_path), compact_after_files=5)
    assert tidy(tables, settings, runner, nobody_else, ["topic", "absent"]) == ["topic"]
    handle = DeltaTable(str(tmp_path / "topic"))
    rows = handle.to_pyarrow_table().to_pylist()
    assert (len(handle.file_uris()), [row["value"]["after"]["id"] for row in rows]) == (1, [1, 2, 3, 4, 5])
