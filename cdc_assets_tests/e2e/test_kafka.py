"""*Materialize all* of a project whose topics go to Kafka, in the real `dagster dev`: it ends green, and everything is published."""

from pathlib import Path

import pytest

from cdc_assets_tests.e2e.conftest import busy, dagster_dev
from cdc_assets_tests.kafka.broker import Broker
from cdc_assets_tests.kafka.publishing import read_committed
from cdc_assets_tests.shop import TABLES, open_shop

pytestmark = pytest.mark.timeout(900)


def test_materialize_all_ends_green_and_publishes(tmp_path: Path) -> None:
    with Broker(tmp_path / "broker") as broker, open_shop(tmp_path) as shop:
        shop.write({"kafka.enabled": "true", "bootstrap.servers": broker.servers})
        with dagster_dev(shop) as daemon:
            asked = daemon.materialize_all()
            with busy(daemon, "UPDATE dbo.products SET stock = stock + 1"):
                daemon.wait_until(lambda: daemon.backfill_status(asked) != "REQUESTED", "it ends", 300)
                assert daemon.backfill_status(asked) == "COMPLETED_SUCCESS", daemon.statuses
            daemon.await_rest()
            assert daemon.failed_steps() == 0, daemon.statuses

            def published() -> bool:
                topics = {table: f"shop.SalesDb.dbo.{table}" for table in TABLES}
                return all(
                    len(list(read_committed(broker, topic))) == len(shop.events(table))
                    for table, topic in topics.items()
                )

            daemon.wait_until(published, "each event is in Kafka, once", 120)
