"""Texts that count are written like any others, only faster: every reader gets them back.

`CDC_LAW_EXAMPLES` sets how many random columns are tried.
"""

import io
import os

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_assets.core.counted import _KNOWN, count_of, hexadecimal
from cdc_assets.envelope.counting import counted
from cdc_assets.lake.parquet import ParquetFile, least_and_greatest

EXAMPLES = int(os.environ.get("CDC_LAW_EXAMPLES", "60"))
SCHEMA = pa.schema([("position", pa.string()), ("number", pa.int64())])


def plain(head: str, first: int, rows: int, tail: str) -> list[str]:
    return [f"{head}{hexadecimal(number)}{tail}" for number in range(first, first + rows)]


def written(columns: list[pa.Array]) -> tuple[bytes, tuple[str, str]]:
    stream = io.BytesIO()
    file = ParquetFile(stream, SCHEMA)
    batches = [pa.RecordBatch.from_arrays([each, pa.array(range(len(each)))], schema=SCHEMA) for each in columns]
    columns_written = file.write(pa.Table.from_batches(batches))
    file.close()
    bounds = least_and_greatest(columns_written["position",])
    assert bounds is not None
    return stream.getvalue(), bounds


NUMBERS = st.integers(0, 2**32 - 1) | st.builds(
    lambda power, less: max(0, (1 << power) - less), st.integers(0, 32), st.integers(0, 300)
)
PIECES = st.lists(
    st.tuples(st.sampled_from(["", "a/", "b:0000", "x" * 80]), NUMBERS, st.integers(1, 400), st.integers(0, 3)),
    min_size=1,
    max_size=5,
)


@given(PIECES, st.sampled_from(["/0", "", "/ot"]))
@settings(max_examples=EXAMPLES, deadline=None)
def test_any_counts_come_back(pieces: list[tuple[str, int, int, int]], tail: str) -> None:
    arrays = [counted(head, first, rows + skipped, tail).slice(skipped) for head, first, rows, skipped in pieces]
    texts = [
        text for head, first, rows, skipped in pieces for text in plain(head, first, rows + skipped, tail)[skipped:]
    ]
    assert [text for array in arrays for text in array.to_pylist()] == texts
    file, bounds = written(arrays)
    assert pq.read_table(io.BytesIO(file))["position"].to_pylist() == texts
    assert pl.read_parquet(io.BytesIO(file))["position"].to_list() == texts
    assert bounds == (min(texts), max(texts))


@pytest.mark.parametrize("first", [0, 1, 15, 65_530, 2**20 - 70_000])
def test_a_row_group_comes_back(first: int, tmp_path: object) -> None:
    head, rows = "0000002c:00009c58:0066/ffffffff/00000002:0001", 140_000
    parts = [(start, min(32_768, rows - start)) for start in range(0, rows, 32_768)]
    file, _ = written([counted(head, first + start, size, "/0") for start, size in parts])
    path = f"{tmp_path}/file.parquet"
    with open(path, "wb") as stream:  # noqa: PTH123 - DuckDB reads files
        stream.write(file)
    texts = plain(head, first, rows, "/0")
    assert pq.read_table(path)["position"].to_pylist() == texts
    found = duckdb.connect().sql(f"SELECT position FROM read_parquet('{path}')").to_arrow_table()
    assert found["position"].to_pylist() == texts


def test_what_counts_takes_a_tenth_of_a_byte() -> None:
    file, _ = written([counted("0000002c:00009c58:0066/ffffffff/00000002:0001", 1, 100_000, "/0")])
    [column] = [pq.ParquetFile(io.BytesIO(file)).metadata.row_group(0).column(0)]
    assert column.encodings == ("RLE", "DELTA_BYTE_ARRAY")
    assert column.total_compressed_size < 10_000


def test_a_slice_counts_from_its_place() -> None:
    array = counted("a", 65_530, 20, "z")
    count = count_of(array.slice(7, 9))
    assert count is not None
    assert (count.text(0), count.rows) == (array[7].as_py(), 9)


def test_others_do_not_count() -> None:
    array = counted("a", 1, 20, "z")
    assert count_of(pa.concat_arrays([array, array])) is None
    assert count_of(array.take(pa.array([3, 2]))) is None
    assert count_of(pc.utf8_upper(array)) is None
    assert count_of(array.slice(3, 0)) is None
    assert count_of(pa.array([1])) is None
    assert count_of(counted("a", 1, 0, "z")) is None


def test_other_offsets_over_the_same_bytes_do_not_count() -> None:
    array = counted("a", 1, 20, "z")
    _, offsets, data = array.buffers()
    assert count_of(pa.Array.from_buffers(pa.string(), 19, [None, offsets.slice(4), data])) is None


def test_numbers_begin_again_behind_32_bits_and_are_then_written_one_by_one() -> None:
    array = counted("a", 2**32 - 2, 4, "z")
    assert array.to_pylist() == ["affff:fffez", "affff:ffffz", "a0000:0000z", "a0000:0001z"]
    assert count_of(array) is None


def test_freed_memory_is_not_taken_for_what_lay_there() -> None:
    array = counted("a", 1, 20, "z")
    kept = array.slice(1)
    del array
    assert count_of(kept) is not None
    address = kept.buffers()[2].address
    del kept
    other = [counted("b", 1, 20, "z") for _ in range(50)]
    assert all(count_of(each).head == "b" for each in other)  # type: ignore[union-attr]
    del other
    assert address not in _KNOWN
