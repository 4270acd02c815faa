"""The recipes of docs/reading.md, as they stand there, and what `current_rows` makes of hard histories."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.spark.current_rows import POSITION, current_rows
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.core.identifiers import TableId
from cdc_assets.defs.envelope_io import EnvelopeIOManager
from cdc_assets.defs.spark import SparkResource
from cdc_assets.errors import InvalidValueError
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets_tests.shop import ROOT, Shop, key, open_shop

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning"),
]
PAGE = (ROOT / "docs" / "reading.md").read_text()
OF_TABLES, OF_EVENTS = (
    next(iter(re.findall(r"```python\n(.*?)```", part, re.DOTALL)))
    for part in PAGE.split("## Tables\n")[1].split("## Events\n")
)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """Customers that were read, added, changed, removed, given another key and added again."""
    with open_shop(tmp_path_factory.mktemp("reading")) as found, dg.DagsterInstance.ephemeral() as instance:
        found.execute("UPDATE dbo.customers SET notes = N'long ' + name WHERE id <= 10")
        found.execute("CREATE TABLE dbo.loose (a int NULL)")
        found.execute("EXEC sys.sp_cdc_enable_table N'dbo', N'loose', @role_name = NULL")
        found.execute("CREATE TABLE dbo.[odd names] ([order id] int NOT NULL PRIMARY KEY, [a.b`c] varchar(10) NULL)")
        found.execute("EXEC sys.sp_cdc_enable_table N'dbo', N'odd names', @role_name = NULL")
        assert found.snapshot(instance).success
        found.execute("UPDATE dbo.customers SET name = N'changed' WHERE id < 5")
        found.execute("UPDATE dbo.customers SET notes = NULL WHERE id = 3")
        found.execute("INSERT INTO dbo.customers (name) VALUES (N'new'), (N'newer')")
        found.execute("DELETE FROM dbo.customers WHERE id = 42")
        found.execute("UPDATE dbo.customers SET name = N'changed again' WHERE id IN (2, 41)")
        found.execute("INSERT INTO dbo.[odd names] VALUES (1, 'x'), (2, 'y')")
        found.execute("UPDATE dbo.[odd names] SET [order id] = 3 WHERE [order id] = 1")
        found.execute("INSERT INTO dbo.loose VALUES (1)")
        assert found.changes(instance).success
        yield found


def rows(shop: Shop, spark: SparkResource, table: str) -> list[dict[str, Any]]:
    manager = EnvelopeIOManager(lake=str(shop.folder / "lake"), spark=spark)
    events = manager.load(f"shop.SalesDb.dbo.{table}")
    return [row.asDict() for row in current_rows(events).drop(POSITION).collect()]


@pytest.mark.long
def test_rows_are_the_servers(shop: Shop, spark_resource: SparkResource) -> None:
    found = {row["id"]: (row["name"], row["notes"]) for row in rows(shop, spark_resource, "customers")}
    expected = shop.execute("SELECT id, name, notes FROM dbo.customers")
    assert found == {identity: (name, notes) for identity, name, notes in expected}
    assert found[2] == ("changed again", found[2][1])
    assert str(found[2][1]).startswith("long "), "an unchanged large value is taken from an older event"


def test_names_may_be_odd_and_keys_may_change(shop: Shop, spark_resource: SparkResource) -> None:
    found = sorted(rows(shop, spark_resource, "odd_names"), key=lambda row: row["order id"])
    assert found == [{"order id": 2, "a.b`c": "y"}, {"order id": 3, "a.b`c": "x"}]


def test_large_values_that_no_event_of_a_key_has(spark_resource: SparkResource) -> None:
    """A row gets its key by a change of `message.key.columns`, also one that it had before; the placeholder was changed."""
    former, present = "__debezium_unavailable_value", "(not logged)"
    told = [
        ("r", 1, "n", "A"),
        ("r", 2, "s", "B"),
        ("d", 1, "n", None),
        ("c", 1, "e", former),
        ("u", 2, "s", former),
        ("d", 1, "e", None),
        ("c", 1, "n", present),
        ("u", 2, "s", present),
        ("c", 3, "w", None),
    ]
    events = [
        (
            f"{at:04}",
            {"id": number, "region": region},
            {"op": op, "after": None if op == "d" else (number, region, big)},
        )
        for at, (op, number, region, big) in enumerate(told)
    ]
    frame = spark_resource.spark_session.createDataFrame(
        events,
        "position string, key struct<id: int, region: string>, "
        "value struct<op: string, after: struct<id: int, region: string, big: string>>",
    )
    found = {row.id: row.big for row in current_rows(frame, [former, present]).collect()}
    assert found == {1: present, 2: "B", 3: None}


def test_without_a_key_there_is_an_error(shop: Shop, spark_resource: SparkResource) -> None:
    with pytest.raises(InvalidValueError, match=r"message\.key\.columns"):
        rows(shop, spark_resource, "loose")


def carried_out(recipe: str, shop: Shop, asset: str) -> dg.Definitions:
    """The recipe's definitions, after its asset was materialized."""
    with shop.in_environment(), dg.DagsterInstance.ephemeral() as instance:
        module: dict[str, Any] = {}
        exec(compile(recipe, "reading.md", "exec"), module)  # noqa: S102 - our own document
        definitions: dg.Definitions = module["defs"]()
        job = definitions.resolve_implicit_global_asset_job_def()
        assert job.execute_in_process(instance=instance, asset_selection=[dg.AssetKey(asset)]).success
    return definitions


@pytest.mark.long
def test_the_asset_of_the_document(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.json").symlink_to(shop.file)
    definitions = carried_out(OF_EVENTS, shop, "customers")
    assert key("customers", "changes") in {dep for spec in definitions.resolve_all_asset_specs() for dep in _deps(spec)}
    (count,) = shop.execute("SELECT COUNT(*) FROM dbo.customers")[0]
    assert DeltaTable("var/tables/customers").to_pyarrow_table().num_rows == count


def test_the_asset_of_the_document_that_reads_a_mirror(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.json").write_text(json.dumps(shop.properties | {"mirror.enabled": "true"}))
    table = TableId("SalesDb", "dbo", "customers")
    assert not CaptureMirrors(shop.config(), LocalRunner(2), SystemClock()).catch_up([table])
    definitions = carried_out(OF_TABLES, shop, "noted")
    assert key("customers", "current") in {dep for spec in definitions.resolve_all_asset_specs() for dep in _deps(spec)}
    found = DeltaTable("var/tables/noted").to_pyarrow_table(columns=["id", "name", "notes"]).to_pylist()
    expected = shop.execute("SELECT id, name, notes FROM dbo.customers WHERE notes IS NOT NULL")
    assert sorted(map(repr, (tuple(row.values()) for row in found))) == sorted(map(repr, expected))
    assert expected


def _deps(spec: dg.AssetSpec) -> list[dg.AssetKey]:
    return [dep.asset_key for dep in spec.deps]
