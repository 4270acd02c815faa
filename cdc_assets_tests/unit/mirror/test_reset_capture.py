"""Mirrors that a process keeps over a reset of the whole capture."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.capture.reset import Reset
from cdc_assets.core.steps import listening
from cdc_assets.errors import FencedError
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.delta import MirrorTables
from cdc_assets_tests.e2e.chains import MIRROR
from cdc_assets_tests.unit.mirror.world import World, started
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn(databases=(DATABASE,)) as server:
        yield server


@pytest.fixture
def world(server: StandIn, tmp_path: Path) -> World:
    return started(server, tmp_path, "id int NOT NULL PRIMARY KEY, note nvarchar(9)", "(1, N'a')", "(2, N'b')")


def kept(world: World) -> CaptureMirrors:
    return CaptureMirrors(world.config, LocalRunner(2), SystemClock())


def begin_again(world: World) -> None:
    reset = Reset(world.config, SystemClock(), [MirrorTables.of(world.config).tables])
    reset.move_away(reset.removal(), fence=True)
    world.capture("snapshot")


def require_rows(world: World) -> None:
    found = sorted(world.rows(), key=lambda row: int(row["id"]))
    assert found == sorted(world.on_server("id, note"), key=lambda row: int(row["id"]))


@pytest.mark.combinations
@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("others", [0, 1, 3])
def test_those_of_the_new_lake_have_its_rows(world: World, steps: int, others: int) -> None:
    """Their record and their tables have as many versions as the former ones, fewer, or more."""
    mirrors = kept(world)
    for number in range(steps):
        world.execute(f"INSERT INTO dbo.t VALUES ({10 + number}, N'x')")
        world.capture()
        assert not mirrors.catch_up()
    assert not mirrors.behind()
    world.execute("DELETE FROM dbo.t WHERE id = 1")
    begin_again(world)
    for number in range(others):
        world.mirror()
        world.execute(f"UPDATE dbo.t SET note = N'{number}' WHERE id = 2")
        world.capture()
    assert mirrors.behind()
    assert not mirrors.catch_up()
    assert not mirrors.behind()
    require_rows(world)
    world.execute("UPDATE dbo.t SET note = N'last' WHERE id = 2")
    world.capture()
    assert not mirrors.catch_up()
    require_rows(world)
    world.mirror(anew=True)
    require_rows(world)


@pytest.mark.parametrize("step", MIRROR)
def test_one_that_wakes_changes_nothing_of_the_new_lake(world: World, step: str) -> None:
    world.execute("INSERT INTO dbo.t VALUES (10, N'x')")
    world.capture()
    slept = False

    def sleep(name: str) -> None:
        nonlocal slept
        if name == step and not slept:
            slept = True
            begin_again(world)
            world.mirror()
            world.execute("DELETE FROM dbo.t WHERE id = 10")
            world.capture()

    with listening(sleep), suppress(FencedError):
        kept(world).catch_up()
    assert slept
    world.mirror()
    require_rows(world)
