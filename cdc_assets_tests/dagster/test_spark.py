"""Which runs start Spark: those that have work, as soon as it is known, and no others."""

import dagster as dg
import pytest

from cdc_assets.adapters.spark.session import LazySession
from cdc_assets.defs.partitions import all_ranges, range_partitions
from cdc_assets_tests.shop import Shop, tick

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark_resource")]

BY_SENSOR = {"dagster/sensor_name": "shop_lsn", **all_ranges(range_partitions(8))}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Notes of each request for a session, in this process."""
    found = list[str]()
    session = LazySession.session

    def note(lazy: LazySession, *java: str) -> object:
        found.append(lazy.settings.master)
        return session(lazy, *java)

    monkeypatch.setattr(LazySession, "session", note)
    return found


def test_runs_with_rows_to_read_run_on_spark(shop: Shop, instance: dg.DagsterInstance, asked: list[str]) -> None:
    assert shop.snapshot(instance).success
    assert asked
    shop.add_customers(1)
    asked.clear()
    assert shop.changes(instance).success
    assert asked
    assert shop.differences() == {}


def test_ticks_and_runs_that_find_nothing_start_none(
    shop: Shop, instance: dg.DagsterInstance, asked: list[str]
) -> None:
    tick(shop, instance)
    assert shop.changes(instance).success
    assert shop.snapshot(instance).success
    assert shop.run("shop_headroom", instance).success, "checks and the page"
    assert asked == []


@pytest.mark.long
def test_run_that_a_sensor_asks_for_starts_it_when_it_opens(
    shop: Shop, instance: dg.DagsterInstance, asked: list[str]
) -> None:
    for run in (shop.snapshot, shop.changes, shop.follow):
        asked.clear()
        assert run(instance, tags=BY_SENSOR).success
        assert asked
