"""A capture that is started again and again, over the stand-in."""

from pathlib import Path
from typing import Any

from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.core.identifiers import TableId
from cdc_assets.overview import CaptureOverview
from cdc_assets_tests.unit.snapshot.world import World
from cdc_assets_tests.unit.streaming.lake_reader import rows_of_topic
from mssql_standin.control import StandIn


class Starts:
    """A capture in one mode, and what each of its starts brings."""

    def __init__(self, server: StandIn, lake: Path, mode: str, **properties: str) -> None:
        self.world = World(server, str(lake))
        self.world.properties = {"snapshot.mode": mode} | {
            f"snapshot.mode.configuration.based.{name.replace('_', '.')}": text for name, text in properties.items()
        }
        self.orders = self.world.make("orders", 3)
        self.next = 3
        self.seen = 0

    def mode(self, mode: str) -> None:
        self.world.properties["snapshot.mode"] = mode

    def insert(self) -> None:
        self.next += 1
        self.world.sql(f"INSERT INTO dbo.orders VALUES ({self.next}, 'new')")

    def lose(self, *others: str) -> None:
        """Changes that nobody read are cleaned up."""
        self.insert()
        self.insert()
        for table in ("orders", *others):
            self.world.sql(
                "DECLARE @l binary(10) = sys.fn_cdc_get_max_lsn(); "
                f"EXEC sys.sp_cdc_cleanup_change_table @capture_instance = N'dbo_{table}', @low_water_mark = @l"
            )

    def start(self) -> list[str]:
        """Snapshot and stream by one capture, as the command line does; the operations that arrived."""
        with self.world.capture() as capture:
            capture.snapshot()
            capture.stream()
        events = [event["op"] for event in self.by_arrival()] if self.arrived() else []
        new, self.seen = events[self.seen :], len(events)
        return new

    def arrived(self) -> bool:
        return (Path(self.world.lake) / f"shop.{self.orders}").exists()

    def by_arrival(self) -> list[dict[str, Any]]:
        rows: list[Any] = sorted(
            rows_of_topic(self.world.config, f"shop.{self.orders}"), key=lambda row: (row["window_id"], row["position"])
        )
        return [row["value"] for row in rows if row["value"]]

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.world.notes()]

    def structures(self) -> int:
        rows = rows_of_topic(self.world.config, "shop.__schema_history")
        return sum(row["table"] == "orders" for row in rows)

    def due(self) -> list[TableId]:
        """Tables for which the sensor would start a snapshot."""
        with SqlServerSource.of(self.world.config) as source:
            return CaptureOverview(self.world.config, source).work.waiting(self.world.tables)

    def position(self) -> object:
        return self.world.position(self.orders)
