"""Snapshots that a signal asks for: what they read, whom they tell, and what ends them."""

from pathlib import Path

from cdc_assets.snapshot.plan import Request
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.snapshot.world import DATABASE, World
from mssql_standin.control import StandIn

SELECT = f"SELECT * FROM {DATABASE}.dbo.orders WHERE id > 3 ORDER BY id DESC;"


def test_statement_of_the_signal_is_read_and_changes_no_position(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path))
    world.properties |= {
        "snapshot.select.statement.overrides": "dbo.orders",
        "snapshot.select.statement.overrides.dbo.orders": "SELECT * FROM dbo.orders WHERE id < 3",
    }
    orders, lines = world.make("orders", 5), world.make("lines", 2)
    world.snapshot()
    assert world.reads(orders) == [1, 2]
    before = world.position(orders)
    world.sql("UPDATE dbo.orders SET note = 'changed' WHERE id = 4")
    told = len(world.notes())

    done = world.block("s1", Request(orders, select=SELECT), Request(lines))

    assert done.tables == (orders, lines)
    reads = [event for event in world.events(orders) if event["op"] == "r"][2:]
    assert sorted((event["after"]["id"], event["after"]["note"]) for event in reads) == [(4, "changed"), (5, "n5")]
    assert [event["source"]["snapshot"] for event in reads] == ["first", "last_in_data_collection"]
    assert world.position(orders) == before
    assert {data["id"] for _, data in world.notes()[told:]} == {"s1"}
    assert [kind for kind, _ in world.notes()[told:]] == [
        "STARTED", "IN_PROGRESS", "IN_PROGRESS", "TABLE_SCAN_COMPLETED", "TABLE_SCAN_COMPLETED", "COMPLETED",
    ]  # fmt: skip
    world.stream()
    assert [event["op"] for event in world.events(orders)] == ["r", "r", "u", "r", "r"]


def test_statement_that_fails_aborts_and_the_stream_continues(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path))
    orders, lines = world.make("orders", 3), world.make("lines", 2)
    world.snapshot()
    before = world.position(orders)
    world.sql("INSERT INTO dbo.orders VALUES (4, 'new')")

    done = world.block("s1", Request(orders, select="SELECT * FROM dbo.nowhere"), Request(lines))

    assert done.tables == (lines,)
    [trouble] = done.failed
    assert trouble.table == orders
    assert "nowhere" in trouble.reason
    assert len(world.reads(lines)) == 4
    assert world.notes()[-1][0] == "ABORTED"
    statuses = {data["scanned_collection"]: data["status"] for kind, data in world.notes() if "status" in data}
    assert statuses == {str(orders): "SQL_EXCEPTION", str(lines): "SUCCEEDED"}
    assert world.position(orders) == before
    summary = world.stream()
    assert summary.troubled == ()
    assert summary.rows[orders] == {"c": 1}
    assert world.snapshot().tables == ()


def test_crash_in_the_middle_is_continued(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path))
    orders = world.make("orders", 3)
    world.snapshot()
    for name in ("snapshot-planned", "round-planned", "round-written", "round-complete", "snapshot-complete"):
        reads = len(world.reads(orders))
        try:
            with cut_at(name):
                world.block(name, Request(orders, select="SELECT * FROM dbo.orders WHERE id = 2"))
        except PowerCutError:
            pass
        world.stream()
        assert world.reads(orders)[reads:] == [2]
        kinds = [kind for kind, data in world.notes() if data["id"] == name and kind != "IN_PROGRESS"]
        assert kinds == ["STARTED", "TABLE_SCAN_COMPLETED", "COMPLETED"]
