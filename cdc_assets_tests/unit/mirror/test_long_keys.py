"""Keys that agree in more bytes than a leaf's bound may have: each row is in the leaf to which events about it are taken."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from cdc_assets.lake.keys import BOUND_BYTES, KeyPart, bound_key, ranges_of
from cdc_assets.lake.location import Location
from cdc_assets.lake.row_shape import AT
from cdc_assets.mirror import leaves, rewrite
from cdc_assets.mirror.files import read_rows
from cdc_assets.mirror.leaves import Leaf, leaf_of, new_attempt
from cdc_assets.mirror.ledger import MirrorLedger
from cdc_assets.mirror.rewrite import LeafWriter, are_parted
from cdc_assets.mirror.shape import Shape, ShapeColumn
from cdc_assets_tests.unit.mirror.child import mirrors_of
from cdc_assets_tests.unit.mirror.world import TOPIC, World, ordered
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn

CURRENT = f"{TOPIC}.__current"
SHAPE = Shape((ShapeColumn("name", pa.string(), False), ShapeColumn("v", pa.int32())), (KeyPart("name", padded=True),))


@pytest.fixture(autouse=True, scope="module")
def _small_leaves() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leaves, "LEAF_BYTES", 3000)
        patch.setattr("cdc_assets.mirror.jobs.LEAF_BYTES", 3000)
        yield


def rows_of(names: list[str]) -> pa.Table:
    count = len(names)
    columns = [names, list(range(count)), ["x"] * count, pa.nulls(count, AT)]
    return pa.table(columns, schema=SHAPE.rows)


def misplaced(location: Location, directory: str, shape: Shape, found: list[Leaf]) -> list[object]:
    """Keys that are not in the leaf which `ranges_of` names."""
    wrong = list[object]()
    bounds = [bound_key(leaf.bound, shape.key_type) for leaf in found[1:]]
    for number, leaf in enumerate(found):
        keys = shape.keys(read_rows(location, directory, leaf.paths, shape.rows).combine_chunks())
        places = ranges_of(keys, bounds).tolist()
        wrong += [key for key, place in zip(keys.to_pylist(), places, strict=True) if place != number]
    return wrong


@settings(max_examples=25, deadline=None)
@given(
    some.lists(some.tuples(some.sampled_from([60, 78, 79, 80, 81, 200]), some.integers(1, 60)), min_size=1, max_size=6),
    some.integers(1, 70),
)
def test_files_end_only_where_the_bound_changes(
    tmp_path_factory: pytest.TempPathFactory, groups: list[tuple[int, int]], portion: int
) -> None:
    """Names of some groups, which share so many letters; written so many at a time."""
    names = sorted(
        {f"{chr(97 + at) * length}{number:04d}" for at, (length, count) in enumerate(groups) for number in range(count)}
    )
    rows, location = rows_of(names), Location(str(tmp_path_factory.mktemp("lake")))
    writer = LeafWriter(location, "t", SHAPE, Leaf((), b""), len(names), new_attempt())
    for start in range(0, len(names), portion):
        writer.write(rows.slice(start, portion))
    made = [leaf_of(file.path, file.size, file.rows) for file in writer.end()]
    found = sorted((leaf for leaf in made if leaf is not None), key=lambda leaf: leaf.bound)
    assert sum(leaf.rows for leaf in found) == len(names)
    assert not misplaced(location, "t", SHAPE, found)
    assert are_parted(location, "t", SHAPE, found)


KEYS = {
    "shared 80": ("a nvarchar(200)", "a", lambda at: f"N'{'u' * (BOUND_BYTES - 1)}{at:05d}'"),
    "shared 81": ("a nvarchar(200)", "a", lambda at: f"N'{'u' * BOUND_BYTES}{at:05d}'"),
    "shared 200": ("a nvarchar(300)", "a", lambda at: f"N'{'u' * 200}{at:05d}'"),
    "two letters": ("a nvarchar(200)", "a", lambda at: f"N'{'u' * 70 + 'xy'[at % 2] * 30}{at:05d}'"),
    "composite": (
        "a uniqueidentifier NOT NULL, b nvarchar(60) NOT NULL, c int",
        "a, b, c",
        lambda at: f"'11111111-2222-3333-4444-555555555555', N'{'ф' * 30}', {at}",
    ),
}


def made(server: StandIn, lake: Path, kind: str) -> World:
    columns, key, values = KEYS[kind]
    world = World(server, lake, f"{columns} NOT NULL, v nvarchar(80), PRIMARY KEY ({key})")
    for start in range(0, 1000, 250):
        rows = ", ".join(f"({values(at)}, N'{at * 7919 % 10007}')" for at in range(start, start + 250))
        world.execute(f"INSERT INTO dbo.t VALUES {rows}")
    world.capture("snapshot")
    world.mirror()
    return world


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn(databases=(DATABASE,)) as server:
        yield server


def is_right(world: World) -> bool:
    mirrors = mirrors_of(str(world.lake))
    [table], _ = mirrors.found()
    found = mirrors.tables.leaves(CURRENT) or []
    names = "a, b, c, v" if "b" in table.description.shape.names else "a, v"
    return not misplaced(mirrors.tables.location, CURRENT, table.description.shape, found) and (
        ordered(world.rows()) == ordered(world.on_server(names))
    )


def change(world: World, turn: int) -> None:
    world.execute(f"UPDATE dbo.t SET v = N'new {turn}' WHERE v LIKE N'%{turn}'")
    world.execute(f"DELETE FROM dbo.t WHERE v LIKE N'%{turn}7'")
    world.capture()
    world.mirror()


@pytest.mark.long
@pytest.mark.parametrize("kind", KEYS)
def test_a_mirror_with_long_keys_is_right(server: StandIn, tmp_path: Path, kind: str) -> None:
    world = made(server, tmp_path / "lake", kind)
    assert is_right(world)
    for turn in (1, 2, 3):
        change(world, turn)
        assert is_right(world)


@pytest.mark.long
def test_a_mirror_whose_leaves_break_the_rule_is_made_anew(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Files that end at any row, as another writer may end them."""

    def anywhere(self: LeafWriter, rows: pa.Table) -> int:
        written = 0 if self._writer is None else self._writer.rows
        if written < self._cut:
            return min(rows.num_rows, self._cut - written)
        return 0 if 2 * self._left >= self._cut else rows.num_rows

    with monkeypatch.context() as patch:
        patch.setattr(rewrite.LeafWriter, "_count", anywhere)
        world = made(server, tmp_path / "lake", "shared 200")
    assert not is_right(world)
    mirrors = mirrors_of(str(world.lake))
    ledger = MirrorLedger(mirrors.tables.tables, "shop")
    ledger.complete(datetime.now(UTC), {TOPIC: replace(ledger.claim()[TOPIC], parted=False)})
    with caplog.at_level(logging.WARNING):
        change(world, 1)
    assert is_right(world)
    assert "rows lie in other leaves than their events" in caplog.text
    step = mirrors.states()[TOPIC].step
    change(world, 2)
    assert is_right(world)
    assert mirrors.states()[TOPIC].step == step + 1
