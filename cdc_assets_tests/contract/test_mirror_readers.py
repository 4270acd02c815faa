"""The recipes of docs/reading.md for mirrors give the server's rows; the view gives all versions in each engine."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.readers import MirrorReader
from cdc_assets_tests.shop import ROOT
from cdc_assets_tests.unit.mirror.shown_query import shown_query
from cdc_assets_tests.unit.streaming.child import DATABASE, config_of, run
from mssql_standin.control import StandIn

PAGE = (ROOT / "docs" / "reading.md").read_text()
RECIPES = dict(re.findall(r"In (DuckDB|Polars|pandas):\n\n```python\n(.*?)```", PAGE, re.DOTALL))
TOPIC = f"shop.{DATABASE}.dbo.customers"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A mirror with a row that was changed and one that was deleted."""
    folder = tmp_path_factory.mktemp("mirrors") / "var" / "lake"
    with StandIn(databases=(DATABASE,)) as server:
        config = config_of(server.port, server.password, str(folder))

        def execute(statement: str) -> None:
            server.execute(statement, database=DATABASE)

        execute(
            "CREATE TABLE dbo.customers (id int NOT NULL PRIMARY KEY, name nvarchar(80), credit money, seen datetime2(3))"
        )
        execute("EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'customers', @role_name = NULL")
        execute(
            "INSERT INTO dbo.customers VALUES (1, N'Ada', 1.5, '2026-01-01'), (2, N'Bob', 2, NULL), (3, N'Eve', 3, NULL)"
        )
        server.agent.drain()
        run(config, "snapshot")
        execute("UPDATE dbo.customers SET credit = 9 WHERE id = 1")
        execute("DELETE FROM dbo.customers WHERE id = 2")
        server.agent.drain()
        run(config, "stream")
        assert not CaptureMirrors(config, LocalRunner(2), SystemClock()).catch_up()
        yield folder


def keys_of(printed: Any) -> list[int]:
    if isinstance(printed, duckdb.DuckDBPyRelation):
        return [row[0] for row in printed.fetchall()]
    return list(printed["id"])


@pytest.mark.parametrize("engine", ["DuckDB", "Polars", "pandas"])
def test_recipes_give_the_rows(lake: Path, monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    monkeypatch.chdir(lake.parent.parent)
    printed: list[Any] = []
    exec(RECIPES[engine], {"print": lambda what: printed.append(keys_of(what))})  # noqa: S102 - our own page
    assert printed == [[1, 3]]


@pytest.mark.parametrize(
    ("table", "condition", "keys"),
    [
        ("current", "credit > 2", [1, 3]),
        ("current", "name = 'Eve'", [3]),
        ("current", "id = 1", [1]),
        ("history", "name = 'Bob'", [2]),
    ],
)
def test_a_filter_finds_the_rows(lake: Path, table: str, condition: str, keys: list[int]) -> None:
    connection = duckdb.connect()
    connection.register("rows_of", DeltaTable(str(lake / f"{TOPIC}.__{table}")).to_pyarrow_dataset())
    found = connection.sql(f"SELECT id FROM rows_of WHERE {condition} ORDER BY id").fetchall()
    assert [key for (key,) in found] == keys


@pytest.mark.parametrize("table", ["current", "history"])
def test_the_protocol_names_what_the_columns_need(lake: Path, table: str) -> None:
    """Spark with Delta refuses a table that names features but not this one, if it has a column that is NOT NULL."""
    features = DeltaTable(str(lake / f"{TOPIC}.__{table}")).protocol().writer_features or ()
    assert {"invariants", "timestampNtz"} <= set(features)


@pytest.fixture(scope="module")
def versions(lake: Path) -> list[tuple[Any, ...]]:
    config = config_of(1, "", str(lake))
    mirrors = CaptureMirrors(config, LocalRunner(1), SystemClock())
    rows = MirrorReader(mirrors.tables, TOPIC, mirrors.states()[TOPIC].lsn).versions().to_pylist()
    return sorted(
        (row["id"], row["_valid_from_lsn"], row["_valid_to_lsn"] or "", row["_operation"] or "") for row in rows
    )


def test_there_is_a_version_for_each_state(versions: list[tuple[Any, ...]]) -> None:
    assert [(key, operation) for key, _, _, operation in versions] == [(1, "u"), (1, ""), (2, "d"), (3, "")]


@pytest.mark.parametrize("engine", ["DuckDB", "Polars"])
def test_the_view_gives_all_versions(lake: Path, versions: list[tuple[Any, ...]], engine: str) -> None:
    places = [str(lake / f"{TOPIC}.__{name}") for name in ("current", "history")]
    query = shown_query(["id", "name", "credit", "seen"], "customers")
    if engine == "DuckDB":
        connection = duckdb.connect()
        for name, place in zip(("customers", "customers_history"), places, strict=True):
            connection.register(name, DeltaTable(place).to_pyarrow_dataset())
        found = connection.sql(query).pl()
    else:
        frames = {"customers": pl.scan_delta(places[0]), "customers_history": pl.scan_delta(places[1])}
        found = pl.SQLContext(frames).execute(query).collect()
    rows = found.select("id", "_valid_from_lsn", "_valid_to_lsn", "_operation").rows()
    assert sorted((key, start, end or "", by or "") for key, start, end, by in rows) == versions
