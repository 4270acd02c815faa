"""A stand-in with two tables and a signal table, a capture of it, and the law of its topic tables."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.kafka.signals import kafka_channels
from cdc_assets.adapters.sqlserver.bulk import MssqlBulkSource
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.capture.capture import Capture, RunOptions
from cdc_assets.config.settings import CaptureConfig, FilterSettings, NotificationSettings, SignalSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.ledger.state import CaptureState
from cdc_assets.shared.progress import SnapshotSummary, StreamSummary
from cdc_assets_tests.unit.streaming.child import DATABASE, config_of
from cdc_assets_tests.unit.streaming.lake_reader import rows_of_topic
from mssql_standin.control import StandIn

SIGNALS = f"{DATABASE}.dbo.cdc_signal"
SIGNAL_COLUMNS = "id varchar(64) PRIMARY KEY, type varchar(32) NOT NULL, data varchar(2048) NULL"


@dataclass
class Watched:
    """`core.ports.BulkSource` that tells when rows of a table are about to be read."""

    bulk: MssqlBulkSource
    meanwhile: Callable[[], None]

    def reaching(self, database: str, lsn: Lsn, *, captured: bool = True, left: Sequence[str] = ()) -> "Watched":
        return replace(self, bulk=self.bulk.reaching(database, lsn, captured=captured, left=left))

    def read(self, statement: str, parameters: Sequence[object] = ()) -> Iterator[pa.RecordBatch]:
        if statement.startswith("/* cdc-assets: chunk */"):
            self.meanwhile()
        return self.bulk.read(statement, parameters)


class World:
    """A server, its capture, and questions to both.

    Args:
        server: empty.
        lake: directory.
        columns: of the signal table.
        signals: further signal settings.
    """

    def __init__(self, server: StandIn, lake: str, *, columns: str = SIGNAL_COLUMNS, **signals: Any) -> None:
        self.server = server
        self.meanwhile: Callable[[], None] = lambda: None
        """Called before each span of an incremental snapshot is read, in the thread that reads."""
        settings = SignalSettings((TableId(DATABASE, "dbo", "cdc_signal"),), **{"chunk_rows": 1} | signals)
        self.config: CaptureConfig = replace(
            config_of(server.port, server.password, lake),
            signals=settings,
            filters=FilterSettings(also=frozenset({SIGNALS.lower()}), table_exclude=("dbo.cdc_signal",)),
            notifications=NotificationSettings(("sink",), "notes"),
        )
        self.make("cdc_signal", columns)

    def sql(self, statement: str, database: str = DATABASE) -> None:
        self.server.execute(statement, database=database)

    def make(self, name: str, columns: str, database: str = DATABASE) -> TableId:
        enable = f"EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'{name}', @role_name = NULL"
        self.sql(f"CREATE TABLE dbo.{name} ({columns})", database)
        self.sql(enable, database)
        self.server.agent.drain()
        return TableId(database, "dbo", name)

    def signal(self, own_id: str, kind: str, **data: object) -> None:
        text = json.dumps({name.replace("_", "-"): value for name, value in data.items()}).replace("'", "''")
        self.sql(f"INSERT INTO dbo.cdc_signal VALUES ('{own_id}', '{kind}', '{text}')")
        self.server.agent.drain()

    def run(self, what: str = "stream") -> SnapshotSummary | StreamSummary:
        """As a new process would; raises what ends it."""
        connection = self.config.connection
        with SqlServerSource(connection) as source, kafka_channels(self.config) as channels:
            bulk = Watched(MssqlBulkSource.of(self.config), self.meanwhile)
            capture = Capture(self.config, source, bulk, LocalRunner(2), SystemClock(), RunOptions(channels=channels))
            return capture.snapshot() if what == "snapshot" else capture.stream()

    def state(self) -> CaptureState:
        with SqlServerSource(self.config.connection) as source:
            return Capture(
                self.config, source, MssqlBulkSource(self.config.connection), LocalRunner(2), SystemClock()
            ).state()

    def events(self, table: TableId) -> list[dict[str, Any]]:
        """Rows of a topic in position order."""
        return sorted(rows_of_topic(self.config, f"shop.{table}"), key=lambda row: str(row["position"]))

    def reads(self, table: TableId) -> list[dict[str, Any]]:
        """Rows of incremental READ events."""
        events = [event["value"] for event in self.events(table) if event["value"]]
        return [event["after"] for event in events if event["source"]["snapshot"] == "incremental"]

    def notes(self) -> list[tuple[str, str]]:
        """Notifications about incremental snapshots: type and status, in order."""
        rows: list[dict[str, Any]] = sorted(rows_of_topic(self.config, "notes"), key=lambda row: str(row["position"]))
        values = [row["value"] for row in rows if row["value"]["aggregate_type"] == "Incremental Snapshot"]
        return [(value["type"], dict(value["additional_data"]).get("status", "")) for value in values]


def check_law(world: World, table: TableId, rows: dict[Any, Any], key: str = "id") -> None:
    """In position order and in commit order, no READ stands behind a newer event, and the end is the server's state.

    Args:
        world: whose lake.
        table: one with a column `version` that grows with every change of any row.
        rows: version by key on the server now.
        key: name of the key column.
    """
    events = world.events(table)
    assert len({event["position"] for event in events}) == len(events)
    for order in (events, sorted(events, key=lambda event: (event["window_id"], str(event["position"])))):
        state: dict[Any, Any] = {}
        newest: dict[Any, int] = {}
        for event in order:
            value = event["value"]
            if value is None:
                continue
            row = value["after"] or value["before"]
            if value["op"] == "r":
                assert row["version"] >= newest.get(row[key], 0), f"READ {row} behind a newer event"
                alive = row[key] in state or row[key] not in newest or row["version"] > newest[row[key]]
                ahead = order is not events and value["source"]["snapshot"] != "incremental"  # see `run.blocking`
                assert alive or ahead, f"READ {row} behind its deletion"
            newest[row[key]] = max(newest.get(row[key], 0), row["version"])
            if value["after"] is None:
                state.pop(row[key], None)
            else:
                state[row[key]] = row["version"]
        assert state == rows


def values(*rows: str) -> str:
    return ", ".join(f"({row})" for row in rows)
