"""Data frames that assets return: each materialization is the table, or its partition, and no topic is overwritten."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame

from cdc_assets import EnvelopeIOManager
from cdc_assets.defs.spark import SparkResource
from cdc_assets.errors import InvalidValueError
from cdc_assets_tests.shop import Shop, key, open_shop

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning"),
]
IO = "envelope_io"
DAYS = dg.StaticPartitionsDefinition(["2026-01-01", "2026-01-02"])
TOPIC = "shop.SalesDb.dbo.customers"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, spark_resource: SparkResource) -> Iterator[Shop]:
    with open_shop(tmp_path_factory.mktemp("own")) as found, dg.DagsterInstance.ephemeral() as instance:
        assert found.snapshot(instance).success
        yield found


class Lake:
    """A lake, and what is materialized into it."""

    def __init__(self, path: Path, spark: SparkResource) -> None:
        self.path, self.spark = path, spark
        self.io = EnvelopeIOManager(lake=str(path), spark=spark)

    def frame(self, rows: list[tuple[Any, ...]], columns: str) -> DataFrame:
        return self.spark.spark_session.createDataFrame(rows, columns)

    def run(self, *assets: dg.AssetsDefinition, partition: str | None = None) -> Mapping[str, Any]:
        """Metadata of the last materialization."""
        done = dg.materialize(list(assets), resources={IO: self.io}, partition_key=partition)
        found = done.get_asset_materialization_events()[-1].materialization.metadata
        return {name: entry.value for name, entry in found.items()}

    def rows(self, name: str, version: int | None = None) -> list[dict[str, Any]]:
        found = DeltaTable(str(self.path / name), version=version).to_pyarrow_table().to_pylist()
        return sorted(found, key=str)


@pytest.fixture
def lake(tmp_path: Path, spark_resource: SparkResource) -> Lake:
    return Lake(tmp_path, spark_resource)


def asset_of(frame: Any, *path: str, **more: Any) -> dg.AssetsDefinition:
    """An asset that returns what it is given."""

    @dg.asset(key=list(path), io_manager_key=IO, **more)
    def made() -> Any:
        return frame

    return made


@pytest.mark.long
def test_each_materialization_is_the_whole_table(lake: Lake) -> None:
    sums = asset_of(lake.frame([("a", 1), ("b", 2)], "name string, n long"), "reports", "sums")
    for _ in range(4):
        told = lake.run(sums)
        assert told["dagster/row_count"] == 2
    assert lake.rows("reports.sums") == [{"name": "a", "n": 1}, {"name": "b", "n": 2}]
    before = DeltaTable(str(lake.path / "reports.sums")).version()
    told = lake.run(asset_of(lake.frame([("c", "x")], "name string, other string"), "reports", "sums"))
    assert lake.rows("reports.sums") == [{"name": "c", "other": "x"}]
    assert told["dagster/uri"] == str(lake.path / "reports.sums")
    assert len(lake.rows("reports.sums", before)) == 2  # until vacuum
    assert lake.run(asset_of(lake.frame([], "name string"), "reports", "sums"))["dagster/row_count"] == 0
    assert lake.rows("reports.sums") == []


@pytest.mark.long
def test_a_partition_replaces_itself_and_is_loaded_by_itself(lake: Lake) -> None:
    seen = dict[str, list[int]]()

    @dg.asset(key=["reports", "daily"], partitions_def=DAYS, io_manager_key=IO)
    def daily(context: dg.AssetExecutionContext) -> DataFrame:
        day = context.partition_key
        return lake.frame([(day, len(seen))], "day string, n int")

    @dg.asset(ins={"daily": dg.AssetIn(["reports", "daily"])}, partitions_def=DAYS, io_manager_key=IO)
    def below(context: dg.AssetExecutionContext, daily: DataFrame) -> None:
        seen[context.partition_key] = [row.n for row in daily.collect()]

    @dg.asset(ins={"daily": dg.AssetIn(["reports", "daily"])}, io_manager_key=IO)
    def whole(daily: DataFrame) -> None:
        seen["all"] = sorted(row.n for row in daily.collect())

    for day in DAYS.get_partition_keys():
        lake.run(daily, below, partition=day)
    told = lake.run(daily, partition="2026-01-01")
    assert (told["dagster/row_count"], told["dagster/partition_row_count"]) == (2, 1)
    assert seen == {"2026-01-01": [0], "2026-01-02": [1]}
    dg.materialize([daily, whole], selection=[whole], resources={IO: lake.io})
    assert seen["all"] == [1, 2]


@pytest.mark.filterwarnings("ignore:Parameter `backfill_policy`")
def test_a_run_of_several_partitions_is_refused(lake: Lake) -> None:
    made = asset_of(
        lake.frame([(1,)], "n int"), "reports", "daily",
        partitions_def=DAYS, backfill_policy=dg.BackfillPolicy.single_run(),
    )  # fmt: skip
    first, last = DAYS.get_partition_keys()
    tags = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
    with pytest.raises(InvalidValueError, match="multi_run"):
        dg.materialize([made], resources={IO: lake.io}, tags=tags)


def test_an_asset_that_asks_for_it_appends(lake: Lake) -> None:
    log = {"metadata": {"cdc/write": "append"}}
    first = asset_of(lake.frame([("a",)], "name string"), "reports", "log", **log)
    assert lake.run(first)["dagster/row_count"] == 1
    told = lake.run(first)
    assert (told["dagster/row_count"], told["rows_appended"], told.get("columns_added")) == (2, 1, None)
    told = lake.run(asset_of(lake.frame([("b", 1)], "name string, n long"), "reports", "log", **log))
    assert (told["dagster/row_count"], told["columns_added"]) == (3, ["n"])
    assert lake.rows("reports.log")[-1] == {"name": "b", "n": 1}


def test_a_step_that_is_retried_writes_once(lake: Lake) -> None:
    tries = list[int]()

    class Fails(EnvelopeIOManager):
        def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
            super().handle_output(context, obj)
            if len(tries) < 2:
                raise dg.RetryRequested(max_retries=1)

    @dg.asset(key=["reports", "sums"], io_manager_key=IO)
    def sums() -> DataFrame:
        tries.append(1)
        return lake.frame([(len(tries),)], "n int")

    lake.io = Fails(lake=str(lake.path), spark=lake.spark)
    lake.run(sums)
    assert len(tries) == 2
    assert lake.rows("reports.sums") == [{"n": 1}]


@pytest.mark.long
def test_a_topic_of_a_capture_is_not_overwritten(shop: Shop, spark_resource: SparkResource) -> None:
    lake = Lake(shop.folder / "lake", spark_resource)
    frame = lake.frame([(1,)], "n int")
    before = DeltaTable(str(lake.path / TOPIC)).version()
    for path in (["shop", "SalesDb", "dbo", "customers"], ["shop.SalesDb", "dbo.customers"], ["shop.__windows"]):
        with pytest.raises(InvalidValueError, match=r"not overwritten.*another key"):
            lake.run(asset_of(frame, *path))
    role = list(key("customers", "changes").path)
    with pytest.raises(InvalidValueError, match="this asset is a topic"):
        lake.run(asset_of(frame, *role, metadata={"cdc/write": "overwrite"}))
    assert DeltaTable(str(lake.path / TOPIC)).version() == before
    with pytest.raises(InvalidValueError, match="append or overwrite"):
        lake.run(asset_of(frame, "reports", "x", metadata={"cdc/write": "replace"}))
    assert not (lake.path / "reports.x").exists()


@pytest.mark.long
def test_rows_that_were_appended_are_replaced(lake: Lake) -> None:
    appended = asset_of(lake.frame([("1", 0)], "position string, window_id long"), "reports", "old",
                        metadata={"cdc/write": "append"})  # fmt: skip
    lake.run(appended)
    lake.run(appended)
    assert lake.run(asset_of(lake.frame([(1,)], "n int"), "reports", "old"))["dagster/row_count"] == 1
    for number in range(30):  # past a checkpoint
        lake.run(asset_of(lake.frame([(number,)], "n int"), "reports", "old"))
    assert lake.rows("reports.old") == [{"n": 29}]


@pytest.mark.parametrize("last", ["sums", "orders.history", "changes"])
def test_names_of_roles_are_free_for_short_keys(lake: Lake, last: str) -> None:
    lake.run(asset_of(lake.frame([(1,)], "n int"), "reports", last))
    assert lake.rows(f"reports.{last}") == [{"n": 1}]


def test_what_is_no_data_frame_is_refused_by_its_name(lake: Lake) -> None:
    with pytest.raises(InvalidValueError, match=r"pandas.*DataFrame.*a data frame of Spark"):
        lake.run(asset_of(pd.DataFrame({"n": [1]}), "reports", "x"))
    with pytest.raises(InvalidValueError, match="types that Delta has"):
        lake.run(asset_of(lake.spark.spark_session.sql("SELECT make_interval(1) AS i"), "reports", "x"))
