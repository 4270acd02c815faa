"""Rows of a topic come by window and position, with the structure that they were written with."""

import random
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from cdc_assets.config.settings import KafkaSettings
from cdc_assets.config.settings.kafka import ConverterSettings
from cdc_assets.envelope.plan import HEADERS, POSITION, WINDOW
from cdc_assets.errors import LakeError
from cdc_assets.lake import files
from cdc_assets.lake.files import TopicWriter
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets.publish.offset import END_OF_WINDOW
from cdc_assets.publish.render import Renderer
from cdc_assets.publish.rows import TopicRows, once
from cdc_assets.typemap.connect import ConnectType, struct
from cdc_assets_tests.unit.lake.writing import join_all

TEXT = ConnectType("string")
BEGINNING = (-1, END_OF_WINDOW)


def layout(*names: str) -> pa.Schema:
    value = struct("t.Value", [TEXT.to_field(name) for name in names], optional=False).to_field("value")
    return pa.schema([POSITION, TEXT.to_field("key"), value, HEADERS, WINDOW])


@pytest.fixture
def tables(tmp_path: Path) -> TopicTables:
    return TopicTables(Location(str(tmp_path)), "shop")


def commit(tables: TopicTables, window: int, positions: str, *names: str) -> None:
    """One row for each letter, one file for each word."""
    schema = layout(*names)
    tables.ensure("t", schema)
    written = []
    for word in positions.split():
        rows = [
            {"position": at, "key": at, "value": dict.fromkeys(names, at), "headers": [("h", "1")], "window_id": window}
            for at in word
        ]
        with TopicWriter(tables.location, "t", schema, window) as writer:
            writer.write(pa.Table.from_pylist(rows, schema).to_batches())
        written += writer.files
    assert tables.commit("t", schema, written, window, {})


def found(tables: TopicTables, after: tuple[int, str] = BEGINNING, until: int | None = None) -> list[tuple[int, str]]:
    batches = TopicRows(tables, "t").read(after, until)
    return [
        place
        for batch in batches
        for place in zip(batch.column("window_id").to_pylist(), batch.column("position").to_pylist(), strict=True)
    ]


def test_a_file_of_several_row_groups_is_read_with_texts_as_numbers(
    tables: TopicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As wide rows that compress well have it."""
    for name in ("ROW_GROUP_BYTES", "_WIDE_GROUP_BYTES"):
        monkeypatch.setattr(files, name, 10)
    commit(tables, 1, "abc", "a")
    batches = list(TopicRows(tables, "t").read(BEGINNING, None, dictionaries=True))
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [(row["position"], row["headers"]) for row in rows] == [(at, [("h", "1")]) for at in "abc"]
    assert [len(batch) for batch in batches] == [1, 1, 1]


def test_row_groups_that_are_in_no_order_are_read_in_that_of_events(
    tables: TopicTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several files that overlap, too; no writer here makes such."""
    for name in ("ROW_GROUP_BYTES", "_WIDE_GROUP_BYTES"):
        monkeypatch.setattr(files, name, 10)
    commit(tables, 1, "gca hdbf", "a")
    commit(tables, 2, "zy", "a")
    whole = [*((1, at) for at in "abcdfgh"), *((2, at) for at in "yz")]
    assert found(tables) == whole
    assert found(tables, (1, "c"), 1) == [place for place in whole if (1, "c") < place < (2, "")]


def test_wide_rows_are_rendered_few_at_a_time(tables: TopicTables) -> None:
    schema = layout("a")
    rows = [
        {"position": f"{at:02}", "key": "k", "value": {"a": "x" * 1_000_000}, "headers": [], "window_id": 1}
        for at in range(20)
    ]
    [batch] = pa.Table.from_pylist(rows, schema).to_batches()
    plain = ConverterSettings(schema=False)
    sizes = [len(one) for one in Renderer(KafkaSettings(key=plain, value=plain)).slices("t", batch)]
    assert (sum(sizes), max(sizes)) == (20, 7)


def test_compaction_changes_neither_order_nor_bounds(tables: TopicTables) -> None:
    whole: list[tuple[int, str]] = []
    for window, positions in enumerate(["ace", "bd", "a", "xyz", "bc", "a"]):
        commit(tables, window, positions, "a")
        whole += [(window, at) for at in positions]
        if window in (2, 4):
            join_all(tables, "t")
        for after in (BEGINNING, (0, "c"), (1, END_OF_WINDOW), (2, "")):
            for until in (None, 3):
                wanted = [place for place in whole if place > after and (until is None or place[0] <= until)]
                assert found(tables, after, until) == wanted


@pytest.mark.parametrize(
    "own",
    [{"window_id": None}, {"window_id": 1}, {"window_id": None, "position": "b"}],
    ids=["neither", "window", "position"],
)
@pytest.mark.parametrize("joined", [False, True])
def test_rows_that_users_append_are_not_published(tables: TopicTables, own: dict[str, object], joined: bool) -> None:
    """They have no window or no position, so nobody can tell where they belong."""
    whole = [(window, at) for window, positions in enumerate(["ace", "bd", "a"]) for at in positions]
    for window, positions in enumerate(["ace", "bd", "a"]):
        commit(tables, window, positions, "a")
    row = {"position": None, "key": "k", "value": {"a": "own"}, "headers": [], **own}
    write_deltalake(tables.location.uri("t"), pa.Table.from_pylist([row, row], layout("a")), mode="append")
    if joined:
        DeltaTable(tables.location.uri("t")).optimize.compact()
    assert found(tables) == whole
    assert found(tables, (0, "c"), 1) == [place for place in whole if (0, "c") < place < (2, "")]


def test_events_that_are_there_twice_come_once(tables: TopicTables) -> None:
    """A rewrite that was planned before ours and is committed after it puts rows in twice, until a run undoes it."""
    whole = [(window, at) for window, positions in enumerate(["ace", "bd", "a", "xyz"]) for at in positions]
    for window, positions in enumerate(["ace", "bd", "a", "xyz"]):
        commit(tables, window, positions, "a")
    late = DeltaTable(tables.location.uri("t"))
    join_all(tables, "t")
    late.optimize.compact()
    commit(tables, 4, "pq", "a")
    whole += [(4, "p"), (4, "q")]
    for after in (BEGINNING, (0, "c"), (1, END_OF_WINDOW), (3, "x")):
        assert found(tables, after) == [place for place in whole if place > after]
    DeltaTable(tables.location.uri("t")).optimize.compact()
    assert found(tables) == whole


def test_an_event_and_its_tombstone_share_a_place() -> None:
    schema = pa.schema([("window_id", pa.int64()), ("position", pa.string()), ("value", pa.string())])
    rows = [(1, "a", "d"), (1, "a", None), (1, "a", "d"), (1, "a", None), (1, "b", "c"), (1, "b", "c"), (2, "b", "c")]
    batch = pa.RecordBatch.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)
    for size in range(1, len(rows) + 1):
        parts = [batch.slice(start, size) for start in range(0, len(rows), size)]
        left = [tuple(row.values()) for part in once(parts) for row in part.to_pylist()]
        assert left == [(1, "a", "d"), (1, "a", None), (1, "b", "c"), (2, "b", "c")]


@pytest.mark.long
def test_rows_of_a_large_file_come_in_parts(tables: TopicTables) -> None:
    """So that wide rows of a window are never in memory all at once."""
    schema, chance = layout("a"), random.Random("wide")  # noqa: S311 - rows that can be made again
    positions = [f"{number:04}" for number in range(3000)]
    rows = [
        {"position": at, "key": at, "value": {"a": chance.randbytes(8192).hex()}, "headers": [], "window_id": 7}
        for at in positions
    ]
    tables.ensure("t", schema)
    with TopicWriter(tables.location, "t", schema, 7) as writer:
        writer.write(pa.Table.from_pylist(rows, schema).to_batches())
    assert tables.commit("t", schema, writer.files, 7, {})
    assert len(writer.files) == 1
    assert found(tables) == [(7, at) for at in positions]
    sizes = [batch.nbytes for batch in TopicRows(tables, "t").read(BEGINNING, None)]
    assert max(sizes) < 30_000_000 < sum(sizes)


def test_pieces_are_read_ahead_over_all_topics_within_bounds(tables: TopicTables) -> None:
    for window in range(4):
        commit(tables, window, "ab", "a")
    readers = [TopicRows(tables, "t").read(BEGINNING, None) for _ in range(40)]
    heads = [next(reader) for reader in readers]
    assert len([thread for thread in threading.enumerate() if thread.name.startswith("prefetch")]) in (1, 2)
    for reader in readers[:20]:
        reader.close()
    for head, reader in zip(heads[20:], readers[20:], strict=True):
        assert [batch.column("window_id")[0].as_py() for batch in (head, *reader)] == [0, 1, 2, 3]
    assert [next(readers[0], None), found(tables)[-1]] == [None, (3, "b")]


def test_texts_that_repeat_come_as_dictionaries_and_mean_the_same(tables: TopicTables) -> None:
    for window, positions in enumerate(["ace", "bd", "a"]):
        commit(tables, window, positions, "op", "b")
    join_all(tables, "t")
    commit(tables, 3, "ab", "op", "b")
    plain, coded = (list(TopicRows(tables, "t").read((0, "a"), None, dictionaries=coded)) for coded in (False, True))
    assert [batch.to_pylist() for batch in coded] == [batch.to_pylist() for batch in plain]
    assert {batch.column("value").field("op").type for batch in coded} == {pa.dictionary(pa.int32(), pa.string())}
    assert {batch.column("value").field("b").type for batch in coded} == {pa.string()}
    renderer = Renderer(KafkaSettings(key=ConverterSettings(), value=ConverterSettings()))
    slices = [[list(one) for batch in batches for one in renderer.slices("t", batch)] for batches in (plain, coded)]
    assert slices[0] == slices[1]


def test_an_event_has_the_columns_that_there_were(tables: TopicTables) -> None:
    commit(tables, 1, "p", "a")
    commit(tables, 2, "q", "b", "a")
    plain = ConverterSettings(schema=False)
    renderer = Renderer(KafkaSettings(key=plain, value=plain))
    records = [
        record
        for batch in TopicRows(tables, "t").read(BEGINNING, None)
        for one in renderer.slices("t", batch)
        for record in one
    ]
    assert [record.value for record in records] == [b'{"a":"p"}', b'{"b":"q","a":"q"}']
    assert [record.key for record in records] == [b'"p"', b'"q"']
    assert records[0].headers == [("h", b"1")]


def test_a_file_that_is_gone_is_told(tables: TopicTables, tmp_path: Path) -> None:
    commit(tables, 1, "p", "a")
    next((tmp_path / "t").glob("w*.parquet")).unlink()
    with pytest.raises(LakeError, match="cannot be read"):
        found(tables)


def test_tables_hold_what_the_manifest_says_or_are_not_read(tables: TopicTables) -> None:
    commit(tables, 0, "a", "a")
    assert len(list(TopicRows(tables, "t").read(BEGINNING, 5, 0))) == 1
    commit(tables, 2, "b", "a")
    assert len(list(TopicRows(tables, "t").read(BEGINNING, 5, 2))) == 2
    with pytest.raises(LakeError, match=r"manifest has commit 3 of .*, but its tables end with 2"):
        TopicRows(tables, "t").read(BEGINNING, 5, 3)
    with pytest.raises(LakeError, match="end with -1"):
        TopicRows(tables, "none").read(BEGINNING, 5, 0)
