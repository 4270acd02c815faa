"""What a capture of many tables writes into Dagster's records and asks the server: it grows with what changed."""

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import dagster as dg
import pytest
import yaml
from dagster._core.remote_representation.external_data import RepositorySnap

from cdc_assets.defs.captures import CaptureResource
from cdc_assets.defs.catalog import CaptureCatalog
from cdc_assets.defs.partitions import all_ranges, range_partitions
from cdc_assets.defs.server_view import observe_server
from cdc_assets.defs.spark import SparkResource
from cdc_assets.defs.sqlserver import SqlServerCdcResource
from cdc_assets.defs.translator import CdcTranslator
from cdc_assets.lake.topics import TopicTables
from cdc_assets.overview.checks.sqlserver import CHECKS
from cdc_assets_tests.shop import ROOT, TABLES, Shop, key, open_shop, tick

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.usefixtures("spark_resource")]

NUMBER = 50
NAMES = [f"many_{number:02d}" for number in range(NUMBER)]
ALL = len(TABLES) + NUMBER
WINDOWS = dg.AssetKey(["shop", "windows"])
OF_CAPTURE, OF_TABLE = [one.name for one in CHECKS if one.of == "capture"], sum(one.of == "table" for one in CHECKS)
"""Checks of a capture, and the number of those that each of its tables has."""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """The shop with fifty more tables of one row."""
    with open_shop(tmp_path_factory.mktemp("many")) as found:
        for name in NAMES:
            found.execute(f"CREATE TABLE dbo.{name} (id int NOT NULL PRIMARY KEY, n int NOT NULL)")
            found.execute(f"INSERT INTO dbo.{name} VALUES (1, 1)")
            found.execute(
                f"EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'{name}', @role_name = NULL"
            )
        found.write({"snapshot.partitions": "1"})
        yield found


@pytest.fixture(scope="module")
def instance(shop: Shop) -> Iterator[dg.DagsterInstance]:
    """Everything is snapshotted, and one change was streamed."""
    with dg.DagsterInstance.ephemeral() as found:
        assert as_the_sensor_asks(shop, found).success
        change(shop, NAMES[0])
        assert as_the_sensor_asks(shop, found).success
        yield found


def as_the_sensor_asks(shop: Shop, instance: dg.DagsterInstance) -> dg.ExecuteInProcessResult:
    """The run that the sensor starts now."""
    request = tick(shop, instance)
    with shop.in_environment():
        job = shop.definitions().resolve_job_def(request.job_name)
        if request.asset_selection:
            job = job.get_subset(asset_selection=set(request.asset_selection))
        return job.execute_in_process(
            instance=instance, run_config=request.run_config, tags=request.tags, raise_on_error=False
        )


LOOK = 20
"""Most questions of one look for the page of a capture, whatever the number of tables."""


def change(shop: Shop, *names: str) -> None:
    """One change of each."""
    for name in names:
        shop.execute(f"UPDATE dbo.{name} SET n = n + 1")


def records(instance: dg.DagsterInstance, run_id: str) -> Counter[str]:
    """Records of a run by type."""
    found = [entry.dagster_event for entry in instance.all_logs(run_id)]
    return Counter(event.event_type_value if event else "LOG" for event in found)


def materialized(instance: dg.DagsterInstance, run_id: str) -> set[dg.AssetKey]:
    """Assets with a materialization of a run."""
    entries = instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
    return {entry.dagster_event.asset_key for entry in entries if entry.dagster_event and entry.dagster_event.asset_key}


def shown(instance: dg.DagsterInstance) -> dict[dg.AssetKey, bool]:
    """What the pages show for `lsn_continuity` of each table."""
    checks = [dg.AssetCheckKey(key(name, "changes"), "lsn_continuity") for name in [*TABLES, *NAMES]]
    found = instance.event_log_storage.get_latest_asset_check_execution_by_key(checks)
    return {check.asset_key: record.status.value == "SUCCEEDED" for check, record in found.items()}


@pytest.mark.filterwarnings("ignore:Property `ScheduleDefinition:DeprecationWarning")  # of Dagster's own code
def test_definition_of_a_table_is_short(shop: Shop) -> None:
    """Dagster sends all of them to each of its processes; what differs from table to table alone should be in them."""
    with shop.in_environment():
        nodes = RepositorySnap.from_def(shop.definitions().get_repository_def()).asset_nodes
    sizes = [len(dg.serialize_value(node)) for node in nodes if node.asset_key.path[-1].startswith("many_")]
    assert len(sizes) == 3 * NUMBER
    assert sum(sizes) < 9_300 * NUMBER, "three assets of two columns"


def test_freshness_is_not_recorded_where_no_asset_has_a_policy() -> None:
    """Dagster's daemon writes a record for each asset, also for those without a policy."""
    settings = yaml.safe_load((ROOT / "dagster.yaml").read_text())
    with dg.DagsterInstance.local_temp(overrides={"freshness": settings["freshness"]}) as instance:
        assert "FRESHNESS_DAEMON" not in instance.get_required_daemon_types()
    with dg.DagsterInstance.local_temp() as instance:
        assert "FRESHNESS_DAEMON" in instance.get_required_daemon_types(), "on by default, so it has to be said"


def test_tick_of_idle_tables_asks_few_questions(shop: Shop, instance: dg.DagsterInstance) -> None:
    with shop.in_environment():
        listed = SqlServerCdcResource(config_file=str(shop.file)).tables()
    assert len(listed) == ALL
    with patch.object(SqlServerCdcResource, "tables", lambda _: listed), shop.statements() as found:
        assert tick(shop, instance).skip_message == "Nothing new."
    looks = found["instance_options"]
    assert looks == 1, "the page of the capture, once in eight seconds"
    assert found["max_transaction"] == 1 + looks
    assert found.total() <= 6 + LOOK * looks, "one more of the recovery fork"


def test_a_look_opens_few_logs_of_topics(shop: Shop) -> None:
    """Others each time, for a tenth of a second."""
    opened: list[str] = []
    inside = TopicTables.open

    def counted(self: TopicTables, directory: str) -> Any:
        opened.append(directory)
        time.sleep(0.05)  # as of a store that takes a while, so that a fast machine does not open all of them
        return inside(self, directory)

    server = SqlServerCdcResource(config_file=str(shop.file))
    with shop.in_environment(), patch.object(TopicTables, "open", counted):
        resource = CaptureResource(server=server, spark=SparkResource())
        catalog = CaptureCatalog(server.settings(), server.tables(), CdcTranslator())
        seen = observe_server(catalog, resource)
    assert len(seen.report.tables) == ALL
    assert 0 < len({name for name in opened if ".dbo." in name}) < ALL


def test_poll_of_idle_tables_asks_one_question(shop: Shop, instance: dg.DagsterInstance) -> None:
    run_config = {"ops": {"shop_follow_log": {"config": {"idle_timeout_s": 2.0}}}}
    with shop.statements() as found:
        assert shop.changes(instance, run_config=run_config).success
    polls = found.pop("nth_transaction")
    assert polls > 3
    looks = found["instance_options"]
    assert found.total() < 25 + LOOK * looks, "to begin with, whatever the number of polls and tables"


def test_first_snapshot_selects_few_tables_and_reports_all(shop: Shop, instance: dg.DagsterInstance) -> None:
    first = min(instance.get_run_records(), key=lambda record: record.storage_id).dagster_run
    assert first.job_name == "shop_snapshot"
    found = records(instance, first.run_id)
    read = [key(name, "snapshot") for name in [*TABLES, *NAMES]]
    assert set(read) <= materialized(instance, first.run_id)
    assert found["ASSET_MATERIALIZATION_PLANNED"] == 20
    assert found["STEP_OUTPUT"] == found["HANDLED_OUTPUT"] == 20
    assert sum(found.values()) < 3 * len(read) + 260, "a materialization and two checks of each, and steps of few"
    (partition,) = range_partitions(1).get_partition_keys()
    for asset in (read[0], read[-1]):
        assert instance.get_materialized_partitions(asset) == {partition}


def test_records_of_a_run_grow_with_the_tables_that_changed(shop: Shop, instance: dg.DagsterInstance) -> None:
    changed = NAMES[10:13]
    change(shop, *changed)
    result = as_the_sensor_asks(shop, instance)
    assert result.success
    found = records(instance, result.run_id)
    assert materialized(instance, result.run_id) == {*(key(name, "changes") for name in changed), WINDOWS}
    assert found["ASSET_MATERIALIZATION_PLANNED"] == 1
    assert found["ASSET_CHECK_EVALUATION"] == OF_TABLE * len(changed) + len(OF_CAPTURE)
    assert found["ASSET_CHECK_EVALUATION_PLANNED"] == 0
    assert sum(found.values()) < 40
    for name in changed:
        event = instance.get_latest_materialization_event(key(name, "changes"))
        assert event
        assert event.run_id == result.run_id
        facts = event.asset_materialization.metadata  # type: ignore[union-attr]
        assert {"rows_updates", "dagster/row_count", "dagster/uri", "dagster/column_schema", "to_lsn"} <= facts.keys()


def test_checks_of_all_tables_are_reported_once_and_stay(shop: Shop, instance: dg.DagsterInstance) -> None:
    assert shown(instance) == {key(name, "changes"): True for name in [*TABLES, *NAMES]}


def test_selections_of_the_sensor_are_always_the_same(shop: Shop, instance: dg.DagsterInstance) -> None:
    """Dagster keeps a description of each selection for good."""
    runs = []
    for name in NAMES[20:22]:
        change(shop, name)
        runs.append(as_the_sensor_asks(shop, instance).run_id)
    first, second = (instance.get_run_by_id(run) for run in runs)
    assert first
    assert second
    assert first.job_snapshot_id == second.job_snapshot_id
    assert first.execution_plan_snapshot_id == second.execution_plan_snapshot_id


def test_table_in_trouble_is_reported_once_fails_one_run_and_is_reported_when_it_is_mended(
    shop: Shop, instance: dg.DagsterInstance
) -> None:
    name = NAMES[30]
    lost = key(name, "changes")
    change(shop, name)
    captured = shop.execute("SELECT sys.fn_cdc_get_max_lsn()")[0][0]
    shop.server.agent.cleanup("SalesDb", f"dbo_{name}", captured)
    change(shop, NAMES[31])
    told = as_the_sensor_asks(shop, instance)
    assert not told.success
    assert [table for table, passed in shown(instance).items() if not passed] == [lost]
    change(shop, NAMES[31])
    again = as_the_sensor_asks(shop, instance)
    assert again.success, "whoever is told of failed runs has heard of it; the check says it as long as it lasts"
    assert [table for table, passed in shown(instance).items() if not passed] == [lost]
    assert records(instance, again.run_id)["ASSET_CHECK_EVALUATION"] <= 6, "of the table that changed, and of the whole"
    assert tick(shop, instance).skip_message == "Nothing new."
    ranges = dict(all_ranges(range_partitions(1)))
    assert shop.snapshot(instance, due_only=False, assets=[key(name, "snapshot")], tags=ranges).success
    change(shop, NAMES[31])
    assert as_the_sensor_asks(shop, instance).success
    assert all(shown(instance).values())
    assert len(shown(instance)) == ALL


def of_the_schedule(shop: Shop, instance: dg.DagsterInstance) -> dg.RunRequest:
    """What the half-hourly schedule asks for now."""
    repository = shop.definitions().get_repository_def()
    resources = {
        "cdc_shop": CaptureResource(server=SqlServerCdcResource(config_file=str(shop.file)), spark=SparkResource())
    }
    with (
        shop.in_environment(),
        patch.object(dg.ScheduleEvaluationContext, "instance", instance),  # Dagster's own takes none that is in memory
        dg.build_schedule_context(resources=resources, repository_def=repository) as context,
    ):
        (request,) = repository.get_schedule_def("shop_headroom_schedule").evaluate_tick(context).run_requests or ()
    return request


def test_half_hourly_checks_are_of_tables_whose_result_has_changed(shop: Shop, instance: dg.DagsterInstance) -> None:
    whole = {dg.AssetCheckKey(WINDOWS, name) for name in OF_CAPTURE}
    assert set(of_the_schedule(shop, instance).asset_check_keys or ()) == whole
    shop.execute(f"ALTER TABLE dbo.{NAMES[40]} ADD later int NULL")
    request = of_the_schedule(shop, instance)
    drifted = dg.AssetCheckKey(key(NAMES[40], "changes"), "schema_drift")
    assert set(request.asset_check_keys or ()) == {*whole, drifted}
    with shop.in_environment():
        job = shop.definitions().resolve_job_def("shop_headroom")
        job = job.get_subset(asset_selection=set(), asset_check_selection=set(request.asset_check_keys or ()))
        result = job.execute_in_process(instance=instance)
    assert sum(records(instance, result.run_id).values()) < 40
    failed = {found.asset_check_key for found in result.get_asset_check_evaluations() if not found.passed}
    assert failed == {drifted, dg.AssetCheckKey(WINDOWS, "health")}
    assert set(of_the_schedule(shop, instance).asset_check_keys or ()) == whole, "it is shown now"
