"""A configuration file, a lake, and what a capture of the one into the other asks for."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from typer.testing import CliRunner, Result

from cdc_assets.cli.main import app
from cdc_assets.config.load import load_config
from cdc_assets.config.settings import CaptureConfig
from mssql_standin.control import StandIn

DATABASE = "Effects"
ORDERS, ITEMS = f"shop.{DATABASE}.dbo.orders", f"shop.{DATABASE}.other.items"


@dataclass
class Trial:
    """A configuration file, a lake, and what the adapters were asked for."""

    server: StandIn
    folder: Path
    texts: dict[str, str]
    statements: list[tuple[str, list[int]]] = field(default_factory=list)
    """Texts, and the rows of each batch that was read."""
    waits: list[float] = field(default_factory=list)
    locked: list[str] = field(default_factory=list)
    logins: list[str] = field(default_factory=list)

    def run(self, *arguments: str) -> Result:
        path = self.folder / "shop.json"
        path.write_text(json.dumps(self.texts))
        return CliRunner().invoke(app, [*arguments, "-c", str(path)], env={"COLUMNS": "220"})

    def config(self) -> CaptureConfig:
        self.run("properties")
        return load_config(self.folder / "shop.json", {})

    def capture(self) -> str:
        """Output of a capture that goes well."""
        result = self.run("capture", "--local")
        assert result.exit_code == 0, result.output
        return result.output

    def change(self, statement: str) -> None:
        self.server.execute(statement, database=DATABASE)
        self.server.agent.drain()

    def topics(self) -> set[str]:
        """Directories of the lake without that of structures and those of our own."""
        names = {path.name for path in (self.folder / "lake").iterdir()}
        return {name for name in names if name != "shop" and not name.startswith("shop.__")}

    def events(self, topic: str = ORDERS) -> list[dict[str, Any]]:
        lines = self.run("tail", topic, "-n", "100", "--schemas", "--headers").output.splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def last(self, topic: str = ORDERS) -> dict[str, Any]:
        return dict(self.events(topic)[-1]["value"]["payload"])

    def columns(self, topic: str = ORDERS) -> list[str]:
        return list(self.last(topic)["after"])

    def structures(self) -> set[str]:
        """Tables of the schema history."""
        return {row["table"] for row in self.lake("shop.__schema_history")}

    def lake(self, directory: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = DeltaTable(str(self.folder / "lake" / directory)).to_pyarrow_table().to_pylist()
        return rows
