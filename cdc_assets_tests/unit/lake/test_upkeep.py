"""Compaction and vacuum lose nothing and do not disturb the writer."""

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from cdc_assets.config.settings import LakeSettings
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets.lake.upkeep import Upkeep
from cdc_assets_tests.unit.lake.test_topics import schema_of, write


def test_compaction_joins_files_and_keeps_rows_and_transactions(tmp_path: Path) -> None:
    tables, schema = TopicTables(Location(str(tmp_path)), "shop"), schema_of(id=pa.int32())
    for window_id in range(1, 7):
        tables.commit("topic", schema, write(tables, schema, window_id, {"id": window_id}), window_id, {})
    upkeep = Upkeep(tables, LakeSettings(str(tmp_path), compact_after_files=5, retention_hours=0))
    assert upkeep.tidy(["topic"]) == ["topic"]
    assert upkeep.tidy(["topic"]) == []
    handle = DeltaTable(tables.location.uri("topic"))
    assert len(handle.file_uris()) == 1
    assert sorted(row["value"]["after"]["id"] for row in handle.to_pyarrow_table().to_pylist()) == [1, 2, 3, 4, 5, 6]
    assert tables.reached("topic") == 6
    assert not tables.commit("topic", schema, write(tables, schema, 6, {"id": 6}), 6, {})
    assert tables.commit("topic", schema, write(tables, schema, 7, {"id": 7}), 7, {})

    assert len(list((tmp_path / "topic").glob("*.parquet"))) == 3  # compacted, window 7, and the file nobody committed
    upkeep.vacuum("topic")
    assert len(list((tmp_path / "topic").glob("*.parquet"))) == 2
    assert tables.row_count("topic") == 7


def test_statistics_survive_compaction(tmp_path: Path) -> None:
    tables, schema = TopicTables(Location(str(tmp_path)), "shop"), schema_of(id=pa.int32())
    for window_id in (1, 2):
        tables.commit("topic", schema, write(tables, schema, window_id, {"id": window_id}), window_id, {})
    Upkeep(tables, LakeSettings(str(tmp_path))).compact("topic")
    [action] = pa.table(DeltaTable(tables.location.uri("topic")).get_add_actions(flatten=True)).to_pylist()
    assert (action["min.position"], action["max.position"]) == ("0001/0000", "0002/0000")
