"""The SQL Server as Dagster knows it: bound once per capture, for our assets and for those of users."""

from contextlib import AbstractContextManager
from typing import Any

import dagster as dg
import pytest
from pydantic import PrivateAttr

from cdc_assets import SqlServerCdcResource
from cdc_assets.adapters.sqlserver.bulk import MssqlBulkSource
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.defs.captures import CaptureResource
from cdc_assets.defs.spark import SparkResource
from cdc_assets.errors import ConfigurationError
from cdc_assets_tests.shop import TABLES, Shop


def test_it_is_bound_and_assets_of_ones_own_can_ask_it(shop: Shop, instance: dg.DagsterInstance) -> None:
    seen: dict[str, Any] = {}

    @dg.asset(required_resource_keys={"shop_sqlserver"})
    def probe(context: dg.AssetExecutionContext) -> None:
        server: SqlServerCdcResource = context.resources.shop_sqlserver
        [seen["row"]] = server.query("SELECT COUNT(*) AS orders, ? AS mark FROM SalesDb.dbo.orders", "it")
        seen["tables"] = {schema.table.table for schema in server.tables()}
        with server.connection() as connection:
            seen["own"] = connection.execute("SELECT DB_NAME()").fetchval()

    with shop.in_environment():
        definitions = dg.Definitions.merge(shop.definitions(), dg.Definitions(assets=[probe]))
        job = definitions.resolve_implicit_global_asset_job_def()
        assert job.execute_in_process(instance=instance, asset_selection=[dg.AssetKey("probe")]).success
    (count,) = shop.execute("SELECT COUNT(*) FROM dbo.orders")[0]
    assert seen["row"] == {"orders": count, "mark": "it"}
    assert seen["tables"] == set(TABLES)
    assert seen["own"] == "SalesDb"


class CountedServer(SqlServerCdcResource):
    """Counts what it is asked for."""

    _asked: list[str] = PrivateAttr(default_factory=list)

    def source(self) -> AbstractContextManager[SqlServerSource]:
        self._asked.append("source")
        return super().source()

    def bulk(self) -> MssqlBulkSource:
        self._asked.append("bulk")
        return super().bulk()


def test_a_capture_works_with_the_bound_server(shop: Shop) -> None:
    server = CountedServer(config_file=str(shop.file))
    capture = CaptureResource(server=server, spark=SparkResource())
    with shop.in_environment(), capture.open("run", lambda _: None):
        assert server._asked == ["source", "bulk"]


def test_pages_show_the_place_of_the_settings_and_no_secret(shop: Shop) -> None:
    shown = repr(SqlServerCdcResource(config_file=str(shop.file)))
    assert str(shop.file) in shown
    assert shop.server.password not in shown
    properties = {"database.password": "${env:CDC_SHOP_PASSWORD}"}
    with shop.in_environment():
        assert "${env:CDC_SHOP_PASSWORD}" in repr(SqlServerCdcResource(properties=properties))


@pytest.mark.parametrize("fields", [{}, {"config_file": "a.json", "properties": {"name": "a"}}])
def test_one_way_of_telling_the_settings(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="config_file or properties"):
        SqlServerCdcResource(**fields).settings()
