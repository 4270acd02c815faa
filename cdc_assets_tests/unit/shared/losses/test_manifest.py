"""The manifest or its newest commits are lost."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from cdc_assets.capture.new_lake import NewLake
from cdc_assets.core.identifiers import TableId
from cdc_assets.errors import LakeAwayError, LakeError
from cdc_assets.lake import delta_log
from cdc_assets.overview import CaptureOverview
from cdc_assets_tests.unit.shared.losses.losing import commits, lose_newest_file
from cdc_assets_tests.unit.shared.losses.world import World, make_world
from cdc_assets_tests.unit.streaming.captures import make_capture
from cdc_assets_tests.unit.streaming.lake_reader import events_of, rows_of_topic

pytestmark = pytest.mark.delta_rs


@pytest.mark.long
@pytest.mark.parametrize("table", ["folder", "log"])
def test_topics_without_a_manifest_are_not_captured_as_if_nothing_had_been(world: World, table: str) -> None:
    gone = world.lake / "shop.__windows" / ("_delta_log" if table == "log" else "")
    shutil.rmtree(gone)
    before = {table: events_of(world.config, table) for table in (world.lines, world.orders)}
    for _ in range(2):
        for run in (make_capture(world.server, world.config).snapshot, world.stream):
            with pytest.raises(
                LakeError, match=r"shop\.__windows is gone .*shop\.SalesDb\.dbo\.lines.*restore its folder"
            ):
                run()
    assert {table: events_of(world.config, table) for table in (world.lines, world.orders)} == before

    for folder in world.lake.glob("shop*"):
        folder.rename(world.lake.parent / folder.name)
    NewLake.of(world.config).begin()
    make_capture(world.server, world.config).snapshot()
    assert world.stream().troubled == ()
    assert world.keys(world.orders) == set(world.server.rows[world.orders])


def test_restored_manifest_continues(world: World) -> None:
    folder, away = world.lake / "shop.__windows", world.lake / "away"
    folder.rename(away)
    with pytest.raises(LakeError):
        world.stream()
    assert not folder.exists(), "nothing is in the way of what is restored"
    away.rename(folder)
    world.insert(60)
    assert world.stream().troubled == ()


@pytest.mark.long
@pytest.mark.parametrize("lost", range(1, 7))
@pytest.mark.parametrize("how", ["deleted", "emptied", "cut off"])
def test_newest_commits_of_the_manifest_are_lost(world: World, lost: int, how: str) -> None:
    """No window is left out, and none is told twice."""
    newest = commits(world.lake / "shop.__windows")[-lost:]
    for commit in newest:
        commit.unlink() if how != "emptied" else commit.write_bytes(b"")
    if how == "cut off":
        newest[0].write_bytes(b'{"add":{"path":"m00')
    world.insert(60)
    summary = world.stream()
    assert summary.troubled == (), "two lost windows can be read from the tables' own commits"
    make_capture(world.server, world.config).snapshot([world.orders])
    world.insert(61)
    assert world.stream().troubled == ()
    for table in (world.lines, world.orders):
        assert world.keys(table) == set(world.server.rows[table])
        found = [(event.op, event.key) for event in events_of(world.config, table) if event.op != "r"]
        assert sorted(found) == [("c", key) for key in (50, 51, 60, 61)]


@pytest.mark.long
@pytest.mark.parametrize(
    "error", [OSError("HTTP error: timed out"), DeltaError("Invalid JSON")], ids=["away", "damaged"]
)
def test_log_that_cannot_be_read_behind_an_older_manifest(
    world: World, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def history(_: DeltaTable) -> list[dict[str, object]]:
        raise error

    for commit in commits(world.lake / "shop.__windows")[-3:]:
        commit.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "history", history)
        if isinstance(error, OSError):
            with pytest.raises(LakeAwayError, match=r"dbo\.(lines|orders) cannot be read .*timed out"):
                world.stream()
        else:
            assert {trouble.status for trouble in world.stream().troubled} == {"gap"}, "it is not known what they lack"
            make_capture(world.server, world.config).snapshot([world.lines, world.orders])
    assert world.stream().troubled == ()
    world.check_rows()


@pytest.mark.long
@pytest.mark.parametrize("how", ["deleted", "emptied", "cut off"])
def test_checkpoint_of_a_log_that_was_shortened_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The newest one can be done without, since the commits from the one before it on are kept."""
    for name in ("_YOUNG_COMMITS", "MIN_COMMITS"):
        monkeypatch.setattr(delta_log, name, 1)
    world = make_world(tmp_path / "lake", log_commits=1, max_iteration_transactions=1)
    for key in range(100, 155):
        world.insert(key)
    world.stream()
    for place in (world.topic(world.orders), world.lake / "shop.__windows"):
        assert commits(place)[0].name > f"{20:020}", "the log begins with a checkpoint"
        newest = max((place / "_delta_log").glob("*.checkpoint.parquet"))
        whole = newest.read_bytes()
        newest.unlink() if how == "deleted" else newest.write_bytes(whole[:100] if how == "cut off" else b"")
    world.insert(160)
    assert world.stream().troubled == ()
    world.check_rows()


def test_commit_lost_in_the_middle_of_the_manifest(world: World) -> None:
    commits(world.lake / "shop.__windows")[-3].write_bytes(b"")
    with pytest.raises(LakeError, match="lacks the rows between entries"):
        world.stream()


def widen(world: World) -> None:
    """Hand the table over to a structure that its topic cannot take: events go on in a second table."""
    schema = world.server.schemas[world.orders]
    columns = [replace(column, type_name="bigint") if column.name == "id" else column for column in schema.columns]
    world.server.schemas[world.orders] = replace(schema, columns=tuple(columns))
    world.server.enable(world.orders)


def put_back(world: World, copy: Path) -> None:
    """An older copy of the manifest, with topics as they are."""
    manifest = world.lake / "shop.__windows"
    shutil.rmtree(manifest)
    shutil.copytree(copy, manifest)


@pytest.mark.long
@pytest.mark.parametrize("since", [0, 1, 3])
def test_older_manifest_that_does_not_know_a_generation(world: World, tmp_path: Path, since: int) -> None:
    """Its windows are neither read again nor taken for those that come."""
    widen(world)
    for number in range(6):
        if number == since:
            shutil.copytree(world.lake / "shop.__windows", tmp_path / "copy")
        world.server.commit((world.orders, "insert", 60 + number, "a"))
        world.stream()
    assert (world.lake / f"shop.{world.orders}@2").is_dir()
    put_back(world, tmp_path / "copy")
    assert CaptureOverview(world.config).losses, "who looks is told"
    for key in range(66, 76):
        world.server.commit((world.orders, "insert", key, "a"))
        assert world.stream().troubled == (), "the commits follow each other"
    found = [(event.op, event.key) for event in events_of(world.config, world.orders) if event.op != "r"]
    assert found == [("c", key) for key in (50, 51, *range(60, 76))]
    world.check_rows()


def capture_another(world: World) -> TableId:
    """Capture one more table, with ten windows of its own."""
    new = world.server.create("new", rows=3)
    world.server.idle_tick()
    make_capture(world.server, world.config).snapshot([new])
    for key in range(60, 70):
        world.server.commit((new, "insert", key, "a"))
        world.stream()
    return new


@pytest.mark.long
def test_older_manifest_that_does_not_know_a_table_and_a_topic(world: World, tmp_path: Path) -> None:
    """Both are there with numbers that it would give again."""
    shutil.copytree(world.lake / "shop.__windows", tmp_path / "copy")
    world.config = replace(world.config, events=replace(world.config.events, transaction_metadata=True))
    new = capture_another(world)
    before = len(rows_of_topic(world.config, "shop.transaction"))
    put_back(world, tmp_path / "copy")
    for key in range(70, 73):
        world.insert(key)
        world.stream()
    assert len(rows_of_topic(world.config, "shop.transaction")) == before + 6, "BEGIN and END"
    make_capture(world.server, world.config).snapshot([new])
    world.server.commit((new, "insert", 80, "a"))
    assert world.stream().troubled == ()
    for table in (new, world.orders, world.lines):
        assert world.keys(table) == set(world.server.rows[table])


@pytest.mark.long
def test_older_manifest_that_does_not_know_a_table_which_is_read_first(world: World, tmp_path: Path) -> None:
    """No READ of its snapshot is taken for one that the table has."""
    shutil.copytree(world.lake / "shop.__windows", tmp_path / "copy")
    new = capture_another(world)
    world.server.rows[new][1]["note"] = "changed while nothing was captured"
    put_back(world, tmp_path / "copy")
    make_capture(world.server, world.config).snapshot([new])
    newest = {event.key: event.after for event in events_of(world.config, new)}
    assert {key: row and row["note"] for key, row in newest.items()} == {
        key: row["note"] for key, row in world.server.rows[new].items()
    }


@pytest.mark.long
def test_older_manifest_that_does_not_know_the_generation_by_which_a_table_was_repaired(
    world: World, tmp_path: Path
) -> None:
    """The table was stopped, so that nothing of it is compared at the start."""
    lose_newest_file(world.topic(world.orders))
    assert world.stream().troubled
    shutil.copytree(world.lake / "shop.__windows", tmp_path / "copy")
    widen(world)
    make_capture(world.server, world.config).snapshot([world.orders])
    for key in range(60, 70):
        world.server.commit((world.orders, "insert", key, "a"))
        world.stream()
    put_back(world, tmp_path / "copy")
    make_capture(world.server, world.config).snapshot([world.orders])
    assert world.keys(world.orders) == set(world.server.rows[world.orders])
    reads = [event.key for event in events_of(world.config, world.orders) if event.op == "r"]
    assert reads[-len(world.server.rows[world.orders]) :] == sorted(world.server.rows[world.orders])
    world.check_rows()
