"""Staged rows, and the set of changed rows that others are looked up in."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.core.lsn import Lsn
from cdc_assets.errors import ConnectionLostError, LakeError
from cdc_assets.incremental import staging
from cdc_assets.incremental.staging import HOLDS, OMITS, VALUE, BuildTask, Rows, Staging, build
from cdc_assets.lake.location import Location
from cdc_assets_tests.unit.envelope.building import column, plan_of, table_batch

BODY = column("body", "varchar", length=-1)
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


def test_images_of_rows_that_a_task_does_not_have_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of("docs", [column("id", "int", nullable=False), column("note", "char", length=1000), BODY])
    folder = Staging(Location(str(tmp_path)), "shop.__staging")
    read = folder.write([table_batch(plan, [(number, "old", f"body {number}") for number in range(9)])])
    batches = (images_of(range(start, start + 1000)) for start in range(0, 50_000, 1000))
    changed = tuple(folder.write(batches))
    kept = list[int]()

    class Changed(staging._Changed):
        def __init__(self, task: BuildTask, images: pa.Table) -> None:
            kept.append(images.num_rows)
            super().__init__(task, images)

    monkeypatch.setattr(staging, "_Changed", Changed)
    now = DAY.replace(tzinfo=UTC)
    files = build(BuildTask(tuple(enumerate(read)), folder, 1, Lsn(bytes(10)), now, plan, "docs", "a", (0,), changed))
    assert files is not None
    [file] = files
    assert file.rows == 9
    rows = pq.read_table(tmp_path / "docs" / file.path)["value"].to_pylist()
    assert [(row["after"]["id"], row["after"]["note"][0], row["after"]["body"]) for row in rows] == [
        (number, "n", f"body {number}") for number in range(9)
    ]
    assert kept == [9]


def images_of(ids: Sequence[int]) -> pa.RecordBatch:
    """Images of updates that omit a large value."""
    notes = pa.array(["n" * 1000] * len(ids))
    yes = pa.array([True] * len(ids))
    no = pa.array([False] * len(ids))
    keys = pa.array(ids, pa.int32())
    return pa.RecordBatch.from_pydict(
        {"k0": keys, OMITS: yes, HOLDS: no, VALUE.format(0): keys, VALUE.format(1): notes}
    )
