"""Snapshots and signals that are asked of an embedded connector."""

import json
from typing import Any
from unittest.mock import patch

import dagster as dg
import pytest

from cdc_assets.connectors.engine.overview import EngineOverview
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import Column, TableSchema
from cdc_assets_tests.dagster.engines.deployment import Database, Deployment, key, materialized, observed


def test_a_snapshot_asset_asks_the_connector_to_read_again(shop: Deployment) -> None:
    assert shop.changes().success
    shop.more["signal.data.collection"] = "db.signals"
    config = {"ops": {"shop_read_tables": {"config": {"type": "incremental", "conditions": {r"db\.items1": "id > 3"}}}}}
    result = shop.run("shop_snapshot", [key("snapshot")], run_config=config)
    assert result.success
    [signal] = shop.connector.signals
    assert signal["type"] == "execute-snapshot"
    assert signal["data"] == {
        "data-collections": [r"db\.items1"],
        "type": "incremental",
        "additional-conditions": [{"data-collection": r"db\.items1", "filter": "id > 3"}],
    }
    assert materialized(result)[key("snapshot")]["rows_reads"] == 1
    assert dg.AssetKey(["shop", "notifications"]) in materialized(result)


@pytest.mark.long
def test_a_name_is_no_expression(shop: Deployment) -> None:
    """Of one that is taken for one the connector reads nothing, whenever it is asked."""
    table = TableSchema(TableId("db", "", "items$1"), 0, (Column("id", "int", 1, False),), ("id",))
    with patch.object(Database, "tables", return_value=[table]):
        assert shop.changes().success
        [chosen] = [
            it
            for it in shop.definitions().resolve_asset_graph().get_all_asset_keys()
            if "1.snapshot" in it.path[-1] and it != key("snapshot")
        ]
        shop.run("shop_snapshot", [chosen])
    [signal] = shop.connector.signals
    assert signal["data"]["data-collections"] == [r"db\.items\$1"]


def test_the_first_snapshot_is_the_connectors_own(shop: Deployment) -> None:
    result = shop.run("shop_snapshot", [key("snapshot")])
    assert result.success
    assert shop.connector.signals == []
    assert materialized(result)[key("snapshot")]["rows_reads"] == 3


def test_a_connector_that_reads_no_rows_at_first_is_run_before(shop: Deployment) -> None:
    shop.more["snapshot.mode"] = "no_data"
    assert not shop.run("shop_snapshot", [key("snapshot")]).success
    assert "materialize the changes first" in (shop.last_of_connector().description or "")


@pytest.mark.long
def test_a_snapshot_that_is_not_taken_fails_its_run(shop: Deployment) -> None:
    assert shop.changes().success
    shop.connector.obeys = "ABORTED"
    assert not shop.run("shop_snapshot", [key("snapshot")]).success
    told = shop.last_of_connector().description or ""
    assert "Blocking Snapshot ABORTED" in told
    assert told.count("Next: ") == 1


def signal_config(*tables: str, snapshot: str = "blocking", **more: Any) -> dict[str, Any]:
    asked = {"tables": list(tables) or [r"db\.items1"], "snapshot": snapshot, **more}
    return {"ops": {"shop_ask": {"config": asked}}}


def why_failed(result: dg.ExecuteInProcessResult) -> str:
    [failure] = [event.step_failure_data for event in result.all_events if event.is_step_failure]
    return str(failure.user_failure_data.description if failure.user_failure_data else "")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "there is no signal table"),
        ({"signal.data.collection": "db.signals", "signal.enabled.channels": "file"}, "never sees its marks"),
    ],
)
def test_an_incremental_snapshot_that_would_wait_for_ever_is_refused(
    shop: Deployment, given: dict[str, str], why: str
) -> None:
    shop.more |= given | {"signal.file": str(shop.folder / "signals.jsonl")}
    result = shop.run("shop_signal", run_config=signal_config(snapshot="incremental"))
    assert not result.success
    assert why in why_failed(result)
    assert not shop.database.sent
    assert not (shop.folder / "signals.jsonl").exists()
    shop.more["read.only"] = "true"  # positions of the log instead of marks
    shop.more["signal.enabled.channels"] = "file"
    assert shop.run("shop_signal", run_config=signal_config(snapshot="incremental")).success


@pytest.mark.long
def test_signals_go_through_the_table_or_the_file(shop: Deployment) -> None:
    asked = signal_config(snapshot="blocking")
    assert not shop.run("shop_signal", run_config=asked).success
    shop.more["signal.data.collection"] = "db.signals"
    assert shop.run("shop_signal", run_config=asked).success
    assert [type_ for _, type_, _ in shop.database.sent] == ["execute-snapshot"]
    path = shop.folder / "signals.jsonl"
    shop.more |= {"signal.enabled.channels": "file", "signal.file": str(path)}
    assert shop.changes().success
    assert shop.tick().skip_message == "Nothing new."
    sent = shop.run("shop_signal", run_config=asked)
    assert sent.success
    assert not path.exists(), "it may be that of another container"
    assert shop.tick().tags["cdc/signals"] == "file"
    assert shop.changes().success
    [taken] = shop.connector.signals
    assert (taken["id"], taken["data"]["data-collections"]) == (sent.run_id, [r"db\.items1"])
    assert path.read_text() == ""
    shop.database.end = 11
    assert shop.tick().skip_message == "Nothing new."


@pytest.mark.long
def test_rows_that_a_signal_asks_for_are_observed_and_those_of_the_first_snapshot_materialized(
    shop: Deployment,
) -> None:
    path = shop.folder / "signals.jsonl"
    shop.more |= {"signal.enabled.channels": "file", "signal.file": str(path)}
    first = shop.changes()
    assert materialized(first)[key("snapshot")]["rows_reads"] == 3
    assert key("snapshot") not in observed(first)
    path.write_text(json.dumps({"id": "mine", "type": "execute-snapshot", "data": {}}) + "\n")
    asked = shop.changes()
    assert asked.success
    assert observed(asked)[key("snapshot")]["rows_reads"] == 1
    assert key("snapshot") not in materialized(asked)


@pytest.mark.long
def test_a_line_in_the_connectors_own_file_starts_a_run(shop: Deployment) -> None:
    path = shop.folder / "signals.jsonl"
    shop.more |= {"signal.enabled.channels": "file", "signal.file": str(path)}
    assert shop.changes().success
    path.write_text(json.dumps({"id": "mine", "type": "log", "data": {}}) + "\n")
    assert shop.tick().tags["cdc/signals"] == "file"
    assert shop.changes().success
    assert [taken["id"] for taken in shop.connector.signals] == ["mine"]


@pytest.mark.long
def test_signals_that_no_connector_takes_up_do_not_start_run_after_run(shop: Deployment) -> None:
    path = shop.folder / "signals.jsonl"
    shop.more |= {"signal.enabled.channels": "file", "signal.file": str(path)}
    shop.connector.signals = [{"id": "one that it has read before"}]  # so it reads none
    assert shop.changes().success
    path.write_text(json.dumps({"id": "mine", "type": "log", "data": {}}) + "\n")
    assert shop.changes().success
    assert path.read_text()
    assert shop.tick().skip_message == "Nothing new.", "for some seconds"
    shop.database.end = 11
    assert isinstance(shop.tick(), dg.RunRequest), "changes do not wait for that"


def test_a_misspelt_table_is_told_by_the_signal_job(shop: Deployment) -> None:
    shop.more["signal.data.collection"] = "db.signals"
    missed = shop.run("shop_signal", run_config=signal_config("db.itmes1"))
    assert not missed.success
    assert all(
        part in why_failed(missed) for part in ("db.itmes1", "database.table", ": db.items1", "nothing was sent")
    )
    unread = shop.run("shop_signal", run_config=signal_config(conditions={"db.items": "SELECT 1"}))
    assert "db.items'" in why_failed(unread)
    assert not shop.database.sent
    partly = shop.run("shop_signal", run_config=signal_config("db.items1", "db.nope"))
    assert partly.success
    assert len(shop.database.sent) == 1
    logged = [entry.user_message for entry in shop.instance.all_logs(partly.run_id)]
    assert any("No captured table is named by 'db.nope'" in text for text in logged)


def test_a_snapshot_of_a_table_that_is_gone_can_be_stopped(shop: Deployment) -> None:
    shop.more["signal.data.collection"] = "db.signals"
    asked = signal_config("db.gone", type="stop_snapshot", snapshot="incremental")
    assert not shop.run("shop_signal", run_config=asked).success
    with patch.object(EngineOverview, "queue", [(TableId("db", "", "gone"), "")]):
        assert shop.run("shop_signal", run_config=asked).success
    assert [type_ for _, type_, _ in shop.database.sent] == ["stop-snapshot"]


def test_names_are_not_checked_while_the_database_is_away(shop: Deployment) -> None:
    shop.database.away = True
    path = shop.folder / "signals.jsonl"
    shop.more |= {"signal.enabled.channels": "file", "signal.file": str(path)}
    sent = shop.run("shop_signal", run_config=signal_config("db.itmes1"))
    assert sent.success
    assert any("was not checked" in entry.user_message for entry in shop.instance.all_logs(sent.run_id))
    [waiting] = (shop.folder / "lake" / "shop.__signals").iterdir()
    assert "db.itmes1" in waiting.read_text()
