"""`cdc-assets reset`: the plan, what it forgets, and what stands against it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.capture.reset import Reset
from cdc_assets.cli.main import app
from cdc_assets.core.processes import own_process
from cdc_assets.errors import FencedError, LakeError
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger import manifest, manifest_rows
from cdc_assets.shared.endings import empty_window
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.snapshot.world import World
from mssql_standin.control import StandIn


@pytest.fixture
def world(server: StandIn, tmp_path: Path) -> World:
    world = World(server, str(tmp_path / "lake"))
    world.make("orders", 3)
    world.make("lines", 2)
    world.snapshot()
    world.sql("INSERT INTO dbo.orders VALUES (50, 'new')", "INSERT INTO dbo.lines VALUES (50, 'new')")
    world.stream()
    return world


def reset(world: World, *arguments: str) -> tuple[int, str]:
    path = Path(world.lake).parent / "shop.json"
    path.write_text(json.dumps(world.given))
    result = CliRunner().invoke(app, ["reset", *arguments, "-c", str(path)], env={"COLUMNS": "400"})
    return result.exit_code, result.output


@pytest.mark.long
def test_a_table_is_read_anew_and_the_others_go_on(world: World) -> None:
    orders, lines = world.tables
    assert reset(world, "dbo.orders")[0] == 0
    assert world.snapshot().tables == (), "the plan changes nothing"
    before = world.position(lines)

    code, text = reset(world, "dbo.orders", "--yes")
    assert (code, "reads all its rows again" in text) == (0, True)
    assert world.position(lines) == before
    world.sql("DELETE FROM dbo.orders WHERE id = 1", "INSERT INTO dbo.lines VALUES (51, 'new')")
    assert world.snapshot().tables == (orders,)
    world.sql("INSERT INTO dbo.orders VALUES (60, 'last')")
    assert world.stream().troubled == ()
    found = [(event["op"], (event["after"] or event["before"])["id"]) for event in world.events(orders)]
    assert found == [*[("r", key) for key in (1, 2, 3)], ("c", 50), *[("r", key) for key in (2, 3, 50)], ("c", 60)]
    assert [(event["after"] or {}).get("id") for event in world.events(lines)] == [1, 2, 50, 51]


def test_a_capture_begins_as_the_first_time(world: World) -> None:
    lake = Path(world.lake)
    for record in ("reconciled", "jobs"):  # of a comparison that is half done
        (lake / f"shop.__{record}").mkdir()
        (lake / f"shop.__{record}" / "shop.SalesDb.dbo.orders.json").write_text("{}")
    held = {path.name for path in lake.iterdir()}
    assert "shop.__windows" in reset(world, "--capture")[1]
    assert {path.name for path in lake.iterdir()} == held, "the plan changes nothing"
    assert reset(world, "--capture", "--yes")[0] == 0
    [moved] = (lake / "__reset").iterdir()
    assert {path.name for path in moved.iterdir()} == held
    assert set(world.snapshot().tables) == set(world.tables)
    assert world.reads(world.tables[0]) == [1, 2, 3, 50]


@pytest.mark.long
def test_a_capture_whose_reset_was_interrupted_is_reset_again(world: World) -> None:
    lake = Path(world.lake)
    (lake / "shop.__schema_history").rename(lake.parent / "moved")
    assert reset(world, "--capture", "--yes")[0] == 0
    assert set(world.snapshot().tables) == set(world.tables)


def test_one_that_died_before_the_new_lake_was_begun_is_repeated(world: World) -> None:
    moved = len(list(Path(world.lake).iterdir()))
    with cut_at("table-moved", moved), pytest.raises(PowerCutError):
        reset(world, "--capture", "--yes")
    assert [path.name for path in Path(world.lake).iterdir()] == ["__reset"]
    code, text = reset(world, "--capture")
    assert (code, "A new lake begins" in text) == (0, True), text
    assert reset(world, "--capture", "--yes")[0] == 0
    assert set(world.snapshot().tables) == set(world.tables)


def test_it_is_refused_where_nothing_was_moved(world: World) -> None:
    Path(world.lake).rename(Path(world.lake).parent / "not mounted")
    Path(world.lake).mkdir()
    assert reset(world, "--capture", "--yes")[0] == 2
    assert list(Path(world.lake).iterdir()) == []


@pytest.mark.long
def test_it_is_refused_while_a_run_may_be_active_and_fences_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "from cdc_assets.core.processes import own_process as o; print(o()); input()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdout is not None
    active = child.stdout.readline().strip()
    try:
        running = manifest.Manifest(TopicTables.of(world.config), "shop")
        monkeypatch.setattr(manifest_rows, "own_process", lambda: active)
        running.claim(SystemClock().now())
        monkeypatch.undo()
        for arguments in (("dbo.orders",), ("--capture",)):
            code, text = reset(world, *arguments, "--yes")
            assert (code, f"process {child.pid}" in text) == (1, True)
        assert reset(world, "dbo.orders", "--yes", "--fence")[0] == 0
        with pytest.raises(FencedError):
            running.advance(SystemClock().now(), "SalesDb", world.position(world.tables[1]))
    finally:
        child.communicate("\n")


def test_a_run_on_another_host_may_be_active(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_rows, "own_process", lambda: "elsewhere/" + own_process().split("/", 1)[1])
    manifest.Manifest(TopicTables.of(world.config), "shop").claim(SystemClock().now())
    code, text = reset(world, "dbo.orders")
    assert (code, "elsewhere" in text, "--fence" in text) == (1, True, True)


def test_what_is_in_flight_is_finished_first(world: World) -> None:
    with world.capture() as capture:
        capture.claim()
        state = capture.state()
        capture.parts.ledger.manifest.plan(SystemClock().now(), empty_window(state, "SalesDb"))
    code, text = reset(world, "dbo.orders", "--yes")
    assert (code, "in flight" in text) == (1, True)
    world.stream()
    assert reset(world, "dbo.orders", "--yes")[0] == 0


@pytest.mark.long
def test_what_comes_in_flight_while_a_reset_begins_is_finished_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run begins between the reset's look and its claim, which ends that run."""
    check = Reset.check

    def check_then_run(resetting: Reset, *given: Any, **more: Any) -> None:
        check(resetting, *given, **more)
        with world.capture() as capture:
            capture.claim()
            capture.parts.ledger.manifest.plan(SystemClock().now(), empty_window(capture.state(), "SalesDb"))

    monkeypatch.setattr(Reset, "check", check_then_run)
    with pytest.raises(LakeError, match="in flight"):
        Reset(world.config, SystemClock()).forget([world.tables[0]])
    monkeypatch.undo()
    world.stream()
    assert len(world.events(world.tables[0])) == 4


@pytest.mark.parametrize(
    ("arguments", "text"),
    [(("dbo.nothing",), "SalesDb.dbo.orders"), ((), "--capture"), (("dbo.orders", "--capture"), "--capture")],
)
def test_wrong_use(world: World, arguments: tuple[str, ...], text: str) -> None:
    code, output = reset(world, *arguments)
    assert (code, text in output) == (2, True)


def test_a_lake_in_an_object_store_is_not_moved(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc_assets.lake.location.Location.is_local", False)
    with pytest.raises(LakeError, match=r"shop\.__windows; or choose"):
        Reset(world.config, SystemClock()).removal()


@pytest.mark.long
def test_a_new_lake_begins_where_one_is_gone_for_good(world: World) -> None:
    lake = Path(world.lake)
    code, text = reset(world, "--new-lake")
    assert (code, "is there, so the lake is no new one" in text) == (1, True)
    lake.rename(lake.parent / "unmounted")
    with pytest.raises(LakeError, match="reset --new-lake --yes"):
        world.snapshot()
    code, text = reset(world, "--new-lake")
    assert (code, "Nothing was changed" in text, list(lake.glob("shop*"))) == (0, True, [])
    assert reset(world, "--new-lake", "--yes")[0] == 0
    assert set(world.snapshot().tables) == set(world.tables)
