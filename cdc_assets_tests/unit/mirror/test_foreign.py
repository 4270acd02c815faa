"""Mirrors beside other programs that rewrite files of their tables, or of their topics."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.config.settings import LakeSettings
from cdc_assets.core.steps import listening
from cdc_assets.errors import LakeConflictError
from cdc_assets.lake.joining import SmallFiles
from cdc_assets.lake.topics import TopicTables
from cdc_assets.mirror import upkeep
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.delta import MirrorTables
from cdc_assets.mirror.shape import TO_LSN
from cdc_assets.overview import CaptureOverview
from cdc_assets_tests.unit.lake.writing import join_all, nobody_else
from cdc_assets_tests.unit.mirror.world import TOPIC, World, content, ordered
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn

KEYED = "id int NOT NULL PRIMARY KEY, note nvarchar(50)"
KEYLESS = "id int NOT NULL, note nvarchar(50)"
PLACES = "position int NOT NULL PRIMARY KEY, note nvarchar(50)"


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn(databases=(DATABASE,)) as server:
        yield server


def made(server: StandIn, lake: Path, columns: str) -> World:
    world = World(server, lake, columns)
    world.execute("INSERT INTO dbo.t VALUES (1, N'a'), (2, N'b'), (3, N'c')")
    world.capture("snapshot")
    world.mirror()
    return world


def change(world: World, turn: int) -> None:
    world.execute(f"UPDATE dbo.t SET note = N'turn {turn}' WHERE note <> N'c'")
    world.execute(f"INSERT INTO dbo.t VALUES ({10 + turn}, N'new')")
    world.capture()


def handle(world: World, role: str = "") -> DeltaTable:
    return DeltaTable(str(world.lake / f"{TOPIC}{role}"))


@pytest.mark.long
@pytest.mark.parametrize("columns", [KEYED, KEYLESS])
def test_a_mirror_of_a_topic_that_holds_events_twice_is_right(server: StandIn, tmp_path: Path, columns: str) -> None:
    world = made(server, tmp_path / "lake", columns)
    for turn in range(3):
        change(world, turn)
    late = handle(world)
    version = late.version()
    assert join_all(TopicTables.of(world.config), TOPIC)
    late.optimize.compact()
    rows = handle(world).to_pyarrow_table(columns=["position"])["position"]
    assert len(rows) > len(set(rows.to_pylist()))
    world.mirror()
    assert ordered(world.rows()) == ordered(world.on_server("id, note"))
    found = content(world.lake)
    handle(world).restore(version)
    world.mirror(anew=True)
    assert content(world.lake) == found


@pytest.mark.long
def test_versions_that_a_late_rewrite_brings_back_are_undone(server: StandIn, tmp_path: Path) -> None:
    world = made(server, tmp_path / "lake", KEYED)
    for turn in range(3):
        change(world, turn)
        world.mirror()
    before, tables = content(world.lake), MirrorTables.of(world.config)
    history, path = handle(world, ".__history"), f"{TOPIC}.__history"
    join_versions(tables, path)
    history.optimize.compact()
    assert len(content(world.lake)[1]) == 2 * len(before[1])
    [told] = CaptureOverview(world.config).doubled
    assert (told.kind, told.remedy) == ("doubled", "")
    change(world, 3)
    world.mirror()
    versions = content(world.lake)[1]
    assert len(versions) == len(set(versions)) > len(before[1])
    assert not CaptureOverview(world.config, audit_s=None).doubled


@pytest.mark.long
def test_a_mirror_that_cannot_be_read_hides_nothing_else(server: StandIn, tmp_path: Path) -> None:
    world = made(server, tmp_path / "lake", KEYED)
    change(world, 0)
    world.mirror()
    log = world.lake / f"{TOPIC}.__history" / "_delta_log"
    max(log.glob("*.json")).write_text("{")
    assert not CaptureOverview(world.config).doubled


@pytest.mark.long
def test_versions_that_are_rewritten_in_turn_need_a_mirror_made_anew(
    server: StandIn, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = made(server, tmp_path / "lake", KEYED)
    for turn in range(3):
        change(world, turn)
        world.mirror()
    history, tables = handle(world, ".__history"), MirrorTables.of(world.config)
    join_versions(tables, f"{TOPIC}.__history")
    history.optimize.compact()
    handle(world, ".__history").optimize.compact()
    change(world, 3)
    world.mirror()
    remedy = f"cdc-assets mirror --rebuild {TOPIC}"
    assert remedy in caplog.text
    [told] = CaptureOverview(world.config, audit_s=None).doubled
    assert remedy in told.trouble
    world.mirror(anew=True)
    assert not CaptureOverview(world.config, audit_s=None).doubled


def test_a_mirror_that_is_made_anew_of_no_rows_has_none(server: StandIn, tmp_path: Path) -> None:
    world = made(server, tmp_path / "lake", KEYED)
    handle(world).delete()
    world.mirror(anew=True)
    assert content(world.lake) == ([], [])


def join_versions(tables: MirrorTables, path: str) -> None:
    settings = LakeSettings("", compact_after_files=1)
    assert SmallFiles(tables.tables, settings, LocalRunner(1), nobody_else, upkeep.join_versions).join([path])


@pytest.mark.long
@pytest.mark.parametrize("step", ["files-joined", "replacement-checked:3"])
def test_two_followers_join_versions_once(server: StandIn, tmp_path: Path, step: str) -> None:
    """Such as a run and a reconciliation, of which one sleeps while it joins files."""
    world = made(server, tmp_path / "lake", KEYED)
    world.config = replace(world.config, lake=replace(world.config.lake, compact_after_files=2))
    for turn in range(3):
        change(world, turn)
        world.mirror()
    change(world, 3)
    name, _, times = step.partition(":")
    left = [int(times or 1)]

    def overtake(reached: str) -> None:
        if reached == name:
            left[0] -= 1
            if not left[0]:
                change(world, 4)
                world.mirror()

    mirrors = CaptureMirrors(world.config, LocalRunner(1), SystemClock())
    with listening(overtake):
        mirrors.catch_up()
    assert left[0] <= 0
    versions = content(world.lake)[1]
    assert len(versions) == len(set(versions))
    assert ordered(world.rows()) == ordered(world.on_server("id, note"))


@pytest.mark.long
def test_a_leaf_that_is_rewritten_meanwhile_is_not_replaced(server: StandIn, tmp_path: Path) -> None:
    world = made(server, tmp_path / "lake", KEYED)
    change(world, 0)
    waiting = ["mirror-history-committed"]

    def rewrite(name: str) -> None:
        if waiting and name == waiting[0]:
            waiting.pop()
            own = handle(world, ".__current")
            own.update(updates={"note": "'other'"}, predicate="id = 1")

    mirrors = CaptureMirrors(world.config, LocalRunner(1), SystemClock())
    with listening(rewrite):
        troubles = mirrors.catch_up()
    assert isinstance(troubles[TOPIC], LakeConflictError)
    world.mirror()
    assert ordered(world.rows()) == ordered(world.on_server("id, note"))


@pytest.mark.long
def test_a_table_with_a_column_called_position_is_committed_to_twice_a_step(server: StandIn, tmp_path: Path) -> None:
    """Its history is no topic, whose files tell bounds of positions."""
    world = made(server, tmp_path / "lake", PLACES)
    change(world, 0)
    world.mirror()
    versions = [handle(world, role).version() for role in (".__current", ".__history")]
    for turn in range(1, 4):
        change(world, turn)
        world.mirror()
    assert [handle(world, role).version() for role in (".__current", ".__history")] == [at + 3 for at in versions]
    files = pa.table(handle(world, ".__history").get_add_actions(flatten=True))
    assert None not in files[f"min.{TO_LSN}"].to_pylist()
