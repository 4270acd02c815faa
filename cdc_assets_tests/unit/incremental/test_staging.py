"""Staged rows, and the set of changed rows that others are looked up in."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.errors import ConnectionLostError, LakeError
from cdc_assets.incremental import staging
from cdc_assets.incremental.staging import Rows, Staging
from cdc_assets.lake.location import Location

DAY = datetime.fromisoformat("2024-01-01")
TYPES: list[tuple[pa.DataType, st.SearchStrategy[object]]] = [
    (pa.int32(), st.integers(0, 3)),
    (pa.string(), st.sampled_from(["", "a", "A", "a "])),
    (pa.binary(), st.sampled_from([b"", b"\0", b"a"])),
    (pa.decimal128(5, 2), st.sampled_from([Decimal("0.10"), Decimal("-1.00")])),
    (pa.bool_(), st.booleans()),
    (pa.timestamp("us"), st.sampled_from([DAY, DAY + timedelta(microseconds=1)])),
]


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.Table, pa.Table]:
    """Two tables of the same columns."""
    chosen = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=4))
    schema = pa.schema([(f"c{number}", kind) for number, (kind, _) in enumerate(chosen)])
    rows = st.lists(st.tuples(*(st.none() | values for _, values in chosen)), max_size=12)

    def table(found: list[tuple[object, ...]]) -> pa.Table:
        return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in found], schema)

    return table(draw(rows)), table(draw(rows))


@given(tables())
def test_rows_of_a_set_are_left_out_exactly(pair: tuple[pa.Table, pa.Table]) -> None:
    rows, changed = pair
    unwanted = [tuple(row.values()) for row in changed.to_pylist()]
    wanted = [row for row in rows.to_pylist() if tuple(row.values()) not in unwanted]
    chunks = [changed.slice(0, 3), changed.slice(3)]
    known = Rows(pa.concat_tables(chunks).columns)
    [batch] = rows.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], rows.schema)]
    assert known.without(batch, range(rows.num_columns)).to_pylist() == wanted
    numbers = {row: number for number, row in enumerate(dict.fromkeys(unwanted))}
    found = known.find(batch, range(rows.num_columns)).to_pylist()
    assert found == [numbers.get(tuple(row.values())) for row in rows.to_pylist()]


def test_rows_come_back_in_files_of_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "FILE_BYTES", 100)
    folder = Staging(Location(str(tmp_path)), "shop.__staging")
    batches = [pa.RecordBatch.from_pydict({"n": list(range(start, start + 10))}) for start in range(0, 100, 10)]
    files = folder.write(iter([pa.RecordBatch.from_pydict({"n": pa.array([], pa.int64())}), *batches]))
    assert [file.rows for file in files] == [20] * 5
    assert [n for file in files for batch in folder.read(file.name) for n in batch["n"].to_pylist()] == list(range(100))
    assert folder.write(iter([])) == []


def test_a_lost_file_is_an_error_of_the_lake(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match=r"shop\.__staging cannot be read"):
        list(Staging(Location(str(tmp_path)), "shop.__staging").read("lost.arrow"))


def test_files_in_an_object_store(tmp_path: Path) -> None:
    folder = Staging(Location(f"file://{tmp_path}"), "shop.__staging")
    [file] = folder.write([pa.RecordBatch.from_pydict({"n": list(range(300_000))})])
    assert sum(batch.num_rows for batch in folder.read(file.name)) == 300_000


def test_a_round_is_removed_with_the_files_of_tasks_that_failed(tmp_path: Path) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"n": [1]})
        raise ConnectionLostError("the server is away")

    one, other = (Staging(Location(str(tmp_path)), "shop.__staging", prefix) for prefix in ("one", "other"))
    [kept] = other.write([pa.RecordBatch.from_pydict({"n": [1]})])
    one.write([pa.RecordBatch.from_pydict({"n": [1]})])
    with pytest.raises(ConnectionLostError):
        one.write(rows())
    assert len(list((tmp_path / "shop.__staging").iterdir())) == 3
    one.remove()
    assert [path.name for path in (tmp_path / "shop.__staging").iterdir()] == [kept.name]
