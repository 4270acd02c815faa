"""The recipes of docs/reading.md for readers outside Spark, before and after compaction, give the server's rows."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from cdc_assets_tests.shop import ROOT
from cdc_assets_tests.unit.snapshot.world import World
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn

RECIPES = {
    recipe[1]: recipe[2]
    for recipe in re.finditer(
        r"## (DuckDB|Polars|pandas)\n.*?```python\n(.*?)```", (ROOT / "docs" / "reading.md").read_text(), re.DOTALL
    )
}
TABLE = """
CREATE TABLE dbo.customers (
    id int NOT NULL PRIMARY KEY, name nvarchar(80) NOT NULL, email varchar(120) NULL, credit money NULL,
    active bit NOT NULL DEFAULT 1, reference uniqueidentifier NOT NULL DEFAULT newid(), born date NULL,
    created datetime2(7) NOT NULL DEFAULT '2026-01-01', picture varbinary(20) NULL, never int NULL)
"""
Names = dict[int, str]


def by_duckdb(printed: object) -> Names:
    return {row[0]: row[1] for row in printed.fetchall()}  # type: ignore[attr-defined]


def by_polars(printed: object) -> Names:
    return dict(zip(printed["id"], printed["name"], strict=True))  # type: ignore[index]


by_pandas = by_polars
READERS: dict[str, Callable[[object], Names]] = {"DuckDB": by_duckdb, "Polars": by_polars, "pandas": by_pandas}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Rows that were read, added, changed and removed, in several files."""
    folder = tmp_path_factory.mktemp("readers")
    with StandIn(databases=(DATABASE,)) as server:
        server.agent.start()
        world = World(server, str(folder / "var" / "lake"))
        world.sql(TABLE, "EXEC sys.sp_cdc_enable_table N'dbo', N'customers', @role_name = NULL")
        world.sql(
            *(f"INSERT INTO dbo.customers (id, name, credit) VALUES ({key}, N'old {key}', 1)" for key in (1, 2, 3))
        )
        with world.capture() as capture:
            capture.snapshot()
        for key in (4, 5, 6):
            world.sql(f"INSERT INTO dbo.customers (id, name) VALUES ({key}, N'new')")
            world.sql(f"UPDATE dbo.customers SET name = N'at {key}', picture = 0x01 WHERE id = 1")
            world.stream()
        world.sql("DELETE FROM dbo.customers WHERE id = 2")
        world.stream()
    return world


@pytest.mark.long
@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("when", ["as written", "compacted"])
def test_recipe(world: World, name: str, when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(world.lake).parents[1])
    if when == "compacted":
        DeltaTable(f"{world.lake}/shop.SalesDb.dbo.customers").optimize.compact()
    printed: list[object] = []
    exec(compile(RECIPES[name], "reading.md", "exec"), {"print": printed.append})  # noqa: S102 - our own document
    assert READERS[name](printed[0]) == {1: "at 6", 3: "old 3", 4: "new", 5: "new", 6: "new"}


def test_polars_skips_files_by_position(world: World) -> None:
    import polars as pl

    events = pl.scan_delta(f"{world.lake}/shop.SalesDb.dbo.customers")
    newest = events.select(pl.col("position").max()).collect().item()
    assert events.filter(pl.col("position") >= newest).collect().height == 1
