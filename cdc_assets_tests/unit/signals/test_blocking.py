"""Blocking snapshots by signal: the stream waits and goes on, and nothing overtakes."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.signal import Signal
from cdc_assets.core.steps import listening
from cdc_assets.errors import ServerBusyError
from cdc_assets.lake.location import Location
from cdc_assets.overview import CaptureOverview
from cdc_assets.shared.progress import StreamSummary
from cdc_assets.signals.inbox import Inbox
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.incremental.weather import Weather
from cdc_assets_tests.unit.signals.world import World, check_law, values
from cdc_assets_tests.unit.streaming.child import DATABASE
from cdc_assets_tests.unit.streaming.lake_reader import rows_of_topic
from mssql_standin.control import StandIn

ORDERS = f"{DATABASE}.dbo.orders"


def told(world: World, signal: str) -> list[str]:
    """Types of notifications about a signal's snapshot."""
    rows: list[dict[str, Any]] = sorted(rows_of_topic(world.config, "notes"), key=lambda row: str(row["position"]))
    values = [row["value"] for row in rows if row["value"]["id"] == signal]
    return [value["type"] for value in values if value["aggregate_type"] == "Initial Snapshot"]


def read_again(world: World, table: TableId) -> list[int]:
    """Keys of READ events that no incremental snapshot made, in position order."""
    events = [event["value"] for event in world.events(table) if event["value"]]
    return [e["after"]["id"] for e in events if e["op"] == "r" and e["source"]["snapshot"] != "incremental"]


def test_the_stream_waits_and_continues_from_where_it_was(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path))
    table = world.make("orders", "id int PRIMARY KEY, version int")
    other = world.make("lines", "id int PRIMARY KEY, version int")
    world.sql(f"INSERT INTO dbo.orders VALUES {values('1, 1', '2, 2', '3, 3')}; INSERT INTO dbo.lines VALUES (1, 1)")
    server.agent.drain()
    world.run("snapshot")
    conditions = [{"data-collection": ORDERS, "filter": f"SELECT * FROM {ORDERS} WHERE id <> 2"}]
    world.signal(
        "s1", "execute-snapshot", data_collections=[ORDERS, f"{DATABASE}.dbo.lines"], type="blocking",
        additional_conditions=conditions,
    )  # fmt: skip
    world.sql("UPDATE dbo.orders SET version = 4 WHERE id = 1")
    server.agent.drain()
    world.run()
    assert read_again(world, table) == [1, 2, 3, 1, 3]
    assert read_again(world, other) == [1, 1]
    assert [event["value"]["op"] for event in world.events(table)] == ["r", "r", "r", "u", "r", "r"]
    assert (told(world, "s1")[0], told(world, "s1")[-1]) == ("STARTED", "COMPLETED")
    created = [row["value"]["tableChanges"][0] for row in rows_of_topic(world.config, "shop")]  # type: ignore[index]
    assert sorted(change["id"].split(".")[-1] for change in created if change["type"] == "CREATE") == [
        '"cdc_signal"', '"lines"', '"lines"', '"orders"', '"orders"'
    ]  # fmt: skip
    world.run()
    assert len(read_again(world, table)) == 5


def test_a_snapshot_of_no_known_table_is_reported(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path))
    world.make("orders", "id int PRIMARY KEY, version int")
    world.run("snapshot")
    world.signal("s1", "execute-snapshot", data_collections=[f"{DATABASE}.dbo.nope"], type="blocking")
    world.run()
    assert told(world, "s1") == ["STARTED", "ABORTED"]


def test_what_cannot_be_read_aborts_and_the_stream_continues(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path))
    table = world.make("orders", "id int PRIMARY KEY, version int")
    gone = world.make("gone", "id int PRIMARY KEY, version int")
    world.run("snapshot")
    conditions = [{"data-collection": ORDERS, "filter": "SELECT * FROM nowhere"}]
    inbox = Inbox(Location.of(world.config.lake), "shop")
    for own_id, name, more in (("s1", "orders", {"additional-conditions": conditions}), ("s2", "gone", {})):
        data = {"type": "blocking", "data-collections": [f"{DATABASE}.dbo.{name}"], **more}
        inbox.put(Signal(own_id, "execute-snapshot", json.dumps(data)))
    world.sql("INSERT INTO dbo.orders VALUES (1, 1)")
    server.agent.drain()
    world.sql(f"DROP TABLE {gone.within_database}")
    world.run()
    assert told(world, "s1")[-1] == "ABORTED"
    assert told(world, "s2")[-1] == "ABORTED"
    assert [event["value"]["op"] for event in world.events(table)] == ["c"]
    state = world.state()
    assert not state.signals[DATABASE].blocking
    assert not state.snapshots


@pytest.mark.long
@pytest.mark.parametrize(
    ("step", "statement"),
    [
        ("signals-recorded", "DROP TABLE dbo.orders"),
        ("round-planned", "DROP TABLE dbo.orders"),
        ("round-planned", "ALTER TABLE dbo.orders DROP COLUMN version"),
    ],
)
def test_one_table_that_goes_or_changes_is_reported_and_the_others_are_read(
    server: StandIn, tmp_path: Path, step: str, statement: str
) -> None:
    world = World(server, str(tmp_path))
    gone = world.make("orders", "id int PRIMARY KEY, version int")
    other = world.make("lines", "id int PRIMARY KEY, version int")
    world.sql("INSERT INTO dbo.orders VALUES (1, 1); INSERT INTO dbo.lines VALUES (1, 1)")
    server.agent.drain()
    world.run("snapshot")
    world.signal("s1", "execute-snapshot", data_collections=["dbo.orders", "dbo.lines"], type="blocking")
    left = [1]

    def play(name: str) -> None:
        left[0] -= name == step
        if name == step and left[0] == 0:
            world.sql(statement)

    with listening(play):
        summary = world.run()
    assert read_again(world, other) == [1, 1]
    assert (told(world, "s1")[0], told(world, "s1")[-1]) == ("STARTED", "ABORTED")
    assert isinstance(summary, StreamSummary)
    assert [trouble.table for trouble in summary.unread] == [gone]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_no_read_overtakes_between_incremental_rounds(server: StandIn, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - a test
    world = World(server, str(tmp_path), poll_interval_s=0.0)
    table = world.make("orders", "id int PRIMARY KEY, version int")
    weather = Weather(world, chance, 10**9)
    for _ in range(40):
        weather.write()
    server.agent.drain()
    world.run("snapshot")
    inbox = Inbox(Location.of(world.config.lake), "shop")

    asked: list[str] = []

    def ask(name: str) -> None:
        if name in ("chunk-read", "round-planned") and (not asked or chance.random() < 0.5):
            kind = chance.choice(["blocking", "blocking", "incremental"]) if asked else "blocking"
            asked.append(kind)
            data = {"type": kind, "data-collections": [ORDERS]}
            inbox.put(Signal(f"s{chance.random()}", "execute-snapshot", json.dumps(data)))
        weather(name)

    inbox.put(Signal("s0", "execute-snapshot", json.dumps({"data-collections": [ORDERS]})))
    for _ in range(3):
        weather.left = chance.randint(10, 60)
        with listening(ask):
            try:
                world.run()
            except PowerCutError:
                server.agent.drain()
    server.agent.drain()
    world.run()
    state = world.state()
    assert not state.signals[DATABASE].blocking
    assert not state.signals[DATABASE].queue
    assert world.reads(table)
    assert len(read_again(world, table)) > len(weather.rows)
    check_law(world, table, weather.rows)


@pytest.mark.long
@pytest.mark.parametrize(
    ("skipped", "behind"),
    [
        pytest.param(frozenset({"t"}), [("u", 2)], id="the row has changed since: the stream has it"),
        pytest.param(frozenset({"t", "u"}), [("r", 2)], id="the stream never has it"),
    ],
)
def test_a_round_that_waits_is_read_again_behind_a_blocking_snapshot(
    server: StandIn, tmp_path: Path, skipped: frozenset[str], behind: list[tuple[str, int]]
) -> None:
    world = World(server, str(tmp_path), poll_interval_s=0.0)
    world.config = replace(world.config, events=replace(world.config.events, skipped_operations=skipped))
    table = world.make("orders", "id int PRIMARY KEY, version int")
    world.sql("INSERT INTO dbo.orders VALUES (1, 1)")
    server.agent.drain()
    world.run("snapshot")
    inbox = Inbox(Location.of(world.config.lake), "shop")
    seen: list[str] = []

    def play(name: str) -> None:
        seen.append(name)
        if name == "marker-written":  # both markers are captured, and what follows is not
            if seen.count(name) == 1:
                data = {"type": "blocking", "data-collections": [ORDERS]}
                inbox.put(Signal("s2", "execute-snapshot", json.dumps(data)))
            server.agent.resume()
            server.agent.drain()
            server.agent.pause()
        elif name == "snapshot-planned":
            world.sql("UPDATE dbo.orders SET version = 2 WHERE id = 1")

    world.signal("s1", "execute-snapshot", data_collections=[ORDERS])
    server.agent.pause()
    with listening(play):
        world.run()
    assert seen.index("chunk-read") < seen.index("snapshot-planned")
    there = [(event["value"]["op"], event["value"]["after"]["version"]) for event in world.events(table)]
    assert there == [("r", 1), ("r", 2), *behind]
    assert seen.count("chunk-read") == 2
    server.agent.resume()
    server.agent.drain()
    world.run()
    check_law(world, table, {1: 2})


@pytest.mark.long
@pytest.mark.parametrize("at", ["snapshot-planned", "round-planned", "round-written"])
def test_a_busy_server_is_waited_for_while_the_other_database_stands_still(
    server: StandIn, tmp_path: Path, at: str
) -> None:
    server.execute("CREATE DATABASE Other")
    server.execute("EXEC sys.sp_cdc_enable_db", database="Other")
    world = World(server, str(tmp_path))
    world.config = replace(
        world.config,
        connection=replace(world.config.connection, databases=(DATABASE, "Other")),
        streaming=replace(world.config.streaming, retry_wait_s=0.05),
    )
    table = world.make("orders", "id int PRIMARY KEY, version int")
    server.execute("CREATE TABLE dbo.orders (id int PRIMARY KEY, version int)", database="Other")
    server.execute("EXEC sys.sp_cdc_enable_table N'dbo', N'orders', @role_name = NULL", database="Other")
    world.sql("INSERT INTO dbo.orders VALUES (1, 1)")
    server.agent.drain()
    world.run("snapshot")
    data = {"type": "blocking", "data-collections": [ORDERS]}
    Inbox(Location.of(world.config.lake), "shop").put(Signal("s1", "execute-snapshot", json.dumps(data)))
    server.execute("INSERT INTO Other.dbo.orders VALUES (7, 7)")
    server.agent.drain()
    seen: list[str] = []

    def be_busy(name: str) -> None:
        if name == at:
            seen.append(name)
            if len(seen) == 1:
                server.execute("INSERT INTO Other.dbo.orders VALUES (8, 8)")
                server.agent.drain()
                raise ServerBusyError("deadlock victim")

    with listening(be_busy):
        world.run()
    assert seen
    assert read_again(world, table) == [1, 1]
    assert told(world, "s1")[-1] == "COMPLETED"
    assert [event["value"]["op"] for event in world.events(replace(table, database="Other"))] == ["c", "c"]


@pytest.mark.long
def test_a_request_in_a_database_that_the_settings_name_no_more_waits_and_starts_no_run(
    server: StandIn, tmp_path: Path
) -> None:
    server.execute("CREATE DATABASE Other")
    server.execute("EXEC sys.sp_cdc_enable_db", database="Other")
    world = World(server, str(tmp_path))
    both = replace(world.config, connection=replace(world.config.connection, databases=(DATABASE, "other")))
    alone = world.config
    world.config = both
    world.make("orders", "id int PRIMARY KEY, version int")
    table = world.make("lines", "id int PRIMARY KEY, version int", "Other")
    server.execute("INSERT INTO dbo.lines VALUES (1, 1)", database="Other")
    server.agent.drain()
    world.run("snapshot")

    def pending() -> list[str]:
        with SqlServerSource(world.config.connection) as source:
            return CaptureOverview(world.config, source).work.pending_signals()

    data = {"type": "blocking", "data-collections": ["Other.dbo.lines"]}
    Inbox(Location.of(world.config.lake), "shop").put(Signal("s1", "execute-snapshot", json.dumps(data)))
    with cut_at("signals-recorded"), pytest.raises(PowerCutError):
        world.run()
    while "in-process" in pending():  # the first rows of signals say where those of their tables begin
        with cut_at("signals-recorded"), pytest.raises(PowerCutError):
            world.run()
    assert pending() == ["Other"]
    world.config = alone
    assert pending() == []
    world.run()
    assert pending() == []
    assert told(world, "s1") == []
    world.config = both
    assert pending() == ["Other"]
    world.run()
    assert read_again(world, table) == [1, 1]
    assert told(world, "s1")[-1] == "COMPLETED"
    assert pending() == []
