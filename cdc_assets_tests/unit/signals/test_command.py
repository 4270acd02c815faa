"""`cdc-assets signal` writes a signal that the capture carries out."""

import json
from pathlib import Path

from typer.testing import CliRunner

from cdc_assets.cli.main import app
from cdc_assets.standin.control import StandIn
from cdc_assets_tests.unit.signals.world import SIGNALS, World
from cdc_assets_tests.unit.streaming.child import DATABASE


def test_a_command_asks_for_a_table(tmp_path: Path) -> None:
    with StandIn(databases=(DATABASE,)) as server:
        world = World(server, str(tmp_path / "lake"))
        table = world.make("orders", "id int PRIMARY KEY, version int")
        world.sql("INSERT INTO dbo.orders VALUES (1, 1), (2, 20)")
        server.agent.start()
        server.agent.drain()
        world.run("snapshot")
        file = tmp_path / "shop.json"
        properties = {
            "topic.prefix": "shop", "database.hostname": "127.0.0.1", "database.port": str(server.port),
            "database.user": "sa", "database.password": server.password, "database.names": DATABASE,
            "driver.encrypt": "no", "lake.path": str(tmp_path / "lake"), "signal.data.collection": SIGNALS,
        }  # fmt: skip
        file.write_text(json.dumps(properties))
        asked = ["signal", "execute-snapshot", f"{DATABASE}[.]dbo[.]orders", "--where", "version > 10"]
        done = CliRunner().invoke(app, [*asked, "--config", str(file)])
        assert done.exit_code == 0, done.output
        server.agent.drain()
        world.run()
        assert world.reads(table) == [{"id": 2, "version": 20}]
        wrong = CliRunner().invoke(app, ["signal", "execute-snapshot", "--config", str(file)])
        assert wrong.exit_code != 0
