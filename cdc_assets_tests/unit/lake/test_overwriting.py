"""Tables that are overwritten whole, or by partitions: one commit, once for each writer, whoever writes beside it."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from cdc_assets.core.steps import listening
from cdc_assets.errors import InvalidValueError
from cdc_assets.lake.files import DataFile, TopicWriter
from cdc_assets.lake.location import Location
from cdc_assets.lake.overwriting import columns_of, is_outside, overwrite, partition_folder
from cdc_assets.lake.tables import DeltaTables
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.lake.writing import nobody_else

NAME = "sums"
AT = datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)


@pytest.fixture
def lake(tmp_path: Path) -> Location:
    return Location(str(tmp_path))


def put(lake: Location, writer: str, partition: str | None = None, **columns: list[Any] | pa.Array) -> bool:
    """What a writer has computed becomes the table, or a partition."""
    rows = pa.table(columns)
    schema = columns_of(rows.schema)
    folder = "whole" if partition is None else f"{partition_folder(partition)}/new"
    files = list[DataFile]()
    if rows.num_rows:
        with TopicWriter(lake, f"{NAME}/{folder}", schema, 0) as out:
            out.write(rows.cast(schema).to_batches())
        files = [file_below(folder, file) for file in out.files]
    return overwrite(DeltaTables(lake, writer), NAME, schema, files, nobody_else, partition)


def file_below(folder: str, file: DataFile) -> DataFile:
    return DataFile(f"{folder}/{file.path}", file.size, file.rows, file.least, file.greatest, 0, {}, file.written_ms)


def rows(lake: Location, version: int | None = None) -> list[dict[str, object]]:
    found = DeltaTable(lake.uri(NAME), version=version).to_pyarrow_table()
    return sorted(found.to_pylist(), key=lambda row: str(row))


def once(step: str, lake: Location, *arguments: str, **columns: list[Any] | pa.Array) -> listening:
    """Another writer comes before a commit, the first time."""
    waiting = [columns]

    def listen(name: str) -> None:
        if name == step and waiting:
            assert put(lake, *arguments, **waiting.pop())

    return listening(listen)


def test_a_table_is_what_was_written_last_and_has_its_columns(lake: Location) -> None:
    assert put(lake, "first", name=["a", "b"], n=[1, 2])
    before = DeltaTable(lake.uri(NAME)).version()
    assert put(lake, "second", n=["x"], at=pa.array([AT], pa.timestamp("us")))
    assert rows(lake) == [{"n": "x", "at": AT}]
    assert rows(lake, before) == [{"name": "a", "n": 1}, {"name": "b", "n": 2}]
    assert [row["name"] for row in rows(lake, before)] == ["a", "b"]
    filtered = DeltaTable(lake.uri(NAME)).to_pyarrow_table(filters=[("n", "=", "x")])
    assert filtered.num_rows == 1
    assert put(lake, "third", n=pa.array([], pa.string()))
    assert rows(lake) == []


def test_a_writer_writes_once(lake: Location) -> None:
    assert put(lake, "run 1", n=[1])
    assert put(lake, "run 2", n=[2])
    assert not put(lake, "run 1", n=[1])
    assert rows(lake) == [{"n": 2}]


def test_of_two_writers_at_once_one_replaces_what_the_other_brought(lake: Location) -> None:
    assert put(lake, "before", n=[0])
    with once("replacement-checked", lake, "fast", n=[1, 1]):
        assert put(lake, "slow", n=[2])
    assert rows(lake) == [{"n": 2}]


def test_a_partition_replaces_itself_alone(lake: Location) -> None:
    assert put(lake, "run 1", "2026-01-01", day=["1"], n=[1])
    assert put(lake, "run 2", "2026-01-02", day=["2"], n=[1])
    assert put(lake, "run 3", "2026-01-01", day=["1", "1"], n=[2, 3], more=["new", "new"])
    assert rows(lake) == [
        {"day": "1", "n": 2, "more": "new"},
        {"day": "1", "n": 3, "more": "new"},
        {"day": "2", "n": 1, "more": None},
    ]
    assert put(lake, "run 4", "2026-01-01", day=pa.array([], pa.string()), n=pa.array([], pa.int64()))
    assert rows(lake) == [{"day": "2", "n": 1, "more": None}]


def test_of_two_first_writers_of_a_partition_the_second_replaces_the_first(lake: Location) -> None:
    assert put(lake, "before", "other", n=[0])
    with once("replacement-checked", lake, "fast", "2026", n=[1, 1]):
        assert put(lake, "slow", "2026", n=[2])
    assert rows(lake) == [{"n": 0}, {"n": 2}]


def test_another_type_in_a_partition_is_refused(lake: Location) -> None:
    assert put(lake, "run 1", "a", n=[1])
    with pytest.raises(InvalidValueError, match=r"n string, not int64.*cast"):
        put(lake, "run 2", "b", n=["1"])
    assert rows(lake) == [{"n": 1}]


def test_a_table_that_is_not_made_of_partitions_gets_none(lake: Location) -> None:
    assert put(lake, "run 1", n=[1])
    with pytest.raises(InvalidValueError, match="written whole, or another program has joined"):
        put(lake, "run 2", "b", n=[2])
    assert rows(lake) == [{"n": 1}]
    assert put(lake, "run 3", n=[3])


@pytest.mark.parametrize("step", ["replacement-checked", "files-replaced"])
def test_a_crash_leaves_one_version_or_the_other(lake: Location, step: str) -> None:
    assert put(lake, "run 1", n=[1])
    with cut_at(step), pytest.raises(PowerCutError):
        put(lake, "run 2", n=[2])
    assert rows(lake) == [{"n": 2 if step == "files-replaced" else 1}]
    assert put(lake, "run 2", n=[2]) == (step != "files-replaced")
    assert rows(lake) == [{"n": 2}]


def test_folders_of_partitions_are_told_apart() -> None:
    keys = ["a/b", "a_b", "2026-01-01|eu", "x" * 200, "ä", ""]
    folders = [partition_folder(key) for key in keys]
    assert len(set(folders)) == len(keys)
    assert all(folder.isascii() and "/" not in folder and len(folder) < 100 for folder in folders)
    assert not is_outside(f"{folders[0]}/x.parquet", ["a/b"])
    assert is_outside(f"{folders[1]}/x.parquet", ["a/b"])
    assert not is_outside("w1.parquet", ["a/b"])
