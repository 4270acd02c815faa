"""Files in which columns that repeat are written as runs hold the same rows for every reader.

`CDC_LAW_EXAMPLES` sets how many random files are tried.
"""

import io
import os
from collections.abc import Callable
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.transaction import AddAction
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_assets.core.repeated import _NUMBERS, number_of, repeated, repeated_number, repeated_texts
from cdc_assets.lake.parquet import thrift
from cdc_assets.lake.parquet.runs import VARIABLE
from cdc_assets_tests.unit.lake.repeating import GROUPS, ROOM, SCHEMA, batch, written

EXAMPLES = int(os.environ.get("CDC_LAW_EXAMPLES", "60"))


def by_arrow(path: Path) -> list[dict[str, object]]:
    return list(pq.read_table(path).to_pylist())


def by_duckdb(path: Path) -> list[dict[str, object]]:
    table = duckdb.connect().sql(f"SELECT * FROM read_parquet('{path}')").to_arrow_table()
    return [row | {"headers": list(row["headers"])} for row in table.to_pylist()]


def by_polars(path: Path) -> list[dict[str, object]]:
    rows = pl.read_parquet(path).to_dicts()
    return [row | {"headers": list(row["headers"].items())} for row in rows]


def by_delta(path: Path) -> list[dict[str, object]]:
    folder = path.parent / "table"
    write_deltalake(folder, SCHEMA.empty_table())
    table = DeltaTable(folder)
    (folder / path.name).write_bytes(path.read_bytes())
    table.create_write_transaction(
        [AddAction(path.name, path.stat().st_size, {}, 0, True, "{}")], "append", table.schema(), []
    )
    DeltaTable(folder).optimize.compact()  # reads and writes with parquet-rs
    rows = QueryBuilder().register("t", DeltaTable(folder)).execute("SELECT * FROM t ORDER BY position").read_all()
    return list(pa.table(rows).to_pylist())


READERS: dict[str, Callable[[Path], list[dict[str, object]]]] = {
    "Arrow": by_arrow,
    "DuckDB": by_duckdb,
    "Polars": by_polars,
    "delta-rs": by_delta,
}


@pytest.mark.long
@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("reader", READERS)
def test_readers_get_the_rows(name: str, reader: str, tmp_path: Path) -> None:
    file = tmp_path / "file.parquet"
    file.write_bytes(written(GROUPS[name]))
    expected = [row for group in GROUPS[name] for row in pa.Table.from_batches(group).to_pylist()]
    assert READERS[reader](file) == expected


@pytest.mark.parametrize("name", GROUPS)
def test_structure_and_statistics_are_those_of_pyarrow(name: str) -> None:
    ours = pq.ParquetFile(io.BytesIO(written(GROUPS[name])))
    plain = io.BytesIO()
    tables = [pa.Table.from_batches(group) for group in GROUPS[name]]
    with pq.ParquetWriter(plain, SCHEMA) as writer:
        for table in tables:
            writer.write_table(table)
    theirs = pq.ParquetFile(plain)
    assert ours.schema.equals(theirs.schema)
    for number, table in enumerate(tables):
        assert ours.read_row_group(number).equals(table)
        for place in range(len(ours.schema)):
            column = ours.metadata.row_group(number).column(place)
            known, told = theirs.metadata.row_group(number).column(place).statistics, column.statistics
            if told is not None:
                assert (told.null_count, told.num_values) == (known.null_count, known.num_values), column.path_in_schema
                if told.has_min_max:
                    assert (told.min, told.max) == (known.min, known.max), column.path_in_schema


@pytest.mark.parametrize("name", GROUPS)
def test_the_same_rows_are_written_without_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    ours = written(GROUPS[name])
    monkeypatch.setenv(VARIABLE, "1")
    plain = written(GROUPS[name])
    assert ours != plain
    assert pq.read_table(io.BytesIO(plain)).equals(pq.read_table(io.BytesIO(ours)))


def test_what_repeats_takes_a_few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    group = pq.ParquetFile(
        io.BytesIO(written([[batch(0, ROOM - 96, tombstones=[False, True]), batch(4000, 9)]]))
    ).metadata
    sizes = {
        column.path_in_schema: column.total_compressed_size
        for column in map(group.row_group(0).column, range(group.num_columns))
    }
    repeating = [name for name in sizes if "source" in name or "before" in name or name == "value.op"]
    assert len(repeating) == 8
    assert max(sizes[name] for name in (*repeating, "window_id", "headers.key_value.key")) < 600


def test_readers_skip_row_groups_by_what_repeats(tmp_path: Path) -> None:
    file = tmp_path / "file.parquet"
    file.write_bytes(written([[batch(0, 10, ts_ms=1)], [batch(10, 10, ts_ms=2)], [batch(20, 10, ts_ms=3)]]))
    wanted = pl.scan_parquet(file).filter(pl.col("value").struct.field("source").struct.field("ts_ms") == 2)
    assert wanted.collect()["position"].to_list() == [f"{number:08d}" for number in range(10, 20)]


@given(
    st.lists(
        st.lists(
            st.tuples(
                st.integers(1, 70),
                st.none() | st.lists(st.booleans(), min_size=1, max_size=5),
                st.none() | st.lists(st.booleans(), min_size=1, max_size=5),
                st.sampled_from(["c", "u", None]),
                st.sampled_from([1, 2, None]),
                st.sampled_from([None, (), (("a", "b"),), (("a", "b"), ("c", "b"), ("d", "e"))]),
            ),
            min_size=1,
            max_size=4,
        ),
        max_size=3,
    )
)
@settings(max_examples=EXAMPLES, deadline=None)
def test_any_batches_come_back(groups: list[list[tuple[int, object, object, object, object, object]]]) -> None:
    made = [
        [
            batch(100 * place, rows, before=old, tombstones=gone, op=op, ts_ms=ts_ms, pairs=pairs)  # type: ignore[arg-type]
            for place, (rows, old, gone, op, ts_ms, pairs) in enumerate(group)
        ]
        for group in groups
    ]
    file = written(made)
    expected = pa.Table.from_batches([each for group in made for each in group], SCHEMA)
    assert pq.read_table(io.BytesIO(file)).equals(expected)
    read = pl.read_parquet(io.BytesIO(file)) if made else None
    assert read is None or read["value"].to_list() == expected["value"].to_pylist()


def test_a_copy_and_an_empty_text_are_unknown() -> None:
    text = repeated(("c",), 8).array
    assert repeated_texts(text.slice(3, 2)) == ("c",)
    assert repeated_texts(pa.concat_arrays([text, text])) is None
    assert repeated_texts(repeated(("",), 4).array) is None
    assert repeated_texts(pa.array([], pa.string())) is None


@pytest.mark.parametrize("value", [0, -5, 2**63 - 1, -(2**63)])
def test_a_number_is_known_in_slices_alone(value: int) -> None:
    numbers = repeated_number(value, 3000)
    assert numbers.to_pylist() == [value] * 3000
    assert number_of(numbers.slice(2999)) == value
    assert number_of(pa.concat_arrays([numbers, numbers])) is None
    assert number_of(pa.array([value])) is None


def test_numbers_that_are_gone_are_unknown() -> None:
    kept = repeated_number(77, 5)
    for value in range(50):
        assert number_of(repeated_number(value, 5)) == value
    assert number_of(kept) == 77
    address = kept.buffers()[1].address
    del kept
    assert _NUMBERS.get(address) is None or _NUMBERS[address].value != 77


def test_freed_memory_is_not_taken_for_what_lay_there() -> None:
    gone = repeated(("gone",), 4).array
    repeated.cache_clear()
    assert repeated_texts(gone) is None


@given(
    st.integers(-(2**63), 2**63 - 1),
    st.binary(),
    st.lists(st.integers(-(2**31), 2**31 - 1), max_size=40),
    st.booleans(),
)
def test_thrift_structs_come_back(number: int, data: bytes, numbers: list[int], flag: bool) -> None:
    made: thrift.Struct = {
        1: (thrift.I64, number),
        3: (thrift.BINARY, data),
        40: (thrift.LIST, (thrift.I32, numbers)),
        41: (thrift.TRUE if flag else thrift.FALSE, flag),
        900: (thrift.STRUCT, {2: (thrift.LIST, (thrift.STRUCT, [{1: (thrift.I32, 1)}, {}]))}),
    }
    packed = thrift.struct_bytes(made)
    assert thrift.read_struct(b"before" + packed + b"behind", 6) == (made, 6 + len(packed))
