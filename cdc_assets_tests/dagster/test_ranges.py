"""A backfill of key ranges reads exactly those rows again."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import DataFrame

from cdc_assets.config.settings import ColumnRule, EventSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.ports import KeyRange
from cdc_assets.defs.envelope_io import EnvelopeIOManager
from cdc_assets.defs.partitions import range_partitions
from cdc_assets.defs.range_facts import partition_facts, shown_ranges
from cdc_assets.defs.spark import SparkResource
from cdc_assets_tests.shop import Shop, key, open_shop

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark_resource")]

ROWS = 8000
"""The least that is cut into eight ranges."""
_LEDGER = """
CREATE TABLE dbo.ledger (id int NOT NULL PRIMARY KEY, amount int NOT NULL);
WITH digit AS (SELECT 0 AS d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
    UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)
INSERT INTO dbo.ledger (id, amount)
SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d, a.d FROM digit a, digit b, digit c, digit e WHERE e.d < 8;
EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'ledger', @role_name = NULL;
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, instance: dg.DagsterInstance) -> Iterator[Shop]:
    """A shop with a ledger that is large enough for eight ranges, snapshotted."""
    folder: Path = tmp_path_factory.mktemp("ranges")
    with open_shop(folder) as found:
        found.execute(_LEDGER)
        found.execute(_NAMED)
        assert found.snapshot(instance).success
        assert len(found.events("ledger")) == ROWS
        yield found


def again(shop: Shop, instance: dg.DagsterInstance, first: int, last: int) -> Counter[int]:
    """Keys of the events that a backfill of ranges `first` to `last` adds, all of them READs."""
    before = {event["position"] for event in shop.events("ledger")}
    tags = {
        "dagster/asset_partition_range_start": f"range_{first:02d}_of_08",
        "dagster/asset_partition_range_end": f"range_{last:02d}_of_08",
    }
    result = shop.snapshot(instance, due_only=False, assets=[key("ledger", "snapshot")], tags=tags)
    assert result.success
    new = [event for event in shop.events("ledger") if event["position"] not in before]
    assert {event["value"]["op"] for event in new} == {"r"}
    return Counter(event["key"]["id"] for event in new)


_NAMED = """
CREATE TABLE dbo.named (name varchar(20) NOT NULL PRIMARY KEY);
INSERT INTO dbo.named (name) SELECT CONCAT('name ', id) FROM dbo.ledger;
EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'named', @role_name = NULL;
"""


def downstream(
    shop: Shop, spark: SparkResource, table: str, partition: str
) -> tuple[dg.ExecuteInProcessResult, list[int]]:
    """Materialize one partition of an asset that depends on a snapshot; and the keys that it was given."""
    partitions, upstream = range_partitions(8), key(table, "snapshot")
    loaded: list[int] = []

    @dg.asset(partitions_def=partitions, ins={"reads": dg.AssetIn(upstream, input_manager_key="envelope_io")})
    def report(reads: DataFrame) -> None:
        loaded.extend(row[0] for row in reads.select("value.after.*").collect())

    result = dg.materialize(
        [dg.AssetSpec(upstream, partitions_def=partitions), report],
        partition_key=partition,
        resources={"envelope_io": EnvelopeIOManager(lake=str(shop.folder / "lake"), spark=spark)},
        raise_on_error=False,
    )
    return result, sorted(loaded)


@pytest.mark.parametrize(("number", "rows"), [(1, range(1000)), (3, range(2000, 3000)), (8, range(7000, 8000))])
def test_partition_is_loaded_as_the_rows_of_its_range(
    shop: Shop, spark_resource: SparkResource, number: int, rows: range
) -> None:
    result, loaded = downstream(shop, spark_resource, "ledger", f"range_{number:02d}_of_08")
    assert result.success
    assert loaded == list(rows)


def test_partition_of_a_small_table_is_all_of_it_or_nothing(shop: Shop, spark_resource: SparkResource) -> None:
    assert downstream(shop, spark_resource, "customers", "range_01_of_08")[1] == list(range(1, 41))
    assert downstream(shop, spark_resource, "customers", "range_02_of_08")[1] == []


def test_partition_by_text_is_refused_because_only_the_server_knows_its_order(
    shop: Shop, spark_resource: SparkResource
) -> None:
    result, loaded = downstream(shop, spark_resource, "named", "range_03_of_08")
    failure = result.failure_data_for_node("report")
    assert failure is not None
    assert "Only the server can order" in str(failure)
    assert loaded == []


def test_one_range_is_its_eighth_of_the_rows(shop: Shop, instance: dg.DagsterInstance) -> None:
    assert again(shop, instance, 3, 3) == Counter(range(2000, 3000))
    assert shop.differences() == {}


def test_rows_written_later_belong_to_the_same_range(shop: Shop, instance: dg.DagsterInstance) -> None:
    shop.execute("INSERT INTO dbo.ledger (id, amount) VALUES (-5, 0)")
    shop.execute("DELETE FROM dbo.ledger WHERE id = 3")
    assert again(shop, instance, 1, 1) == Counter([-5, *(number for number in range(1000) if number != 3)])


def test_two_backfills_that_share_no_range_cover_each_row_once(shop: Shop, instance: dg.DagsterInstance) -> None:
    keys = again(shop, instance, 1, 2) + again(shop, instance, 3, 8)
    assert keys == Counter(row[0] for row in shop.execute("SELECT id FROM dbo.ledger"))


def test_a_backfill_neither_loses_nor_hides_changes(shop: Shop, instance: dg.DagsterInstance) -> None:
    shop.execute("UPDATE dbo.ledger SET amount = 77 WHERE id = 4500")
    again(shop, instance, 5, 5)
    assert shop.changes(instance).success
    updates = [event for event in shop.events("ledger") if event["value"] and event["value"]["op"] == "u"]
    assert [event["value"]["after"]["amount"] for event in updates] == [77]
    assert shop.differences() == {}


def of_partitions(instance: dg.DagsterInstance, table: str) -> dict[str, dict[str, object]]:
    """Metadata of the newest materialization of each partition of a snapshot."""
    records = instance.fetch_materializations(key(table, "snapshot"), limit=100).records
    found: dict[str, dict[str, object]] = {}
    for record in reversed(records):
        event = record.asset_materialization
        assert event is not None
        assert event.partition is not None
        found[event.partition] = {name: value.value for name, value in event.metadata.items()}
    return found


def test_each_partition_has_numbers_of_its_own(shop: Shop, instance: dg.DagsterInstance) -> None:
    shop.execute("DELETE FROM dbo.ledger WHERE id BETWEEN 1000 AND 1009")
    again(shop, instance, 1, 3)
    found = of_partitions(instance, "ledger")
    assert [found[f"range_{n:02d}_of_08"]["rows"] for n in (1, 2, 3, 8)] == [1000, 990, 1000, 1000]
    assert {found[f"range_{n:02d}_of_08"]["table_rows"] for n in (1, 2, 3)} == {2990}
    assert found["range_01_of_08"]["key_range"] == "id < 1000"
    assert found["range_02_of_08"]["key_range"] == "1000 ≤ id < 2000"
    assert found["range_08_of_08"]["key_range"] == "id ≥ 7000"
    assert found["range_01_of_08"]["read_together"] == "range_01_of_08 to range_03_of_08"
    assert all(facts["seconds"] for facts in found.values())


def test_rows_that_only_the_server_can_tell_apart_are_not_guessed(shop: Shop, instance: dg.DagsterInstance) -> None:
    found = of_partitions(instance, "named")
    assert {"rows", "read_together"} & found["range_02_of_08"].keys() == {"read_together"}
    assert found["range_02_of_08"]["table_rows"] == ROWS
    small = of_partitions(instance, "customers")
    assert (small["range_01_of_08"]["rows"], small["range_01_of_08"]["key_range"]) == (40, "all rows")
    assert small["range_02_of_08"]["rows"] == 0


@pytest.mark.parametrize(
    ("events", "texts"),
    [
        (EventSettings("shop"), ["ssn < 078-05", "078-05 ≤ ssn < 412-00", "ssn ≥ 412-00"]),
        (
            EventSettings("shop", column_rules=(ColumnRule("mask", (r"dbo\.people\.ssn",), 3),)),
            ["ssn < (masked)", "(masked) ≤ ssn < (masked)", "ssn ≥ (masked)"],
        ),
    ],
)
def test_bounds_of_a_key_that_a_rule_hides_are_not_shown(events: EventSettings, texts: list[str]) -> None:
    table, bounds = TableId("SalesDb", "dbo", "people"), [None, "078-05", "412-00", None]
    ranges = [KeyRange("ssn", *pair) for pair in pairwise(bounds)]
    found = dict(partition_facts([], shown_ranges(table, ranges, events), ["a", "b", "c"], range(3)))
    assert [found[name]["key_range"] for name in "abc"] == texts
