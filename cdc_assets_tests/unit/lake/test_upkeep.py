"""Compaction and vacuum lose nothing and do not disturb the writer."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.config.settings import LakeSettings
from cdc_assets.core.jobs import Job
from cdc_assets.core.one_by_one import OneByOne
from cdc_assets.errors import ServerBusyError
from cdc_assets.lake.files import TopicWriter
from cdc_assets.lake.joining import joined_groups, size_to_join
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets.lake.upkeep import Upkeep, tidy
from cdc_assets_tests.unit.lake.writing import batch_of, join_all, nobody_else, schema_of, write

T = TypeVar("T")
R = TypeVar("R")


def tidied(tables: TopicTables, settings: LakeSettings) -> list[str]:
    return tidy(tables, settings, OneByOne(), nobody_else, ["topic"])


def test_compaction_joins_files_and_keeps_rows_and_transactions(tmp_path: Path) -> None:
    tables, schema = TopicTables(Location(str(tmp_path)), "shop"), schema_of(id=pa.int32())
    for window_id in range(1, 7):
        tables.commit("topic", schema, write(tables, schema, window_id, {"id": window_id}), window_id, {})
    settings = LakeSettings(str(tmp_path), compact_after_files=5, retention_hours=0)
    assert tidied(tables, settings) == ["topic"]
    assert tidied(tables, settings) == []
    handle = DeltaTable(tables.location.uri("topic"))
    assert len(handle.file_uris()) == 1
    assert sorted(row["value"]["after"]["id"] for row in handle.to_pyarrow_table().to_pylist()) == [1, 2, 3, 4, 5, 6]
    assert tables.reached("topic") == 6
    assert not tables.commit("topic", schema, write(tables, schema, 6, {"id": 6}), 6, {})
    assert tables.commit("topic", schema, write(tables, schema, 7, {"id": 7}), 7, {})

    assert len(list((tmp_path / "topic").glob("*.parquet"))) == 3  # compacted, window 7, and the file nobody committed
    Upkeep(tables, settings).vacuum("topic")
    assert len(list((tmp_path / "topic").glob("*.parquet"))) == 2
    assert tables.row_count("topic") == 7


def test_a_vacuum_that_slept_removes_nothing_that_was_written_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read the table, and lists its files when those are older than the retention."""
    tables, schema = TopicTables(Location(str(tmp_path)), "shop"), schema_of(id=pa.int32())
    tables.commit("topic", schema, write(tables, schema, 1, {"id": 1}), 1, {})
    asleep, handle = TopicTables(tables.location, "shop"), tables.open("topic")
    assert handle is not None
    stale = DeltaTable(handle.table_uri, version=handle.version())
    tables.commit("topic", schema, write(tables, schema, 2, {"id": 2}), 2, {})
    monkeypatch.setattr(asleep, "open", lambda directory: stale)
    assert Upkeep(asleep, LakeSettings(str(tmp_path), retention_hours=0)).vacuum("topic") == []
    assert len(DeltaTable(handle.table_uri).to_pyarrow_table()) == 2


def test_a_vacuum_removes_nothing_to_which_a_link_leads(tmp_path: Path) -> None:
    tables, schema = TopicTables(Location(str(tmp_path / "lake")), "shop"), schema_of(id=pa.int32())
    tables.commit("topic", schema, write(tables, schema, 1, {"id": 1}), 1, {})
    home, topic = tmp_path / "home", tmp_path / "lake" / "topic"
    for folder in (home, topic / "inside"):
        folder.mkdir()
        (folder / "old.parquet").touch()
    (topic / "link").symlink_to(home)
    tables.commit("topic", schema, write(tables, schema, 2, {"id": 2}), 2, {})
    removed = Upkeep(tables, LakeSettings(str(tmp_path / "lake"), retention_hours=0)).vacuum("topic")
    assert removed == ["inside/old.parquet"]
    assert (home / "old.parquet").exists()


def test_statistics_survive_compaction(tmp_path: Path) -> None:
    tables, schema = TopicTables(Location(str(tmp_path)), "shop"), schema_of(id=pa.int32())
    for window_id in (1, 2):
        tables.commit("topic", schema, write(tables, schema, window_id, {"id": window_id}), window_id, {})
    assert join_all(tables, "topic")
    [action] = pa.table(DeltaTable(tables.location.uri("topic")).get_add_actions(flatten=True)).to_pylist()
    assert (action["min.position"], action["max.position"]) == ("0001/0000", "0002/0000")


def statistics(tables: TopicTables) -> list[tuple[int, set[str], str, str]]:
    """Of each file: rows, columns that have statistics, and the bounds of `position`."""
    files = pa.table(DeltaTable(tables.location.uri("topic")).get_add_actions(flatten=True)).to_pylist()
    named = [{name for name, found in file.items() if "." in name and found is not None} for file in files]
    rows = [(file["num_records"], file["min.position"], file["max.position"]) for file in files]
    return sorted((count, names, least, greatest) for names, (count, least, greatest) in zip(named, rows, strict=True))


def test_windows_and_compaction_write_the_same_statistics(tmp_path: Path) -> None:
    tables, schema = TopicTables(Location(str(tmp_path)), "shop"), schema_of(id=pa.int32())
    settings = LakeSettings(str(tmp_path), compact_after_files=100)
    only = {f"{bound}.position" for bound in ("min", "max", "null_count")}

    for window_id in (1, 2):
        tables.commit("topic", schema, write(tables, schema, window_id, {"id": window_id}), window_id, {})
    tidied(tables, settings)
    tables.commit("topic", schema, write(tables, schema, 3, {"id": 3}), 3, {})
    assert [names for _, names, *_ in statistics(tables)] == [only] * 3
    assert join_all(tables, "topic")
    assert statistics(tables) == [(3, only, "0001/0000", "0003/0000")]
    assert DeltaTable(tables.location.uri("topic")).to_pyarrow_table().num_rows == 3


def joined(sizes: list[int], size: int) -> tuple[list[int], int]:
    """Sizes after files were joined up to a size, and the bytes that were rewritten."""
    files = {str(number): each for number, each in enumerate(sizes)}
    groups = joined_groups(files, size)
    copied = [sum(files.pop(path) for path in group) for group in groups]
    return [*files.values(), *copied], sum(copied)


@pytest.mark.parametrize("window", [300, 20_000, 1_000_000])
def test_rows_are_rewritten_a_few_times_while_a_table_grows(window: int) -> None:
    target, often, windows = 256 << 20, 200, 40_000
    sizes, rewritten, most = list[int](), 0, 0
    for _ in range(windows // often):
        sizes += [window] * often
        if sum(size < target * 0.75 for size in sizes) >= often:
            sizes, copied = joined(sizes, size_to_join(sizes, target, often))
            rewritten, most = rewritten + copied, max(most, sum(size < target * 0.75 for size in sizes))
    assert rewritten <= 7 * window * windows
    assert most <= often


def test_a_loop_lists_the_files_of_a_table_from_time_to_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables, schema, moments = TopicTables(Location(str(tmp_path)), "shop"), schema_of(id=pa.int32()), [0.0]
    monkeypatch.setattr("time.monotonic", lambda: moments[0])
    vacuumed: list[float] = []
    monkeypatch.setattr(Upkeep, "vacuum", lambda *_: vacuumed.append(moments[0]))
    for window_id in range(1, 13):
        moments[0] = 120.0 * window_id
        tables.commit("topic", schema, write(tables, schema, window_id, {"id": window_id}), window_id, {})
        tidied(tables, LakeSettings(str(tmp_path), compact_after_files=2, retention_hours=1))
    assert vacuumed == [240.0, 600.0, 960.0, 1320.0]


def test_a_table_whose_file_is_gone_stops_no_other(tmp_path: Path) -> None:
    tables, schema = TopicTables(Location(str(tmp_path)), "shop"), schema_of(id=pa.int32())
    for window_id in (1, 2, 3):
        for topic in ("topic", "other"):
            with TopicWriter(tables.location, topic, schema, window_id) as writer:
                writer.write([batch_of(schema, window_id, {"id": window_id})])
            tables.commit(topic, schema, writer.files, window_id, {})
    next((tmp_path / "topic").glob("*.parquet")).unlink()
    settings = LakeSettings(str(tmp_path), compact_after_files=2)
    assert tidy(tables, settings, LocalRunner(2), nobody_else, ["topic", "other"]) == ["other"]
    assert len(DeltaTable(tables.location.uri("topic")).file_uris()) == 3


class Away(OneByOne):
    def run(self, function: Callable[[T], R], tasks: Sequence[T], job: Job) -> list[R]:
        raise ServerBusyError("Spark is away. Next: nothing.")


def test_a_job_that_fails_leaves_files_as_they_are(tmp_path: Path) -> None:
    tables, schema = TopicTables(Location(str(tmp_path)), "shop"), schema_of(id=pa.int32())
    for window_id in (1, 2):
        tables.commit("topic", schema, write(tables, schema, window_id, {"id": window_id}), window_id, {})
    settings = LakeSettings(str(tmp_path), compact_after_files=2)
    assert tidy(tables, settings, Away(), nobody_else, ["topic"]) == []
    assert tables.row_count("topic") == 2
