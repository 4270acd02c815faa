"""Tables without a key: events name rows by all of their columns."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.signals.requests import ask, compose
from cdc_assets_tests.unit.mirror.world import World, ordered, started
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn(databases=(DATABASE,)) as server:
        yield server


@pytest.mark.parametrize(("kept", "removed"), [("X", "x"), ("x ", "x")])
def test_rows_that_compare_equal_are_not_exchangeable(server: StandIn, tmp_path: Path, kept: str, removed: str) -> None:
    """The log names a row by the text that is stored."""
    world = started(
        server, tmp_path, "a nvarchar(9) COLLATE Latin1_General_CI_AS, n int", f"(N'{kept}', 1)", "(NULL, 2)"
    )
    world.execute(f"INSERT INTO dbo.t VALUES (N'{removed}', 1)")
    world.execute(f"DELETE FROM dbo.t WHERE CAST(a AS varbinary(18)) = CAST(N'{removed}' AS varbinary(18))")
    world.capture()
    world.mirror()
    assert (
        ordered(world.rows()) == ordered(world.on_server("a, n")) == ordered([{"a": kept, "n": 1}, {"a": None, "n": 2}])
    )


@pytest.mark.long
def test_some_rows_that_are_read_after_all_of_them(server: StandIn, tmp_path: Path) -> None:
    """Both readings have one LSN, and only the first one says which rows there are."""
    world = started(
        server, tmp_path, "at datetime2(7), n int", "('2026-01-01 01:02:05.67', 1)", "(NULL, 2)", "(NULL, 3)"
    )
    world.execute("ALTER TABLE dbo.t ALTER COLUMN at datetime2(0)")
    world.execute("DELETE FROM dbo.t WHERE n = 3")
    world.capture()
    world.read_again()
    name = rf"{DATABASE}\.dbo\.t"
    some = {name: "SELECT * FROM dbo.t WHERE n = 2"}
    ask(world.config, compose("some", "execute-snapshot", [name], some, snapshot="blocking"))
    for _ in range(2):
        world.capture()
    world.mirror()
    assert ordered(world.rows()) == ordered(world.on_server("at, n"))
    assert len(world.rows()) == 2


@pytest.mark.long
def test_a_column_that_comes_to_a_table_with_a_key_by_a_property(server: StandIn, tmp_path: Path) -> None:
    """Its events name rows by that, so nothing is to be read again."""
    world = World(server, tmp_path / "lake", "a int NOT NULL, n int")
    world.config = replace(world.config, events=replace(world.config.events, message_key_columns=("dbo.t:a",)))
    world.execute("INSERT INTO dbo.t VALUES (1, 1)")
    world.capture("snapshot")
    world.mirror()
    world.execute("ALTER TABLE dbo.t ADD c int")
    world.second_instance()
    world.execute("UPDATE dbo.t SET n = 5, c = 3")
    for _ in range(2):
        world.capture()
    world.mirror()
    assert ordered(world.rows()) == ordered(world.on_server("a, n, c"))


@pytest.mark.long
def test_a_column_that_becomes_large(server: StandIn, tmp_path: Path) -> None:
    """It tells rows apart until then, and no longer."""
    world = started(server, tmp_path, "a int, b nvarchar(9)", "(1, N'x')", "(1, N'y')")
    world.execute("DELETE FROM dbo.t WHERE b = N'y'")
    world.capture()
    world.execute("ALTER TABLE dbo.t ALTER COLUMN b nvarchar(max)")
    world.execute("INSERT INTO dbo.t VALUES (2, NULL)")
    world.capture()
    assert "became large" in str(world.follow())
    assert ordered(world.rows()) == ordered([{"a": 1, "b": "x"}])
    world.read_again()
    world.execute("DELETE FROM dbo.t WHERE a = 2")
    world.capture()
    assert world.follow() is None
    assert ordered(world.rows()) == ordered(world.on_server("a, b"))


@pytest.mark.long
def test_a_large_column_that_comes(server: StandIn, tmp_path: Path) -> None:
    """It never tells rows apart, so nothing is to be read again."""
    world = started(server, tmp_path, "a int, b int", "(1, 1)", "(2, 2)")
    world.execute("ALTER TABLE dbo.t ADD c nvarchar(max)")
    world.second_instance()
    world.execute("UPDATE dbo.t SET c = N'x', b = 7 WHERE a = 1")
    for _ in range(2):
        world.capture()
    world.mirror()
    assert ordered(world.rows()) == ordered(world.on_server("a, b, c"))


@pytest.mark.long
def test_a_column_that_is_dropped_while_its_instance_captures_it(server: StandIn, tmp_path: Path) -> None:
    """Its values are NULL in events from then on, so these no longer name the rows that were read before."""
    world = started(server, tmp_path, "a int, n int, b int", "(1, 1, 1)", "(2, 2, 2)")
    world.execute("ALTER TABLE dbo.t DROP COLUMN b")
    world.execute("UPDATE dbo.t SET n = 11 WHERE a = 1")
    world.execute("DELETE FROM dbo.t WHERE a = 2")
    world.capture()
    before = ordered(world.rows())
    assert "of shop.SalesDb.dbo.t.__current goes that is not there" in str(world.follow())
    assert ordered(world.rows()) == before
    for number in (21, 31):  # also when it is read once more
        world.read_again()
        world.execute(f"UPDATE dbo.t SET n = {number}")
        world.capture()
        world.mirror()
        assert ordered(world.rows()) == ordered([{"a": 1, "n": number, "b": None}])


@pytest.mark.parametrize(
    "changes", [{"mode": "no_data"}, {"overrides": (("dbo.t", "SELECT * FROM dbo.t WHERE a > 1"),)}], ids=str
)
def test_rows_that_no_snapshot_has_read(server: StandIn, tmp_path: Path, changes: dict[str, Any]) -> None:
    """Events may remove them: the mirror never had them, and no reading would bring them."""
    world = World(server, tmp_path / "lake", "a int, n int")
    world.config = replace(world.config, snapshot=replace(world.config.snapshot, **changes))
    world.execute("INSERT INTO dbo.t VALUES (1, 1), (2, 2)")
    world.capture("snapshot")
    world.mirror()
    world.execute("DELETE FROM dbo.t WHERE a = 1")
    world.execute("UPDATE dbo.t SET n = 5")
    world.capture()
    world.mirror()
    assert ordered(world.rows()) == ordered(world.on_server("a, n"))


@pytest.mark.long
def test_rows_that_are_read_later_than_events_have_removed_others(server: StandIn, tmp_path: Path) -> None:
    """The mirror comes near to the reading by a step of its own, and keeps the versions of before."""
    world = World(server, tmp_path / "lake", "a int, n int")
    world.config = replace(world.config, snapshot=replace(world.config.snapshot, mode="no_data"))
    world.execute("INSERT INTO dbo.t VALUES (1, 1), (2, 2)")
    world.capture("snapshot")
    world.execute("UPDATE dbo.t SET n = 5 WHERE a = 2")
    world.capture()
    world.mirror()
    world.execute("UPDATE dbo.t SET n = 6 WHERE a = 2")
    world.execute("DELETE FROM dbo.t WHERE a = 1")
    world.capture()
    world.execute("INSERT INTO dbo.t VALUES (3, 3)")
    world.read_again()
    world.mirror()
    world.capture()
    world.mirror()
    assert ordered(world.rows()) == ordered(world.on_server("a, n"))
    assert [(row["a"], row["n"]) for row in world.versions()] == [(2, 5)]
