"""Captures by an embedded connector in Dagster, with a connector made of a list and a database made of a few answers."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import dagster as dg
import pytest

from cdc_assets.config.engine import EngineConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import Column, TableSchema
from cdc_assets.defs.build import build_definitions
from cdc_assets.defs.engines import resource, sensor
from cdc_assets.defs.engines.resource import ConnectorResource
from cdc_assets.defs.keys import Role
from cdc_assets.defs.spark import SparkResource
from cdc_assets.defs.translator import CdcTranslator
from cdc_assets.engine.feed import Chunk, EngineFeed, Lines, Offsets
from cdc_assets.engine.overview import EngineOverview
from cdc_assets.engine.source import LogPoint, Retention, binlog_point
from cdc_assets.errors import ConfigurationError, ConnectionLostError, EngineError
from cdc_assets_tests.unit.engine.feeds import ListFeed, event

TOPIC = "shop.db.items1"
EVENTS = [
    *(event(number, topic=TOPIC, op="r") for number in range(1, 4)),
    *(event(number, topic=TOPIC, op="c") for number in range(4, 11)),
]
BATCHES = dg.AssetKey(["shop", "batches"])
CLOCK = datetime(2026, 1, 1, 0, 0, 30, tzinfo=UTC)


def key(role: str, table: str = "items1") -> dg.AssetKey:
    return dg.AssetKey(["shop", "db", f"{table}.{role}"])


@dataclass
class Database:
    """What the database answers."""

    end: int = 10
    away: bool = False
    driver: bool = True
    retained: Retention = field(default_factory=Retention)
    sent: list[tuple[str, str, str]] = field(default_factory=list)

    def log_end(self) -> LogPoint:
        return binlog_point("bin.000001", self.end)

    def clock(self) -> datetime:
        return CLOCK

    def is_read(self) -> None:
        return None

    def nothing_between(self, offset: Any, end: LogPoint) -> bool:
        return False

    def retention(self, recorded: LogPoint | None) -> Retention:
        return self.retained

    def tables(self) -> Sequence[TableSchema]:
        return [TableSchema(TableId("db", "", "items1"), 0, (Column("id", "int", 1, False),), ("id",))]

    def wake(self) -> None:
        pass

    def signal(self, id_: str, type_: str, data: str) -> None:
        self.sent.append((id_, type_, data))

    @contextmanager
    def open(self, config: EngineConfig) -> Iterator["Database"]:
        if not self.driver:
            raise EngineError("The driver pymysql is not installed. Next: pip install 'cdc-assets[mysql]'.")
        if self.away:
            raise ConnectionLostError("db:3306 cannot be reached. Next: wait.")
        yield self


class Connector(ListFeed):
    """Its offsets are places in a binlog; it obeys a signal in its file by READ events and notifications."""

    def __init__(self, events: list[dict[str, Any]], *, obeys: str = "COMPLETED") -> None:
        super().__init__(events, range(1, len(events) + 1))
        self.obeys, self.properties = obeys, dict[str, str]()
        self.signals: list[dict[str, Any]] = []

    def launch(self, config: EngineConfig, offsets: Offsets, history: Sequence[str]) -> EngineFeed:
        self.properties = dict(config.properties)
        return self([(partition, {"at": offset["pos"]}) for partition, offset in offsets], history)

    def _chunk(self, number: int, start: int, end: int) -> Chunk:
        chunk = super()._chunk(number, start, end)
        object.__setattr__(
            chunk, "offsets", [({"server": "shop"}, {"file": "bin.000001", "pos": end, "ts_sec": 1767225600})]
        )
        return chunk

    def next(self, timeout_s: float) -> Chunk | None:
        path = Path(self.properties.get("signal.file", "missing"))
        if path.exists() and not self.signals:
            self.signals = [json.loads(line) for line in path.read_text().splitlines()]
            end = len(self._events)
            self._events = [*self._events, event(end + 1, topic=TOPIC, op="r")]
            if self.obeys:
                self._pending += [
                    self._told(100, "STARTED"),
                    self._chunk(101, end, end + 1),
                    self._told(102, self.obeys),
                ]
        return super().next(timeout_s)

    def _told(self, number: int, kind: str) -> Chunk:
        fields = [{"type": "string", "optional": True, "field": name} for name in ("id", "aggregate_type", "type")]
        schema = {"type": "struct", "optional": False, "name": "n.Value", "fields": fields}
        value = {"id": "its own", "aggregate_type": "Blocking Snapshot", "type": kind}
        line = json.dumps({"n": 0, "key": None, "value": value, "headers": []}).encode() + b"\n"
        topic = self.properties["notification.sink.topic.name"]
        return Chunk(number, [Lines(topic, 77, None, schema, 1, 1000, line)], 1, [])


@dataclass
class Deployment:
    """A code location with one capture."""

    folder: Path
    instance: dg.DagsterInstance
    connector: Connector
    database: Database = field(default_factory=Database)
    more: dict[str, str] = field(default_factory=dict)

    def properties(self) -> dict[str, str]:
        return {
            "connector.class": "io.debezium.connector.mysql.MySqlConnector",
            "topic.prefix": "shop",
            "database.password": "${env:SHOP_PASSWORD}",
            "lake.path": str(self.folder / "lake"),
            "stream.idle.timeout.ms": "50",
            **self.more,
        }

    def definitions(self, translator: CdcTranslator | None = None) -> dg.Definitions:
        return build_definitions(
            self.properties(), spark=SparkResource(), state_dir=self.folder / "state", translator=translator
        )

    def run(self, job: str, assets: list[dg.AssetKey] | None = None, **options: Any) -> dg.ExecuteInProcessResult:
        found = self.definitions().resolve_job_def(job)
        return found.execute_in_process(instance=self.instance, asset_selection=assets, raise_on_error=False, **options)

    def changes(self) -> dg.ExecuteInProcessResult:
        """A run as the sensor asks for it."""
        request = self.tick()
        assert isinstance(request, dg.RunRequest), request.skip_message
        return self.run(request.job_name, list(request.asset_selection or []), tags=dict(request.tags))

    def tick(self) -> Any:
        repository = self.definitions().get_repository_def()
        (found,) = repository.sensor_defs
        resources = {"cdc_shop": ConnectorResource(properties=self.properties())}
        context = dg.build_sensor_context(instance=self.instance, resources=resources, repository_def=repository)
        with context:
            data = found.evaluate_tick(context)
        return data.run_requests[0] if data.run_requests else data

    def checks(self) -> dict[str, dg.AssetCheckEvaluation]:
        result = self.run("shop_headroom")
        return {found.check_name: found for found in result.get_asset_check_evaluations()}

    def last_of_connector(self) -> dg.AssetCheckEvaluation:
        check = dg.AssetCheckKey(BATCHES, "connector")
        record = self.instance.event_log_storage.get_latest_asset_check_execution_by_key([check])[check]
        assert record.event is not None
        assert record.event.dagster_event is not None
        found = record.event.dagster_event.event_specific_data
        assert isinstance(found, dg.AssetCheckEvaluation)
        return found


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployment]:
    monkeypatch.setenv("SHOP_PASSWORD", "secret")
    with dg.DagsterInstance.ephemeral() as instance:
        found = Deployment(tmp_path, instance, Connector(EVENTS))
        monkeypatch.setattr(resource, "open_probe", lambda config: found.database.open(config))
        monkeypatch.setattr(resource, "start_connector", lambda *given: found.connector.launch(*given))
        original = resource.EngineRun
        monkeypatch.setattr(resource, "EngineRun", lambda *given: original(*given, warm_up_s=0.01))
        yield found


def materialized(result: dg.ExecuteInProcessResult) -> dict[dg.AssetKey, dict[str, Any]]:
    found = {}
    for made in result.get_asset_materialization_events():
        assert made.asset_key is not None
        metadata = made.step_materialization_data.materialization.metadata
        found[made.asset_key] = {name: entry.value for name, entry in metadata.items()}
    return found


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


def test_between_runs_the_sensor_tells_what_has_changed(shop: Deployment) -> None:
    assert shop.changes().success
    assert shop.tick().asset_events == []
    shop.database.away = True
    [page, *checks] = shop.tick().asset_events
    assert page.metadata["health"].value.startswith("in trouble: The database cannot be asked")
    assert [check.check_name for check in checks if not check.passed] == ["retention_headroom"]
    (shop.folder / "lake" / TOPIC).rename(shop.folder / "elsewhere")
    [page, *_] = shop.tick().asset_events
    assert "| db.items1 | failed |" in page.metadata["tables"].value


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
    with patch.object(Database, "nothing_between", return_value=True):
        assert shop.tick().skip_message == "Nothing new."


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
        "retention_headroom": False,
    }


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


def test_checks_pass_only_on_what_is_proved(shop: Deployment) -> None:
    assert "Nothing was captured" in (shop.checks()["complete_to_log_end"].description or "")
    assert shop.changes().success
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


def test_an_error_of_the_connector_is_seen_and_passes(shop: Deployment) -> None:
    with patch.object(Connector, "next", side_effect=EngineError("The connector has ended: no right. Next: grant it.")):
        assert not shop.changes().success
    found = shop.last_of_connector()
    assert (found.passed, "no right" in (found.description or "")) == (False, True)
    assert "The last run failed; the next starts after" in shop.tick().skip_message
    assert shop.run("shop_changes", [BATCHES]).success
    assert shop.last_of_connector().passed


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


def test_the_first_snapshot_is_the_connectors_own(shop: Deployment) -> None:
    result = shop.run("shop_snapshot", [key("snapshot")])
    assert result.success
    assert shop.connector.signals == []
    assert materialized(result)[key("snapshot")]["rows_reads"] == 3


def test_a_connector_that_reads_no_rows_at_first_is_run_before(shop: Deployment) -> None:
    shop.more["snapshot.mode"] = "no_data"
    assert not shop.run("shop_snapshot", [key("snapshot")]).success
    assert "materialize the changes first" in (shop.last_of_connector().description or "")


def test_a_snapshot_that_is_not_taken_fails_its_run(shop: Deployment) -> None:
    assert shop.changes().success
    shop.connector.obeys = "ABORTED"
    assert not shop.run("shop_snapshot", [key("snapshot")]).success
    assert "Blocking Snapshot ABORTED" in (shop.last_of_connector().description or "")


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
    assert shop.run("shop_signal", run_config=asked).success
    assert json.loads(path.read_text())["data"]["data-collections"] == [r"db\.items1"]
    assert shop.tick().tags["cdc/signals"] == "file"


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
    assert "db.itmes1" in path.read_text()
