"""Snapshot and changes of the shop through real Dagster runs, real Spark, a real Delta lake."""

import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from time import monotonic, sleep
from unittest.mock import patch

import dagster as dg
import pytest

from cdc_assets.core.steps import listening
from cdc_assets.defs import changes
from cdc_assets.defs.runs import MADE_WAY_TAG
from cdc_assets.errors import LakeError
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.overview.checks.sqlserver import CHECKS
from cdc_assets_tests.beside import beside
from cdc_assets_tests.dagster.turns import turns_of
from cdc_assets_tests.patience import wait_until
from cdc_assets_tests.shop import TABLES, Shop, key

WINDOWS = dg.AssetKey(["shop", "windows"])

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark_resource")]


def materialized(result: dg.ExecuteInProcessResult) -> set[dg.AssetKey]:
    """Assets that a run reported."""
    return {event.asset_key for event in result.get_asset_materialization_events() if event.asset_key}


def metadata(result: dg.ExecuteInProcessResult, asset: dg.AssetKey) -> dict[str, object]:
    """Metadata of an asset's last materialization in a run."""
    events = [e.materialization for e in result.get_asset_materialization_events() if e.asset_key == asset]
    return {name: value.value for name, value in events[-1].metadata.items()}


def test_first_run_reads_every_row_once(shop: Shop, instance: dg.DagsterInstance) -> None:
    result = shop.snapshot(instance)
    assert result.success
    system = {dg.AssetKey(["shop", name]) for name in ("windows", "schema_history", "schema_changes")}
    assert materialized(result) == {key(table, "snapshot") for table in TABLES} | system
    assert shop.differences() == {}
    assert {event["value"]["op"] for table in TABLES for event in shop.events(table)} == {"r"}
    facts = metadata(result, key("customers", "snapshot"))
    assert facts["table_rows_reads"] == 40
    assert facts["dagster/row_count"] == 40


def test_second_run_reads_no_row_again(shop: Shop, instance: dg.DagsterInstance) -> None:
    before = {table: len(shop.events(table)) for table in TABLES}
    result = shop.snapshot(instance)
    assert result.success
    assert materialized(result) == set()
    assert {table: len(shop.events(table)) for table in TABLES} == before


def test_changes_report_only_tables_that_changed(shop: Shop, instance: dg.DagsterInstance) -> None:
    shop.execute("INSERT INTO dbo.customers (name) VALUES (N'Zoë')")
    shop.execute("UPDATE dbo.customers SET name = N'Ada' WHERE id = 1")
    shop.execute("DELETE FROM dbo.customers WHERE id = 41")
    result = shop.follow(instance)
    assert result.success
    tables = {asset for asset in materialized(result) if asset.path[-1].endswith(".changes")}
    assert tables == {key("customers", "changes")}
    facts = metadata(result, key("customers", "changes"))
    assert [facts[f"rows_{name}"] for name in ("creates", "updates", "deletes", "tombstones")] == [1, 1, 1, 1]
    assert facts["dagster/row_count"] == 44
    assert str(facts["from_lsn"]) < str(facts["to_lsn"])
    assert isinstance(facts["lag_seconds"], float)
    assert shop.differences() == {}


def test_one_selected_table_brings_all_along_and_says_so(shop: Shop, instance: dg.DagsterInstance) -> None:
    shop.execute("UPDATE dbo.customers SET name = N'Grace' WHERE id = 2")
    shop.execute("UPDATE dbo.products SET stock = stock + 1")
    chosen = key("customers", "changes")
    result = shop.changes(instance, assets=[chosen])
    assert result.success
    tables = {asset for asset in materialized(result) if asset.path[-1].endswith(".changes")}
    assert tables == {chosen, key("products", "changes")}
    assert {found.asset_key for found in result.get_asset_check_evaluations()} == {chosen}
    assert shop.differences() == {}
    assert materialized(shop.follow(instance)) == set()


def test_checks_are_reported_with_the_first_window_and_at_the_end(shop: Shop, instance: dg.DagsterInstance) -> None:
    """A run of a busy capture takes minutes; its checks must not be "in progress" for all of them."""
    shop.execute("UPDATE dbo.products SET stock = stock + 1")
    run = shop.changes(instance).run_id
    kind = dg.DagsterEventType.ASSET_CHECK_EVALUATION
    events = [entry.dagster_event for entry in instance.all_logs(run, of_type=kind)]
    found = [event.asset_check_evaluation_data for event in events if event]
    told = Counter(check.asset_key for check in found if check.check_name == "lsn_continuity")
    assert set(told) == {key(table, "changes") for table in TABLES}
    assert set(told.values()) == {2}, "with the first look or window, whichever comes first, and at the end"
    whole = [(check.check_name, check.passed) for check in found if check.asset_key == WINDOWS]
    of_capture = [(one.name, True) for one in CHECKS if one.of == "capture"]
    assert sorted(whole) == sorted(of_capture), "each result once in a run"
    assert not [entry for entry in instance.all_logs(run) if "did not yield" in entry.user_message]


def test_every_table_is_checked_for_gaps(shop: Shop, instance: dg.DagsterInstance) -> None:
    evaluations = shop.changes(instance).get_asset_check_evaluations()
    assert {(found.asset_key, found.check_name, found.passed) for found in evaluations} == {
        (key(table, "changes"), "lsn_continuity", True) for table in TABLES
    }


def test_headroom_is_reported_for_every_table(shop: Shop, instance: dg.DagsterInstance) -> None:
    evaluations = shop.run("shop_headroom", instance).get_asset_check_evaluations()
    (found,) = [found for found in evaluations if found.check_name == "retention_headroom"]
    assert found.passed
    records = found.metadata["tables"].value.records  # type: ignore[union-attr]
    assert [record.data["table"] for record in records] == [f"SalesDb.dbo.{table}" for table in TABLES]


def test_drift_warns_with_the_t_sql_that_mends_it(shop: Shop, instance: dg.DagsterInstance) -> None:
    shop.execute("ALTER TABLE dbo.products ADD colour nvarchar(20) NULL")
    evaluations = shop.run("shop_headroom", instance).get_asset_check_evaluations()
    drifts = {found.asset_key: found for found in evaluations if found.check_name == "schema_drift"}
    assert {asset for asset, found in drifts.items() if not found.passed} == {key("products", "changes")}
    assert set(drifts) == {key(table, "changes") for table in TABLES}
    found = drifts[key("products", "changes")]
    assert found.severity == dg.AssetCheckSeverity.WARN
    assert found.metadata["differences"].value == ["colour added (nvarchar(20))"]
    assert "sp_cdc_enable_table" in str(found.metadata["remedy"].value)


def test_run_of_the_sensor_that_finds_nothing_reports_nothing(shop: Shop, instance: dg.DagsterInstance) -> None:
    result = shop.follow(instance)
    assert result.success
    assert materialized(result) == set()


def test_run_for_which_another_one_waits_from_the_beginning_reads_before_it_leaves(
    shop: Shop, instance: dg.DagsterInstance
) -> None:
    """Else the runs of two code locations that have the capture would make way for each other, and none would read anything."""
    shop.execute("UPDATE dbo.products SET stock = stock + 1")
    waits = patch("cdc_assets.defs.turns.Turns.is_wanted", return_value=True)
    elsewhere = patch("cdc_assets.defs.turns.Turns.wanted_elsewhere", return_value="other@location")
    with waits, elsewhere:
        result = shop.follow(instance)
    assert key("products", "changes") in materialized(result)
    run = instance.get_run_by_id(result.run_id)
    assert run is not None
    assert run.tags[MADE_WAY_TAG] == "other@location"


def test_run_that_somebody_asks_for_reports_all_that_is_selected(shop: Shop, instance: dg.DagsterInstance) -> None:
    """Else nothing downstream of a quiet table starts, and a backfill of all assets fails."""
    result = shop.changes(instance)
    assert result.success
    system = {dg.AssetKey(["shop", name]) for name in ("windows", "schema_history", "schema_changes")}
    assert materialized(result) == {key(table, "changes") for table in TABLES} | system
    facts = metadata(result, key("orders", "changes"))
    assert (facts["rows"], facts["windows"], facts["dagster/row_count"]) == (0, 0, 80)
    assert "dagster/column_schema" in facts
    chosen = [key("orders", "changes")]
    assert materialized(shop.changes(instance, assets=chosen)) == {*chosen}


def test_run_that_somebody_asks_for_ends_at_what_was_committed_when_it_began(
    shop: Shop, instance: dg.DagsterInstance
) -> None:
    shop.changes(instance)
    shop.write({"stream.idle.timeout.ms": "60000"})
    shop.add_customers(1)
    (newest,) = shop.execute("SELECT MAX(id) FROM dbo.customers")[0]

    def work(over: threading.Event) -> None:
        while not over.wait(0.05):
            shop.add_customers(1)

    try:
        with beside(work):
            started = monotonic()
            result = shop.changes(instance)
            assert monotonic() - started < 40, "it followed what was committed later"
        assert result.success
        messages = [entry.user_message for entry in instance.all_logs(result.run_id)]
        assert any(message.endswith("ended: goal") for message in messages)
        assert newest in {event["key"]["id"] for event in shop.events("customers")}
    finally:
        shop.write({})


def record(shop: Shop) -> str:
    """Address of the capture's record."""
    return Location.of(shop.config().lake).uri("shop.__windows")


@pytest.mark.long
def test_run_waits_for_another_that_writes_the_capture(shop: Shop, instance: dg.DagsterInstance) -> None:
    """Without a limit of the pool both begin, and one would end the other by the fence."""
    job = shop.definitions().resolve_job_def("shop_snapshot")
    other = instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
    holder = turns_of(instance, other, record(shop))
    holder.take()
    with ThreadPoolExecutor() as pool:
        running = pool.submit(shop.changes, instance)
        wait_until(holder.is_wanted, 240, lambda: "no run wants its turn")
        sleep(1)
        assert not running.done()
        holder.leave()
        result = running.result(240)
    assert result.success
    said = [entry.user_message for entry in instance.all_logs(result.run_id)]
    assert any(f"Waits for run {other.run_id[:8]} of shop_snapshot" in message for message in said)
    instance.delete_run(other.run_id)


def test_stream_makes_way_for_a_run_that_wants_its_turn(shop: Shop, instance: dg.DagsterInstance) -> None:
    job = shop.definitions().resolve_job_def("shop_changes")
    other = instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
    run_config = {"ops": {"shop_follow_log": {"config": {"idle_timeout_s": 250.0}}}}
    with ThreadPoolExecutor() as pool:
        running = pool.submit(shop.follow, instance, run_config=run_config)
        wait_until(lambda: _has_turn(instance), 240, lambda: "the run does not begin")
        with turns_of(instance, other, record(shop)).taken():
            assert running.result(1).success
    instance.delete_run(other.run_id)


def _has_turn(instance: dg.DagsterInstance) -> bool:
    runs = instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED]))
    return any(value for run in runs for name, value in run.tags.items() if "cdc_turn" in name)


def test_loop_gives_way_to_a_waiting_snapshot(shop: Shop, instance: dg.DagsterInstance) -> None:
    waiting = instance.create_run_for_job(
        shop.definitions().resolve_job_def("shop_snapshot"), status=dg.DagsterRunStatus.NOT_STARTED
    )
    try:
        run_config = {"ops": {"shop_follow_log": {"config": {"idle_timeout_s": 60.0}}}}
        started = monotonic()
        assert shop.changes(instance, run_config=run_config).success
        assert monotonic() - started < 30, "it waited for its idle time instead"
    finally:
        instance.delete_run(waiting.run_id)


@pytest.mark.long
def test_stream_ends_for_other_settings_and_no_other_login(shop: Shop, instance: dg.DagsterInstance) -> None:
    """It went on with those with which it began for twelve hours: mirrors that were turned on did not come."""
    shop.write({"stream.idle.timeout.ms": "600000"})
    written = shop.file.read_text()
    try:
        with (
            ThreadPoolExecutor() as pool,
            patch.object(changes, "_SETTINGS_EVERY_S", 0.2),
            patch.object(changes, "_without_login", wraps=changes._without_login) as compared,
        ):
            running = pool.submit(shop.follow, instance)
            wait_until(lambda: compared.call_count > 2, 240, lambda: "the run does not follow")
            for other in "{", json.dumps(json.loads(written) | {"database.user": "another"}):
                shop.file.write_text(other)
                sleep(2)
            assert not running.done()
            shop.write({"mirror.interval.ms": "2000"})
            result = running.result(60)
        assert result.success
        told = [entry.user_message for entry in instance.all_logs(result.run_id)]
        assert any("The settings have changed" in line for line in told)
    finally:
        shop.write({})


def test_limits_of_the_launchpad_go_before_the_configured_ones(shop: Shop, instance: dg.DagsterInstance) -> None:
    def ended(result: dg.ExecuteInProcessResult) -> str:
        told = [entry.user_message for entry in instance.all_logs(result.run_id)]
        (line,) = [message for message in told if "; ended: " in message]
        return line.rpartition(" ")[2]

    assert shop.snapshot(instance).success
    # on a slow machine it would be idle before its time is over
    shop.write({"stream.max.duration.ms": "1", "stream.idle.timeout.ms": "60000"})
    try:
        limits = {"ops": {"shop_follow_log": {"config": {"max_duration_s": 0.0}}}}
        assert ended(shop.follow(instance)) == "deadline"
        shop.write({"stream.max.duration.ms": "1"})
        assert ended(shop.follow(instance, run_config=limits)) == "idle"
        assert ended(shop.changes(instance, run_config=limits)) == "idle"
    finally:
        shop.write({})


@pytest.mark.long
def test_time_for_which_nothing_streamed_is_told_by_the_next_run(shop: Shop, instance: dg.DagsterInstance) -> None:
    def line(result: dg.ExecuteInProcessResult) -> list[str]:
        told = [entry.user_message for entry in instance.all_logs(result.run_id)]
        return [message for message in told if "Nothing was streamed for" in message]

    assert shop.changes(instance).success
    # on a slow machine it would be idle before its time is over
    shop.write({"stream.max.duration.ms": "1", "stream.idle.timeout.ms": "60000"})
    try:
        assert not line(shop.follow(instance)), "the run before had read everything"
    finally:
        shop.write({})
    shop.add_customers(1)
    result = shop.changes(instance)
    assert len(line(result)) == 1
    gap_s = metadata(result, WINDOWS)["seconds_between_runs"]
    assert isinstance(gap_s, float)
    assert 0 <= gap_s < 120
    assert not line(shop.changes(instance))


def test_table_that_cannot_be_trusted_fails_the_run_in_which_that_began(
    shop: Shop, instance: dg.DagsterInstance
) -> None:
    assert shop.changes(instance).success
    config, check = shop.config(), dg.AssetCheckKey(key("orders", "changes"), "lsn_continuity")
    manifest = Manifest(TopicTables.of(config), config.events.topic_prefix)
    [orders] = [entry for table, entry in manifest.read().tables.items() if table.table == "orders"]

    def follows() -> bool:
        return shop.run("shop_follow", instance).success

    def is_green() -> bool:
        record = instance.event_log_storage.get_latest_asset_check_execution_by_key([check])[check]
        assert record.evaluation is not None
        return record.evaluation.passed

    for _ in range(2):
        manifest.claim(datetime.now(UTC))
        manifest.mark(datetime.now(UTC), orders.table.database, [orders.stopped("It was not to be read.")])
        assert [follows(), is_green()] == [False, False]
        assert [follows(), is_green()] == [True, False]
        manifest.claim(datetime.now(UTC))
        manifest.mark(datetime.now(UTC), orders.table.database, [orders])
        assert [follows(), is_green()] == [True, True]


def test_run_that_fails_has_told_what_it_committed(shop: Shop, instance: dg.DagsterInstance) -> None:
    shop.changes(instance)
    shop.write({"max.iteration.transactions": "1"})
    shop.add_customers(2)
    planned: list[str] = []

    def refuse_the_second_window(step: str) -> None:
        planned.extend([step] * (step == "window-planned"))
        if len(planned) == 2:
            raise LakeError("The store refuses.")

    try:
        with listening(refuse_the_second_window):
            failed = shop.changes(instance)
        assert not failed.success
        logged = instance.all_logs(failed.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
        events = [entry.get_dagster_event() for entry in logged]
        (told,) = [event for event in events if event.asset_key != WINDOWS]
        assert told.asset_key == key("customers", "changes")
        assert told.step_materialization_data.materialization.metadata["rows_creates"].value == 1
        assert metadata(shop.changes(instance), key("customers", "changes"))["rows_creates"] == 1
    finally:
        shop.write({})
