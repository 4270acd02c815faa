"""What was left out of topics by settings that have changed since: mirrors wait for it, and the capture does not."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.capture.reset import Reset
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.schema import Column, TableSchema
from cdc_assets.core.steps import listening
from cdc_assets.errors import InvalidValueError
from cdc_assets.history.records import HistoryEntry
from cdc_assets.lake.events import EventFile
from cdc_assets.ledger.gaps import Skipped
from cdc_assets.ledger.table_state import TableState
from cdc_assets.mirror.altered import followed, stops
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.ledger import MirrorState
from cdc_assets.mirror.readers import MirrorReader
from cdc_assets.mirror.spans import before
from cdc_assets.mirror.steps import Target, next_step, target_of
from cdc_assets_tests.unit.mirror.world import TOPIC, World, ordered, started
from cdc_assets_tests.unit.streaming.child import DATABASE
from cdc_assets_tests.unit.streaming.law import state_of
from mssql_standin.control import StandIn

TABLE = TableId(DATABASE, "dbo", "t")
COLUMNS = "id int NOT NULL PRIMARY KEY, note nvarchar(9)"
STATEMENTS = {
    "c": "INSERT INTO dbo.t VALUES (10, N'new')",
    "u": "UPDATE dbo.t SET note = N'new' WHERE id = 1",
    "d": "DELETE FROM dbo.t WHERE id = 2",
}


class Crash(BaseException):
    """The process dies."""


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn(databases=(DATABASE,)) as server:
        yield server


def skipping(config: CaptureConfig, operations: str) -> CaptureConfig:
    return replace(config, events=replace(config.events, skipped_operations=frozenset(operations)))


def skip(world: World, operations: str, *statements: str) -> None:
    """Capture some changes without some operations, and all that come later with them."""
    config = world.config
    for statement in statements:
        world.execute(statement)
    world.config = skipping(config, operations)
    world.capture()
    world.config = config


def insert(world: World, number: int) -> None:
    world.execute(f"INSERT INTO dbo.t VALUES ({number}, N'later')")
    world.capture()


def entry(world: World) -> TableState:
    return state_of(world.config).tables[TABLE]


def mirror_state(world: World) -> MirrorState:
    return CaptureMirrors(world.config, LocalRunner(2), SystemClock()).states()[TOPIC]


def target(world: World) -> Target:
    (found,), _ = CaptureMirrors(world.config, LocalRunner(2), SystemClock()).found([TABLE])
    return found.target


def require_rows(world: World) -> None:
    for anew in (False, True):
        assert world.follow(anew=anew) is None
        assert ordered(world.rows()) == ordered(world.on_server("id, note"))


@pytest.mark.long
@pytest.mark.parametrize("operation", ["c", "u", "d"])
def test_a_mirror_waits_before_what_was_left_out_until_the_table_was_read_again(
    server: StandIn, tmp_path: Path, operation: str
) -> None:
    world = started(server, tmp_path, COLUMNS, "(1, N'x')", "(2, N'y')")
    insert(world, 3)
    begun, expected = entry(world).position, world.on_server("id, note")
    skip(world, operation, STATEMENTS[operation])
    insert(world, 4)
    for anew in (False, True):
        assert f"skipped.operations left out {operation}" in str(world.follow(anew=anew))
        assert ordered(world.rows()) == ordered(expected)
    assert mirror_state(world).lsn == str(begun)
    assert (entry(world).status, entry(world).gaps, entry(world).ignored_gaps) == ("healthy", (), ())
    world.read_again()
    world.execute("UPDATE dbo.t SET note = N'last' WHERE id = 1")
    world.capture()
    assert world.follow() is None
    ((low, high),) = mirror_state(world).spans
    reader = MirrorReader.of(
        CaptureMirrors(world.config, LocalRunner(2), SystemClock()).tables, TOPIC, mirror_state(world)
    )
    assert before(low) == str(begun)
    with pytest.raises(InvalidValueError):
        reader.as_of(Lsn.parse(low))
    with pytest.raises(InvalidValueError):
        reader.as_of(Lsn.parse(before(high)))
    require_rows(world)


@pytest.mark.long
@pytest.mark.parametrize("operation", ["c", "u", "d"])
def test_a_mirror_that_is_made_later_begins_where_the_table_was_read_again(
    server: StandIn, tmp_path: Path, operation: str
) -> None:
    world = World(server, tmp_path / "lake", COLUMNS)
    world.execute("INSERT INTO dbo.t VALUES (1, N'x'), (2, N'y')")
    world.capture("snapshot")
    skip(world, operation, STATEMENTS[operation])
    assert "skipped.operations" in str(world.follow())
    insert(world, 4)
    assert "skipped.operations" in str(world.follow())
    world.read_again()
    insert(world, 5)
    require_rows(world)


@pytest.mark.long
def test_a_late_mirror_stays_before_the_first_of_several(server: StandIn, tmp_path: Path) -> None:
    world = started(server, tmp_path, COLUMNS, "(1, N'x')", "(2, N'y')", "(3, N'z')")
    insert(world, 4)
    begun = entry(world).position
    skip(world, "d", "DELETE FROM dbo.t WHERE id = 1")
    insert(world, 5)
    skip(world, "u", "UPDATE dbo.t SET note = N'q' WHERE id = 3")
    ((after, until, operations),) = [(one.after, one.until, one.operations) for one in entry(world).skipped]
    assert (after, until, operations) == (begun, entry(world).position, "du")
    insert(world, 6)
    world.read_again()
    insert(world, 7)
    skip(world, "d", "DELETE FROM dbo.t WHERE id = 2")
    assert len(entry(world).skipped) == 2
    insert(world, 8)
    assert "left out d, " in str(world.follow())
    assert {2, 7} <= {row["id"] for row in world.rows()}
    assert [
        row["id"]
        for row in world.versions()
        if row["_valid_from_lsn"] <= str(begun) < row["_valid_to_lsn"] and row["id"] < 3
    ] == [1]
    world.read_again()
    insert(world, 9)
    require_rows(world)


LAST = {
    "d": "DELETE FROM dbo.t WHERE id IN (2, 5)",
    "u": "UPDATE dbo.t SET id = 6, note = N'z' WHERE id = 5",
}


@pytest.mark.combinations
@pytest.mark.parametrize("operation", sorted(LAST))
@pytest.mark.parametrize("key", ["primary", "none", "message"])
def test_what_came_and_went_in_the_last_commit_that_was_left_out_does_not_stay(
    server: StandIn, tmp_path: Path, operation: str, key: str
) -> None:
    columns = COLUMNS if key == "primary" else COLUMNS.replace(" PRIMARY KEY", "")
    world = started(server, tmp_path, columns, "(1, N'x')", "(2, N'y')")
    if key == "message":
        events = replace(world.config.events, message_key_columns=("dbo.t:id",))
        world.config = replace(world.config, events=events)
    skip(world, operation, f"BEGIN TRAN; INSERT INTO dbo.t VALUES (5, N'q'); {LAST[operation]}; COMMIT")
    world.read_again()
    assert entry(world).snapshot_lsn == entry(world).skipped[0].until
    for anew in (False, True):
        assert "makes good" in str(world.follow(anew=anew))
    insert(world, 7)
    world.read_again()
    require_rows(world)


@pytest.mark.long
def test_a_mirror_that_has_passed_one_interval_does_not_pass_the_next(server: StandIn, tmp_path: Path) -> None:
    world = started(server, tmp_path, COLUMNS, "(1, N'x')", "(2, N'y')")
    insert(world, 3)
    skip(world, "c", "INSERT INTO dbo.t VALUES (10, N'new')")
    world.read_again()
    assert world.follow() is None
    skip(world, "c", "INSERT INTO dbo.t VALUES (11, N'new')", "DELETE FROM dbo.t WHERE id = 2")
    until = entry(world).position
    assert until is not None
    insert(world, 12)
    world.read_again()
    insert(world, 13)
    assert world.follow() is None
    tables = CaptureMirrors(world.config, LocalRunner(2), SystemClock()).tables
    with pytest.raises(InvalidValueError):
        MirrorReader.of(tables, TOPIC, mirror_state(world)).as_of(until)
    require_rows(world)


@pytest.mark.parametrize("crash", ["window-planned", "window-complete"])
@pytest.mark.parametrize("skips_first", [True, False])
def test_a_window_that_is_repeated_with_other_settings(
    server: StandIn, tmp_path: Path, crash: str, skips_first: bool
) -> None:
    world = started(server, tmp_path, COLUMNS, "(1, N'x')", "(2, N'y')")
    world.execute("DELETE FROM dbo.t WHERE id = 2")
    config = world.config

    def die(name: str) -> None:
        if name == crash:
            raise Crash

    world.config = skipping(config, "d") if skips_first else config
    with listening(die), pytest.raises(Crash):
        world.capture()
    world.config = config if skips_first else skipping(config, "d")
    world.capture()
    world.config = config
    is_marked = skips_first or crash == "window-planned"
    assert bool(entry(world).skipped) == is_marked
    assert (world.follow() is not None) == is_marked


@pytest.mark.long
def test_what_was_left_out_is_known_after_a_reset(server: StandIn, tmp_path: Path) -> None:
    world = started(server, tmp_path, COLUMNS, "(1, N'x')", "(2, N'y')")
    insert(world, 3)
    begun = str(entry(world).position)
    skip(world, "d", "DELETE FROM dbo.t WHERE id = 2")
    recorded = entry(world).skipped
    Reset(world.config, SystemClock()).forget([TABLE])
    insert(world, 4)
    world.capture("snapshot")
    assert entry(world).skipped == recorded
    insert(world, 5)
    require_rows(world)
    assert not [row for row in world.versions() if begun < row["_valid_from_lsn"] < str(entry(world).snapshot_lsn)]


@pytest.mark.long
def test_a_reading_by_a_statement_stays_one(server: StandIn, tmp_path: Path) -> None:
    """Without a key, an event that removes a row which no snapshot has read is right."""
    world = World(server, tmp_path / "lake", "a int, note nvarchar(9)")
    world.execute("INSERT INTO dbo.t VALUES (1, N'x'), (2, N'y')")
    config = world.config
    overrides = (("dbo.t", "SELECT * FROM dbo.t WHERE a = 1"),)
    world.config = replace(config, snapshot=replace(config.snapshot, overrides=overrides))
    world.capture("snapshot")
    world.config = config
    assert not target(world).reads_all
    world.execute("DELETE FROM dbo.t WHERE a = 2")
    world.capture()
    assert world.follow() is None
    assert ordered(world.rows()) == ordered(world.on_server("a, note"))
    world.read_again()
    world.config = replace(config, snapshot=replace(config.snapshot, overrides=overrides))
    assert target(world).reads_all


def lsn(number: int) -> str:
    return str(Lsn.from_int(number))


def test_from_right_before_it_a_mirror_goes_over_a_structure_of_later() -> None:
    """Changes after 20 up to 30 were left out; a column got another type at 40; the table was read at 70."""
    columns = Column("id", "int", 1), Column("note", "nvarchar", 2, length=50)
    schema = TableSchema(TABLE, 1, columns, ("id",))
    first = HistoryEntry("CREATE", schema, ("id", "note"), "i", Lsn.from_int(2), datetime(2026, 1, 1, tzinfo=UTC))
    retyped = replace(schema, columns=(columns[0], Column("note", "int", 2)))
    entries = [first, replace(first, kind="ALTER", schema=retyped, lsn=Lsn.from_int(40))]
    skipped = (Skipped(Lsn.from_int(20), Lsn.from_int(30), "d"),)
    state = TableState(TABLE, 1, Lsn.from_int(80), snapshot_lsn=Lsn.from_int(70), skipped=skipped)
    found = target_of(state, 20, (), ())
    assert found is not None
    known, steps = MirrorState(step=1, lsn=lsn(10), window=3, key="k"), list[tuple[int, bool, int]]()
    files = [EventFile(0, f"w{number:010d}-x", 1, lsn(number), lsn(number)) for number in (15, 25, 35, 45, 75)]
    while True:
        structures, target, halt = followed("t", entries, stops(entries, (), skipped), found, known)
        step = next_step("t", known, target, files, "k")
        if step is None:
            break
        assert halt is None
        steps.append((int(Lsn.parse(step.until)), step.void, len(structures)))
        known = known.behind(step)
    assert steps == [(20, False, 1), (70, True, 2), (80, False, 2)]
