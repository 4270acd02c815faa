"""Signals in Dagster: the launchpad asks, the sensor starts a run for it, and each request acts once."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import dagster as dg
import pytest
import yaml

from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.core.steps import listening
from cdc_assets.defs import schedule
from cdc_assets.defs.sensors import SIGNAL_TAG
from cdc_assets.errors import LakeError, QueryError
from cdc_assets.lake.location import Location
from cdc_assets.overview import CaptureOverview
from cdc_assets.signals.inbox import Inbox
from cdc_assets_tests.shop import ROOT, Shop, key, open_shop, tick, tick_with_cursor
from cdc_assets_tests.unit.adapters.kafka.broker import Broker
from mssql_standin import sample

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark_resource")]

CUSTOMERS = f"{sample.DATABASE}.dbo.customers"
SIGNALS = f"{sample.DATABASE}.dbo.{sample.SIGNAL_TABLE}"


@pytest.fixture(scope="module")
def broker() -> Broker:
    """A Kafka cluster."""
    return Broker()


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory, instance: dg.DagsterInstance, broker: Broker) -> Iterator[Shop]:
    """A shop with its first snapshot and all channels of signals."""
    folder = tmp_path_factory.mktemp("asked")
    with open_shop(folder) as shop:
        shop.write(
            {
                "signal.data.collection": SIGNALS,
                "signal.enabled.channels": "source,file,kafka",
                "signal.kafka.bootstrap.servers": broker.address,
                "signal.file": str(folder / "signals.txt"),
                "signal.poll.interval.ms": "0",
            }
        )
        assert shop.snapshot(instance).success
        assert shop.changes(instance).success
        yield shop


def launch(shop: Shop, instance: dg.DagsterInstance, **config: Any) -> dg.ExecuteInProcessResult:
    """What a person does in the launchpad."""
    return shop.run("shop_signal", instance, run_config={"ops": {"shop_ask": {"config": config}}})


def observed(done: dg.ExecuteInProcessResult) -> list[str]:
    """What the page of the table's snapshot asset tells about a run."""
    own = [one for one in done.get_asset_observation_events() if one.asset_key == key("customers", "snapshot")]
    facts = [one.asset_observation_data.asset_observation.metadata for one in own]
    return [str(one["event"].value) for one in facts if "event" in one]


def read_again(done: dg.ExecuteInProcessResult) -> tuple[dict[str, int], int]:
    """What a run tells of READs of customers, and of how many partitions it says that they were read; and that it tells of no changes."""
    found = [one for one in done.get_asset_materialization_events() if "customers" in str(one.asset_key)]
    assert {one.asset_key for one in found} <= {key("customers", "snapshot")}
    partitions = {one.partition: one.step_materialization_data.materialization.metadata for one in found}
    assert None not in partitions
    own = [one for one in done.get_asset_observation_events() if one.asset_key == key("customers", "snapshot")]
    facts = [one.asset_observation_data.asset_observation.metadata for one in own]
    told = [*(one for one in facts if "table_rows" in one), *list(partitions.values())[:1]]
    total: Counter[str] = Counter()
    for one in told:
        total.update({name: one[f"table_{name}"].value for name in ("rows", "rows_reads", "windows")})
    return dict(total), len(partitions)


def reads(shop: Shop, kind: str) -> int:
    """READ events of customers: of a blocking or an incremental snapshot, or all."""
    values = [event["value"] for event in shop.events("customers") if event["value"]]
    found = [value["source"]["snapshot"] for value in values if value["op"] == "r"]
    return sum((snapshot == "incremental") == (kind == "incremental") for snapshot in found)


def change_a_product(shop: Shop) -> None:
    """A change that has nothing to do with signals."""
    shop.execute("UPDATE dbo.products SET stock = stock + 1")


@pytest.mark.long
def test_a_request_of_the_launchpad_starts_a_run_and_acts_once(asked: Shop, instance: dg.DagsterInstance) -> None:
    before = reads(asked, "blocking")
    assert tick(asked, instance).skip_message == "Nothing new."
    select = f"SELECT * FROM {CUSTOMERS} WHERE id <= 5"
    done = launch(asked, instance, tables=[CUSTOMERS], snapshot="blocking", conditions={CUSTOMERS: select})
    assert done.success
    request = tick(asked, instance)
    assert (request.job_name, request.tags[SIGNAL_TAG]) == ("shop_follow", "in-process")
    changes = asked.follow(instance)
    assert changes.success
    assert observed(changes) == ["TABLE_SCAN_COMPLETED"]
    assert read_again(changes) == ({"rows": 5, "rows_reads": 5, "windows": 1}, 0), "a part of the rows is no partition"
    assert reads(asked, "blocking") == before + 5
    assert tick(asked, instance).skip_message == "Nothing new."
    inbox = Inbox(Location.of(asked.config().lake), "shop")
    signal_id = done.dagster_run.run_id
    (row,) = [state for state in asked.view().state.signals.values() if signal_id in state.handled]
    assert row.blocking == ()
    assert not inbox.waiting({})


@pytest.mark.long
def test_incremental_and_a_row_of_the_signal_table(asked: Shop, instance: dg.DagsterInstance) -> None:
    assert launch(asked, instance, tables=["dbo.customers"], conditions={"dbo.customers": "id <= 3"}).success
    changes = asked.follow(instance)
    assert changes.success
    assert observed(changes) == ["STARTED", "TABLE_SCAN_COMPLETED"]
    assert reads(asked, "incremental") == 3
    assert read_again(changes) == ({"rows": 3, "rows_reads": 3, "windows": 1}, 0)
    data = json.dumps({"data-collections": [CUSTOMERS]})
    asked.execute(f"INSERT INTO {SIGNALS} VALUES ('row', 'execute-snapshot', '{data}')")
    assert tick(asked, instance).job_name == "shop_follow"
    told, partitions = read_again(asked.follow(instance))
    assert (told["rows_reads"], partitions) == (40, 8)
    assert reads(asked, "incremental") == 3 + 40


@pytest.mark.long
def test_a_run_for_rows_of_the_signal_table_says_so(asked: Shop, instance: dg.DagsterInstance) -> None:
    """Other changes are none, and neither are deletions from that table and the markers that captures write into it."""
    change_a_product(asked)
    for kind in ("snapshot-window-open", "snapshot-window-close"):
        asked.execute(f"INSERT INTO {SIGNALS} VALUES ('{kind}', '{kind}', NULL)")
    asked.execute(f"DELETE FROM {SIGNALS} WHERE type LIKE 'snapshot-window-%'")
    assert SIGNAL_TAG not in tick(asked, instance).tags
    asked.execute(f"INSERT INTO {SIGNALS} VALUES ('word', 'log', '{{\"message\": \"here: {{}}\"}}')")
    request, cursor = tick_with_cursor(asked, instance)
    assert (request.job_name, request.tags[SIGNAL_TAG]) == ("shop_follow", "source")
    assert cursor.startswith(f"Requested a run of shop_follow: cdc/lsn {request.tags['cdc/lsn']}; cdc/signals source.")
    assert asked.follow(instance).success
    assert tick(asked, instance).skip_message == "Nothing new."
    change_a_product(asked)
    assert SIGNAL_TAG not in tick(asked, instance).tags, "the signal was read"


@pytest.mark.long
def test_a_signal_table_that_cannot_be_asked_stops_no_run(
    asked: Shop, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked.execute(f"INSERT INTO {SIGNALS} VALUES ('other', 'log', '{{\"message\": \"here\"}}')")
    with monkeypatch.context() as refused:
        refused.setattr(SqlServerSource, "has_signals", Mock(side_effect=QueryError("No permission.")))
        assert SIGNAL_TAG not in tick(asked, instance).tags
    assert f"Whether {SIGNALS} holds signals is not known" in caplog.text
    assert asked.follow(instance).success


@pytest.mark.long
def test_one_question_tells_that_the_signal_table_is_untouched(asked: Shop, instance: dg.DagsterInstance) -> None:
    change_a_product(asked)
    with SqlServerSource(asked.config().connection) as source:
        work = CaptureOverview(asked.config(), source).work
        fresh = work.unread_databases()
        assert fresh
        with asked.statements() as found:
            assert not work.signalled(fresh)
    assert found == {"probes": 1, "max_lsn": 1}, "each connection is asked once how far its log is"
    assert asked.follow(instance).success


@pytest.mark.long
def test_a_line_of_the_file_starts_a_run(asked: Shop, instance: dg.DagsterInstance) -> None:
    file = Path(asked.properties["signal.file"])
    file.write_text('{"type": "log", "data": {"message": "here: {}"}}\n')
    request = tick(asked, instance)
    assert request.tags[SIGNAL_TAG] == "file"
    assert asked.follow(instance).success
    assert tick(asked, instance).skip_message == "Nothing new."
    assert not file.exists()


@pytest.mark.long
def test_a_log_signal_is_a_line_in_the_log_of_the_run(asked: Shop, tmp_path: Path) -> None:
    loggers = {"python_logs": {"managed_python_loggers": ["cdc_assets", "resources"]}}  # as in dagster.yaml
    with dg.DagsterInstance.local_temp(str(tmp_path), overrides=loggers) as instance:
        assert launch(asked, instance, type="log", message="here: {}").success
        done = asked.follow(instance)
        lines = [entry.message for entry in instance.all_logs(done.dagster_run.run_id)]
    assert any("here: commit_lsn=" in line for line in lines)


def test_a_message_starts_a_run(asked: Shop, instance: dg.DagsterInstance, broker: Broker) -> None:
    before = reads(asked, "blocking")
    data = {"type": "blocking", "data-collections": [CUSTOMERS]}
    broker.send(json.dumps({"type": "execute-snapshot", "data": data}))
    assert tick(asked, instance).tags[SIGNAL_TAG] == "kafka"
    assert asked.follow(instance).success
    assert reads(asked, "blocking") == before + 40
    assert tick(asked, instance).skip_message == "Nothing new."


@pytest.mark.long
def test_the_example_of_the_page_on_signals_runs(asked: Shop, instance: dg.DagsterInstance) -> None:
    page = (ROOT / "docs" / "signals.md").read_text()
    (example,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    config = yaml.safe_load(example)["ops"]["shop_ask"]["config"]
    before = len([event for event in asked.events("orders") if event["value"]])
    assert launch(asked, instance, **config).success
    assert asked.follow(instance).success
    assert len([event for event in asked.events("orders") if event["value"]]) == before + 80


@pytest.mark.long
def test_a_request_that_a_dead_run_left_starts_another(asked: Shop, instance: dg.DagsterInstance) -> None:
    before = reads(asked, "blocking")

    def die(name: str) -> None:
        if name == "signals-recorded":
            raise LakeError(name)

    assert launch(asked, instance, tables=[CUSTOMERS], snapshot="blocking").success
    with listening(die):
        assert not asked.follow(instance).success
    request = tick(asked, instance)
    assert isinstance(request, dg.RunRequest) or "failed" in request.skip_message
    assert asked.follow(instance).success
    assert reads(asked, "blocking") == before + 40
    assert asked.differences() == {}


@pytest.mark.long
def test_a_row_that_a_dead_run_has_read_and_not_carried_out_starts_another(
    asked: Shop, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else changes, so no new LSN would start one."""
    monkeypatch.setattr(schedule, "FIRST_PAUSE", timedelta(0))
    before = reads(asked, "incremental")

    def die(name: str) -> None:
        if name == "window-complete":
            raise LakeError(name)

    data = json.dumps({"data-collections": [CUSTOMERS]})
    asked.execute(f"INSERT INTO {SIGNALS} VALUES ('left', 'execute-snapshot', '{data}')")
    with listening(die):
        assert not asked.follow(instance).success
    assert tick(asked, instance).tags[SIGNAL_TAG] == "source"
    assert asked.follow(instance).success
    assert reads(asked, "incremental") == before + 40
    assert tick(asked, instance).skip_message == "Nothing new."


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"tables": []}, "at least one regular expression"),
        ({"tables": ["("]}, "invalid regular expression"),
        ({"tables": ["dbo.nothing"]}, "of a captured table"),
        ({"type": "stop_snapshot", "tables": ["dbo.nothing"]}, "of a captured table"),
        ({"type": "log"}, "message"),
    ],
)
def test_nonsense_is_reported_at_once(asked: Shop, instance: dg.DagsterInstance, config: Any, reason: str) -> None:
    done = launch(asked, instance, **config)
    assert not done.success
    (failure,) = [event for event in done.all_events if event.is_step_failure]
    assert reason in str(failure.step_failure_data.error or failure.step_failure_data.user_failure_data)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["execute_snapshot", "stop_snapshot"])
def test_a_signal_that_matches_no_table_fails_its_job(asked: Shop, instance: dg.DagsterInstance, kind: str) -> None:
    before = asked.view().state.signals
    done = launch(asked, instance, type=kind, tables=["SalesDb.dbo.nobody"])
    assert not done.success
    (failed,) = [found for found in done.all_node_events if found.event_type_value == "STEP_FAILURE"]
    data: Any = failed.event_specific_data
    text = data.user_failure_data.description
    assert "SalesDb.dbo.nobody" in text
    assert CUSTOMERS in text, "what could have been meant"
    assert "Next: correct it" in text
    assert tick(asked, instance).skip_message == "Nothing new.", "no signal was left behind"
    assert asked.view().state.signals == before
