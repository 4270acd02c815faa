"""Tables without a key: events name rows by all of their columns."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc_assets_tests.unit.mirror.world import World, ordered
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn(databases=(DATABASE,)) as server:
        yield server


def started(server: StandIn, tmp_path: Path, columns: str, *rows: str) -> World:
    world = World(server, tmp_path / "lake", columns)
    world.execute(f"INSERT INTO dbo.t VALUES {', '.join(rows)}")
    world.capture("snapshot")
    world.mirror()
    return world


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
