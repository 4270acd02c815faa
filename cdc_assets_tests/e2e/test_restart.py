"""Everything of `dagster dev` dies while a run is at work, and it is started again."""

from pathlib import Path

import dagster as dg
import pytest

from cdc_assets_tests.e2e.conftest import Daemon, busy, dagster_dev
from cdc_assets_tests.shop import TABLES, open_shop

pytestmark = pytest.mark.timeout(600)

STARTED = dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED])


def snapshotted(daemon: Daemon) -> bool:
    """Whether the initial snapshot is through."""
    state = daemon.shop.view().state
    return {*TABLES} <= {table.table for table in state.tables} and not state.snapshots


def test_capture_continues_after_a_restart(tmp_path: Path) -> None:
    with open_shop(tmp_path) as shop:
        shop.write({"stream.idle.timeout.ms": "5000"})
        with dagster_dev(shop) as first:
            first.wait_until(lambda: snapshotted(first), "the initial snapshot is through")
            with busy(first, "UPDATE dbo.products SET stock = stock + 1 WHERE sku = 'SKU-0001'"):
                first.wait_until(lambda: len(shop.events("products")) > 10, "a run follows the log")
                first.cut_power()
                (stopped,) = first.instance.get_runs(STARTED)
        shop.add_customers(1)
        with dagster_dev(shop) as second:
            second.wait_until(lambda: len(shop.events("customers")) == 41, "a new run reads on")
            second.await_rest()
            assert second.instance.get_run_by_id(stopped.run_id).status is dg.DagsterRunStatus.FAILURE  # type: ignore[union-attr]
        assert shop.doubled() == []
