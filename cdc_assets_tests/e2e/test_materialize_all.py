"""*Materialize all* of a project ends green, with pools and without, beside the sensor and a workload."""

from collections import Counter
from pathlib import Path

import pytest

from cdc_assets.standin import sample
from cdc_assets_tests.e2e.conftest import Daemon, busy, dagster_dev
from cdc_assets_tests.shop import open_shop

pytestmark = pytest.mark.timeout(600)

POOLS = "pools: {default_limit: 1, granularity: run}"


def all_of(daemon: Daemon) -> str:
    """Materialize all assets and all partitions, as the button does."""
    graph = daemon.shop.definitions().resolve_asset_graph()
    return daemon.backfill(sorted(graph.materializable_asset_keys), None)


@pytest.mark.parametrize("pools", [False, True], ids=["without-pools", "with-pools"])
def test_materialize_all_ends_green(tmp_path: Path, *, pools: bool) -> None:
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
        with dagster_dev(shop, without="" if pools else POOLS) as daemon:
            first = all_of(daemon)
            with busy(daemon, "UPDATE dbo.products SET stock = stock + 1"):
                daemon.wait_until(lambda: daemon.backfill_status(first) not in ("REQUESTED",), "the first ends", 300)
                assert daemon.backfill_status(first) == "COMPLETED_SUCCESS", statuses(daemon)
                second = all_of(daemon)
                daemon.wait_until(lambda: daemon.backfill_status(second) not in ("REQUESTED",), "the second ends", 300)
            assert daemon.backfill_status(second) == "COMPLETED_SUCCESS", statuses(daemon)
            daemon.await_rest()
            assert daemon.failed_steps() == 0, statuses(daemon)


def statuses(daemon: Daemon) -> Counter[tuple[str, str]]:
    """How runs have ended, by job."""
    return Counter((run.job_name, run.status.value) for run in daemon.instance.get_runs())
