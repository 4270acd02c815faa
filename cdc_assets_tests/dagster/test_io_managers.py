"""Somebody's own IO managers: they write whatever a capture writes, and what they report is what they have counted."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg
import pytest

from cdc_assets import EnvelopeIOManager, build_definitions
from cdc_assets.defs.component import SqlServerCdcComponent
from cdc_assets.defs.envelope_io import Committed
from cdc_assets.defs.spark import SparkResource
from cdc_assets.errors import InvariantError
from cdc_assets.standin import sample
from cdc_assets_tests.appends import appends_in_logs
from cdc_assets_tests.dagster.own_io_managers import HISTORY, OWN, TOPICS
from cdc_assets_tests.shop import Shop, key, open_shop

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark_resource")]

CUSTOMERS = f"{sample.DATABASE}.dbo.customers"
SIGNALS = f"{sample.DATABASE}.dbo.{sample.SIGNAL_TABLE}"


class OwnShop(Shop):
    """A shop whose code location has them."""

    def definitions(self) -> dg.Definitions:
        with self.in_environment():
            return build_definitions(self.file, spark=SparkResource(master="local[2]"), **OWN)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """With everything that a capture can write."""
    folder = tmp_path_factory.mktemp("own")
    with open_shop(folder) as made:
        found = OwnShop(made.server, folder)
        found.write(
            {
                "signal.data.collection": SIGNALS,
                "provide.transaction.metadata": "true",
                "heartbeat.interval.ms": "1",
                "notification.enabled.channels": "sink",
                "notification.sink.topic.name": "shop.told",
            }
        )
        yield found


def request(shop: Shop, kind: str) -> None:
    data = json.dumps({"type": kind, "data-collections": [CUSTOMERS]})
    shop.execute(f"INSERT INTO {SIGNALS} VALUES ('{kind}', 'execute-snapshot', '{data}')")


def metadata_of(done: dg.ExecuteInProcessResult, asset: dg.AssetKey) -> Mapping[str, Any]:
    """What the last materialization of a run says."""
    events = [event for event in done.get_asset_materialization_events() if event.asset_key == asset]
    return {name: entry.value for name, entry in events[-1].materialization.metadata.items()}


def test_every_append_of_runs_is_a_call_of_its_io_manager(shop: Shop, instance: dg.DagsterInstance) -> None:
    TOPICS.clear()
    HISTORY.clear()
    done = shop.snapshot(instance)
    assert done.success
    told = metadata_of(done, key("customers", "snapshot"))
    assert (told["rows_committed"], told["commits"]) == (40, 1)

    shop.execute("UPDATE dbo.customers SET active = 0 WHERE id = 1")
    done = shop.changes(instance)
    assert done.success
    assert metadata_of(done, key("customers", "changes"))["rows_committed"] == 1

    for kind in ("incremental", "blocking"):
        request(shop, kind)
        assert shop.changes(instance).success
    shop.execute("ALTER TABLE dbo.customers ADD weight decimal(9, 3) NULL")
    shop.execute(
        "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'customers', @role_name = NULL, "
        "@capture_instance = N'customers_2'"
    )
    shop.execute("UPDATE dbo.customers SET weight = 1.5 WHERE id = 1")
    done = shop.changes(instance)
    assert done.success
    for name in ("schema_changes", "schema_history"):
        assert metadata_of(done, dg.AssetKey(["shop", name]))["commits"] == 1

    logged = appends_in_logs(shop.folder / "lake")
    assert TOPICS.landed + HISTORY.landed == logged
    assert set(HISTORY.landed) == {"shop.__schema_history"}
    written = {"shop", "shop.transaction", "shop.told", "__debezium-heartbeat.shop", f"shop.{CUSTOMERS}"}
    assert written <= set(TOPICS.landed)
    assert "shop.__schema_history" not in TOPICS.calls
    operations = [event["value"]["op"] for event in shop.events("customers") if event["value"]]
    assert operations.count("r") == 3 * 40
    assert operations.count("u") == 2
    assert shop.doubled() == []


def test_a_run_that_reports_more_than_was_written_fails(shop: Shop) -> None:
    with shop.in_environment():
        manager = EnvelopeIOManager(config_file=str(shop.file), spark=SparkResource())
        context = dg.build_output_context(asset_key=key("orders", "changes"))
        with pytest.raises(InvariantError, match=r"call super\(\)\.write"):
            manager.handle_output(context, Committed(f"shop.{sample.DATABASE}.dbo.orders", {}, {"c": 1}))


class OwnComponent(SqlServerCdcComponent):
    """A component with them."""

    def envelope_io(self) -> Any:
        return OWN["envelope_io"]

    def schema_history_io(self) -> Any:
        return OWN["schema_history_io"]


def test_a_component_has_them_too(shop: Shop, instance: dg.DagsterInstance) -> None:
    before = sum(TOPICS.landed.values())
    shop.execute("INSERT INTO dbo.customers (name) VALUES (N'by component')")
    with shop.in_environment():
        component = OwnComponent(config_file=str(shop.file))
        job = component.build_defs(dg.ComponentTree.for_test().load_context).resolve_job_def("shop_changes")
        assert job.execute_in_process(instance=instance).success
    assert sum(TOPICS.landed.values()) > before
    assert TOPICS.landed + HISTORY.landed == appends_in_logs(shop.folder / "lake")
