"""The command line on a configuration of its own."""

import json
from pathlib import Path

from typer.testing import CliRunner, Result

from cdc_assets.cli.main import app
from cdc_assets_tests.contract.source.conftest import DATABASE, Server, connection, drain


class Shop:
    """A configuration file beside a lake, and the commands on them."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.texts: dict[str, str] = {
            "topic.prefix": "shop",
            "database.hostname": server.host,
            "database.port": str(server.port),
            "database.user": server.user,
            "database.password": server.password,
            "database.names": DATABASE,
            "driver.encrypt": connection(server).encrypt,
            "driver.trustServerCertificate": "true",
            "connection.validation.timeout.ms": "2000",
            "stream.idle.timeout.ms": "50",
            "poll.interval.ms": "20",
            "lake.path": str(folder / "lake"),
        }

    def run(self, *arguments: str, **changes: str) -> Result:
        path = self.folder / "shop.json"
        path.write_text(json.dumps(self.texts | {name.replace("__", "."): text for name, text in changes.items()}))
        return CliRunner().invoke(app, [*arguments, "-c", str(path)], env={"COLUMNS": "220"})

    def lake(self) -> dict[str, int]:
        """Files of the lake with their sizes."""
        root = self.folder / "lake"
        return {str(path.relative_to(root)): path.stat().st_size for path in root.rglob("*") if path.is_file()}


def change(shop: Shop, statement: str) -> None:
    shop.server.execute(statement, database=DATABASE)
    drain(shop.server)
