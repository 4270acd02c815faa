"""Compaction and vacuum lose nothing and do not disturb the writer."""

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, Schema

from cdc_assets.config.settings import LakeSettings
from cdc_assets.lake.evolution import lake_schema
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets.lake.upkeep import Upkeep
from cdc_assets_tests.unit.lake.writing import schema_of, write


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


def statistics(tables: TopicTables) -> list[tuple[int, set[str], str, str]]:
    """Of each file: rows, columns that have statistics, and the bounds of `position`."""
    files = pa.table(DeltaTable(tables.location.uri("topic")).get_add_actions(flatten=True)).to_pylist()
    named = [{name for name, found in file.items() if "." in name and found is not None} for file in files]
    rows = [(file["num_records"], file["min.position"], file["max.position"]) for file in files]
    return sorted((count, names, least, greatest) for names, (count, least, greatest) in zip(named, rows, strict=True))


def test_windows_and_compaction_write_the_same_statistics_also_of_older_tables(tmp_path: Path) -> None:
    tables, schema = TopicTables(Location(str(tmp_path)), "shop"), schema_of(id=pa.int32())
    upkeep = Upkeep(tables, LakeSettings(str(tmp_path), compact_after_files=100))
    only = {f"{bound}.position" for bound in ("min", "max", "null_count")}

    former = {"delta.logRetentionDuration": "interval 7 days"}  # as an earlier release made it
    DeltaTable.create(tables.location.uri("topic"), Schema.from_arrow(lake_schema(schema)), configuration=former)
    for window_id in (1, 2):
        tables.commit("topic", schema, write(tables, schema, window_id, {"id": window_id}), window_id, {})
    upkeep.compact("topic")
    [(_, names, *_)] = statistics(tables)
    assert names > only

    upkeep.tidy(["topic"])
    assert statistics(tables) == [(2, only, "0001/0000", "0002/0000")]
    assert (tables.reached("topic"), tables.row_count("topic")) == (2, 2)
    version = DeltaTable(tables.location.uri("topic")).version()
    upkeep.tidy(["topic"])
    assert DeltaTable(tables.location.uri("topic")).version() == version, "it is done once"

    tables.commit("topic", schema, write(tables, schema, 3, {"id": 3}), 3, {})
    assert [names for _, names, *_ in statistics(tables)] == [only] * 2
    upkeep.compact("topic")
    assert statistics(tables) == [(3, only, "0001/0000", "0003/0000")]
    assert DeltaTable(tables.location.uri("topic")).to_pyarrow_table().num_rows == 3
