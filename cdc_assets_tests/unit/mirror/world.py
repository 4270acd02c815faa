"""A server with one table, its capture and its mirror."""

from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.sqlserver.bulk import MssqlBulkSource
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.capture.capture import Capture
from cdc_assets.core.identifiers import TableId
from cdc_assets.errors import CdcError
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.readers import MirrorReader
from cdc_assets.mirror.shape import STEP
from cdc_assets_tests.unit.mirror.child import mirrors_of
from cdc_assets_tests.unit.streaming.child import DATABASE, config_of, run
from mssql_standin.control import StandIn

TOPIC = f"shop.{DATABASE}.dbo.t"


class World:
    """A server with one table, its capture and its mirror."""

    def __init__(self, server: StandIn, lake: Path, columns: str) -> None:
        self.server, self.lake = server, lake
        self.config = config_of(server.port, server.password, str(lake))
        self.execute(f"CREATE TABLE dbo.t ({columns})")
        self.execute("EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N't', @role_name = NULL")

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        return self.server.execute(statement, database=DATABASE)

    def capture(self, what: str = "stream") -> None:
        self.server.agent.drain()
        run(self.config, what)

    def mirror(self, *, anew: bool = False) -> None:
        assert not CaptureMirrors(self.config, LocalRunner(2), SystemClock()).catch_up(anew=anew)

    def follow(self, *, anew: bool = False) -> CdcError | None:
        """Bring the mirror as far as it can come; why it goes no further."""
        return CaptureMirrors(self.config, LocalRunner(2), SystemClock()).catch_up(anew=anew).get(TOPIC)

    def read_again(self) -> None:
        """Read the whole table again."""
        self.server.agent.drain()
        with SqlServerSource(self.config.connection) as source:
            bulk = MssqlBulkSource(self.config.connection)
            Capture(self.config, source, bulk, LocalRunner(2), SystemClock()).snapshot([TableId(DATABASE, "dbo", "t")])

    def second_instance(self) -> None:
        """A capture instance with the table's present structure."""
        self.execute(
            "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N't', @role_name = NULL, @capture_instance = 'dbo_t2'"
        )

    def rows(self) -> list[dict[str, Any]]:
        found = MirrorReader(mirrors_of(str(self.lake)).tables, TOPIC).current().to_pylist()
        return [{name: value for name, value in row.items() if not name.startswith("_")} for row in found]

    def versions(self) -> list[dict[str, Any]]:
        """Versions that ended."""
        found: list[dict[str, Any]] = DeltaTable(str(self.lake / f"{TOPIC}.__history")).to_pyarrow_table().to_pylist()
        return found

    def comments(self, role: str) -> dict[str, str]:
        fields = DeltaTable(str(self.lake / f"{TOPIC}.{role}")).schema().fields
        return {field.name: field.metadata["comment"] for field in fields if field.metadata.get("comment")}

    def on_server(self, names: str) -> list[dict[str, Any]]:
        columns = names.split(", ")
        return [dict(zip(columns, row, strict=True)) for row in self.execute(f"SELECT {names} FROM dbo.t")]


def started(server: StandIn, tmp_path: Path, columns: str, *rows: str) -> World:
    """A table with rows that a snapshot has read, and its mirror."""
    world = World(server, tmp_path / "lake", columns)
    world.execute(f"INSERT INTO dbo.t VALUES {', '.join(rows)}")
    world.capture("snapshot")
    world.mirror()
    return world


def ordered(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(map(repr, rows))


def content(lake: Path) -> tuple[list[str], list[str]]:
    """Rows and versions, without the order in which they lie."""
    found = [
        DeltaTable(str(lake / f"{TOPIC}.__{name}")).to_pyarrow_table().to_pylist() for name in ("current", "history")
    ]
    versions = [{name: value for name, value in row.items() if name != STEP} for row in found[1]]
    return ordered(found[0]), ordered(versions)
