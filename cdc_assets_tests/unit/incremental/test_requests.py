"""Incremental snapshots on the stand-in, through real drivers into a real lake."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from cdc_assets.shared.progress import StreamSummary
from cdc_assets.signals.requests import ask as request
from cdc_assets.signals.requests import compose
from cdc_assets_tests.unit.incremental.stories import ask, orders, scans
from cdc_assets_tests.unit.signals.world import World, values
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn


def test_a_table_is_read_again_and_the_signal_table_is_streamed(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path))
    table = world.make("orders", "id int PRIMARY KEY, version int")
    world.sql(f"INSERT INTO dbo.orders VALUES {values(*(f'{n}, {n}' for n in range(1, 151)))}")
    server.agent.drain()
    world.run("snapshot")
    world.signal("s1", "execute-snapshot", data_collections=[f"{DATABASE}.dbo.orders"])
    world.run()
    assert sorted(row["id"] for row in world.reads(table)) == list(range(1, 151))
    assert world.notes() == [
        ("STARTED", ""), ("IN_PROGRESS", ""), ("IN_PROGRESS", ""), ("IN_PROGRESS", ""),
        ("TABLE_SCAN_COMPLETED", "SUCCEEDED"), ("COMPLETED", ""),
    ]  # fmt: skip
    signals = [event["value"]["after"] for event in world.events(table.__class__(DATABASE, "dbo", "cdc_signal"))]
    assert [row["type"] for row in signals] == [
        "execute-snapshot",
        *["snapshot-window-open", "snapshot-window-close"] * 3,
    ]
    for row in signals[1:]:
        moments = json.loads(row["data"])
        assert list(moments) == ["openWindowTimestamp", "closeWindowTimestamp"][: len(moments)]
        assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", text) for text in moments.values())
    world.run()
    assert len(world.reads(table)) == 150


@pytest.mark.long
def test_conditions_composite_keys_and_deletion_of_the_marker(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path), watermarking="insert_delete", recompile=True)
    table = world.make(
        "lines",
        "code varchar(10) COLLATE Latin1_General_CI_AS NOT NULL, no int NOT NULL, qty int, PRIMARY KEY (code, no)",
    )
    codes = ["a", "B", "c", "D"]
    rows = [f"'{code}', {number}, {number}" for code in codes for number in range(40)]
    world.sql(f"INSERT INTO dbo.lines VALUES {values(*rows)}")
    server.agent.drain()
    world.run("snapshot")
    conditions = [{"data-collection": f"{DATABASE}.dbo.lines", "filter": "qty >= 10"}]
    world.signal("s1", "execute-snapshot", data_collections=[".*"], additional_conditions=conditions)
    world.run()
    found = sorted(((row["code"], row["no"]) for row in world.reads(table)), key=lambda key: (key[0].lower(), key[1]))
    assert found == [(code, number) for code in codes for number in range(10, 40)]


@pytest.mark.long
def test_signal_table_whose_ids_are_of_fixed_length(server: StandIn, tmp_path: Path) -> None:
    columns = "id char(64) PRIMARY KEY, type varchar(32) NOT NULL, data varchar(2048) NULL"
    world = World(server, str(tmp_path), columns=columns)
    world.config = replace(world.config, streaming=replace(world.config.streaming, max_duration_s=120.0))
    table = orders(world, 10)
    ask(world, table)
    summary = world.run()
    assert isinstance(summary, StreamSummary)
    assert summary.ended == "idle"
    assert scans(world) == ["SUCCEEDED"]


def test_signal_table_with_a_fourth_column_cannot_hold_markers(server: StandIn, tmp_path: Path) -> None:
    columns = "number int IDENTITY PRIMARY KEY, id varchar(64), type varchar(32), data varchar(2048) NULL"
    world = World(server, str(tmp_path), columns=columns)
    world.config = replace(world.config, streaming=replace(world.config.streaming, max_duration_s=120.0))
    table = orders(world, 10)
    request(world.config, compose("a", "execute-snapshot", [str(table)]))
    summary = world.run()
    assert isinstance(summary, StreamSummary)
    assert summary.ended == "idle"
    assert scans(world) == ["SKIPPED"]
    assert "three columns" in summary.unread[0].reason


@pytest.mark.long
@pytest.mark.parametrize(
    ("columns", "row", "status"),
    [
        ("id int, version int", "1, 1", "NO_PRIMARY_KEY"),
        ("id int PRIMARY KEY, version int", None, "EMPTY"),
        ("id int PRIMARY KEY, version int", "1, 1", "SQL_EXCEPTION"),
    ],
)
def test_tables_that_cannot_be_read_are_reported(
    server: StandIn, tmp_path: Path, columns: str, row: str | None, status: str
) -> None:
    world = World(server, str(tmp_path))
    table = world.make("t", columns)
    if row:
        world.sql(f"INSERT INTO dbo.t VALUES ({row})")
        server.agent.drain()
    world.run("snapshot")
    condition = {"additional_condition": "no_such_column = 1"} if status == "SQL_EXCEPTION" else {}
    world.signal("s1", "execute-snapshot", data_collections=[f"{DATABASE}.dbo.t", "nothing"], **condition)
    world.signal("s2", "execute-snapshots")
    world.run()
    assert world.reads(table) == []
    assert ("TABLE_SCAN_COMPLETED", "UNKNOWN_SCHEMA") in world.notes()
    assert ("TABLE_SCAN_COMPLETED", status) in world.notes()
    assert not world.state().signals[DATABASE].queue


def test_pause_resume_and_stop(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path))
    table = world.make("orders", "id int PRIMARY KEY, version int")
    world.sql(f"INSERT INTO dbo.orders VALUES {values(*(f'{n}, {n}' for n in range(1, 6)))}")
    server.agent.drain()
    world.run("snapshot")
    world.signal("s1", "execute-snapshot", data_collections=[f"{DATABASE}.dbo.orders"])
    world.signal("s2", "pause-snapshot", type="incremental")
    world.run()
    assert world.reads(table) == []
    world.signal("s3", "resume-snapshot", type="incremental")
    world.run()
    assert len(world.reads(table)) == 5
    world.signal("s4", "execute-snapshot", data_collections=[f"{DATABASE}.dbo.orders"])
    world.signal("s5", "stop-snapshot", type="incremental")
    world.run()
    assert len(world.reads(table)) == 5
