"""The tables of a capture as a whole are assets: of those that the settings have written, and when they grew."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from cdc_assets.defs.envelope_io import EnvelopeIOManager
from cdc_assets.defs.spark import SparkResource
from cdc_assets_tests.shop import Shop, open_shop

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark_resource")]

ALWAYS = {"windows", "schema_history"}
OTHERS = {"schema_changes", "transactions", "heartbeat", "notifications"}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A shop that writes all of them."""
    with open_shop(tmp_path_factory.mktemp("told")) as shop:
        shop.write(
            {
                "provide.transaction.metadata": "true",
                "heartbeat.interval.ms": "1",
                "notification.enabled.channels": "sink",
                "notification.sink.topic.name": "notes",
            }
        )
        yield shop


def names(shop: Shop) -> set[str]:
    keys = shop.definitions().resolve_asset_graph().get_all_asset_keys()
    return {key.path[1] for key in keys if len(key.path) == 2}


def grown(done: dg.ExecuteInProcessResult) -> dict[str, int]:
    """Materialized tables of the capture as a whole, and how many rows they are said to have."""
    assert done.success
    found = [one.step_materialization_data.materialization for one in done.get_asset_materialization_events()]
    return {
        one.asset_key.path[1]: one.metadata["dagster/row_count"].value for one in found if len(one.asset_key.path) == 2
    }


def test_each_is_materialized_by_the_run_that_writes_it(told: Shop, instance: dg.DagsterInstance) -> None:
    assert names(told) == ALWAYS | OTHERS
    assert grown(told.snapshot(instance)).keys() == ALWAYS | OTHERS - {"transactions"}
    told.add_customers(2)
    rows = grown(told.follow(instance))
    assert rows.keys() == {"windows", "transactions", "heartbeat"}
    assert rows["transactions"] == len(told.rows("shop.transaction")) >= 4
    assert grown(told.follow(instance)).keys() <= {"heartbeat"}
    assert grown(told.changes(instance)).keys() == ALWAYS | OTHERS, "somebody has asked for all of them"


def test_they_can_be_loaded(told: Shop, spark_resource: SparkResource) -> None:
    with told.in_environment():
        manager = EnvelopeIOManager(config_file=str(told.file), spark=spark_resource)
        notes = manager.load_input(dg.build_input_context(asset_key=dg.AssetKey(["shop", "notifications"])))
        assert notes.orderBy("position").select("value.type").first()["type"] == "STARTED"


def test_what_is_not_written_is_no_asset(told: Shop, tmp_path: Path) -> None:
    quiet = Shop(told.server, tmp_path)
    quiet.write(
        {"include.schema.changes": "false", "provide.transaction.metadata": "false", "heartbeat.interval.ms": "0"}
    )
    assert names(quiet) == ALWAYS
