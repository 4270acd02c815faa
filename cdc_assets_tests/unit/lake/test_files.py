"""Data files and their row groups are bounded by bytes, and hold every row once, in order."""

from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cdc_assets.envelope.constants import constant_headers
from cdc_assets.errors import LakeFullError
from cdc_assets.lake import files
from cdc_assets.lake.location import Location

SCHEMA = pa.schema([("position", pa.string()), ("value", pa.binary())])
KB = 1024


def batches(sizes: list[int], per_batch: int) -> list[pa.RecordBatch]:
    """Rows with values of so many random bytes."""
    random = np.random.default_rng(7)
    rows = [{"position": f"{place:06}", "value": random.bytes(size)} for place, size in enumerate(sizes)]
    return [
        pa.RecordBatch.from_pylist(rows[start : start + per_batch], schema=SCHEMA)
        for start in range(0, len(rows), per_batch)
    ]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "ROW_GROUP_BYTES", 64 * KB)
    monkeypatch.setattr(files, "_WIDE_GROUP_BYTES", 16 * KB)
    monkeypatch.setattr(files, "_WIDE_ROW", 4 * KB)
    monkeypatch.setattr(files, "FILE_BYTES", 200 * KB)


@pytest.mark.parametrize("per_batch", [1, 7, 1000])
@pytest.mark.parametrize(
    ("sizes", "most"),
    [([10] * 5000, 64), ([8 * KB] * 100, 16), ([3 * KB] * 200, 64), ([10, 40 * KB] * 20, 64)],
    ids=["narrow", "wide", "between", "mixed"],
)
def test_files_and_row_groups_are_bounded(
    tmp_path: Path, small: None, sizes: list[int], most: int, per_batch: int
) -> None:
    given = batches(sizes, per_batch)
    with files.TopicWriter(Location(str(tmp_path)), "topic", SCHEMA, 1) as writer:
        writer.write(given)
    found = [pq.read_table(tmp_path / "topic" / file.path) for file in writer.files]
    assert pa.concat_tables(found).to_pylist() == pa.Table.from_batches(given).to_pylist()
    assert sum(file.rows for file in writer.files) == len(sizes)
    for file in writer.files:
        assert file.size <= 200 * KB
        metadata = pq.ParquetFile(tmp_path / "topic" / file.path).metadata
        for number in range(metadata.num_row_groups):
            values = metadata.row_group(number).column(1)
            assert values.total_uncompressed_size <= (most + 8) * KB  # with the bounds in its statistics
    assert len(writer.files) <= 1 + sum(sizes) // (100 * KB)


def test_a_row_that_is_larger_than_all_bounds_is_written(tmp_path: Path, small: None) -> None:
    with files.TopicWriter(Location(str(tmp_path)), "topic", SCHEMA, 1) as writer:
        writer.write(batches([300 * KB, 10, 300 * KB], 3))
    assert sum(file.rows for file in writer.files) == 3


def test_headers_that_rows_share_do_not_end_a_row_group(tmp_path: Path, small: None) -> None:
    """They are in memory once, however many rows have them."""
    headers = constant_headers((("name", "x" * 100),), 3000)
    rows = pa.RecordBatch.from_arrays(
        [pa.array([f"{place:06}" for place in range(3000)]), headers], ["position", "headers"]
    )
    copied = rows.set_column(1, "headers", pa.array(headers.to_pylist(), headers.type))
    groups = []
    for name, batch in (("shared", rows), ("copied", copied)):
        with files.TopicWriter(Location(str(tmp_path)), name, batch.schema, 1) as writer:
            writer.write(batch.slice(start, 300) for start in range(0, 3000, 300))
        groups.append(sum(pq.ParquetFile(tmp_path / name / file.path).num_row_groups for file in writer.files))
    assert groups[0] == 1 < groups[1]


@pytest.mark.parametrize("sizes", [[10] * 5, [3_000_000], [300_000] * 12], ids=["at the end", "at once", "in mid-file"])
def test_a_disk_without_room_is_full_wherever_it_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: list[int]
) -> None:
    """Every file is written to a device that is always full."""
    monkeypatch.setattr(files, "uuid4", lambda: Mock(hex="full"))
    (tmp_path / "topic").mkdir()
    name = tmp_path / "topic" / "w0000000001-afull.parquet"
    name.symlink_to("/dev/full")
    with pytest.raises(LakeFullError), files.TopicWriter(Location(str(tmp_path)), "topic", SCHEMA, 1, "a") as writer:
        writer.write(batches(sizes, 1))
    assert not name.is_symlink(), "it is removed"
