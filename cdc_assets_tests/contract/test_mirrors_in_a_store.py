"""Mirrors, comparisons with the server and compaction by key in an object store: what their unit tests say of a disk, where a store may differ."""

from collections.abc import Iterator
from typing import Any

import pytest

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.config.settings import LakeSettings
from cdc_assets.errors import LakeFullError
from cdc_assets.lake.folder import Folder
from cdc_assets.lake.location import Location
from cdc_assets.mirror import leaves
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.files import FileWriter
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.object_store import BUCKET, open_store, options
from cdc_assets_tests.unit.mirror.world import TOPIC, World, ordered
from cdc_assets_tests.unit.reconcile.world import World as Compared
from cdc_assets_tests.unit.retention.world import HOURS
from cdc_assets_tests.unit.retention.world import World as Retained
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn

pytestmark = pytest.mark.contract

TABLES = [f"{TOPIC}.__current", f"{TOPIC}.__history", f"{TOPIC}.__mirroring"]


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    with open_store() as address:
        yield address


@pytest.fixture(autouse=True)
def _client(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in options(store).items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn(databases=(DATABASE,)) as server:
        yield server


def location(name: str) -> Location:
    return Location.of(LakeSettings(f"s3://{BUCKET}/{name}"))


def mirrored(server: StandIn, name: str) -> World:
    world = World(server, f"s3://{BUCKET}/{name}", "id int NOT NULL PRIMARY KEY, note nvarchar(9)")  # type: ignore[arg-type]
    world.execute("INSERT INTO dbo.t VALUES (1, N'a'), (2, N'b'), (3, N'c')")
    world.capture("snapshot")
    world.mirror()
    return world


def is_right(world: World) -> bool:
    return ordered(world.rows()) == ordered(world.on_server("id, note"))


def test_a_mirror_dies_at_each_step_and_is_right(server: StandIn) -> None:
    world = mirrored(server, "mirrored")
    for number, step in enumerate(("mirror-folded", "mirror-history-committed", "mirror-committed")):
        for statement in (
            f"UPDATE dbo.t SET note = N'{step[7:16]}' WHERE id < 3",
            f"INSERT INTO dbo.t VALUES ({10 + number}, N'new')",
            f"DELETE FROM dbo.t WHERE id = {9 + number}",
        ):
            world.execute(statement)
        world.capture()
        with pytest.raises(PowerCutError), cut_at(step):
            world.mirror()
        world.mirror()
        assert is_right(world)
    world.mirror(anew=True)
    assert is_right(world)


@pytest.mark.long
def test_a_file_that_is_gone_is_missed_and_a_failed_step_leaves_none(
    server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = mirrored(server, "damaged")
    folder = Folder(location("damaged"), TABLES[0])
    [leaf] = folder.names(".parquet")
    folder.remove(leaf)
    world.mirror()
    assert is_right(world)
    before = [Folder(location("damaged"), name).names("") for name in TABLES]
    world.execute("INSERT INTO dbo.t VALUES (7, N'g'), (8, N'h')")
    world.capture()
    end, ended = FileWriter.end, list[str]()

    def full(self: FileWriter) -> Any:
        ended.append("")
        if len(ended) > 1:
            raise LakeFullError("No room.")
        return end(self)

    with monkeypatch.context() as patch:
        patch.setattr(leaves, "LEAF_BYTES", 1)
        patch.setattr(FileWriter, "end", full)
        with pytest.raises(LakeFullError):
            CaptureMirrors(world.config, LocalRunner(2), SystemClock()).catch_up()
    assert [Folder(location("damaged"), name).names("") for name in TABLES] == before
    world.mirror()
    assert is_right(world)


@pytest.mark.long
def test_a_mirror_is_compared_and_mended(server: StandIn) -> None:
    world = Compared(
        server,
        f"s3://{BUCKET}/compared",
        "id int NOT NULL PRIMARY KEY, note nvarchar(20)",
        "(1, N'a'), (2, N'b'), (3, N'c')",
    )
    assert world.reconcile().differing == 0
    world.behind_the_log("UPDATE dbo.t SET note = N'silent' WHERE id = 2")
    world.behind_the_log("DELETE FROM dbo.t WHERE id = 3")
    found = world.reconcile(repair=True)
    assert (found.differing, found.asked, found.absent) == (2, 1, 1)
    for _ in range(2):
        world.follow()
    again = world.reconcile()
    assert (again.differing, again.rows, again.mirrored) == (0, 2, 2)
    assert world.rows() == world.on_server("id, note")


@pytest.mark.long
@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_old_events_go_and_mirrors_stay_right(policy: str) -> None:
    world = Retained(f"s3://{BUCKET}/{policy}", policy=policy)
    for picks in ([0, 1, 2, 3], [2, 3, 6, 7], [0, 1, 4, 5]):
        world.turn(picks)
    world.later(2 * HOURS)
    world.stream()
    world.check()
    assert all(world.holds(table).after for table in world.tables)
    if policy == "compact":
        world.rebuild(None)
    world.turn([0, 1, 2, 3])
    world.check()
