"""The check that compares mirrors with the server, and its job."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from cdc_assets_tests.shop import Shop, key, open_shop


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with open_shop(tmp_path) as shop:
        mirrors = {"mirror.enabled": "true", "mirror.table.include.list": "dbo.(customers|orders)"}
        shop.write({**mirrors, "mirror.reconcile.settle.ms": "500", "mirror.reconcile.ranges": "1"})
        yield shop


@pytest.mark.long
def test_mirrors_are_compared_with_the_server(shop: Shop) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        assert shop.snapshot(instance).success
        assert shop.changes(instance).success
        done = shop.run("shop_reconcile", instance)
        found = {result.asset_key: result for result in done.get_asset_check_evaluations()}
        assert found.keys() == {key("customers", "current"), key("orders", "current")}
        assert all(result.passed and result.check_name == "matches_source" for result in found.values())
        rows = shop.execute("SELECT COUNT(*) FROM dbo.customers")[0][0]
        assert found[key("customers", "current")].metadata["rows"].value == rows
        assert found[key("customers", "current")].metadata["key_ranges"].value == "1 of 1"
