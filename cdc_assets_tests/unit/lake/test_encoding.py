"""Whole numbers in order are written by their differences, others are not, and all come back.

`CDC_LAW_EXAMPLES` sets how many random columns are tried.
"""

import io
import os
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_assets.lake.parquet.file import ParquetFile

EXAMPLES = int(os.environ.get("CDC_LAW_EXAMPLES", "60"))


def written(values: list[int | None], kind: pa.DataType) -> bytes:
    row = pa.StructArray.from_arrays([pa.array(values, kind)], names=["id"])
    table = pa.table({"key": row, "value": pa.StructArray.from_arrays([row, row], names=["after", "source"])})
    stream = io.BytesIO()
    file = ParquetFile(stream, table.schema)
    half = max(1, len(values) // 2)
    file.write(pa.Table.from_batches([*table.slice(0, half).to_batches(), *table.slice(half).to_batches()]))
    file.close()
    return stream.getvalue()


def encodings(file: bytes) -> dict[str, str]:
    group = pq.ParquetFile(io.BytesIO(file)).metadata.row_group(0)
    columns = [group.column(place) for place in range(group.num_columns)]
    return {column.path_in_schema: ",".join(column.encodings) for column in columns}


@pytest.mark.parametrize("kind", [pa.int16(), pa.int32(), pa.int64()])
@pytest.mark.parametrize("values", [range(5, 2000, 3), range(900, 0, -1), [1, 1, None, 4, None, 9]])
def test_numbers_in_order_are_written_by_their_differences(values: list[int | None], kind: pa.DataType) -> None:
    found = encodings(written(list(values), kind))
    assert "DELTA_BINARY_PACKED" in found["key.id"]
    assert "DELTA_BINARY_PACKED" in found["value.after.id"]
    assert "DELTA_BINARY_PACKED" not in found["value.source.id"]


@pytest.mark.parametrize("values", [[5, 2, 9, 1] * 50, [3] * 100, [None] * 9, [*range(1000), *range(10)], [7]])
def test_others_are_not(values: list[int | None]) -> None:
    assert "DELTA_BINARY_PACKED" not in str(encodings(written(values, pa.int64())))


def test_keys_in_order_take_less_than_a_bit() -> None:
    keys = list(range(1, 100_001))
    group = pq.ParquetFile(io.BytesIO(written(keys, pa.int32()))).metadata.row_group(0)
    assert group.column(0).total_compressed_size < len(keys) / 8


NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3) | st.none()


@given(st.lists(NUMBERS, min_size=1, max_size=300), st.sampled_from([None, False, True]))
@settings(max_examples=EXAMPLES, deadline=None)
def test_any_numbers_come_back(values: list[int | None], falling: bool | None) -> None:
    if falling is not None:
        values = sorted([value for value in values if value is not None], reverse=falling) or [None]
    file = written(values, pa.int64())
    assert [row["id"] for row in pq.read_table(io.BytesIO(file))["key"].to_pylist()] == values
    assert [row["id"] for row in pl.read_parquet(io.BytesIO(file))["key"].to_list()] == values


def test_duckdb_reads_what_wraps(tmp_path: Path) -> None:
    values: list[int | None] = [-(2**63), -5, None, 0, 2**62, 2**63 - 1]
    path = tmp_path / "file.parquet"
    path.write_bytes(written(values, pa.int64()))
    assert "DELTA_BINARY_PACKED" in encodings(path.read_bytes())["key.id"]
    found = duckdb.connect().sql(f"SELECT key.id FROM read_parquet('{path}')").fetchall()
    assert [value for (value,) in found] == values
