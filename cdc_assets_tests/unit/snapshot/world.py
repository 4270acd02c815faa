"""A stand-in and captures of it with settings of their own, for tests of snapshots."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.sqlserver.bulk import MssqlBulkSource
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.capture.capture import Capture, RunOptions
from cdc_assets.config.build import build_config
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.shared.progress import OnProgress, SnapshotSummary, StreamSummary
from cdc_assets.snapshot.plan import Request
from cdc_assets_tests.unit.streaming.child import DATABASE
from cdc_assets_tests.unit.streaming.lake_reader import rows_of_topic
from mssql_standin.control import StandIn


class World:
    """A server, a lake, and captures of one into the other, each as a new process would open it.

    Args:
        server: empty.
        lake: directory.
        properties: Debezium's names; they may be changed between two captures.
    """

    def __init__(self, server: StandIn, lake: str, **properties: str) -> None:
        self.server, self.lake = server, lake
        self.tables: list[TableId] = []
        self.properties = {name.replace("__", "."): text for name, text in properties.items()}

    @property
    def config(self) -> CaptureConfig:
        return build_config(self.given)

    @property
    def given(self) -> dict[str, str]:
        """The properties as a configuration file holds them."""
        given = {
            "topic.prefix": "shop",
            "database.hostname": "127.0.0.1",
            "database.port": str(self.server.port),
            "database.user": "sa",
            "database.password": self.server.password,
            "database.names": DATABASE,
            "driver.encrypt": "false",
            "lake.path": self.lake,
            "stream.idle.timeout.ms": "50",
            "poll.interval.ms": "20",
            "notification.enabled.channels": "sink",
            "notification.sink.topic.name": "notes",
        }
        return given | self.properties

    def sql(self, *statements: str) -> None:
        for statement in statements:
            self.server.execute(statement, database=DATABASE)
        self.server.agent.drain()

    def make(self, name: str, rows: int = 0, *, captured: bool = True) -> TableId:
        """A table of `id` and `note` with rows from 1 on."""
        self.sql(f"CREATE TABLE dbo.{name} (id int PRIMARY KEY, note varchar(20))")
        if captured:
            self.enable(name)
        if rows:
            values = ", ".join(f"({number}, 'n{number}')" for number in range(1, rows + 1))
            self.sql(f"INSERT INTO dbo.{name} VALUES {values}")
        self.tables.append(TableId(DATABASE, "dbo", name))
        return self.tables[-1]

    def enable(self, name: str) -> None:
        self.sql(f"EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'{name}', @role_name = NULL")

    @contextmanager
    def capture(self, on_progress: OnProgress = lambda _: None) -> Iterator[Capture]:
        config = self.config
        with SqlServerSource.of(config) as source:
            yield Capture(
                config,
                source,
                MssqlBulkSource.of(config),
                LocalRunner(2),
                SystemClock(),
                RunOptions(on_progress=on_progress),
            )

    def snapshot(self, tables: Sequence[TableId] | None = None) -> SnapshotSummary:
        with self.capture() as capture:
            return capture.snapshot(tables)

    def stream(self) -> StreamSummary:
        with self.capture() as capture:
            return capture.stream()

    def block(self, signal: str, *requests: Request) -> SnapshotSummary:
        """A blocking snapshot, as the loop starts one."""
        with self.capture() as capture:
            capture.claim()
            return capture._activities.snapshotter.run(DATABASE, requests, signal=signal)

    def position(self, table: TableId) -> object:
        with self.capture() as capture:
            return capture.state().tables[table].position

    def events(self, table: TableId) -> list[dict[str, Any]]:
        """Values of a topic in position order; tombstones left out."""
        rows = sorted(rows_of_topic(self.config, f"shop.{table}"), key=lambda row: str(row["position"]))
        return [row["value"] for row in rows if row["value"]]  # type: ignore[misc]

    def reads(self, table: TableId) -> list[int]:
        """Ids of READ events in position order."""
        return [event["after"]["id"] for event in self.events(table) if event["op"] == "r"]

    def notes(self) -> list[tuple[str, dict[str, str]]]:
        """Notifications of snapshots in order: type, and the additional data with the id."""
        rows = sorted(rows_of_topic(self.config, "notes"), key=lambda row: str(row["position"]))
        values: list[Any] = [row["value"] for row in rows]
        return [
            (value["type"], {"id": value["id"]} | dict(value["additional_data"]))
            for value in values
            if value["aggregate_type"] == "Initial Snapshot"
        ]
