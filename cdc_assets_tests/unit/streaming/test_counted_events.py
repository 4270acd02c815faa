"""END of a transaction counts the events that have its block, also where a table stays behind and catches up."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.errors import QueryError
from cdc_assets_tests.unit.streaming.captures import make_capture
from cdc_assets_tests.unit.streaming.lake_reader import events_of, rows_of_topic
from cdc_assets_tests.unit.streaming.law import state_of
from cdc_assets_tests.unit.streaming.simulation import SimulatedServer
from cdc_assets_tests.unit.streaming.tables import two_tables


def trouble_orders(server: SimulatedServer, orders: TableId, kind: str) -> None:
    """What happens to a table when its rows are read for the first time."""

    def calm(statement: str) -> None:
        if "[dbo_orders_CT]" in statement:
            server.altered.clear()

    def strike(statement: str) -> None:
        if "[dbo_orders_CT]" not in statement:
            return
        server.before_read = calm
        if kind == "failed":
            raise QueryError("Arithmetic overflow.")
        if kind == "moved":
            server.altered["dbo_orders"] = server.history[-1].lsn
        else:
            first = next(change.lsn for change in server.change_tables["dbo_orders"])
            server.instances = [
                replace(one, start_lsn=first.next()) if one.table == orders else one for one in server.instances
            ]
            server.change_tables["dbo_orders"] = [
                change for change in server.change_tables["dbo_orders"] if change.lsn > first
            ]

    server.before_read = strike


def require_counted(config: CaptureConfig, *tables: TableId) -> Counter[str]:
    """Events with a block by transaction, which is what END says."""
    values = [row["value"] for table in tables for row in rows_of_topic(config, f"shop.{table}") if row["value"]]
    counted = Counter(value["transaction"]["id"] for value in values if value["transaction"])
    orders = Counter(
        (value["transaction"]["id"], value["transaction"]["total_order"]) for value in values if value["transaction"]
    )
    assert set(orders.values()) <= {1}
    rows = [row["value"] for row in rows_of_topic(config, "shop.transaction")]
    ends = {row["id"]: row["event_count"] for row in rows if row["status"] == "END"}
    assert ends == counted
    assert sorted(row["id"] for row in rows if row["status"] == "BEGIN") == sorted(ends)
    return counted


@pytest.mark.combinations
@pytest.mark.parametrize("kind", ["moved", "failed", "gap"])
@pytest.mark.parametrize("slices", [1, 3])
def test_a_table_that_stays_behind_is_not_counted(tmp_path: Path, kind: str, slices: int) -> None:
    server, config, lines, orders = two_tables(tmp_path, transaction_metadata=True, slices=slices)
    for key in range(10, 40, 10):
        changes = [(table, "insert", key + number, "a") for number in range(4) for table in (lines, orders)]
        server.commit(*changes)
    trouble_orders(server, orders, kind)
    make_capture(server, config).stream()
    counted = require_counted(config, lines, orders)
    assert list(counted.values()) == [4, 4, 4]
    assert len(events_of(config, lines)) == 3 + 12
    assert len(events_of(config, orders)) == 3 + (12 if kind == "moved" else 0)
    assert state_of(config).tables[orders].status == ("healthy" if kind == "moved" else kind)
    server.commit((lines, "insert", 50, "a"), (orders, "insert", 50, "a"))
    make_capture(server, config).stream()
    assert sum(require_counted(config, lines, orders).values()) == 12 + (1 if kind == "gap" else 2)
