"""What settings hide from events, beside hand-overs, windows that were torn, and lakes of an earlier version: no table fails or stops by it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from cdc_assets.config.settings import ColumnRule
from cdc_assets.errors import ConfigurationError
from cdc_assets.history import store
from cdc_assets.history.records import structure_text
from cdc_assets.streaming.structures import WindowStructures
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.mirror.world import World, ordered
from cdc_assets_tests.unit.streaming.child import DATABASE
from cdc_assets_tests.unit.streaming.law import state_of
from mssql_standin.control import StandIn

COLUMN = ("dbo.t.v",)
EXCLUDED: dict[str, Any] = {"column_exclude": COLUMN}
MASKED: dict[str, Any] = {"column_rules": (ColumnRule("mask", COLUMN, 3),)}
HASHED: dict[str, Any] = {"column_rules": (ColumnRule("hash_v2", COLUMN, algorithm="SHA-256", salt="x"),)}
KEYED = "id int NOT NULL PRIMARY KEY, v varchar(9), w int"


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn(databases=(DATABASE,)) as server:
        yield server


def hide(world: World, **rules: Any) -> None:
    world.config = replace(world.config, events=replace(world.config.events, **rules))


@contextmanager
def earlier_version() -> Iterator[None]:
    """It records nothing of what is hidden."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "structure_text", lambda entry: structure_text(replace(entry, hidden=None)))
        yield


def values(world: World, directory: str) -> list[Any]:
    rows = DeltaTable(str(world.lake / directory)).to_pyarrow_table().sort_by("window_id")
    return list(rows["value"].to_pylist())


def healths(world: World) -> set[str]:
    return {state.status for state in state_of(world.config).tables.values()}


def torn(world: World, hidden: dict[str, Any]) -> None:
    """A window with a hand-over into another folder dies between the two commits of its table."""
    hide(world, **hidden)
    world.execute("INSERT INTO dbo.t VALUES (1, 'value 1', 1)")
    world.capture("snapshot")
    world.execute("INSERT INTO dbo.t VALUES (2, 'value 2', 2)")
    world.execute("ALTER TABLE dbo.t DROP COLUMN w")
    world.execute("ALTER TABLE dbo.t ADD w varchar(5)")
    world.second_instance()
    world.execute("INSERT INTO dbo.t VALUES (3, 'value 3', 'a')")
    with cut_at("table-committed"), pytest.raises(PowerCutError):
        world.capture()


def test_a_torn_window_is_completed_by_other_settings(server: StandIn, tmp_path: Path) -> None:
    world = World(server, tmp_path / "lake", KEYED)
    torn(world, {})
    hide(world, **EXCLUDED)
    world.capture()
    assert healths(world) == {"healthy"}


def test_a_torn_window_of_an_earlier_version_is_completed(server: StandIn, tmp_path: Path) -> None:
    world = World(server, tmp_path / "lake", KEYED)
    with earlier_version():
        torn(world, EXCLUDED)
    world.capture()
    assert healths(world) == {"healthy"}


def test_end_counts_events_that_were_committed_by_former_settings(server: StandIn, tmp_path: Path) -> None:
    world = World(server, tmp_path / "lake", KEYED)
    hide(world, transaction_metadata=True)
    world.execute("CREATE TABLE dbo.u (id int NOT NULL PRIMARY KEY)")
    world.execute("EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'u', @role_name = NULL")
    world.execute("INSERT INTO dbo.t VALUES (1, 'value 1', 1)")
    world.capture("snapshot")
    world.execute("BEGIN TRAN; INSERT INTO dbo.t VALUES (2, 'value 2', 2); INSERT INTO dbo.u VALUES (7); COMMIT")
    for step in ("table-committed", "history-written"):
        with cut_at(step), pytest.raises(PowerCutError):
            world.capture()
    hide(world, **EXCLUDED)
    world.capture()
    world.capture()
    ends = [value["event_count"] for value in values(world, "shop.transaction") if value["status"] == "END"]
    assert ends[-1:] == [2]


@pytest.mark.long
@pytest.mark.parametrize(
    ("key", "rule"), [("", EXCLUDED), (" NOT NULL PRIMARY KEY", EXCLUDED), (" NOT NULL PRIMARY KEY", MASKED)]
)
def test_a_dropped_column_that_rules_hide_stops_no_mirror(
    server: StandIn, tmp_path: Path, key: str, rule: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its instance captures it still, so its structure is recorded again, in front of a reading that is ahead."""
    world = World(server, tmp_path / "lake", f"id int{key}, v varchar(9), w int")
    hide(world, **rule)
    world.execute("INSERT INTO dbo.t VALUES (1, 'value 1', 1)")
    world.server.agent.drain()
    world.execute("ALTER TABLE dbo.t DROP COLUMN v")
    world.capture("snapshot")
    world.mirror()
    world.execute("INSERT INTO dbo.t VALUES (4, 4)")

    def fail(*given: object) -> None:
        raise ConfigurationError("property", "value", "another one", "set it")

    with monkeypatch.context() as patch:
        patch.setattr(WindowStructures, "_entry", fail)
        world.capture()
    assert healths(world) == {"failed"}
    world.execute("INSERT INTO dbo.t VALUES (5, 5)")
    world.read_again()
    world.execute("INSERT INTO dbo.t VALUES (6, 6)")
    world.capture()
    assert world.follow() is None
    assert ordered([{"id": row["id"], "w": row["w"]} for row in world.rows()]) == ordered(world.on_server("id, w"))


@pytest.mark.long
@pytest.mark.parametrize("what", ["an earlier version", "a new rule", "no rule"])
def test_a_hand_over_in_front_of_a_reading_that_is_ahead(server: StandIn, tmp_path: Path, what: str) -> None:
    world = World(server, tmp_path / "lake", KEYED)
    hide(world, **(EXCLUDED if what == "an earlier version" else {}))
    with earlier_version():
        world.execute("INSERT INTO dbo.t VALUES (1, 'value 1', 1)")
        world.capture("snapshot")
        world.mirror()
        world.execute("INSERT INTO dbo.t VALUES (2, 'value 2', 2)")
        world.execute("ALTER TABLE dbo.t DROP COLUMN w")
        world.execute("ALTER TABLE dbo.t ADD w bigint")
        world.execute("ALTER TABLE dbo.t ADD x int")
        world.second_instance()
        world.execute("INSERT INTO dbo.t VALUES (3, 'value 3', 3, 3)")
        world.read_again()
    hide(world, **({} if what == "no rule" else EXCLUDED))
    world.capture()
    assert world.follow() is None
    world.execute("INSERT INTO dbo.t VALUES (4, 'value 4', 4, 4)")
    world.capture()
    assert world.follow() is None
    assert len(world.rows()) == 4
    assert len(values(world, "shop")) == 2, "CREATE and ALTER, and what settings hide changes no structure"


@pytest.mark.combinations
@pytest.mark.parametrize("rule", [{}, MASKED, HASHED], ids=["shown", "masked", "hashed"])
@pytest.mark.parametrize("columns", ["id int, v varchar(9), w int", "id int, w int, v varchar(9)"])
@pytest.mark.parametrize("before", ["nothing", "a change", "a reading that the mirror has not seen"])
def test_a_dropped_column_of_a_table_without_a_key_that_is_read_at_an_lsn_of_other_events(
    server: StandIn, tmp_path: Path, rule: dict[str, Any], before: str, columns: str
) -> None:
    """Changes and an earlier reading of that LSN name rows with the column, or its mask; the table has each row once."""
    world = World(server, tmp_path / "lake", columns)
    hide(world, **rule)
    world.execute("INSERT INTO dbo.t (id, v, w) VALUES (1, 'a', 1), (2, 'b', 2)")
    world.capture("snapshot")
    world.mirror()
    if before == "a reading that the mirror has not seen":
        world.execute("INSERT INTO dbo.t (id, v, w) VALUES (3, 'c', 3)")
        world.capture()
        world.read_again()
    world.execute("ALTER TABLE dbo.t DROP COLUMN v")
    if before == "a change":
        world.execute("INSERT INTO dbo.t VALUES (3, 3)")
        world.capture()
        assert world.follow() is None
    world.read_again()
    for number in (10, 20):
        assert world.follow() is None
        found = [{"id": row["id"], "w": row["w"]} for row in world.rows()]
        assert ordered(found) == ordered(world.on_server("id, w"))
        world.execute(f"UPDATE dbo.t SET w = w + {number} WHERE id = 2")
        world.execute(f"INSERT INTO dbo.t VALUES ({number}, 1)")
        world.capture()
