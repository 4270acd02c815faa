"""The asset of the topics in Kafka, with a real broker."""

import json
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from typer.testing import CliRunner

from cdc_assets.cli.main import app
from cdc_assets.defs.derived_runs import KAFKA_TAG
from cdc_assets.overview.checks.sqlserver import PUBLISHED
from cdc_assets_tests.dagster.conftest import NESTED_RESOURCES
from cdc_assets_tests.kafka.broker import Broker
from cdc_assets_tests.kafka.publishing import read_committed
from cdc_assets_tests.shop import Shop, open_shop, tick
from mssql_standin import sample

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900), pytest.mark.filterwarnings(NESTED_RESOURCES)]
KEY = dg.AssetKey(["shop", "kafka"])
TOPIC = f"shop.{sample.DATABASE}.dbo.customers"


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with open_shop(tmp_path) as shop:
        yield shop


def status(shop: Shop) -> dict[str, object]:
    with shop.in_environment():
        done = CliRunner().invoke(app, ["status", "--config", str(shop.file), "--json"])
    found = json.loads(done.output)["published"]
    assert isinstance(found, dict)
    return found


def test_windows_are_published_in_the_run_that_writes_them_or_by_a_run_that_the_sensor_starts(
    shop: Shop, broker: Broker
) -> None:
    servers = {"bootstrap.servers": broker.servers}
    on, off = servers | {"kafka.enabled": "true"}, servers | {"kafka.enabled": "false"}
    shop.write(on)
    with dg.DagsterInstance.ephemeral() as instance:
        assert shop.snapshot(instance).success
        shop.add_customers(3)
        done = shop.changes(instance)
        assert done.success
        event = instance.get_latest_materialization_event(KEY)
        assert event is not None
        assert event.run_id == done.run_id
        assert event.asset_materialization is not None
        facts = event.asset_materialization.metadata
        [database] = shop.view().databases
        assert facts["published_to_lsn"].value == str(database.complete_to)
        assert facts["windows_behind"].value == 0
        assert float(str(facts["events_per_second"].value)) > 0
        assert len(list(read_committed(broker, TOPIC))) == len(shop.events("customers"))
        found = status(shop)
        assert (found["waiting"], found["lsn"], found["stopped"]) == (0, str(database.complete_to), {})
        assert tick(shop, instance).skip_message == "Nothing new."

        shop.write(off)
        shop.add_customers(2)
        assert shop.changes(instance).success
        assert status(shop)["waiting"] == 1
        shop.write(on)
        asked = tick(shop, instance)
        assert (asked.job_name, asked.tags[KAFKA_TAG]) == ("shop_publish", "1")
        assert shop.run("shop_publish", instance).success
        key = dg.AssetCheckKey(KEY, PUBLISHED.name)
        record = instance.event_log_storage.get_latest_asset_check_execution_by_key([key])[key]
        assert record.evaluation is not None
        assert record.evaluation.passed
        assert len(list(read_committed(broker, TOPIC))) == len(shop.events("customers"))
        assert tick(shop, instance).skip_message == "Nothing new."
