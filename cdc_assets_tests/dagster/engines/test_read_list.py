"""`snapshot.include.collection.list`: rows of other tables are not read at first, and nothing says that they were."""

from datetime import UTC, datetime
from unittest.mock import patch

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import Column, TableSchema
from cdc_assets.defs.engines.resource import ConnectorResource
from cdc_assets.overview.engine import answers_of, report_of_engine
from cdc_assets.overview.report import CaptureReport
from cdc_assets_tests.dagster.engines.deployment import Connector, Database, Deployment, key, materialized
from cdc_assets_tests.unit.connectors.engine.feeds import event

LEFT_OUT = "snapshot.include.collection.list leaves its existing rows out"
TABLES = [
    TableSchema(TableId("db", "", name), 0, (Column("id", "int", 1, False),), ("id",))
    for name in ("items1", "items2", "items3")
]


def report(shop: Deployment) -> CaptureReport:
    overview = ConnectorResource(properties=shop.properties()).overview()
    with patch.object(Database, "tables", return_value=TABLES):
        asked = answers_of(overview, lambda: shop.database.open(overview.config))
    return report_of_engine(overview, asked, datetime.now(UTC))


def reasons(shop: Deployment) -> dict[str, str]:
    return {table.table.table: table.reason for table in report(shop).tables}


def test_tables_that_the_first_snapshot_leaves_out_are_not_called_read(shop: Deployment) -> None:
    shop.more["snapshot.include.collection.list"] = r"db\.items1"
    assert reasons(shop) == {
        "items1": "the first run of the connector reads it",
        "items2": LEFT_OUT,
        "items3": LEFT_OUT,
    }
    with patch.object(Database, "tables", return_value=TABLES):
        first = shop.run("shop_snapshot", [key("snapshot", name) for name in ("items1", "items2")])
    assert first.success
    assert key("snapshot") in materialized(first)
    assert key("snapshot", "items2") not in materialized(first)
    end = shop.database.end = 11
    shop.connector = Connector([*shop.connector._events, event(end, topic="shop.db.items2", op="c")])
    assert shop.changes().success
    assert reasons(shop) == {"items1": "", "items2": LEFT_OUT, "items3": LEFT_OUT}
    assert report(shop).unknown == (), "they are not wanted"
    assert ConnectorResource(properties=shop.properties()).overview().state.later_lists == ()
    del shop.more["snapshot.include.collection.list"]
    assert [trouble.where for trouble in report(shop).unknown] == ["db.items2", "db.items3"]
    shop.more["snapshot.include.collection.list"] = "db[.](?<![a-z]{2,})items1"
    assert [trouble.where for trouble in report(shop).unknown] == ["db.items2", "db.items3"]
    del shop.more["snapshot.include.collection.list"]
    shop.more["snapshot.select.statement.overrides"] = "db.items2"
    assert [trouble.where for trouble in report(shop).unknown] == ["db.items2", "db.items3"]


def test_tables_of_which_a_statement_chooses_the_rows_are_not_called_read(shop: Deployment) -> None:
    shop.more["snapshot.select.statement.overrides"] = "db.items2, db.items3"
    assert shop.changes().success
    chosen = "snapshot.select.statement.overrides chooses among its existing rows"
    assert reasons(shop) == {"items1": "", "items2": chosen, "items3": chosen}
    assert report(shop).unknown == (), "they are not wanted"
    shop.more["snapshot.select.statement.overrides"] = "db.items2"
    assert [trouble.where for trouble in report(shop).unknown] == ["db.items3"]
    end = shop.database.end = 11
    shop.connector = Connector([*shop.connector._events, event(end, topic="shop.db.items1", op="c")])
    assert shop.changes().success
    assert ConnectorResource(properties=shop.properties()).overview().state.later_lists == ()
    del shop.more["snapshot.select.statement.overrides"]
    assert [trouble.where for trouble in report(shop).unknown] == ["db.items2", "db.items3"]
