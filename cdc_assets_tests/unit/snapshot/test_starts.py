"""Each snapshot mode over the stand-in, start after start."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.errors import ConfigurationError, LakeError
from cdc_assets_tests.unit.snapshot.starts import Starts
from cdc_assets_tests.unit.snapshot.world import DATABASE, World
from cdc_assets_tests.unit.streaming.lake_reader import rows_of_topic
from mssql_standin.control import StandIn


def test_initial_reads_once_and_then_skips(server: StandIn, tmp_path: Path) -> None:
    starts = Starts(server, tmp_path, "initial")
    assert starts.start() == ["r"] * 3
    assert "SKIPPED" not in starts.kinds()
    starts.insert()
    assert starts.start() == ["c"]
    assert starts.kinds()[-1] == "SKIPPED"
    with starts.world.capture() as capture:
        capture.snapshot([starts.orders])
        capture.snapshot()
    assert starts.kinds()[-1] == "COMPLETED"
    starts.seen += 4
    starts.lose()
    assert starts.start() == []
    assert starts.world.stream().troubled[0].status == "gap"


def test_always_reads_at_each_start(server: StandIn, tmp_path: Path) -> None:
    starts = Starts(server, tmp_path, "always")
    assert starts.start() == ["r"] * 3
    starts.insert()
    assert starts.start() == ["r"] * 4 + ["c"]
    assert starts.start() == ["r"] * 4
    assert starts.world.stream().windows == 0, "the loop alone reads no table"


def test_initial_only_never_streams(server: StandIn, tmp_path: Path) -> None:
    starts = Starts(server, tmp_path, "initial_only")
    assert starts.start() == ["r"] * 3
    starts.insert()
    assert starts.start() == []
    starts.mode("initial")
    assert starts.start() == ["c"], "the position was kept for a mode that streams"


def test_initial_only_needs_no_change_data_capture(tmp_path: Path) -> None:
    with StandIn() as server:
        server.execute(f"CREATE DATABASE {DATABASE}")
        server.execute("CREATE TABLE dbo.orders (id int PRIMARY KEY)", database=DATABASE)
        server.execute("INSERT INTO dbo.orders VALUES (1), (2)", database=DATABASE)
        world = World(server, str(tmp_path), snapshot__mode="initial_only")
        [orders] = world.snapshot().tables
        assert world.reads(orders) == [1, 2]
        assert world.stream().ended == "nothing"
        server.execute("EXEC sys.sp_cdc_enable_db", database=DATABASE)
        server.execute("EXEC sys.sp_cdc_enable_table N'dbo', N'orders', @role_name = NULL", database=DATABASE)
        server.agent.drain()
        world.properties["snapshot.mode"] = "initial"
        assert world.snapshot().tables == (orders,), "it was never streamed, so it is begun anew"
        world.sql("INSERT INTO dbo.orders VALUES (3)")
        assert world.stream().rows[orders] == {"c": 1}


def test_no_data_streams_from_its_first_start(server: StandIn, tmp_path: Path) -> None:
    for mode in ("no_data", "schema_only"):
        starts = Starts(server, tmp_path / mode, mode)
        assert starts.start() == []
        starts.insert()
        assert starts.start() == ["c"]
        server.execute("DROP TABLE dbo.orders", database=DATABASE)


def test_the_last_structure_of_a_snapshot_without_data_is_marked_so(server: StandIn, tmp_path: Path) -> None:
    starts = Starts(server, tmp_path, "no_data")
    starts.insert()
    server.agent.stop()
    server.execute("CREATE TABLE dbo.a (id int NOT NULL PRIMARY KEY)", database=DATABASE)
    server.execute("EXEC sys.sp_cdc_enable_table N'dbo', N'a', @role_name = NULL", database=DATABASE)
    with starts.world.capture() as capture:
        capture.snapshot()
    rows: list[Any] = sorted(rows_of_topic(starts.world.config, "shop"), key=lambda row: row["position"])
    assert [row["value"]["source"]["snapshot"] for row in rows] == ["true", "last"]


@pytest.mark.long
def test_when_needed_reads_again_what_was_lost(server: StandIn, tmp_path: Path) -> None:
    starts = Starts(server, tmp_path, "when_needed")
    assert starts.start() == ["r"] * 3
    starts.insert()
    assert starts.start() == ["c"]
    starts.lose()
    assert starts.start() == ["r"] * 6
    starts.insert()
    assert starts.start() == ["c"]


def test_when_needed_reads_again_without_history(server: StandIn, tmp_path: Path) -> None:
    starts = Starts(server, tmp_path, "when_needed")
    starts.start()
    shutil.rmtree(tmp_path / "shop.__schema_history")
    assert starts.start() == ["r"] * 3
    assert starts.structures() == 1
    assert starts.start() == []


@pytest.mark.long
@pytest.mark.parametrize("lost", ["folder", "newest commit"])
def test_initial_does_not_continue_without_history_and_recovery_does(
    server: StandIn, tmp_path: Path, lost: str
) -> None:
    starts = Starts(server, tmp_path, "initial")
    starts.start()
    starts.world.sql("ALTER TABLE dbo.orders ADD extra int NULL")
    starts.world.sql(
        "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'orders', @role_name = NULL, "
        "@capture_instance = N'second'"
    )
    starts.world.sql("INSERT INTO dbo.orders VALUES (20, 'new', 5)")
    assert starts.start() == ["c"]
    history = tmp_path / "shop.__schema_history"
    if lost == "folder":
        shutil.rmtree(history)
    else:
        max((history / "_delta_log").glob("*.json")).unlink()
    starts.world.sql("INSERT INTO dbo.orders VALUES (21, 'new', 6)")
    for _ in range(2):
        with pytest.raises(LakeError, match=r"__schema_history .*snapshot\.mode=recovery for one run"):
            starts.start()
    starts.mode("recovery")
    assert starts.start() == ["c"]
    starts.mode("initial")
    starts.world.sql("INSERT INTO dbo.orders VALUES (22, 'new', 7)")
    assert starts.start() == ["c"]
    assert [event["after"].get("extra") for event in starts.by_arrival()][-3:] == [5, 6, 7]


def test_when_needed_no_data_continues_where_it_can(server: StandIn, tmp_path: Path) -> None:
    starts = Starts(server, tmp_path, "when_needed_no_data")
    assert starts.start() == []
    starts.lose()
    assert starts.start() == []
    starts.insert()
    assert starts.start() == ["c"]
    with starts.world.capture() as capture:
        assert capture.state().tables[starts.orders].status == "healthy"


@pytest.mark.long
def test_recovery_writes_the_history_again_and_keeps_the_position(server: StandIn, tmp_path: Path) -> None:
    starts = Starts(server, tmp_path, "recovery")
    with pytest.raises(ConfigurationError, match="nothing of SalesDb was captured before"):
        starts.start()
    starts.mode("initial")
    starts.start()
    before = starts.position()
    shutil.rmtree(tmp_path / "shop.__schema_history")
    starts.insert()
    starts.mode("recovery")
    starts.world.snapshot()
    assert starts.position() == before
    assert starts.structures() == 1
    assert starts.start() == ["c"]
    assert starts.structures() == 1, "a history that agrees with the server is left as it is"


def test_recovery_heals_no_gap(server: StandIn, tmp_path: Path) -> None:
    starts = Starts(server, tmp_path, "initial")
    starts.start()
    starts.lose()
    starts.world.stream()
    starts.mode("recovery")
    starts.start()
    with starts.world.capture() as capture:
        assert capture.state().tables[starts.orders].status == "gap"


@pytest.mark.long
@pytest.mark.parametrize("what", ["snapshot", "stream"])
def test_policy_that_is_set_after_the_only_table_lost_changes_mends_it(
    server: StandIn, tmp_path: Path, what: str
) -> None:
    starts = Starts(server, tmp_path, "initial")
    starts.start()
    starts.lose()
    assert starts.world.stream().ended == "nothing"
    assert starts.due() == []
    starts.world.properties["gap.policy"] = "resnapshot"
    assert starts.due() == [starts.orders]
    getattr(starts.world, what)()
    starts.insert()
    assert starts.start() == ["r"] * 5 + ["c"]
    assert starts.due() == []


def test_gap_of_a_dropped_table_is_not_mended(server: StandIn, tmp_path: Path) -> None:
    starts = Starts(server, tmp_path, "initial")
    lines = starts.world.make("lines", 1)
    starts.start()
    starts.lose("lines")
    starts.world.stream()
    starts.world.sql("DROP TABLE dbo.orders")
    starts.world.properties["gap.policy"] = "resnapshot"
    [trouble] = starts.world.stream().troubled
    assert (trouble.table, trouble.status) == (starts.orders, "failed")
    assert starts.world.reads(lines) == [1, 1]


@pytest.mark.long
@pytest.mark.parametrize(("mode", "reads"), [("initial", 5), ("no_data", 0)])
def test_table_that_is_enabled_after_its_first_start_joins(
    server: StandIn, tmp_path: Path, mode: str, reads: int
) -> None:
    starts = Starts(server, tmp_path, mode)
    lines = starts.world.make("lines", 3, captured=False)
    starts.start()
    assert starts.due() == []
    starts.world.enable("lines")
    starts.world.sql("INSERT INTO dbo.lines VALUES (7, 'x')", "INSERT INTO dbo.lines VALUES (8, 'x')")
    assert starts.due() == [lines]
    starts.world.stream()
    starts.world.sql("INSERT INTO dbo.lines VALUES (9, 'x')")
    starts.world.stream()
    assert starts.due() == []
    events = [(event["op"], event["after"]["id"]) for event in starts.world.events(lines)]
    created = [key for op, key in events if op == "c"]
    assert len([op for op, _ in events if op == "r"]) == (3 + reads if reads else 0)
    assert created == ([9] if reads else [7, 8, 9])


@pytest.mark.long
def test_configuration_based(server: StandIn, tmp_path: Path) -> None:
    rows = Starts(server, tmp_path / "a", "configuration_based", snapshot_data="true")
    assert [rows.start(), rows.start()] == [["r"] * 3] * 2
    rows.insert()
    assert rows.start() == ["r"] * 4, "it does not stream"
    server.execute("DROP TABLE dbo.orders", database=DATABASE)

    stream = Starts(server, tmp_path / "b", "configuration_based", start_stream="true", snapshot_on_data_error="true")
    assert stream.start() == []
    stream.insert()
    assert stream.start() == ["c"]
    stream.lose()
    assert stream.start() == ["r"] * 6
    with pytest.raises(ConfigurationError, match="at least one of"):
        _ = World(server, str(tmp_path), snapshot__mode="configuration_based").config


def test_include_list_and_signal_table_limit_rows_not_structures(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path), snapshot__include__collection__list="dbo.ord.*")
    world.properties |= {"signal.data.collection": f"{DATABASE}.dbo.orders_signal", "snapshot.delay.ms": "0"}
    orders, lines = world.make("orders", 2), world.make("lines", 2)
    world.sql("CREATE TABLE dbo.orders_signal (id varchar(64), type varchar(32), data varchar(2048))")
    world.enable("orders_signal")
    world.sql("INSERT INTO dbo.orders_signal VALUES ('1', 'log', '{}')")
    assert len(world.snapshot().tables) == 3
    assert (world.reads(orders), len(rows_of_topic(world.config, f"shop.{lines}"))) == ([1, 2], 0)
    assert not rows_of_topic(world.config, f"shop.{DATABASE}.dbo.orders_signal")
    world.sql("INSERT INTO dbo.lines VALUES (7, 'x')")
    assert world.stream().rows[lines] == {"c": 1}
    history = rows_of_topic(world.config, "shop.__schema_history")
    assert {row["table"] for row in history} == {"orders", "lines", "orders_signal"}
    assert all(json.loads(str(row["record"])) for row in history)
