"""Assets, runs, the sensor and the checks of a capture by an embedded connector."""

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from unittest.mock import Mock, patch

import dagster as dg
import pytest

from cdc_assets import EnvelopeIOManager, SchemaHistoryIOManager, SparkResource
from cdc_assets.config.engine import EngineConfig
from cdc_assets.connectors.engine.feed import Chunk
from cdc_assets.connectors.engine.overview import EngineOverview
from cdc_assets.connectors.engine.source import LogPoint, Retention
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import TableSchema
from cdc_assets.defs import schedule
from cdc_assets.defs.engines import sensor
from cdc_assets.defs.engines.resource import ConnectorResource
from cdc_assets.defs.keys import Role
from cdc_assets.defs.sensors import HINDERED_TAG, SIGNAL_TAG
from cdc_assets.defs.translator import CdcTranslator
from cdc_assets.errors import ConfigurationError, EngineError, InvalidValueError
from cdc_assets.ledger.hindrances import THE_RUN
from cdc_assets.overview.checks.health import health_result
from cdc_assets.overview.engine import answers_of, report_of_engine
from cdc_assets_tests.appends import appends_in_logs
from cdc_assets_tests.dagster.engines.deployment import (
    BATCHES,
    EVENTS,
    TOPIC,
    Connector,
    Database,
    Deployment,
    key,
    materialized,
)
from cdc_assets_tests.dagster.own_io_managers import HISTORY, OWN, TOPICS
from cdc_assets_tests.unit.connectors.engine.feeds import event


def test_assets_of_a_table_and_of_the_capture(shop: Deployment) -> None:
    graph = shop.definitions().resolve_asset_graph()
    assert graph.get_all_asset_keys() == {
        key("source"),
        key("snapshot"),
        key("changes"),
        *(
            dg.AssetKey(["shop", name])
            for name in ("batches", "schema_history", "schema_changes", "heartbeat", "notifications")
        ),
    }
    node = graph.get(key("changes"))
    assert node.kinds == {"delta", "debezium"}
    assert graph.get(key("source")).kinds == {"mysql"}
    assert all(
        "SQL Server" not in (graph.get(key(role)).description or "") for role in ("source", "snapshot", "changes")
    )
    assert node.group_name == "shop_db"
    assert node.metadata["cdc/topic"] == TOPIC
    assert node.parent_keys == {key("source")}


def test_own_translations_apply(shop: Deployment) -> None:
    class Own(CdcTranslator):
        def asset_key(self, prefix: str, table: TableId, role: Role) -> dg.AssetKey:
            return dg.AssetKey(["mine", table.table, role])

    keys = shop.definitions(Own()).resolve_asset_graph().get_all_asset_keys()
    assert dg.AssetKey(["mine", "items1", "changes"]) in keys


def test_secrets_are_placeholders(shop: Deployment) -> None:
    shop.more["database.password"] = "secret"
    with pytest.raises(ConfigurationError, match=r"database\.password"):
        shop.definitions()


def test_a_run_reports_reads_and_changes_apart_and_whatever_is_selected(shop: Deployment) -> None:
    found = materialized(shop.changes())
    assert found[key("snapshot")]["rows_reads"] == 3
    assert found[key("changes")]["rows_creates"] == 7
    assert found[key("changes")]["to_position"] == "bin.000001:10"
    assert found[key("changes")]["dagster/row_count"] == 10
    assert BATCHES in found
    assert shop.last_of_connector().passed


@pytest.mark.long
def test_own_io_managers_write_batches_and_the_connectors_history(shop: Deployment) -> None:
    shop.own = OWN
    TOPICS.clear()
    HISTORY.clear()
    found = materialized(shop.changes())
    assert (found[key("snapshot")]["rows_committed"], found[key("changes")]["rows_committed"]) == (3, 7)
    assert "rows_committed" not in found[BATCHES], "the library's own record"
    assert HISTORY.landed.keys() == {"shop.__engine_history"}
    assert TOPICS.landed + HISTORY.landed == appends_in_logs(shop.folder / "lake")


def test_io_managers_refuse_what_a_connector_does_not_have(shop: Deployment) -> None:
    with_lsns = EnvelopeIOManager(properties=shop.properties(), from_lsn="earliest", spark=SparkResource())
    with pytest.raises(ConfigurationError, match="these tables have no LSNs"):
        with_lsns.topic(key("changes"))
    history = SchemaHistoryIOManager(properties=shop.properties(), spark=SparkResource())
    assert history.directory() == "shop.__engine_history"
    with pytest.raises(InvalidValueError, match="that of the whole capture"):
        history.load_input(dg.build_input_context(asset_key=key("changes")))


def test_runs_write_metrics(shop: Deployment) -> None:
    file = shop.folder / "shop.prom"
    shop.more["metrics.textfile"] = str(file)
    assert shop.changes().success
    text = file.read_text()
    assert 'database="db",kind="batch",operation="create",table="items1"} 7.0' in text
    assert 'operation="read",table="items1"} 3.0' in text
    assert "cdc_assets_health" not in text, "nobody would correct it behind the run"


def test_a_run_tells_on_the_page_that_the_capture_is_healthy(shop: Deployment) -> None:
    page = materialized(shop.changes())[BATCHES]
    assert page["health"] == "healthy"
    for fact in (
        "database | db",
        "complete to | bin.000001:10",
        "committed (server) | 2026-01-01 00:00:00 +0000",
        "lag: poll | 0.0 s",
    ):
        assert f"| {fact} |" in page["page"]
    assert "capture job" not in page["page"]
    assert "| db.items1 | streaming | bin.000001:10 |  |" in page["tables"]
    assert page["rows_per_second"] > 0
    assert (page["healthy"], page["tables_streaming"], page["lag_poll_seconds"]) == (1, 1, 0.0)
    assert "lag_capture_job_seconds" not in page


@pytest.mark.long
def test_a_run_tells_what_is_wrong_while_it_works(shop: Deployment) -> None:
    assert shop.changes().success
    shop.database.retained = Retention("The binlog was purged. Next: capture into a new lake.")
    shop.database.end = 12
    result = shop.changes()
    [record] = shop.instance.fetch_materializations(BATCHES, limit=1).records
    assert record.asset_materialization is not None
    page = record.asset_materialization.metadata
    assert page["health"].value == "in trouble: the log: The binlog was purged"
    assert "Next: capture into a new lake" in page["what_to_do"].value
    check = dg.AssetCheckKey(BATCHES, "retention_headroom")
    shown = shop.instance.event_log_storage.get_latest_asset_check_execution_by_key([check])[check]
    assert (shown.run_id, shown.status.value) == (result.run_id, "FAILED")


@pytest.mark.long
def test_between_runs_the_sensor_tells_what_has_changed(shop: Deployment) -> None:
    assert shop.changes().success
    assert shop.tick().asset_events == []
    shop.database.away = True
    [page, *checks] = shop.tick().asset_events
    assert page.metadata["health"].value.startswith("not known: The database cannot be queried")
    assert [check.check_name for check in checks if not check.passed] == [
        "retention_headroom", "complete_to_log_end", "health",
    ]  # fmt: skip
    assert all("db:3306 cannot be reached" in check.description for check in checks)
    (shop.folder / "lake" / TOPIC).rename(shop.folder / "elsewhere")
    [page, *_] = shop.tick().asset_events
    assert "| db.items1 | failed |" in page.metadata["tables"].value


@pytest.mark.long
def test_only_news_start_a_run(shop: Deployment) -> None:
    first = shop.tick()
    assert first.run_key == shop.tick().run_key == "shop:first:bin.000001:10"
    assert first.asset_selection == [BATCHES]
    assert shop.changes().success
    assert shop.tick().skip_message == "Nothing new."
    shop.database.end = 12
    assert shop.tick().tags["cdc/position"] == "bin.000001:12"
    assert shop.changes().success
    assert "the last run has read the log to bin.000001:12" in shop.tick().skip_message
    shop.database.end = 13
    assert isinstance(shop.tick(), dg.RunRequest)
    assert shop.changes().success
    with patch.object(sensor, "_UNPROVED", timedelta(0)):
        assert isinstance(shop.tick(), dg.RunRequest)
    with patch.object(Database, "has_no_changes_between", return_value=True):
        assert shop.tick().skip_message == "Nothing new."


@pytest.mark.long
def test_failure_whose_cause_is_over_starts_a_run_though_nothing_is_new(
    shop: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the page says until the next change that the last run failed."""
    assert shop.changes().success
    with monkeypatch.context() as patched:
        patched.setattr(Connector, "launch", Mock(side_effect=EngineError("The connector was refused. Next: grant it")))
        assert not shop.run("shop_changes", [BATCHES]).success
    assert "The last run failed; the next starts after" in shop.tick().skip_message
    monkeypatch.setattr(schedule, "FIRST_PAUSE", timedelta())
    request = shop.tick()
    assert (request.tags[HINDERED_TAG], request.asset_selection) == (THE_RUN, [BATCHES])
    assert shop.changes().success
    assert shop.tick().skip_message == "Nothing new."


class Busy(Connector):
    """A connector that is never quiet."""

    sent = len(EVENTS)

    def next(self, timeout_s: float) -> Chunk | None:
        if (chunk := super().next(timeout_s)) is not None:
            return chunk
        time.sleep(0.02)
        self._events = [*self._events, event(self.sent + 1, topic=TOPIC, op="c")]
        self.sent += 1
        return self._chunk(self.sent, self.sent - 1, self.sent)


@pytest.mark.long
def test_a_run_that_somebody_asks_for_ends_where_the_log_ended_when_it_began(shop: Deployment) -> None:
    """What is downstream in it starts then; the sensor's run follows."""
    shop.more |= {"engine.batch.ms": "50", "stream.idle.timeout.ms": "60000", "stream.max.duration.ms": "20000"}
    shop.connector = Busy(EVENTS)
    shop.database.end = 30
    asked = shop.run("shop_changes")
    assert asked.success
    assert any(entry.user_message.endswith("ended: goal") for entry in shop.instance.all_logs(asked.run_id))
    reached = int(str(materialized(asked)[key("changes")]["to_position"]).partition(":")[2])
    assert 30 <= reached < 1000
    shop.more["stream.max.duration.ms"] = "2000"
    follows = shop.changes()
    assert any(entry.user_message.endswith("ended: deadline") for entry in shop.instance.all_logs(follows.run_id))


def test_a_run_that_somebody_asks_for_without_a_driver_ends_when_nothing_is_new(shop: Deployment) -> None:
    shop.database.driver = False
    asked = shop.run("shop_changes")
    assert asked.success
    logged = [entry.user_message for entry in shop.instance.all_logs(asked.run_id)]
    assert any(text.startswith("The log's end is not known") for text in logged)
    assert any(text.endswith("ended: idle") for text in logged)


@pytest.mark.long
def test_a_database_that_is_away_breaks_nothing(shop: Deployment) -> None:
    assert shop.changes().success
    shop.database.away = True
    keys = shop.definitions().resolve_asset_graph().get_all_asset_keys()
    assert key("changes") in keys
    batches = shop.definitions().resolve_asset_graph().get(BATCHES)
    assert "cannot be reached" in (batches.description or "")
    assert "cannot be reached" in shop.tick().skip_message
    found = shop.checks()
    assert {name: check.passed for name, check in found.items()} == {
        "complete_to_log_end": False,
        "health": False,
        "retention_headroom": False,
    }


@pytest.mark.long
def test_without_a_driver_the_lake_and_the_configuration_tell_the_tables(shop: Deployment) -> None:
    shop.database.driver = False
    shop.more["table.include.list"] = r"db.orders, db\.lines, db\..*"
    keys = shop.definitions().resolve_asset_graph().get_all_asset_keys()
    assert {key("changes", "orders"), key("changes", "lines")} <= keys
    assert key("changes") not in keys
    assert shop.changes().success
    assert "whether something is new or not" in shop.tick().skip_message
    assert key("changes") in shop.definitions().resolve_asset_graph().get_all_asset_keys()
    with patch.object(sensor, "_BLIND", timedelta(0)):
        assert isinstance(shop.tick(), dg.RunRequest)
    assert not any(check.passed for check in shop.checks().values())


@pytest.mark.long
def test_checks_pass_only_on_what_is_proved(shop: Deployment) -> None:
    assert "Nothing was captured" in (shop.checks()["complete_to_log_end"].description or "")
    assert "Nothing was captured" in (shop.checks()["retention_headroom"].description or "")
    assert shop.changes().success
    assert "still has every change" in (shop.checks()["retention_headroom"].description or "")
    shop.more["snapshot.mode"] = "initial_only"
    assert "No table streams" in (shop.checks()["retention_headroom"].description or "")
    del shop.more["snapshot.mode"]
    assert all(check.passed for check in shop.checks().values())
    shop.database.end = 11
    late = shop.checks()["complete_to_log_end"]
    assert (late.passed, late.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert "complete to bin.000001:10, and the log ends at bin.000001:11" in (late.description or "")
    shop.database.end = 10
    shop.database.retained = Retention("The binlog was purged.")
    lost = shop.checks()["retention_headroom"]
    assert (lost.passed, lost.severity, lost.description) == (
        False,
        dg.AssetCheckSeverity.ERROR,
        "The binlog was purged.",
    )
    (shop.folder / "lake" / TOPIC).rename(shop.folder / "elsewhere")
    gone = shop.checks()["complete_to_log_end"]
    assert (gone.passed, gone.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert "must hold batch" in (gone.description or "")


@pytest.mark.long
def test_a_mode_that_reads_no_log_needs_no_run_once_its_snapshot_is_complete(
    shop: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each change in the database started one, which could read nothing, and the lag grew for ever."""

    def retention(_: Database, recorded: LogPoint | None) -> Retention:
        return Retention() if recorded is None else Retention("The binlog was purged.")

    signals = shop.folder / "signals.jsonl"
    shop.more |= {"snapshot.mode": "initial_only", "signal.enabled.channels": "file", "signal.file": str(signals)}
    shop.connector = Connector(EVENTS[:3])
    assert not shop.checks()["complete_to_log_end"].passed, "nothing is captured"
    assert shop.changes().success
    monkeypatch.setattr(Database, "retention", retention)
    for shop.database.end in (11, 12, 13):
        assert "snapshot.mode=initial_only reads no log" in shop.tick().skip_message
        checks = shop.checks()
        assert all(check.passed for check in checks.values())
        assert "No table streams" in (checks["complete_to_log_end"].description or "")
    overview = ConnectorResource(properties=shop.properties()).overview()
    asked = answers_of(overview, lambda: shop.database.open(overview.config))
    report = report_of_engine(overview, asked, datetime.now(UTC) + timedelta(hours=9))
    assert (report.health, report.databases[0].lag.behind_s) == ("healthy", 0.0)
    signals.write_text("{}\n")
    assert shop.tick().tags[SIGNAL_TAG] == "file"


@pytest.mark.long
def test_rows_of_a_table_that_the_lists_let_through_later_are_not_taken_for_read(shop: Deployment) -> None:
    """The connector takes no snapshot of it; an empty one, and one that was created since, have all their rows in the log."""
    shop.more["table.include.list"] = r"db\.items.*"
    tables = [TableSchema(TableId("db", "", name), 0, (), ()) for name in ("items1", "items2", "late1", "late2")]

    def health(count: int) -> tuple[list[str], str]:
        """Tables of which the page warns, and the text of the check."""
        overview = ConnectorResource(properties=shop.properties()).overview()
        with patch.object(Database, "tables", return_value=tables[:count]):
            asked = answers_of(overview, lambda: shop.database.open(overview.config))
        report = report_of_engine(overview, asked, datetime.now(UTC))
        check = health_result(report)
        assert (check.passed, check.is_error) == (report.healthy, False)
        return [trouble.where for trouble in report.unknown], check.text

    def commit(*events: tuple[str, str]) -> None:
        end = shop.database.end
        made = [event(end + n, topic=f"shop.db.{name}", op=op) for n, (name, op) in enumerate(events, 1)]
        shop.connector = Connector([*shop.connector._events, *made])
        shop.database.end += len(made)
        assert shop.changes().success

    assert shop.changes().success
    assert health(2) == ([], "No action is needed."), "it was empty, or is new"
    shop.more["table.include.list"] = r"db\..*"
    found, text = health(4)
    assert found == ["db.late1", "db.late2"]
    assert "its existing rows were not read. Next: materialize its snapshot asset" in text
    commit(("items2", "c"), ("late1", "c"), ("late2", "c"))
    assert health(4)[0] == ["db.late1", "db.late2"], "changes are not its rows"
    shop.more["snapshot.mode"] = "no_data"
    assert health(4)[0] == [], "no rows are wanted"
    del shop.more["snapshot.mode"]
    commit(("late1", "r"))
    assert health(4)[0] == ["db.late1", "db.late2"], "a row may be the first of a snapshot that is stopped"
    for name, left in (("db.late1", ["db.late2"]), ("db.late2", [])):
        conditions = {
            "ops": {"shop_read_tables": {"config": {"conditions": {".*": f"SELECT * FROM {name} WHERE id > 3"}}}}
        }
        for config, lacking in ((conditions, sorted({name, *left})), ({}, left)):
            shop.connector = Connector(shop.connector._events, scanned=name)
            with patch.object(Database, "tables", return_value=tables):
                chosen = [key("snapshot", name.removeprefix("db."))]
                assert shop.run("shop_snapshot", chosen, run_config=config).success
            shop.database.end += 1
            assert health(4)[0] == lacking, "a condition may have left out rows"
    shop.more["table.include.list"] = r"db\.items.*"
    commit(("items2", "c"))
    assert health(2)[0] == []
    shop.more["table.include.list"] = r"db\..*"
    assert health(4)[0] == ["db.late1", "db.late2"], "what changed meanwhile is not in the lake"
    shop.more["notification.enabled.channels"] = "log"
    commit(("late1", "r"))
    assert health(4)[0] == ["db.late2"], "nothing else shows what was read"


@pytest.mark.long
@pytest.mark.parametrize("recorded", ["", r"db\.(?<![a-z]{2,})items1"])
def test_a_record_without_lists_or_with_some_that_are_not_understood_says_nothing_of_later_tables(
    shop: Deployment, recorded: str
) -> None:
    """The connector understands expressions of Java."""
    shop.more["table.include.list"] = recorded
    with patch.object(EngineConfig, "reads_rows", new=bool(recorded)):
        assert shop.changes().success
    overview = ConnectorResource(properties=shop.properties() | {"table.include.list": "db.late1"}).overview()
    late = [TableSchema(TableId("db", "", "late1"), 0, (), ())]
    with patch.object(Database, "tables", return_value=late):
        asked = answers_of(overview, lambda: shop.database.open(overview.config))
    report = report_of_engine(overview, asked, datetime.now(UTC))
    assert (overview.state.lists is not None, report.health) == (bool(recorded), "healthy")
    if recorded:
        state = replace(overview.state, later_lists=({"table.include.list": "db.items1"},))
        with patch.object(EngineOverview, "state", new=state):
            report = report_of_engine(EngineOverview(overview.config), asked, datetime.now(UTC))
        assert [trouble.where for trouble in report.unknown] == ["db.late1"], "others are understood"


@pytest.mark.long
def test_an_error_of_the_connector_is_seen_and_passes(shop: Deployment) -> None:
    with patch.object(Connector, "next", side_effect=EngineError("The connector has ended: no right. Next: grant it.")):
        assert not shop.changes().success
    found = shop.last_of_connector()
    assert (found.passed, "no right" in (found.description or "")) == (False, True)
    assert "The last run failed; the next starts after" in shop.tick().skip_message
    assert shop.run("shop_changes", [BATCHES]).success
    assert shop.last_of_connector().passed
