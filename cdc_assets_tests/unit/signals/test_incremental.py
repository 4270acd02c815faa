"""Incremental snapshots on the stand-in, through real drivers into a real lake."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc_assets.lake.steps import listening
from cdc_assets.standin.control import StandIn
from cdc_assets_tests.unit.signals.world import PowerCutError, World, check_law
from cdc_assets_tests.unit.streaming.child import DATABASE


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn(databases=(DATABASE,)) as server:
        server.agent.start()
        yield server


def values(*rows: str) -> str:
    return ", ".join(f"({row})" for row in rows)


def test_a_table_is_read_again_and_the_signal_table_is_streamed(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path))
    table = world.make("orders", "id int PRIMARY KEY, version int")
    world.sql(f"INSERT INTO dbo.orders VALUES {values(*(f'{n}, {n}' for n in range(1, 151)))}")
    server.agent.drain()
    world.run("snapshot")
    world.signal("s1", "execute-snapshot", data_collections=[f"{DATABASE}.dbo.orders"])
    world.run()
    assert sorted(row["id"] for row in world.reads(table)) == list(range(1, 151))
    assert world.notes() == [
        ("STARTED", ""), ("IN_PROGRESS", ""), ("IN_PROGRESS", ""),
        ("TABLE_SCAN_COMPLETED", "SUCCEEDED"), ("COMPLETED", ""),
    ]  # fmt: skip
    signals = [event["value"]["after"] for event in world.events(table.__class__(DATABASE, "dbo", "cdc_signal"))]
    assert [row["type"] for row in signals] == [
        "execute-snapshot",
        *["snapshot-window-open", "snapshot-window-close"] * 3,
    ]
    world.run()
    assert len(world.reads(table)) == 150


def test_conditions_composite_keys_and_deletion_of_the_marker(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path), watermarking="insert_delete", recompile=True)
    table = world.make(
        "lines",
        "code varchar(10) COLLATE Latin1_General_CI_AS NOT NULL, no int NOT NULL, qty int, PRIMARY KEY (code, no)",
    )
    codes = ["a", "B", "c", "D"]
    rows = [f"'{code}', {number}, {number}" for code in codes for number in range(40)]
    world.sql(f"INSERT INTO dbo.lines VALUES {values(*rows)}")
    server.agent.drain()
    world.run("snapshot")
    conditions = [{"data-collection": f"{DATABASE}.dbo.lines", "filter": "qty >= 10"}]
    world.signal("s1", "execute-snapshot", data_collections=[".*"], additional_conditions=conditions)
    world.run()
    found = sorted(((row["code"], row["no"]) for row in world.reads(table)), key=lambda key: (key[0].lower(), key[1]))
    assert found == [(code, number) for code in codes for number in range(10, 40)]


@pytest.mark.parametrize(
    ("columns", "row", "status"),
    [
        ("id int, version int", "1, 1", "NO_PRIMARY_KEY"),
        ("id int PRIMARY KEY, version int", None, "EMPTY"),
        ("id int PRIMARY KEY, version int", "1, 1", "SQL_EXCEPTION"),
    ],
)
def test_tables_that_cannot_be_read_are_told(
    server: StandIn, tmp_path: Path, columns: str, row: str | None, status: str
) -> None:
    world = World(server, str(tmp_path))
    table = world.make("t", columns)
    if row:
        world.sql(f"INSERT INTO dbo.t VALUES ({row})")
        server.agent.drain()
    world.run("snapshot")
    condition = {"additional_condition": "no_such_column = 1"} if status == "SQL_EXCEPTION" else {}
    world.signal("s1", "execute-snapshot", data_collections=[f"{DATABASE}.dbo.t", "nothing"], **condition)
    world.signal("s2", "execute-snapshots")
    world.run()
    assert world.reads(table) == []
    assert ("TABLE_SCAN_COMPLETED", "UNKNOWN_SCHEMA") in world.notes()
    assert ("TABLE_SCAN_COMPLETED", status) in world.notes()
    assert not world.state().signals[DATABASE].queue


def test_pause_resume_and_stop(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path))
    table = world.make("orders", "id int PRIMARY KEY, version int")
    world.sql(f"INSERT INTO dbo.orders VALUES {values(*(f'{n}, {n}' for n in range(1, 6)))}")
    server.agent.drain()
    world.run("snapshot")
    world.signal("s1", "execute-snapshot", data_collections=[f"{DATABASE}.dbo.orders"])
    world.signal("s2", "pause-snapshot", type="incremental")
    world.run()
    assert world.reads(table) == []
    world.signal("s3", "resume-snapshot", type="incremental")
    world.run()
    assert len(world.reads(table)) == 5
    world.signal("s4", "execute-snapshot", data_collections=[f"{DATABASE}.dbo.orders"])
    world.signal("s5", "stop-snapshot", type="incremental")
    world.run()
    assert len(world.reads(table)) == 5


class Weather:
    """At each step something may be written, and one step is the last."""

    def __init__(self, world: World, chance: random.Random, cut: int) -> None:
        self.world, self.chance, self.left = world, chance, cut
        self.rows: dict[int, int] = {}
        self.version = 0

    def __call__(self, name: str) -> None:
        self.left -= 1
        if self.left == 0:
            raise PowerCutError(name)
        if name in ("marker-written", "chunk-read", "window-complete", "signals-recorded") and self.version < 400:
            self.write()

    def write(self) -> None:
        """One transaction of a few changes."""
        statements = [self._change() for _ in range(self.chance.randint(1, 3))]
        self.world.sql(f"BEGIN TRAN; {'; '.join(statements)}; COMMIT")
        if self.chance.random() < 0.7:
            self.world.server.agent.drain()

    def _change(self) -> str:
        self.version += 1
        key = self.chance.randint(1, 150)
        if key not in self.rows:
            self.rows[key] = self.version
            return f"INSERT INTO dbo.orders VALUES ({key}, {self.version})"
        if self.chance.random() < 0.3:
            del self.rows[key]
            return f"UPDATE dbo.orders SET version = {self.version} WHERE id = {key}; DELETE FROM dbo.orders WHERE id = {key}"
        self.rows[key] = self.version
        return f"UPDATE dbo.orders SET version = {self.version} WHERE id = {key}"


@pytest.mark.parametrize("seed", range(4))
def test_no_read_overtakes_whatever_is_written_and_whatever_dies(server: StandIn, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - a test
    world = World(server, str(tmp_path), watermarking=chance.choice(["insert_insert", "insert_delete"]))
    table = world.make("orders", "id int PRIMARY KEY, version int")
    weather = Weather(world, chance, 10**9)
    for _ in range(60):
        weather.write()
    server.agent.drain()
    world.run("snapshot")
    world.signal("s1", "execute-snapshot", data_collections=[f"{DATABASE}.dbo.orders"])
    for _ in range(4):
        weather.left = chance.randint(3, 40)
        with listening(weather):
            try:
                world.run()
            except PowerCutError:
                server.agent.drain()
    server.agent.drain()
    world.run()
    assert not world.state().signals[DATABASE].queue
    assert world.reads(table)
    check_law(world, table, weather.rows)
