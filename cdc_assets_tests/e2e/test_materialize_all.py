"""*Materialize all* of a project ends green, with pools and without, with our executor and Dagster's, beside the sensor and a workload."""

from pathlib import Path

import pytest

from cdc_assets_tests.e2e.conftest import busy, dagster_dev
from cdc_assets_tests.e2e.dev import MODULE
from cdc_assets_tests.shop import open_shop
from mssql_standin import sample

pytestmark = pytest.mark.timeout(900)

ALONE = "cdc_assets_tests.e2e.captures_alone"
POOLS = "pools: {default_limit: 1, granularity: run}"


@pytest.mark.parametrize(
    ("pools", "module"),
    [(False, MODULE), (True, MODULE), (True, ALONE)],
    ids=["without-pools", "with-pools", "a process for each step"],
)
def test_materialize_all_ends_green(tmp_path: Path, *, pools: bool, module: str) -> None:
    with open_shop(tmp_path) as shop:
        signals = f"{sample.DATABASE}.dbo.{sample.SIGNAL_TABLE}"
        shop.write(
            {
                "mirror.enabled": "true",
                "mirror.interval.ms": "1000",
                "signal.data.collection": signals,
                "table.exclude.list": "",
            }
        )
        shop.execute("DELETE FROM dbo.order_lines")
        with dagster_dev(shop, without="" if pools else POOLS, module=module) as daemon:
            first = daemon.materialize_all()
            with busy(daemon, "UPDATE dbo.products SET stock = stock + 1"):
                daemon.wait_until(lambda: daemon.backfill_status(first) not in ("REQUESTED",), "the first ends", 300)
                assert daemon.backfill_status(first) == "COMPLETED_SUCCESS", daemon.statuses
                second = daemon.materialize_all()
                daemon.wait_until(lambda: daemon.backfill_status(second) not in ("REQUESTED",), "the second ends", 300)
            assert daemon.backfill_status(second) == "COMPLETED_SUCCESS", daemon.statuses
            daemon.await_rest()
            assert daemon.failed_steps() == 0, daemon.statuses
