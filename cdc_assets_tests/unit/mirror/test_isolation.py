"""A mirror fails nothing but itself, whatever befalls it."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.core.identifiers import TableId
from cdc_assets.errors import (
    CdcError,
    FencedError,
    LakeAwayError,
    LakeConflictError,
    LakeError,
    LakeFullError,
    MirrorError,
)
from cdc_assets.lake.location import Location
from cdc_assets.lake.retained import Retained
from cdc_assets.ledger.hindrances import RecordedHindrances
from cdc_assets.mirror import apply, capture, isolation, jobs, leaves
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.delta import MirrorTables
from cdc_assets.mirror.files import FileWriter
from cdc_assets.mirror.fold_step import MirrorChange
from cdc_assets.mirror.readers import MirrorReader
from cdc_assets.mirror.tasks import FoldTask
from cdc_assets.mirror.work import Work
from cdc_assets_tests.unit.mirror.child import mirrors_of
from cdc_assets_tests.unit.mirror.world import TOPIC, World, ordered
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn

OTHERS = [TOPIC.replace("dbo.t", f"dbo.{name}") for name in "uvw"]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with StandIn(databases=(DATABASE,)) as server:
        made = World(server, tmp_path / "lake", "id int NOT NULL PRIMARY KEY, Name nvarchar(10)")
        for name in "uvw":
            made.execute(f"CREATE TABLE dbo.{name} (id int NOT NULL PRIMARY KEY)")
            enable(made, name)
            made.execute(f"INSERT INTO dbo.{name} VALUES (1), (2)")
        made.execute("INSERT INTO dbo.t VALUES (1, N'a'), (2, N'b')")
        made.capture("snapshot")
        yield made


def enable(world: World, table: str, instance: str = "") -> None:
    named = f", @capture_instance = N'{instance}'" if instance else ""
    world.execute(
        f"EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'{table}', @role_name = NULL{named}"
    )


def mirrored(world: World) -> Mapping[str, CdcError]:
    return CaptureMirrors(world.config, LocalRunner(2), SystemClock()).catch_up()


def followed(world: World) -> Mapping[str, CdcError]:
    """As a comparison of one table has it."""
    return CaptureMirrors(world.config, LocalRunner(2), SystemClock()).catch_up([TableId(DATABASE, "dbo", "t")])


def count(world: World, topic: str) -> int:
    return MirrorReader(mirrors_of(str(world.lake)).tables, topic).current().num_rows


def in_description(patch: pytest.MonkeyPatch, error: Exception) -> None:
    describe = capture.describe

    def broken(topic: str, *given: Any) -> Any:
        if topic == TOPIC:
            raise error
        return describe(topic, *given)

    patch.setattr(capture, "describe", broken)


def in_fold(patch: pytest.MonkeyPatch, error: Exception) -> None:
    fold = jobs.fold_leaf

    def broken(task: FoldTask) -> Any:
        if task.current == f"{TOPIC}.__current":
            raise error
        return fold(task)

    patch.setattr(jobs, "fold_leaf", broken)


def in_commit(patch: pytest.MonkeyPatch, error: Exception) -> None:
    commit = MirrorChange.commit

    def broken(self: MirrorChange, number: int) -> None:
        if self.directory.startswith(TOPIC):
            raise error
        commit(self, number)

    patch.setattr(MirrorChange, "commit", broken)


@pytest.mark.long
@pytest.mark.parametrize("place", [in_description, in_fold, in_commit])
@pytest.mark.parametrize("error", [pa.ArrowInvalid("overflow"), KeyError("__op"), LakeError("It is gone.")])
def test_any_error_of_one_mirror_is_its_own_trouble(
    world: World, monkeypatch: pytest.MonkeyPatch, place: Any, error: Exception
) -> None:
    with monkeypatch.context() as patch:
        place(patch, error)
        troubles = mirrored(world)
        assert set(troubles) == {TOPIC}
        assert str(error) in str(troubles[TOPIC])
        assert isinstance(troubles[TOPIC], LakeError if isinstance(error, LakeError) else MirrorError)
        assert [count(world, topic) for topic in OTHERS] == [2, 2, 2]
        world.execute("INSERT INTO dbo.u VALUES (3)")
        world.capture()
        assert set(mirrored(world)) == {TOPIC}
        assert count(world, OTHERS[0]) == 3
    assert not mirrored(world), "the cause is gone"
    assert count(world, TOPIC) == 2


@pytest.mark.parametrize("error", [FencedError("Another one."), LakeAwayError("It is away.")])
def test_what_is_no_mirrors_own_ends_the_step(world: World, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    with monkeypatch.context() as patch:
        in_fold(patch, error)
        with pytest.raises(type(error)):
            mirrored(world)
    assert not mirrored(world)


def unreadable(patch: pytest.MonkeyPatch) -> None:
    schema = MirrorTables.schema

    def broken(self: MirrorTables, directory: str) -> Any:
        if directory == f"{TOPIC}.__current":
            raise LakeError("The store answered 500.")
        return schema(self, directory)

    patch.setattr(MirrorTables, "schema", broken)


@pytest.mark.long
@pytest.mark.parametrize("cause", ["a store that fails", "a refused rebuild"])
def test_a_mirror_that_cannot_follow_keeps_its_lsn(world: World, monkeypatch: pytest.MonkeyPatch, cause: str) -> None:
    """What waits is taken once the cause is gone; mirrors that have nothing to take go on meanwhile."""
    assert not mirrored(world)
    before = mirrors_of(str(world.lake)).states()
    world.execute("UPDATE dbo.t SET Name = N'new' WHERE id = 1")
    world.execute("DELETE FROM dbo.t WHERE id = 2")
    world.capture()
    mirrors = CaptureMirrors(world.config, LocalRunner(2), SystemClock())
    with monkeypatch.context() as patch:
        if cause == "a store that fails":
            unreadable(patch)
            troubles = mirrors.catch_up()
        else:
            patch.setattr(capture, "retained", lambda *_: Retained(before[TOPIC].lsn))
            troubles = mirrors.catch_up([TableId(DATABASE, "dbo", "t")], anew=True)
            assert not mirrors.catch_up([TableId(DATABASE, "dbo", name) for name in "uvw"])
    assert set(troubles) == {TOPIC}
    after = mirrors.states()
    assert after[TOPIC] == before[TOPIC]
    assert mirrors.behind() == [TOPIC]
    assert all(after[topic].lsn > before[topic].lsn for topic in OTHERS)
    assert not mirrored(world)
    assert ordered(world.rows()) == ordered(world.on_server("id, Name"))
    assert not mirrors.behind()


def test_mirrors_that_cannot_be_tidied_follow(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: Any) -> None:
        raise pa.ArrowInvalid("a joined file")

    monkeypatch.setattr(capture, "tidy", broken)
    assert not mirrored(world)
    assert count(world, TOPIC) == 2


@pytest.mark.long
def test_a_column_that_another_one_of_the_same_letters_replaces(world: World) -> None:
    assert not mirrored(world)
    world.execute("ALTER TABLE dbo.t DROP COLUMN Name")
    world.execute("ALTER TABLE dbo.t ADD name nvarchar(10)")
    enable(world, "t", "dbo_t2")
    world.execute("INSERT INTO dbo.t VALUES (3, N'c')")
    for _ in range(2):
        world.capture()
    assert not mirrored(world)
    assert ordered(world.rows()) == ordered(world.on_server("id, name"))
    world.execute("UPDATE dbo.t SET name = N'd' WHERE id = 1")
    world.capture()
    assert not mirrored(world)
    assert ordered(world.rows()) == ordered(world.on_server("id, name"))


@pytest.mark.long
def test_a_table_may_have_columns_of_any_name(world: World) -> None:
    world.execute(
        "CREATE TABLE dbo.x (id int NOT NULL PRIMARY KEY, [__op] nvarchar(max), [__position] int, [__missing:__op] bit)"
    )
    enable(world, "x")
    world.execute("INSERT INTO dbo.x VALUES (1, N'u', 5, 1), (2, NULL, 6, 0)")
    world.capture("snapshot")
    world.execute("UPDATE dbo.x SET [__position] = 7 WHERE id = 1")
    world.execute("DELETE FROM dbo.x WHERE id = 2")
    world.capture()
    assert not mirrored(world)
    topic = TOPIC.replace("dbo.t", "dbo.x")
    [row] = MirrorReader(mirrors_of(str(world.lake)).tables, topic).current().to_pylist()
    assert (row["id"], row["__op"], row["__position"], row["__missing:__op"]) == (1, "u", 7, True)


@pytest.mark.long
def test_a_mirror_whose_folders_would_have_longer_names_than_a_file_system_takes(world: World) -> None:
    """Its topic's own name still fits; the step is not even planned."""
    schema = "s" * 110
    table = "t" * (246 - len(f"shop.{DATABASE}.{schema}."))
    world.execute(f"CREATE SCHEMA {schema}")
    world.execute(f"CREATE TABLE {schema}.{table} (id int NOT NULL PRIMARY KEY)")
    world.execute(
        f"EXEC sys.sp_cdc_enable_table @source_schema = N'{schema}', @source_name = N'{table}', @role_name = NULL, "
        "@capture_instance = N'long'"
    )
    world.execute(f"INSERT INTO {schema}.{table} VALUES (1)")
    world.capture("snapshot")
    [(topic, trouble)] = mirrored(world).items()
    assert topic == f"shop.{DATABASE}.{schema}.{table}"
    assert "up to 243 bytes for a table with a mirror" in str(trouble)
    assert topic not in mirrors_of(str(world.lake)).states()
    assert [count(world, other) for other in OTHERS] == [2, 2, 2]


@pytest.mark.long
def test_what_a_failed_step_has_written_is_removed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk would stay full otherwise, and the capture wait with it."""
    assert not mirrored(world)
    before = files_of(world)
    for number in range(20):
        world.execute(f"INSERT INTO dbo.t VALUES ({100 + number}, N'x')")
    world.execute("DELETE FROM dbo.t WHERE id < 3")
    world.capture()
    end, ended = FileWriter.end, list[str]()

    def full(self: FileWriter) -> Any:
        ended.append("")
        if len(ended) > 1:
            raise LakeFullError("No space left on device.")
        return end(self)

    with monkeypatch.context() as patch:
        patch.setattr(leaves, "LEAF_BYTES", 1)
        patch.setattr(FileWriter, "end", full)
        with pytest.raises(LakeFullError):
            mirrored(world)
        assert len(ended) > 1, "a file was complete"
        assert files_of(world) == before
    assert not mirrored(world)


def files_of(world: World) -> set[str]:
    """Data files of the mirror's tables, and what is staged."""
    return {str(path) for path in world.lake.glob(f"{TOPIC}.__*/*") if path.is_file()}


def test_processes_that_make_the_same_step_do_not_hinder_each_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A comparison brings a mirror to where its topic is while a run does; the first that ends removes what the other has staged."""
    assert not mirrored(world)
    world.execute("UPDATE dbo.t SET Name = N'c'")
    world.capture()
    fold_tasks, others = jobs.Jobs._fold_tasks, list[Mapping[str, CdcError]]()
    begun: list[bool] = []

    def beside(self: jobs.Jobs, work: Work, attempt: str) -> list[FoldTask]:
        if not begun:
            begun.append(True)
            others.append(mirrored(world))
        return fold_tasks(self, work, attempt)

    monkeypatch.setattr(jobs.Jobs, "_fold_tasks", beside)
    with pytest.raises(FencedError):
        followed(world)
    assert others == [{}]
    assert {row["Name"] for row in world.rows()} == {"c"}
    assert len(world.versions()) == 2
    assert not RecordedHindrances(Location.of(world.config.lake), "shop").read().get("mirrors")


def test_a_step_is_repeated_if_what_it_has_staged_is_gone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other process has removed it, and died before it had made the step."""
    fold_tasks, gone = jobs.Jobs._fold_tasks, list[Path]()

    def beside(self: jobs.Jobs, work: Work, attempt: str) -> list[FoldTask]:
        if not gone:
            gone.extend(world.lake.glob("*.__mirroring"))
            for folder in gone:
                shutil.rmtree(folder)
        return fold_tasks(self, work, attempt)

    monkeypatch.setattr(jobs.Jobs, "_fold_tasks", beside)
    assert not followed(world)
    assert gone
    assert ordered(world.rows()) == ordered(world.on_server("id, Name"))


def test_what_befell_an_attempt_that_is_repeated_counts_no_more(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mirror that the second attempt brings forward has no trouble of the first one."""
    attempts: list[int] = []

    def once(own: jobs.Jobs, works: Sequence[Work], troubles: dict[str, CdcError]) -> Any:
        attempts.append(len(works))
        if len(attempts) > 1:
            return isolation.folded(own, works, troubles)
        troubles[works[0].table.topic] = LakeError("Staged events cannot be read.")
        raise LakeConflictError("Another process has removed them.")

    monkeypatch.setattr(apply, "folded", once)
    assert not mirrored(world)
    assert len(attempts) > 1
    assert ordered(world.rows()) == ordered(world.on_server("id, Name"))


def test_one_that_is_to_end_before_it_has_tried_withdraws_no_hindrance(world: World) -> None:
    recorded = RecordedHindrances(Location.of(world.config.lake), "shop")
    began = SystemClock().now()
    recorded.update("mirrors", {TOPIC: MirrorError("It cannot follow.")}, [TOPIC], began, began)
    mirrors = CaptureMirrors(world.config, LocalRunner(2), SystemClock())
    assert not mirrors.catch_up(should_end=lambda: True)
    assert recorded.read()["mirrors"].keys() == {TOPIC}
    assert not mirrors.catch_up()
    assert not recorded.read()["mirrors"]
