"""What the lake has lost is told by `status`, `doctor` and the table's check, before and after a run has found it."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from typer.testing import CliRunner

from cdc_assets.cli.main import app
from cdc_assets.cli.topic_events import newest
from cdc_assets.core.identifiers import TableId
from cdc_assets.errors import PreflightError
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.hindrances import RecordedHindrances
from cdc_assets.overview.checks.sqlserver import continuity_result
from cdc_assets.shared.losses import other_name
from cdc_assets_tests.unit.snapshot.world import World
from cdc_assets_tests.unit.streaming.captures import make_config
from mssql_standin.control import StandIn


@pytest.fixture
def world(server: StandIn, tmp_path: Path) -> World:
    world = World(server, str(tmp_path / "lake"))
    for name in ("lines", "orders"):
        world.make(name, 3)
    with world.capture() as capture:
        capture.snapshot()
    world.sql("INSERT INTO dbo.orders VALUES (50, 'new')", "INSERT INTO dbo.lines VALUES (50, 'new')")
    world.stream()
    return world


def tell(world: World, command: str) -> tuple[int, str]:
    path = Path(world.lake).parent / "shop.json"
    path.write_text(json.dumps(world.given))
    result = CliRunner().invoke(app, [command, "-c", str(path)], env={"COLUMNS": "400"})
    return result.exit_code, result.output


def truncate(folder: Path) -> None:
    newest = max((folder / "_delta_log").glob("*.json"))
    newest.write_bytes(newest.read_bytes()[:-20])


@pytest.mark.long
def test_what_hinders_the_stream(world: World) -> None:
    """As the page, though the questions of these commands are answered."""
    denied = PreflightError("db:1433 denied access: SELECT on dbo_orders_CT. Next: grant it")
    record = RecordedHindrances(Location(world.lake), "shop")
    record.write("stream", {"Database SalesDb": denied}, datetime.now(UTC))
    for command in ("status", "doctor"):
        text = tell(world, command)[1]
        assert re.search("Database SalesDb.* unable to continue since .*SELECT on dbo_orders_CT", text)
        assert "grant it" in text
    world.stream()
    assert "unable to continue" not in tell(world, "doctor")[1]


@pytest.mark.long
@pytest.mark.parametrize(
    ("lose", "what", "status"), [(shutil.rmtree, "is gone", "gap"), (truncate, "cannot be read", "failed")]
)
def test_lost_topic(world: World, lose: Callable[[Path], None], what: str, status: str) -> None:
    assert tell(world, "doctor")[0] == 0
    lose(Path(world.lake) / "shop.SalesDb.dbo.orders")
    for command, code in (("status", 1), ("doctor", 1)):
        found, text = tell(world, command)
        assert (found, what in text) == (code, True)
        assert "shop.SalesDb.dbo.lines is" not in text

    world.stream()
    with world.capture() as capture:
        orders = next(state for state in capture.state().tables.values() if state.table.table == "orders")
    assert orders.status == status
    for command, code in (("status", 1), ("doctor", 1)):
        found, text = tell(world, command)
        assert (found, str(orders.gap_until) in text, "snapshot asset" in text) == (code, True, True)
    check = continuity_result(orders)
    assert not check.passed
    assert f"up to {orders.gap_until} are lost" in check.text


@pytest.mark.long
def test_other_name_of_a_topic(world: World) -> None:
    """Every run is refused by it, so it is told first, and nothing is said to be lost."""
    world.properties["topic.delimiter"] = "-"
    for command in ("status", "doctor"):
        code, text = tell(world, command)
        assert code == 1
        assert "shop-SalesDb-dbo-lines" in text
        assert "set topic.delimiter and topic.sanitize.pattern as they were" in text
        assert "is gone" not in text
    world.properties.clear()
    assert tell(world, "status")[0] == 0


def test_topic_that_an_earlier_release_has_named(tmp_path: Path) -> None:
    """By one underscore for a character that is two for Java."""
    table, config = TableId("SalesDb", "dbo", "\U00020bb7"), make_config(str(tmp_path))
    state: Any = SimpleNamespace(tables={table: SimpleNamespace(directory="shop.SalesDb.dbo._")})
    pattern = "[^A-Za-z0-9._-]"
    assert f"Next: set topic.sanitize.pattern={pattern}, or" in str(other_name(state, config))
    assert other_name(state, replace(config, events=replace(config.events, sanitize_pattern=pattern))) is None


@pytest.mark.long
def test_lost_manifest(world: World) -> None:
    shutil.rmtree(Path(world.lake) / "shop.__windows")
    for command in ("status", "summary", "doctor"):
        code, text = tell(world, command)
        assert code == 1
        assert "is gone or empty" in text
        assert "restore its folder" in text


@pytest.mark.long
def test_rows_that_users_append_to_a_topic_are_no_events(world: World) -> None:
    topic = Path(world.lake) / "shop.SalesDb.dbo.orders"
    rows = pa.table({"position": pa.nulls(3, pa.string())})
    write_deltalake(str(topic), rows, mode="append", schema_mode="merge")
    lake = TopicTables(Location(str(world.lake)), "shop")
    for count in (2, 4, 100):
        found = newest(lake, topic.name, count)["position"].to_pylist()
        assert (len(found), sorted(found)) == (min(count, 4), found)


@pytest.mark.long
def test_topic_of_a_table_that_stopped_is_not_complete_because_the_settings_leave_it_out(world: World) -> None:
    world.sql(
        "INSERT INTO dbo.orders VALUES (51, 'lost')",
        "EXEC sys.sp_cdc_disable_table @source_schema = N'dbo', @source_name = N'orders', @capture_instance = N'all'",
    )
    world.stream()
    assert tell(world, "doctor")[0] == 1
    world.properties["table.exclude.list"] = "dbo.orders"

    def complete() -> list[str]:
        path = Path(world.lake).parent / "shop.json"
        path.write_text(json.dumps(world.given))
        told = json.loads(CliRunner().invoke(app, ["doctor", "--json", "-c", str(path)]).stdout)["checks"]
        return [check["object"] for check in told if check["check"] == "topic"]

    for _ in range(2):
        [topic] = complete()
        assert topic.endswith("lines"), "of the other one nothing is said"
        world.stream()
