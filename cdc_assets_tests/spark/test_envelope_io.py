"""Topic tables through the IO managers: what Spark loads, what it appends, once."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame

from cdc_assets.core.lsn import ZERO_LSN
from cdc_assets.defs.envelope_io import EnvelopeIOManager
from cdc_assets.defs.schema_history_io import SchemaHistoryIOManager
from cdc_assets.defs.spark import SparkResource
from cdc_assets.errors import EventsDroppedError
from cdc_assets.lake.location import Location
from cdc_assets.lake.retained import Retained, announce
from cdc_assets.lake.topics import TopicTables
from cdc_assets_tests.shop import Shop, key, open_shop

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning"),
]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, spark_resource: SparkResource) -> Iterator[Shop]:
    """A shop with 40 customers read, one added and one changed."""
    with open_shop(tmp_path_factory.mktemp("io")) as found, dg.DagsterInstance.ephemeral() as instance:
        assert found.snapshot(instance).success
        found.execute("INSERT INTO dbo.customers (name) VALUES (N'new')")
        assert found.changes(instance).success
        found.execute("UPDATE dbo.customers SET name = N'changed' WHERE id = 41")
        assert found.changes(instance).success
        yield found


def load(shop: Shop, spark: SparkResource, asset: dg.AssetKey, **metadata: str) -> DataFrame:
    """What an asset that depends on another gets."""
    manager = EnvelopeIOManager(lake=str(shop.folder / "lake"), spark=spark)
    context = dg.build_input_context(asset_key=asset, definition_metadata=metadata)
    return manager.load_input(context)


@pytest.mark.long
def test_roles_are_distinguished(shop: Shop, spark_resource: SparkResource) -> None:
    assert load(shop, spark_resource, key("customers", "snapshot")).count() == 40
    operations = load(shop, spark_resource, key("customers", "changes")).orderBy("position").select("value.op")
    assert [row.op for row in operations.collect()] == ["c", "u"]


def test_lsn_range_bounds_what_is_loaded(shop: Shop, spark_resource: SparkResource) -> None:
    first, second = (event["position"][:22] for event in shop.events("customers")[-2:])
    asset = key("customers", "changes")
    after = load(shop, spark_resource, asset, **{"cdc/from_lsn": first})
    assert [row.position[:22] for row in after.collect()] == [second]
    until = load(shop, spark_resource, asset, **{"cdc/to_lsn": first})
    assert [row.position[:22] for row in until.collect()] == [first]


@pytest.mark.parametrize("other_session", [pytest.param(False, marks=pytest.mark.long), True])
def test_returned_frame_is_the_table_whatever_session_is_active_and_any_reader_sees_it(
    shop: Shop, spark_resource: SparkResource, tmp_path: Path, *, other_session: bool
) -> None:
    manager = EnvelopeIOManager(lake=str(tmp_path), spark=spark_resource)
    frame = load(shop, spark_resource, key("customers", "changes"))

    @dg.asset(key=["copy", "customers"], io_manager_key="envelope_io")
    def copy() -> DataFrame:
        if other_session:
            spark_resource.lazy().session().newSession().createDataFrame([(1,)], "a int")  # makes that one active
        return frame

    for _ in range(2):
        assert dg.materialize([copy], resources={"envelope_io": manager}).success
        assert DeltaTable(str(tmp_path / "copy.customers")).to_pyarrow_table().num_rows == 2


def test_topics_are_named_as_the_capture_names_them(tmp_path: Path) -> None:
    facts = {"database.hostname": "h", "database.user": "u", "database.names": "D", "topic.prefix": "shop"}
    path = tmp_path / "shop.json"
    path.write_text(json.dumps(facts | {"topic.delimiter": "-", "topic.sanitize.pattern": "[^A-Za-z0-9-]"}))
    manager = EnvelopeIOManager(config_file=str(path), spark=SparkResource())
    assert manager.topic(dg.AssetKey(["shop", "D", "dbo", "a.b c.changes"])) == "shop-D-dbo-a_b_c"
    assert EnvelopeIOManager(lake="lake", spark=SparkResource()).topic(dg.AssetKey(["shop", "D", "dbo", "a.b c"])) == (
        "shop.D.dbo.a.b_c"
    )


def test_schema_history_of_one_table(shop: Shop, spark_resource: SparkResource) -> None:
    manager = SchemaHistoryIOManager(lake=str(shop.folder / "lake"), spark=spark_resource)
    context = dg.build_input_context(asset_key=key("customers", "changes"), definition_metadata={})
    (entry,) = manager.load_input(context).collect()
    assert entry.table == "customers"
    assert "name" in entry.columns


def test_an_input_that_was_dropped_is_refused_and_the_earliest_is_what_there_is(
    shop: Shop, spark_resource: SparkResource, tmp_path: Path
) -> None:
    shutil.copytree(shop.folder / "lake", tmp_path / "lake")
    created, changed = (event["position"][:22] for event in shop.events("customers")[-2:])
    tables = TopicTables(Location(str(tmp_path / "lake")), "shop")
    announce(tables, "shop.SalesDb.dbo.customers", 0, Retained(created, 1))
    manager = EnvelopeIOManager(lake=str(tmp_path / "lake"), spark=spark_resource)
    asset = key("customers", "changes")

    def load_from(start: str) -> list[str]:
        metadata = {"cdc/from_lsn": start} if start else {}
        frame = manager.load_input(dg.build_input_context(asset_key=asset, definition_metadata=metadata))
        return [row.position[:22] for row in frame.collect()]

    for start in ("", str(ZERO_LSN)):
        with pytest.raises(EventsDroppedError, match=created):
            load_from(start)
    assert load_from(created) == load_from("earliest") == [changed]
