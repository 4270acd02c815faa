"""The record of mirrors, or their tables, lost or replaced by older copies: the mirror is made anew, and right."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.config.settings import LakeSettings
from cdc_assets.errors import LakeError
from cdc_assets.lake.folder import MOVED_TO
from cdc_assets.lake.location import Location
from cdc_assets.lake.tables import DeltaTables
from cdc_assets.mirror.audit import marks_of
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.delta import MirrorTables
from cdc_assets.mirror.shape import STEP
from cdc_assets.overview import CaptureOverview
from cdc_assets.overview.mirrors import inspect_mirrors
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.mirror.child import mirrors_of
from cdc_assets_tests.unit.mirror.world import TOPIC, World, ordered
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn

RECORD, CURRENT, HISTORY = "shop.__mirrors", f"{TOPIC}.__current", f"{TOPIC}.__history"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A mirror with several steps; of its tables and its record there are copies from before the last two."""
    with StandIn(databases=(DATABASE,)) as server:
        made = World(server, tmp_path / "lake", "id int NOT NULL PRIMARY KEY, v int")
        made.execute("INSERT INTO dbo.t VALUES (1, 1), (2, 2)")
        made.capture("snapshot")
        made.mirror()
        for turn in range(3):
            change(made, f"UPDATE dbo.t SET v = v + {turn + 10}")
            if turn == 0:
                for name in (RECORD, CURRENT, HISTORY):
                    shutil.copytree(made.lake / name, tmp_path / "copy" / name)
        yield made


def change(world: World, *statements: str) -> None:
    for statement in statements:
        world.execute(statement)
    world.capture()
    world.mirror()


def lacking(world: World) -> list[str]:
    """What the page says is wrong with mirrors."""
    config = replace(world.config, mirror=replace(world.config.mirror, enabled=True))
    found = inspect_mirrors(CaptureOverview(config, audit_s=None), SystemClock().now())
    return [trouble.what for trouble in found.troubles]


def older(name: str) -> Callable[[World], None]:
    def put(world: World) -> None:
        shutil.rmtree(world.lake / name)
        shutil.copytree(world.lake.parent / "copy" / name, world.lake / name)

    return put


def without_record(world: World) -> None:
    shutil.rmtree(world.lake / RECORD)


def without_commits(world: World) -> None:
    """Those of a step's plan and of its end."""
    for path in sorted((world.lake / RECORD / "_delta_log").glob("*.json"))[-2:]:
        path.unlink()


def without_a_file(name: str) -> Callable[[World], None]:
    def remove(world: World) -> None:
        Path(world.lake / name / DeltaTable(str(world.lake / name)).file_uris()[-1].rpartition("/")[2]).unlink()

    return remove


def without_the_newest_commit(world: World) -> None:
    """Of the rows."""
    max((world.lake / CURRENT / "_delta_log").glob("*.json")).unlink()


def put_back(name: str) -> Callable[[World], None]:
    """By Delta's RESTORE, to what it was before the last step; it keeps the number of that step, and each row but with former values."""

    def restore(world: World) -> None:
        table = DeltaTable(str(world.lake / name))
        table.restore(table.version() - 1)

    return restore


def without_a_commit_inside(name: str) -> Callable[[World], None]:
    """So that nothing can open the table any more."""

    def remove(world: World) -> None:
        sorted((world.lake / name / "_delta_log").glob("*.json"))[-3].unlink()

    return remove


LOSSES = {
    "record removed": without_record,
    "record older": older(RECORD),
    "record without its newest commits": without_commits,
    "current older": older(CURRENT),
    "history older": older(HISTORY),
    "current without a file": without_a_file(CURRENT),
    "history without a file": without_a_file(HISTORY),
    "current without its newest commit": without_the_newest_commit,
    "current put back": put_back(CURRENT),
    "history put back": put_back(HISTORY),
    "current without a commit inside": without_a_commit_inside(CURRENT),
    "history without a commit inside": without_a_commit_inside(HISTORY),
}


@pytest.mark.long
@pytest.mark.parametrize("lose", LOSSES.values(), ids=LOSSES.keys())
def test_a_mirror_whose_record_or_tables_lost_something_is_made_anew(
    world: World, lose: Callable[[World], None], caplog: pytest.LogCaptureFixture
) -> None:
    lose(world)
    change(world, "INSERT INTO dbo.t VALUES (3, 3)", "DELETE FROM dbo.t WHERE id = 1")
    assert f"Rebuilding the mirror of {TOPIC}" in caplog.text
    assert ordered(world.rows()) == ordered(world.on_server("id, v"))
    versions = DeltaTable(str(world.lake / HISTORY)).to_pyarrow_table().to_pylist()
    assert len(versions) == 7, "three of each row, and the one that was deleted"
    assert not mirrors_of(str(world.lake)).behind()
    caplog.clear()
    change(world, "INSERT INTO dbo.t VALUES (4, 4)")
    assert "Rebuilding the mirror" not in caplog.text
    assert ordered(world.rows()) == ordered(world.on_server("id, v"))


@pytest.mark.parametrize("name", [CURRENT, HISTORY])
def test_a_table_that_another_program_has_put_back_is_told_and_made_anew(world: World, name: str) -> None:
    """Not one of which a person has deleted rows: that was meant."""
    DeltaTable(str(world.lake / HISTORY)).delete(f"{STEP} = 2")
    assert lacking(world) == []
    put_back(name)(world)
    [told] = lacking(world)
    assert f"{name} was put back to an older version by another program" in told
    change(world, "INSERT INTO dbo.t VALUES (3, 3)")
    assert ordered(world.rows()) == ordered(world.on_server("id, v"))
    assert len(world.versions()) == 6, "three of each row"
    assert lacking(world) == []


@pytest.mark.combinations
@pytest.mark.parametrize("name", [CURRENT, HISTORY])
@pytest.mark.parametrize("anew", [False, True])
def test_a_table_that_cannot_be_opened_is_moved_away(
    world: World, name: str, anew: bool, caplog: pytest.LogCaptureFixture
) -> None:
    without_a_commit_inside(name)(world)
    world.mirror(anew=anew)
    assert f"{name} cannot be opened any more" in caplog.text
    assert ordered(world.rows()) == ordered(world.on_server("id, v"))
    assert len(world.versions()) == 6, "three of each row"
    [moved] = (world.lake / MOVED_TO).glob("*/*")
    assert moved.name == name
    assert list(moved.glob("*.parquet"))
    change(world, "INSERT INTO dbo.t VALUES (3, 3)")
    assert ordered(world.rows()) == ordered(world.on_server("id, v"))


def test_a_table_that_may_not_be_read_stays_where_it_is(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs it lacks a right or memory; that says nothing of the table."""

    def refused(self: MirrorTables, directory: str) -> int:
        raise LakeError(f"{directory} cannot be read") from PermissionError(13, "Permission denied")

    monkeypatch.setattr(MirrorTables, "reached", refused)
    assert "cannot be read" in str(world.follow(anew=True))
    assert not (world.lake / MOVED_TO).exists()
    monkeypatch.undo()
    world.mirror()
    assert ordered(world.rows()) == ordered(world.on_server("id, v"))


def begun(world: World) -> list[tuple[object, ...]]:
    """Versions of rows, with where they begin."""
    return sorted((row["_valid_from_lsn"], row["id"], row["v"]) for row in world.versions())


@pytest.mark.parametrize("name", [CURRENT, HISTORY])
def test_a_process_that_goes_on_finds_it_too(world: World, name: str) -> None:
    """It has compared the tables before."""
    mirrors = CaptureMirrors(world.config, LocalRunner(2), SystemClock())

    def follow(key: int) -> None:
        world.execute(f"INSERT INTO dbo.t VALUES ({key}, {key})")
        world.execute(f"UPDATE dbo.t SET v = {key} WHERE id = 1")
        world.capture()
        assert not mirrors.catch_up()

    for key in (3, 4):
        follow(key)
    put_back(name)(world)
    follow(5)
    assert ordered(world.rows()) == ordered(world.on_server("id, v"))
    found = begun(world)
    world.mirror(anew=True)
    assert begun(world) == found, "each version is there once"


@pytest.mark.combinations
@pytest.mark.parametrize("step", ["mirror-planned", "mirror-history-committed"])
@pytest.mark.parametrize("what", [name for name in LOSSES if not name.startswith("record")])
def test_tables_that_lost_something_while_a_step_was_in_flight_are_made_anew(
    world: World, what: str, step: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The step would be made upon what is left, and what then is there be recorded."""
    world.execute("UPDATE dbo.t SET v = v + 13")
    world.capture()
    with pytest.raises(PowerCutError), cut_at(step):
        world.mirror()
    LOSSES[what](world)
    change(world, "INSERT INTO dbo.t VALUES (3, 3)", "DELETE FROM dbo.t WHERE id = 1")
    assert f"Rebuilding the mirror of {TOPIC}" in caplog.text
    assert ordered(world.rows()) == ordered(world.on_server("id, v"))
    assert len(world.versions()) == 9, "four of each row, and the one that was deleted"
    assert not mirrors_of(str(world.lake)).behind()
    caplog.clear()
    change(world, "INSERT INTO dbo.t VALUES (4, 4)")
    assert "Rebuilding the mirror" not in caplog.text


@pytest.mark.parametrize("commits", [1, 2])
def test_versions_of_a_step_in_flight_that_were_lost_are_made_anew(
    world: World, commits: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows have reached the step, so nothing else would tell that versions have not."""
    world.execute("UPDATE dbo.t SET v = v + 13")
    world.capture()
    with pytest.raises(PowerCutError), cut_at("mirror-committed"):
        world.mirror()
    for path in sorted((world.lake / HISTORY / "_delta_log").glob("*.json"))[-commits:]:
        path.unlink()
    change(world, "INSERT INTO dbo.t VALUES (3, 3)")
    assert "lacks the versions that step 5 has ended" in caplog.text
    assert ordered(world.rows()) == ordered(world.on_server("id, v"))
    assert len(world.versions()) == 8, "four of each row"
    caplog.clear()
    change(world, "DELETE FROM dbo.t WHERE id = 1")
    assert "Rebuilding the mirror" not in caplog.text


def test_events_that_are_lost_between_the_two_commits_of_a_step(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Versions have ended by the event; the rows that the next attempt makes have them still."""
    world.execute("DELETE FROM dbo.t WHERE id = 1")
    world.capture()
    with pytest.raises(PowerCutError), cut_at("mirror-history-committed"):
        world.mirror()
    max((world.lake / TOPIC / "_delta_log").glob("*.json")).unlink()
    assert world.follow() is None
    assert "lost events that step 5 of its mirror had taken: 0 are left of 1" in caplog.text
    world.read_again()
    world.execute("INSERT INTO dbo.t VALUES (3, 3)")
    world.capture()
    assert world.follow() is None
    assert ordered(world.rows()) == ordered(world.on_server("id, v"))
    begun = [(row["id"], row["_valid_from_lsn"]) for row in world.versions()]
    assert len(begun) == len(set(begun)), "no version is there twice"


@pytest.mark.long
def test_what_one_process_has_found_counts_no_more_once_another_one_has_rebuilt_the_mirror(world: World) -> None:
    world.execute("DELETE FROM dbo.t WHERE id = 1")
    world.capture()
    with pytest.raises(PowerCutError), cut_at("mirror-history-committed"):
        world.mirror()
    max((world.lake / TOPIC / "_delta_log").glob("*.json")).unlink()
    first, asked = mirrors_of(str(world.lake)), count(1)
    first.catch_up(should_end=lambda: next(asked) > 2)  # before it rebuilds the mirror
    assert world.follow() is None
    world.read_again()
    world.execute("INSERT INTO dbo.t VALUES (50, 50)")
    world.capture()
    assert not first.catch_up()
    assert ordered(world.rows()) == ordered(world.on_server("id, v"))


@pytest.mark.combinations
@pytest.mark.parametrize("statement", ["DELETE FROM dbo.t WHERE id = 1", "INSERT INTO dbo.t VALUES (9, 9)"])
@pytest.mark.parametrize("step", ["mirror-planned", "mirror-history-committed", "mirror-committed"])
def test_a_step_in_flight_is_no_loss(world: World, step: str, statement: str, caplog: pytest.LogCaptureFixture) -> None:
    """Not what it has committed in one of its tables, or in both, nor what it removes, nor that it has ended nothing."""
    world.execute(statement)
    world.capture()
    with pytest.raises(PowerCutError), cut_at(step):
        world.mirror()
    change(world, "INSERT INTO dbo.t VALUES (3, 3)")
    assert "Rebuilding the mirror" not in caplog.text
    assert ordered(world.rows()) == ordered(world.on_server("id, v"))


@pytest.mark.long
def test_what_nobody_has_lost_is_no_alarm(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Versions that a person has deleted, and a step that died behind its commits."""
    DeltaTable(str(world.lake / HISTORY)).delete(f"{STEP} = 2")
    change(world, "INSERT INTO dbo.t VALUES (3, 3)")
    world.execute("DELETE FROM dbo.t WHERE id = 1")
    world.capture()
    with pytest.raises(PowerCutError), cut_at("mirror-committed"):
        world.mirror()
    change(world, "UPDATE dbo.t SET v = 0")
    assert "Rebuilding the mirror" not in caplog.text
    assert ordered(world.rows()) == ordered(world.on_server("id, v"))


def test_a_mark_is_of_one_version_also_if_another_program_commits_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows would be expected twice."""
    rows, inside = pa.table({"id": [1, 2]}), DeltaTables.transaction
    for name in (CURRENT, HISTORY):
        write_deltalake(str(tmp_path / name), rows)

    def transaction(self: DeltaTables, handle: DeltaTable, directory: str, application: str = "") -> int | None:
        found = inside(self, handle, directory, application)
        write_deltalake(str(tmp_path / directory), rows, mode="append")
        return found

    monkeypatch.setattr(DeltaTables, "transaction", transaction)
    assert marks_of(MirrorTables(Location(str(tmp_path)), "shop", LakeSettings(str(tmp_path))), TOPIC) == (
        (-1, 0, 2),
        (-1, 0, 2),
    )
