"""Two databases of one server, captured by one configuration."""

from dataclasses import replace

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.sqlserver.bulk import MssqlBulkSource
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.capture.capture import Capture
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.ports import Clock
from cdc_assets.shared.progress import SnapshotSummary, StreamSummary
from cdc_assets_tests.unit.streaming.child import config_of
from cdc_assets_tests.unit.streaming.lake_reader import events_of, rows_of_topic
from mssql_standin.control import StandIn

HERE, THERE = TableId("Here", "dbo", "orders"), TableId("There", "dbo", "orders")


class Two:
    """A server with two databases and a capture of both.

    Args:
        server: with the databases.
        path: of the lake.
    """

    def __init__(self, server: StandIn, path: str) -> None:
        self.server, self._key = server, 0
        config = config_of(server.port, server.password, path)
        self.config: CaptureConfig = replace(
            config,
            connection=replace(config.connection, databases=(HERE.database, THERE.database)),
            streaming=replace(config.streaming, retry_wait_s=0.1, max_retries=1),
        )
        for table in (HERE, THERE):
            self.enable(table)
        self.insert(HERE, THERE)
        self.run("snapshot")

    def enable(self, table: TableId, instance: str = "dbo_orders") -> None:
        if not self.server.execute(f"SELECT name FROM [{table.database}].sys.tables WHERE name = N'orders'"):
            self.server.execute("CREATE TABLE dbo.orders (id int NOT NULL PRIMARY KEY)", database=table.database)
        self.server.execute(
            "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'orders', @role_name = NULL, "
            f"@capture_instance = N'{instance}'",
            database=table.database,
        )

    def insert(self, *tables: TableId) -> None:
        for table in tables:
            self._key += 1
            self.server.execute(f"INSERT INTO dbo.orders VALUES ({self._key})", database=table.database)
        self.server.agent.drain()

    def run(self, what: str = "stream", clock: Clock | None = None) -> StreamSummary | None:
        with SqlServerSource(self.config.connection) as source:
            bulk = MssqlBulkSource(self.config.connection)
            capture = Capture(self.config, source, bulk, LocalRunner(2), clock or SystemClock())
            return capture.stream() if what == "stream" else capture.snapshot() and None

    def offline(self) -> None:
        """Take a database away, and everybody who uses it."""
        self.server.execute("ALTER DATABASE [There] SET OFFLINE WITH ROLLBACK IMMEDIATE")

    def online(self) -> None:
        self.server.execute("ALTER DATABASE [There] SET ONLINE")

    def keys(self, table: TableId) -> list[int]:
        return [event.key for event in events_of(self.config, table)]

    def told(self) -> list[tuple[str, str]]:
        rows = rows_of_topic(self.config, "shop.__schema_history")
        return [(str(row["type"]), str(row["database"])) for row in rows if row["snapshot"] is None]


def reasons(summary: StreamSummary | None) -> dict[TableId, str]:
    assert summary is not None
    return {trouble.table: trouble.reason for trouble in summary.troubled}


def snapshot(two: Two, *tables: TableId) -> SnapshotSummary:
    with SqlServerSource(two.config.connection) as source:
        bulk = MssqlBulkSource(two.config.connection)
        return Capture(two.config, source, bulk, LocalRunner(2), SystemClock()).snapshot(tables or None)
