"""A table whose events are told apart by other columns from some LSN on: a row is never twice in its mirror, and none is taken for another."""

import os
import random
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from cdc_assets_tests.unit.mirror.keyed import COLUMNS, MOVES, begun, name_key
from cdc_assets_tests.unit.mirror.world import World, ordered
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn

SEEDS = range(int(os.environ.get("CDC_KEY_SEEDS", "3")))
KEYS = [("a", "b"), ("a", "a, b"), ("a, b", "a"), ("a, b", "b"), ("a", ""), ("", "a"), ("", "a, b")]


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn(databases=(DATABASE,)) as server:
        yield server


def alter_key(world: World, old: str, new: str) -> None:
    """Another unique index; a primary key cannot go while it is captured."""
    if old:
        world.execute("DROP INDEX first_key ON dbo.t")
    if new:
        world.execute(f"CREATE UNIQUE INDEX second_key ON dbo.t ({new})")
    world.second_instance()


@pytest.mark.long
@pytest.mark.parametrize("goes_on", [True, False])
@pytest.mark.parametrize("by_property", [True, False])
@pytest.mark.parametrize(("old", "new"), KEYS)
def test_rows_are_the_servers(
    server: StandIn, tmp_path: Path, old: str, new: str, by_property: bool, goes_on: bool
) -> None:
    """Before the change, while it is waited for, and once the table was read again; also where nothing is committed behind that."""
    world = begun(server, tmp_path / "lake", old, by_property=by_property)
    world.mirror()
    before = ordered(world.rows())
    assert before == ordered(world.on_server(COLUMNS))
    if by_property:
        name_key(world, new)
    else:
        alter_key(world, old, new)
    for statement in MOVES:
        world.execute(statement)
    world.capture()
    world.capture()
    for anew in (False, True):
        assert world.follow(anew=anew) is not None
        assert ordered(world.rows()) == before
    world.read_again()
    if goes_on:
        for statement in ("UPDATE dbo.t SET note = N'later' WHERE a = 2", "DELETE FROM dbo.t WHERE b = 5"):
            world.execute(statement)
        world.capture()
    for anew in (False, True):
        world.mirror(anew=anew)
        assert ordered(world.rows()) == ordered(world.on_server(COLUMNS))


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_random_changes_of_the_key(server: StandIn, tmp_path: Path, seed: int) -> None:
    """Whenever a mirror follows, its rows are the server's; until then they stay. Keys come back, too, read again or not."""
    rng = random.Random(seed)  # noqa: S311 - no secret
    key = rng.choice(["a", "b", "a, b", ""])
    world = begun(server, tmp_path / "lake", key, by_property=True)
    world.mirror()
    last, numbers = ordered(world.rows()), count(100)
    for _ in range(10):
        if rng.random() < 0.5:
            name_key(world, rng.choice(["a", "b", "a, b", ""]))
        for _ in range(rng.choice([0, 1, 3])):
            [(a,), *_] = rng.sample(world.execute("SELECT a FROM dbo.t"), 1)
            new = next(numbers)
            world.execute(
                rng.choice(
                    [
                        f"INSERT INTO dbo.t VALUES ({new}, {new}, N'n')",
                        f"UPDATE dbo.t SET a = {new} WHERE a = {a}",
                        f"UPDATE dbo.t SET b = {new} WHERE a = {a}",
                        f"UPDATE dbo.t SET note = N'{new}' WHERE a = {a}",
                        f"DELETE FROM dbo.t WHERE a = {a}; INSERT INTO dbo.t VALUES ({a}, {new}, N'again')",
                    ]
                )
            )
        if rng.random() < 0.4:
            world.read_again()
        world.capture()
        if world.follow(anew=rng.random() < 0.3) is None:
            last = ordered(world.on_server(COLUMNS))
        assert ordered(world.rows()) == last
    world.read_again()
    world.capture()
    world.mirror()
    assert ordered(world.rows()) == ordered(world.on_server(COLUMNS))
