"""Mirrors as assets: they follow in the runs that write topics, and by themselves."""

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster import DagsterRunStatus
from deltalake import DeltaTable

from cdc_assets.defs import mirrors
from cdc_assets.defs.derived_runs import MIRRORS_TAG
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets_tests.shop import TABLES, Shop, key, open_shop, tick
from mssql_standin import sample


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with open_shop(tmp_path) as shop:
        shop.write({"mirror.enabled": "true", "mirror.table.include.list": "dbo.(customers|orders)"})
        yield shop


def current(shop: Shop, table: str) -> dict[int, str]:
    place = shop.folder / "lake" / f"shop.{sample.DATABASE}.dbo.{table}.__current"
    return {row["id"]: row["name"] for row in DeltaTable(str(place)).to_pyarrow_table().to_pylist()}


def newest(instance: dg.DagsterInstance, asset: dg.AssetKey) -> dg.AssetMaterialization:
    event = instance.get_latest_materialization_event(asset)
    assert event is not None
    assert event.asset_materialization is not None
    return event.asset_materialization


@pytest.mark.long
def test_mirrors_follow_in_the_runs_that_write_topics(shop: Shop) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        assert shop.snapshot(instance).success
        shop.add_customers(3)
        shop.execute("UPDATE dbo.customers SET name = N'Ada' WHERE id = 1")
        assert shop.changes(instance).success
        assert current(shop, "customers") == dict(shop.execute("SELECT id, name FROM dbo.customers"))
        found = newest(instance, key("customers", "current"))
        rows = dict(shop.execute("SELECT COUNT(*), 1 FROM dbo.customers"))
        assert found.metadata["dagster/row_count"].value in rows
        lineage = found.metadata["dagster/column_lineage"].value
        assert lineage.deps_by_column["name"][0].asset_key == key("customers", "source")  # type: ignore[union-attr]
        assert (found.metadata["events"].value, found.metadata["leaves_rewritten"].value) == (4, 1)
        assert str(found.metadata["ran_on"].value).startswith(("Spark local[2] (local-", "this process: "))
        assert isinstance(lag := found.metadata["lag_seconds"].value, float)
        assert 0 <= lag < 3600
        columns = {column.name: column.description for column in found.metadata["dagster/column_schema"].value.columns}  # type: ignore[union-attr]
        assert columns["credit"] == "money; What the customer may still spend, in euro."
        ended = newest(instance, key("customers", "history")).metadata
        assert (ended["versions_ended"].value, ended["dagster/row_count"].value) == (1, 1)
        assert instance.get_latest_materialization_event(key("products", "current")) is None


@pytest.mark.long
def test_mirrors_can_be_made_by_themselves(shop: Shop) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        shop.write({"mirror.enabled": "false"})
        assert shop.snapshot(instance).success
        shop.write({"mirror.enabled": "true"})
        done = shop.run("shop_mirror", instance, [key("customers", "current")])
        assert done.success
        assert current(shop, "customers") == dict(shop.execute("SELECT id, name FROM dbo.customers"))
        assert newest(instance, key("customers", "current")).metadata["events"].value == len(current(shop, "customers"))


def ended(instance: dg.DagsterInstance, job: dg.JobDefinition, tags: Mapping[str, str]) -> dg.DagsterRun:
    """A run that has failed."""
    run = instance.create_run_for_job(job, tags=dict(tags))
    instance.report_run_failed(run)
    return run


@pytest.mark.long
def test_the_sensor_starts_a_run_for_mirrors_that_are_behind(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        shop.write({"mirror.enabled": "false"})
        assert shop.snapshot(instance).success
        assert shop.changes(instance).success
        shop.write({"mirror.enabled": "true"})
        asked = tick(shop, instance)
        assert (asked.job_name, "orders" in asked.tags[MIRRORS_TAG]) == ("shop_mirror", True)
        job = shop.definitions().resolve_job_def("shop_mirror")
        tries = [ended(instance, job, asked.tags)]
        assert tick(shop, instance).skip_message == "Nothing new.", (
            "it was tried, and the sensor has other things to do"
        )
        with monkeypatch.context() as patch:
            patch.setattr("cdc_assets.defs.schedule.FIRST_PAUSE", timedelta())
            again = tick(shop, instance)
            assert (again.job_name, again.tags) == (asked.job_name, asked.tags)
            assert again.run_key != asked.run_key
            tries += [ended(instance, job, asked.tags) for _ in range(7)]
            assert tick(shop, instance).skip_message == "Nothing new.", "it is refused"
        for run in tries:
            instance.delete_run(run.run_id)
        assert shop.run("shop_mirror", instance).success
        assert tick(shop, instance).skip_message == "Nothing new."


@pytest.mark.long
def test_the_sensor_starts_a_run_for_a_mirror_that_lacks_data(shop: Shop) -> None:
    """Its file was removed, and nothing changes, so no other run would come to it."""
    with dg.DagsterInstance.ephemeral() as instance:
        assert shop.snapshot(instance).success
        assert shop.changes(instance).success
        rows = current(shop, "customers")
        assert tick(shop, instance).skip_message == "Nothing new."
        topic = f"shop.{sample.DATABASE}.dbo.customers"
        place = shop.folder / "lake" / f"{topic}.__current"
        (path,) = DeltaTable(str(place)).file_uris()
        (place / path.rpartition("/")[2]).unlink()
        asked = tick(shop, instance)
        assert (asked.job_name, asked.tags[MIRRORS_TAG]) == ("shop_mirror", topic)
        assert shop.run("shop_mirror", instance, tags=asked.tags).success
        assert current(shop, "customers") == rows
        assert tick(shop, instance).skip_message == "Nothing new."


def test_assets_of_tables_with_a_mirror(shop: Shop) -> None:
    keys = {spec.key for spec in shop.definitions().resolve_all_asset_specs()}
    made = {table for table in TABLES if key(table, "current") in keys and key(table, "history") in keys}
    assert made == {"customers", "orders"}


@pytest.mark.long
def test_nothing_that_befalls_mirrors_ends_a_run_of_topics(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: Any, **named: Any) -> Any:
        raise pa.ArrowInvalid("offset overflow")

    with dg.DagsterInstance.ephemeral() as instance:
        with monkeypatch.context() as patch:
            patch.setattr(CaptureMirrors, "catch_up", broken)
            assert shop.snapshot(instance).success
            shop.add_customers(1)
            assert shop.changes(instance).success
            patch.setattr(CaptureMirrors, "behind", broken)
            assert "How far the mirrors are is not known" in tick(shop, instance).skip_message
        with monkeypatch.context() as patch:
            patch.setattr(mirrors, "materializations", broken)
            shop.add_customers(1)
            assert shop.changes(instance).success
        assert current(shop, "customers") == dict(shop.execute("SELECT id, name FROM dbo.customers"))


@pytest.mark.long
def test_a_run_of_topics_does_not_wait_for_a_mirror_that_lasts(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    catch_up, goes_on, ended = CaptureMirrors.catch_up, threading.Event(), threading.Event()

    def lasting(self: CaptureMirrors, *given: Any, **named: Any) -> Any:
        try:
            assert goes_on.wait(120)
            return catch_up(self, *given, **named)
        finally:
            ended.set()

    monkeypatch.setattr(mirrors, "_REST_S", 1.0)
    with dg.DagsterInstance.ephemeral() as instance:
        with monkeypatch.context() as patch:
            patch.setattr(CaptureMirrors, "catch_up", lasting)
            assert shop.snapshot(instance).success
            shop.add_customers(1)
            asked = tick(shop, instance)
            assert (asked.job_name, "customers" in asked.tags[MIRRORS_TAG]) == ("shop_mirror", True), (
                "before the stream"
            )
            job = shop.definitions().resolve_job_def("shop_mirror")
            working = instance.create_run_for_job(job, tags=asked.tags, status=DagsterRunStatus.STARTED)
            assert tick(shop, instance).job_name == "shop_follow", "beside it"
            began = monotonic()
            assert shop.changes(instance).success
            assert monotonic() - began < 60, "the mirrors are left to that run"
            instance.report_run_failed(working)
            goes_on.set()
            assert ended.wait(60)
        assert shop.run("shop_mirror", instance).success
        assert current(shop, "customers") == dict(shop.execute("SELECT id, name FROM dbo.customers"))
        assert tick(shop, instance).skip_message == "Nothing new."


@pytest.mark.long
def test_a_run_that_waits_for_its_mirrors_can_be_terminated(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on, waits = threading.Event(), threading.Event()

    def lasting(self: CaptureMirrors, *given: Any, **named: Any) -> Any:
        waits.set()
        goes_on.wait(120)
        return {}

    def terminate() -> None:
        assert waits.wait(120)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(CaptureMirrors, "catch_up", lasting)
    monkeypatch.setattr(mirrors, "_REST_S", 100.0)
    with dg.DagsterInstance.ephemeral() as instance:
        thread = threading.Thread(target=terminate)
        thread.start()
        try:
            assert not shop.snapshot(instance).success
        finally:
            asked = monotonic()
            goes_on.set()
            thread.join()
        assert monotonic() - asked < 60
        [run] = instance.get_runs()
        assert run.is_finished
        assert "RESTARTED" not in str([entry.user_message for entry in instance.all_logs(run.run_id)])


@pytest.mark.long
def test_run_that_somebody_asks_for_reports_all_that_is_selected(shop: Shop) -> None:
    """Also mirrors that have nothing new, and one of a table without rows; the sensor's run only what moved."""
    shop.execute("CREATE TABLE dbo.nothing (id int NOT NULL PRIMARY KEY)")
    shop.execute("EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'nothing', @role_name = NULL")
    shop.write({"mirror.enabled": "true", "mirror.table.include.list": "dbo.(customers|nothing)"})
    with dg.DagsterInstance.ephemeral() as instance:
        assert shop.snapshot(instance).success
        keys = {key(table, role) for table in ("customers", "nothing") for role in ("current", "history")}
        asked = shop.run("shop_mirror", instance)
        assert asked.success
        assert {event.asset_key for event in asked.get_asset_materialization_events()} == keys
        assert newest(instance, key("customers", "current")).metadata["dagster/row_count"].value == 40
        assert newest(instance, key("nothing", "current")).metadata["dagster/row_count"].value == 0
        own = shop.run("shop_mirror", instance, tags={"dagster/sensor_name": "shop_lsn"})
        assert own.success
        assert own.get_asset_materialization_events() == []
