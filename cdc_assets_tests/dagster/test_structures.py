"""A hand-over as Dagster shows it: what changed, from where on, which columns there are now."""

import dagster as dg
import pytest

from cdc_assets_tests.shop import Shop, key

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark_resource")]

ASSET = key("customers", "changes")


def drift_of(shop: Shop, instance: dg.DagsterInstance) -> dg.AssetCheckEvaluation:
    """What the check of drift says of the table now."""
    evaluations = shop.run("shop_headroom", instance).get_asset_check_evaluations()
    [found] = [found for found in evaluations if (found.check_name, found.asset_key) == ("schema_drift", ASSET)]
    return found


def columns_of(event: dg.AssetMaterialization) -> dict[str, list[str]]:
    """Columns of the table in a materialization, and whether they are in its key."""
    lineage = event.metadata["dagster/column_lineage"].value.deps_by_column
    schema = {column.name: column for column in event.metadata["dagster/column_schema"].value.columns}
    assert set(lineage) <= set(schema)
    assert {dep.asset_key for deps in lineage.values() for dep in deps} == {key("customers", "source")}
    names = [name for name in lineage if name.startswith("value.after.")]
    return {
        dep.column_name: list(schema[f"key.{dep.column_name}"].constraints.other)
        if f"key.{dep.column_name}" in schema
        else []
        for name in names
        for dep in lineage[name]
    }


def changes(shop: Shop, instance: dg.DagsterInstance) -> dg.AssetMaterialization:
    """A run, and what it reports of the table at its end."""
    result = shop.changes(instance)
    assert result.success
    return [e.materialization for e in result.get_asset_materialization_events() if e.asset_key == ASSET][-1]


@pytest.mark.long
def test_hand_over(shop: Shop, instance: dg.DagsterInstance) -> None:
    assert shop.snapshot(instance).success
    shop.execute("UPDATE dbo.customers SET active = 0 WHERE id = 1")
    before = changes(shop, instance)
    assert columns_of(before)["id"] == ["message key"]
    assert "structure_changed" not in before.metadata
    assert drift_of(shop, instance).passed

    shop.execute("ALTER TABLE dbo.customers ADD weight decimal(9, 3) NULL")
    evaluation = drift_of(shop, instance)
    assert not evaluation.passed
    assert evaluation.severity == dg.AssetCheckSeverity.WARN
    assert "weight added (decimal(9, 3))" in str(evaluation.description)
    remedy = str(evaluation.metadata["remedy"].value)
    shop.execute(remedy)
    shop.execute("UPDATE dbo.customers SET weight = 1.5 WHERE id = 1")
    handed = changes(shop, instance)
    assert "weight" not in columns_of(before)
    assert columns_of(handed) == columns_of(before) | {"weight": []}
    text = str(handed.metadata["structure_changed"].value)
    assert text.startswith("ALTER from ")
    assert text.endswith("weight added (decimal(9, 3))")
    assert str(handed.metadata["structure_from_lsn"].value) in text
    record = handed.metadata["schema_history_record"].value
    assert [column["name"] for column in record["table"]["columns"]][-1] == "weight"

    history = instance.get_latest_materialization_event(dg.AssetKey(["shop", "schema_history"]))
    assert history is not None
    assert history.asset_materialization is not None
    facts = history.asset_materialization.metadata
    assert str(facts["last_ddl"].value).startswith("ALTER of SalesDb.dbo.customers from ")
    assert str(facts["last_ddl"].value).endswith(": weight added (decimal(9, 3))")
    assert (facts["structures"].value, facts["tables"].value) == (6, 5), "one of a table that the filters leave out"
    newest = str(facts["newest_structures"].value).splitlines()[2]
    assert "SalesDb.dbo.customers | ALTER" in newest

    shop.execute("UPDATE dbo.customers SET weight = 2.5 WHERE id = 1")
    after = changes(shop, instance)
    assert columns_of(after) == columns_of(handed)
    assert "structure_changed" not in after.metadata
    last = drift_of(shop, instance)
    assert last.passed
    assert "sp_cdc_disable_table" in str(last.metadata["removal"].value)
