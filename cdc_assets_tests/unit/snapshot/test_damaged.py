"""Damaged pages, at which the server ends the connection: a table that has one fails alone."""

from pathlib import Path

import pytest

from cdc_assets_tests.unit.snapshot.world import World
from mssql_standin.control import StandIn

DAMAGED = (
    "SQL Server detected a logical consistency-based I/O error: incorrect checksum (expected: 0x5b7e8b0d; actual: 0xdb7e0b0d). It occurred "
    "during a read of page (1:312) in database ID 5 at offset 0x00000000270000 in file '/var/opt/mssql/data/SalesDb.mdf'."
)


@pytest.mark.parametrize("with_transactions", ["false", "true"])
def test_a_damaged_change_table_stops_no_other_table(server: StandIn, tmp_path: Path, with_transactions: str) -> None:
    world = World(server, str(tmp_path), provide__transaction__metadata=with_transactions)
    lines, orders, parts = (world.make(name, 1) for name in ("lines", "orders", "parts"))
    world.snapshot()
    world.sql(*(f"INSERT INTO dbo.{name} VALUES (5, 'new')" for name in ("lines", "orders", "parts")))
    server.faults.error(824, DAMAGED, matching="dbo_orders_CT", severity=24, times=10_000)
    summary = world.stream()
    [trouble] = summary.troubled
    assert (trouble.table, trouble.status) == (orders, "failed")
    assert "logical consistency" in trouble.reason
    world.sql(*(f"INSERT INTO dbo.{name} VALUES (6, 'new')" for name in ("lines", "orders", "parts")))
    world.stream()
    for table in (lines, parts):
        assert [event["after"]["id"] for event in world.events(table)] == [1, 5, 6]
    server.faults.clear()
    world.stream()
    assert [event["after"]["id"] for event in world.events(orders)] == [1, 5, 6], "once it is repaired"


def test_a_damaged_table_stops_no_snapshot_of_another(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path))
    lines, orders = (world.make(name, 2) for name in ("lines", "orders"))
    server.faults.error(824, DAMAGED, matching="FROM [SalesDb].[dbo].[orders]", severity=24, times=10_000)
    summary = world.snapshot()
    assert [trouble.table for trouble in summary.failed] == [orders]
    assert world.reads(lines) == [1, 2]
    server.faults.clear()
    world.snapshot()
    assert world.reads(orders) == [1, 2]
