"""Rows that pages show of a table: few, short, and only what may be seen."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest

from cdc_assets.assembly.capture import discover
from cdc_assets.defs.markdown import markdown_table
from cdc_assets.defs.samples import SAMPLE, sample_of_events
from cdc_assets.lake.files import TopicWriter
from cdc_assets.lake.location import Location
from cdc_assets.lake.sample import newest_rows
from cdc_assets.lake.topics import TopicTables
from cdc_assets_tests.shop import Shop, key, open_shop


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with open_shop(tmp_path) as shop:
        yield shop


def shown(instance: dg.DagsterInstance, table: str, role: str) -> str:
    """The sample of an asset's newest materialization; empty if it has none."""
    event = instance.get_latest_materialization_event(key(table, role))
    assert event is not None
    assert event.asset_materialization is not None
    found = event.asset_materialization.metadata.get(SAMPLE)
    return str(found.value) if found else ""


def heads(table: str) -> list[str]:
    return [name.strip() for name in table.splitlines()[0].strip("|").split("|")]


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.usefixtures("spark_resource")
def test_rows_of_events_and_mirrors_are_shown_as_far_as_they_may_be_seen(shop: Shop) -> None:
    rules = {
        "mirror.enabled": "true",
        "lake.sample.rows": "3",
        "column.mask.with.5.chars": "dbo.customers.email",
        "column.mask.hash.SHA-256.with.salt.abc": "dbo.products.sku",
        "column.exclude.list": "dbo.customers.credit",
    }
    with dg.DagsterInstance.ephemeral() as instance:
        shop.write(rules)
        assert shop.snapshot(instance).success
        shop.execute("UPDATE dbo.customers SET name = REPLICATE(N'x', 70) WHERE id = 1")
        shop.execute("UPDATE dbo.products SET stock = stock + 1 WHERE sku = 'SKU-0001'")
        assert shop.changes(instance).success
        for role in ("snapshot", "changes", "current"):
            table = shown(instance, "customers", role)
            assert "name" in heads(table)
            assert "credit" not in table
            assert "example.com" not in table
            assert "(masked)" in table
            assert "SKU-" not in shown(instance, "products", role), (
                "the key's own column of a mirror, and the message key"
            )
        assert len(shown(instance, "customers", "current").splitlines()) == 2 + 3
        assert "| u |" in shown(instance, "customers", "changes")
        assert "x" * 39 + "…" in shown(instance, "customers", "changes")
        assert "x" * 40 not in shown(instance, "customers", "changes")
        shop.write(rules | {"lake.sample.rows": "0"})
        shop.execute("UPDATE dbo.customers SET name = N'y' WHERE id = 1")
        assert shop.changes(instance).success
        assert shown(instance, "customers", "changes") == shown(instance, "customers", "current") == ""


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.usefixtures("spark_resource")
def test_a_rule_hides_values_that_were_stored_before_it(shop: Shop) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        assert shop.snapshot(instance).success
        assert "example.com" in shown(instance, "customers", "snapshot")
        shop.write({"column.mask.with.5.chars": "dbo.customers.email"})
        config = shop.config()
        (schema,) = [found for found in discover(config) if found.table.table == "customers"]
        topic = f"shop.{schema.table}"
        found = sample_of_events(config, TopicTables.of(config), topic, schema, "snapshot")
        assert "example.com" not in found[SAMPLE].value


def write(tables: TopicTables, rows: pa.Table, number: int) -> None:
    """A commit of one file."""
    with TopicWriter(tables.location, "t", rows.schema, number) as writer:
        writer.write(rows.to_batches())
    tables.commit("t", rows.schema, writer.files, number, {})


def numbered(values: list[str], number: int) -> pa.Table:
    positions = [f"{number:04d}{place:08d}" for place in range(len(values))]
    return pa.table({"position": positions, "window_id": [number] * len(values), "note": values})


def test_few_rows_of_the_newest_file_are_read_and_large_values_are_not(tmp_path: Path) -> None:
    tables = TopicTables(Location(str(tmp_path)), "shop")
    assert newest_rows(tables, "t", ["note"], 3) == []
    write(tables, numbered(["old"] * 10, 1), 1)
    write(tables, numbered([f"new {n}" for n in range(1000)], 2), 2)
    assert newest_rows(tables, "t", ["note"], 2) == [{"note": "new 0"}, {"note": "new 1"}]
    assert newest_rows(tables, "t", ["note"], 2, lambda row: row["note"] == "new 9") == [{"note": "new 9"}]
    assert newest_rows(tables, "t", ["note"], 2, lambda row: row["note"] == "new 900") == [], "no scan"
    write(tables, numbered([f"{n}" * 50_000 for n in range(4)], 3), 3)
    assert newest_rows(tables, "t", ["position", "note"], 1) == [{"position": "000300000000"}]


def test_cells_are_text_whatever_they_look_like() -> None:
    table = markdown_table(["a"], [["<script>|\n**x**"]])
    assert table.splitlines()[-1] == "| \\<script\\>\\| \\*\\*x\\*\\* |"
