"""A backfill of key ranges reads exactly those rows again."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

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
