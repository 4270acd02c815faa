"""Somebody's own IO managers: they write whatever a capture writes, and what they report is what they have counted."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable

from cdc_assets import Append, EnvelopeIOManager, build_definitions
from cdc_assets.core.steps import listening
from cdc_assets.defs.component import SqlServerCdcComponent
from cdc_assets.defs.envelope_io import Committed
from cdc_assets.defs.spark import SparkResource
from cdc_assets.errors import InvariantError, LakeError
from cdc_assets_tests.appends import appends_in_logs
from cdc_assets_tests.dagster.own_io_managers import HISTORY, OWN, TOPICS
from cdc_assets_tests.shop import ROOT, Shop, key, open_shop
from mssql_standin import sample

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark_resource")]

CUSTOMERS = f"{sample.DATABASE}.dbo.customers"
SIGNALS = f"{sample.DATABASE}.dbo.{sample.SIGNAL_TABLE}"


class OwnShop(Shop):
    """A shop whose code location has them."""

    def definitions(self) -> dg.Definitions:
        with self.in_environment():
            return build_definitions(self.file, spark=SparkResource(master="local[2]"), **OWN)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """With everything that a capture can write."""
    folder = tmp_path_factory.mktemp("own")
    TOPICS.clear()
    HISTORY.clear()
    with open_shop(folder) as made:
        found = OwnShop(made.server, folder)
        found.write(
            {
                "signal.data.collection": SIGNALS,
                "provide.transaction.metadata": "true",
                "heartbeat.interval.ms": "1",
                "notification.enabled.channels": "sink",
                "notification.sink.topic.name": "shop.told",
            }
        )
        yield found


def request(shop: Shop, kind: str) -> None:
    data = json.dumps({"type": kind, "data-collections": [CUSTOMERS]})
    shop.execute(f"INSERT INTO {SIGNALS} VALUES ('{kind}', 'execute-snapshot', '{data}')")


def metadata_of(done: dg.ExecuteInProcessResult, asset: dg.AssetKey) -> Mapping[str, Any]:
    """What the last materialization of a run says."""
    events = [event for event in done.get_asset_materialization_events() if event.asset_key == asset]
    return {name: entry.value for name, entry in events[-1].materialization.metadata.items()}


@pytest.mark.long
def test_every_append_of_runs_is_a_call_of_its_io_manager(shop: Shop, instance: dg.DagsterInstance) -> None:
    done = shop.snapshot(instance)
    assert done.success
    told = metadata_of(done, key("customers", "snapshot"))
    assert (told["rows_committed"], told["commits"]) == (40, 1)

    shop.execute("UPDATE dbo.customers SET active = 0 WHERE id = 1")
    done = shop.changes(instance)
    assert done.success
    assert metadata_of(done, key("customers", "changes"))["rows_committed"] == 1

    for kind in ("incremental", "blocking"):
        request(shop, kind)
        assert shop.changes(instance).success
    shop.execute("ALTER TABLE dbo.customers ADD weight decimal(9, 3) NULL")
    shop.execute(
        "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'customers', @role_name = NULL, "
        "@capture_instance = N'customers_2'"
    )
    shop.execute("UPDATE dbo.customers SET weight = 1.5 WHERE id = 1")
    done = shop.changes(instance)
    assert done.success
    for name in ("schema_changes", "schema_history"):
        assert metadata_of(done, dg.AssetKey(["shop", name]))["commits"] == 1

    logged = appends_in_logs(shop.folder / "lake")
    assert TOPICS.landed + HISTORY.landed == logged
    assert set(HISTORY.landed) == {"shop.__schema_history"}
    written = {"shop", "shop.transaction", "shop.told", "__debezium-heartbeat.shop", f"shop.{CUSTOMERS}"}
    assert written <= set(TOPICS.landed)
    assert "shop.__schema_history" not in TOPICS.calls
    operations = [event["value"]["op"] for event in shop.events("customers") if event["value"]]
    assert operations.count("r") == 3 * 40
    assert operations.count("u") == 2
    assert shop.doubled() == []


@pytest.mark.long
def test_a_window_that_failed_behind_a_commit_is_counted_once(
    shop: Shop, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shop.snapshot(instance).success
    shop.execute("BEGIN TRAN; UPDATE dbo.customers SET active = 0; UPDATE dbo.products SET price = price + 1; COMMIT")
    failed = list[str]()

    def fail_once(append: Append) -> None:
        if not failed and append.topic.endswith((".customers", ".products")):
            failed.append(append.topic)
            raise ConnectionError("the register is away")

    shop.write(shop.properties | {"retriable.restart.connector.wait.ms": "10"})
    monkeypatch.setattr(TOPICS, "behind", fail_once)
    done = shop.changes(instance)
    assert done.success
    assert len(failed) == 1
    assert metadata_of(done, dg.AssetKey(["shop", "transactions"]))["commits"] == 1
    assert shop.doubled() == []
    assert TOPICS.landed + HISTORY.landed == appends_in_logs(shop.folder / "lake")


@pytest.mark.long
def test_rows_that_a_run_before_has_committed_are_counted_by_the_run_that_reports_them(
    shop: Shop, instance: dg.DagsterInstance
) -> None:
    left = ["table-committed"]

    def fail_once(step: str) -> None:
        if step in left:
            left.remove(step)
            raise LakeError(step)

    with listening(fail_once):
        assert not shop.snapshot(instance, due_only=False).success
    done = shop.snapshot(instance, due_only=False)
    assert done.success
    told = metadata_of(done, key("customers", "snapshot"))
    assert told["rows_committed"] == told["table_rows_reads"]
    assert shop.doubled() == []
    assert TOPICS.landed + HISTORY.landed == appends_in_logs(shop.folder / "lake")


def test_a_run_that_reports_more_than_was_written_fails(shop: Shop) -> None:
    with shop.in_environment():
        manager = EnvelopeIOManager(config_file=str(shop.file), spark=SparkResource())
        context = dg.build_output_context(asset_key=key("orders", "changes"))
        with pytest.raises(InvariantError, match=r"call super\(\)\.write"):
            manager.handle_output(context, Committed(f"shop.{sample.DATABASE}.dbo.orders", {}, {"c": 1}))


class OwnComponent(SqlServerCdcComponent):
    """A component with them."""

    def envelope_io(self) -> Any:
        return OWN["envelope_io"]

    def schema_history_io(self) -> Any:
        return OWN["schema_history_io"]


@pytest.mark.long
def test_a_component_has_them_too(shop: Shop, instance: dg.DagsterInstance) -> None:
    before = sum(TOPICS.landed.values())
    shop.execute("INSERT INTO dbo.customers (name) VALUES (N'by component')")
    with shop.in_environment():
        component = OwnComponent(config_file=str(shop.file))
        job = component.build_defs(dg.ComponentTree.for_test().load_context).resolve_job_def("shop_changes")
        assert job.execute_in_process(instance=instance).success
    assert sum(TOPICS.landed.values()) > before
    assert TOPICS.landed + HISTORY.landed == appends_in_logs(shop.folder / "lake")


def test_the_example_of_the_documents_runs(
    shop: Shop, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    [example] = [text for text in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "EnvelopeIOManager" in text]
    monkeypatch.chdir(shop.file.parent)
    assert shop.snapshot(instance).success
    shop.execute("INSERT INTO dbo.customers (name) VALUES (N'by the example')")
    with shop.in_environment():
        names: dict[str, Any] = {}
        exec(example, names)  # noqa: S102 - what users copy
        assert names["defs"].resolve_job_def("shop_changes").execute_in_process(instance=instance).success
    newest = DeltaTable(str(shop.folder / "lake" / f"shop.{CUSTOMERS}")).history(1)[0]
    assert newest["acme.team"] == "sales"
