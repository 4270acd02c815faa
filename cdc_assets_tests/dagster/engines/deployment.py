"""A code location with a capture by an embedded connector: the connector is a list, the database a few answers."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg

from cdc_assets.config.engine import EngineConfig
from cdc_assets.connectors.engine.feed import Chunk, EngineFeed, Lines, Offsets
from cdc_assets.connectors.engine.schemas import read_lines, topic_schema
from cdc_assets.connectors.engine.source import LogPoint, Retention, binlog_point
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import Column, TableSchema
from cdc_assets.defs.build import build_definitions
from cdc_assets.defs.engines.resource import ConnectorResource
from cdc_assets.defs.spark import SparkResource
from cdc_assets.defs.translator import CdcTranslator
from cdc_assets.errors import ConnectionLostError, EngineError
from cdc_assets_tests.unit.connectors.engine.feeds import ListFeed, event

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

    def check_replication(self) -> None:
        return None

    def has_no_changes_between(self, offset: Any, end: LogPoint) -> bool:
        return False

    def retention(self, recorded: LogPoint | None) -> Retention:
        return self.retained

    def tables(self) -> Sequence[TableSchema]:
        return [TableSchema(TableId("db", "", "items1"), 0, (Column("id", "int", 1, False),), ("id",))]

    def unsent(self, tables: Sequence[TableId]) -> Mapping[TableId, str]:
        return {}

    def nudge(self) -> None:
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
    """Its offsets are places in a binlog; it obeys a signal in its file by READ events and notifications.

    Args:
        obeys: how its snapshots end; empty if it takes none.
        scanned: the table of which it reports that it was read.
    """

    def __init__(self, events: list[dict[str, Any]], *, obeys: str = "COMPLETED", scanned: str = "db.items1") -> None:
        super().__init__(events, range(1, len(events) + 1))
        self.obeys, self.properties, self._scanned = obeys, dict[str, str](), scanned
        self.signals: list[dict[str, Any]] = []

    def launch(self, config: EngineConfig, offsets: Offsets, history: Sequence[str]) -> EngineFeed:
        self.properties = dict(config.properties)
        return self([(partition, {"at": offset["pos"]}) for partition, offset in offsets], history)

    def _chunk(self, number: int, start: int, end: int) -> Chunk:
        chunk = super()._chunk(number, start, end)
        object.__setattr__(
            chunk, "offsets", [({"server": "shop"}, {"file": "bin.000001", "pos": end, "ts_sec": 1767225600})]
        )
        object.__setattr__(chunk, "anew", all(entry["value"]["op"] == "r" for entry in self._events[:end]))
        return chunk

    def next(self, timeout_s: float) -> Chunk | None:
        path = Path(self.properties.get("signal.file", "missing"))
        if path.exists() and path.stat().st_size and not self.signals:
            self.signals = [json.loads(line) for line in path.read_text().splitlines()]
            path.write_text("")  # as a connector does
            end = len(self._events)
            self._events = [*self._events, event(end + 1, topic=TOPIC, op="r")]
            if self.obeys:
                continues, _ = self.starts[-1]
                self._pending += [  # a connector that continues reports first that it takes no snapshot of its own
                    *([self._told(99, "SKIPPED")] if continues else []),
                    self._told(100, "STARTED"),
                    self._chunk(101, end, end + 1),
                    self._told(102, "TABLE_SCAN_COMPLETED", scanned_collection=self._scanned, status="EMPTY"),
                    self._told(103, self.obeys),
                ]
        return super().next(timeout_s)

    def _told(self, number: int, kind: str, **more: str) -> Chunk:
        names = ("id", "aggregate_type", "type")
        fields: list[dict[str, Any]] = [{"type": "string", "optional": True, "field": name} for name in names]
        texts = {"type": "map", "keys": {"type": "string"}, "values": {"type": "string"}}
        fields.append({**texts, "optional": True, "field": "additional_data"})
        schema = {"type": "struct", "optional": False, "name": "n.Value", "fields": fields}
        data = [{"key": name, "value": text} for name, text in more.items()]
        value = {"id": "its own", "aggregate_type": "Blocking Snapshot", "type": kind, "additional_data": data}
        line = json.dumps({"n": 0, "key": None, "value": value, "headers": []}).encode() + b"\n"
        table = read_lines(topic_schema(None, schema), line, 1000)
        topic = self.properties["notification.sink.topic.name"]
        return Chunk(number, [Lines(topic, 77, None, schema, 1, 0, b"", table)], 1, [])


@dataclass
class Deployment:
    """A code location with one capture."""

    folder: Path
    instance: dg.DagsterInstance
    connector: Connector
    database: Database = field(default_factory=Database)
    more: dict[str, str] = field(default_factory=dict)
    own: dict[str, Any] = field(default_factory=dict)
    """More arguments of `build_definitions`."""

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
            self.properties(),
            spark=SparkResource(),
            state_dir=self.folder / "state",
            translator=translator,
            **self.own,
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


def observed(result: dg.ExecuteInProcessResult) -> dict[dg.AssetKey, dict[str, Any]]:
    found = {}
    for recorded in result.all_events:
        if recorded.event_type is dg.DagsterEventType.ASSET_OBSERVATION:
            seen = recorded.asset_observation_data.asset_observation
            found[seen.asset_key] = {name: entry.value for name, entry in seen.metadata.items()}
    return found


def materialized(result: dg.ExecuteInProcessResult) -> dict[dg.AssetKey, dict[str, Any]]:
    found = {}
    for made in result.get_asset_materialization_events():
        assert made.asset_key is not None
        metadata = made.step_materialization_data.materialization.metadata
        found[made.asset_key] = {name: entry.value for name, entry in metadata.items()}
    return found
