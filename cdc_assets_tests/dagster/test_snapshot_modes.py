"""Snapshot modes and unreadable tables, as the sensor and the `snapshot` assets deal with them."""

from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest

from cdc_assets.defs import schedule
from cdc_assets.defs.partitions import all_ranges, range_partitions
from cdc_assets.defs.reporter import Reporter
from cdc_assets.defs.runs import COMMITTED_TAG, FAILURE_REASON_TAG
from cdc_assets_tests.shop import TABLES, key, open_shop, tick_with_cursor
from mssql_standin import sample

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark_resource")]


@pytest.mark.long
def test_starts_of_each_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "FIRST_PAUSE", timedelta(0))
    with open_shop(tmp_path) as shop, dg.DagsterInstance.ephemeral() as instance:
        shop.write({"snapshot.mode": "initial_only"})
        request, cursor = tick_with_cursor(shop, instance)
        assert request.job_name == "shop_snapshot"
        assert shop.snapshot(instance).success
        shop.add_customers(1)
        assert str(cursor).startswith("Requested a run of shop_snapshot."), "the list of ticks shows cursors"
        said, after = tick_with_cursor(shop, instance, cursor)
        assert str(after).startswith(f"{said.skip_message} ")
        assert said.skip_message == "Nothing new."
        assert shop.changes(instance).success
        assert not [event for event in shop.events("customers") if event["value"]["op"] != "r"]

        shop.write({"snapshot.mode": "always"})
        request, cursor = tick_with_cursor(shop, instance, "the process before")
        assert (request.job_name, len(request.asset_selection)) == ("shop_snapshot", len(TABLES))
        job, failed = shop.definitions().resolve_job_def("shop_snapshot"), {FAILURE_REASON_TAG: "START_TIMEOUT"}
        instance.report_run_failed(instance.create_run_for_job(job, tags={**request.tags, **failed}))
        again, cursor = tick_with_cursor(shop, instance, cursor)
        assert (again.job_name, len(again.asset_selection)) == ("shop_snapshot", len(TABLES)), "nothing was read"
        instance.create_run_for_job(job, status=dg.DagsterRunStatus.SUCCESS, tags=again.tags)
        assert tick_with_cursor(shop, instance, cursor)[0].job_name == "shop_follow"
        before = len(shop.events("products"))
        assert shop.snapshot(instance).success
        assert len(shop.events("products")) == 2 * before


@pytest.mark.long
def test_start_whose_run_fails_in_its_report_reads_the_tables_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each run would read all of them again, and end in the same way."""
    monkeypatch.setattr(schedule, "FIRST_PAUSE", timedelta(0))

    def fails(*_: object) -> None:
        raise dg.Failure("no room in Dagster's storage", allow_retries=False)

    with open_shop(tmp_path) as shop, dg.DagsterInstance.ephemeral() as instance:
        shop.write({"snapshot.mode": "always"})
        request, cursor = tick_with_cursor(shop, instance, "the process before")
        with monkeypatch.context() as patch:
            patch.setattr(Reporter, "results", fails)
            assert not shop.snapshot(instance, tags=dict(request.tags)).success
        shop.add_customers(1)
        assert tick_with_cursor(shop, instance, cursor)[0].job_name == "shop_follow"


@pytest.mark.long
def test_start_during_a_pause_is_no_less_a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_shop(tmp_path) as shop, dg.DagsterInstance.ephemeral() as instance:
        assert shop.snapshot(instance).success
        job = shop.definitions().resolve_job_def("shop_snapshot")
        tags = {COMMITTED_TAG: "3", FAILURE_REASON_TAG: "STEP_FAILURE"}
        instance.report_run_failed(instance.create_run_for_job(job, tags=tags))
        shop.write({"snapshot.mode": "always"})
        found, cursor = tick_with_cursor(shop, instance, "the process before")
        assert "the next attempt starts after" in found.skip_message
        shop.add_customers(1)
        found, cursor = tick_with_cursor(shop, instance, cursor)
        assert found.job_name == "shop_follow", "changes do not wait for it"
        monkeypatch.setattr(schedule, "FIRST_PAUSE", timedelta(0))
        request, _ = tick_with_cursor(shop, instance, cursor)
        assert (request.job_name, len(request.asset_selection)) == ("shop_snapshot", len(TABLES))


@pytest.mark.long
def test_unreadable_table_stops_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    override = "snapshot.select.statement.overrides"
    with open_shop(tmp_path) as shop, dg.DagsterInstance.ephemeral() as instance:
        shop.write({override: "dbo.products", f"{override}.dbo.products": "SELECT * FROM dbo.nowhere"})
        result = shop.snapshot(instance)
        assert not result.success
        read = {event.asset_key for event in result.get_asset_materialization_events()}
        assert read == {key(table, "snapshot") for table in TABLES if table != "products"}
        (failed,) = [event for event in result.all_node_events if event.event_type_value == "STEP_FAILURE"]
        assert "dbo.products" in failed.event_specific_data.user_failure_data.description  # type: ignore[union-attr]
        assert "nowhere" in failed.event_specific_data.user_failure_data.description  # type: ignore[union-attr]

        found, cursor = tick_with_cursor(shop, instance)
        assert "1 tables could not be read" in found.skip_message
        shop.add_customers(1)
        assert tick_with_cursor(shop, instance, cursor)[0].job_name == "shop_follow", (
            "the others are streamed meanwhile"
        )
        assert shop.changes(instance).success

        monkeypatch.setattr(schedule, "FIRST_PAUSE", timedelta(0))
        request, _ = tick_with_cursor(shop, instance, cursor)
        assert (request.job_name, request.asset_selection) == ("shop_snapshot", [key("products", "snapshot")])
        shop.write({})
        assert shop.snapshot(instance).success
        assert tick_with_cursor(shop, instance, cursor)[0].skip_message == "Nothing new."


@pytest.mark.long
def test_table_that_is_gone_since_the_code_location_was_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_shop(tmp_path) as shop, dg.DagsterInstance.ephemeral() as instance:
        shop.execute("CREATE TABLE dbo.extra (id int PRIMARY KEY)")
        loaded = shop.definitions()
        shop.execute("DROP TABLE dbo.extra")
        assert shop.snapshot(instance).success
        request, cursor = tick_with_cursor(shop, instance, loaded=loaded)
        assert (request.job_name, request.asset_selection) == ("shop_snapshot", [key("extra", "snapshot")])
        with shop.in_environment():
            job = loaded.resolve_job_def(request.job_name)
            options = {"run_config": request.run_config, "tags": request.tags}
            result = job.execute_in_process(instance=instance, asset_selection=request.asset_selection, **options)
        assert result.success
        told = [entry.user_message for entry in instance.all_logs(result.run_id)]
        assert any("dbo.extra: not among the captured tables" in message for message in told)

        assert "the next attempt starts after" in tick_with_cursor(shop, instance, cursor, loaded)[0].skip_message
        shop.add_customers(1)
        assert tick_with_cursor(shop, instance, cursor, loaded)[0].job_name == "shop_follow", "the others are streamed"
        monkeypatch.setattr(schedule, "FIRST_PAUSE", timedelta(0))
        assert tick_with_cursor(shop, instance, cursor, loaded)[0].job_name == "shop_snapshot"


def test_database_that_is_away_is_told_instead_of_its_tables(tmp_path: Path) -> None:
    with open_shop(tmp_path) as shop, dg.DagsterInstance.ephemeral() as instance:
        assert shop.snapshot(instance).success
        shop.server.execute("CREATE DATABASE [Other]")
        shop.server.execute("EXEC sys.sp_cdc_enable_db", database="Other")
        shop.server.execute("CREATE TABLE dbo.extra (id int PRIMARY KEY)", database="Other")
        shop.server.execute(
            "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'extra', @role_name = NULL",
            database="Other",
        )
        shop.write({"database.names": f"{sample.DATABASE},Other"})
        loaded = shop.definitions()
        shop.server.execute("ALTER DATABASE [Other] SET OFFLINE WITH ROLLBACK IMMEDIATE")
        with shop.in_environment():
            run_config = {"ops": {"shop_read_tables": {"config": {"due_only": True}}}}
            job = loaded.resolve_job_def("shop_snapshot")
            result = job.execute_in_process(
                instance=instance, run_config=run_config, tags=dict(all_ranges(range_partitions(8)))
            )
        assert result.success
        told = [entry.user_message for entry in instance.all_logs(result.run_id)]
        assert any("Other is left out: " in message for message in told)
        assert not any("dbo.extra: not among the captured tables" in message for message in told)
