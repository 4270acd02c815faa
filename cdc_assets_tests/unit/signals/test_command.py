"""`cdc-assets signal` leaves a request that the capture carries out."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cdc_assets.cli.main import app
from cdc_assets.errors import ConfigurationError
from cdc_assets.lake.location import Location
from cdc_assets.signals.inbox import Inbox
from cdc_assets.signals.requests import ask, compose
from cdc_assets_tests.unit.signals.world import SIGNALS, World
from cdc_assets_tests.unit.streaming.child import DATABASE
from cdc_assets_tests.unit.streaming.tables import two_tables
from mssql_standin.control import StandIn

ORDERS = f"{DATABASE}[.]dbo[.]orders"


def test_a_mode_that_streams_nothing_takes_no_signal(tmp_path: Path) -> None:
    """No run would carry it out."""
    _, config, _, orders = two_tables(tmp_path, mode="initial_only")
    for kind in ("execute-snapshot", "log"):
        composed = compose("s1", kind, [str(orders)] if kind != "log" else [], snapshot="blocking", message="here")
        with pytest.raises(
            ConfigurationError, match="'initial_only' is not valid: expected a mode in which changes are"
        ):
            ask(config, composed)
    assert not Inbox(Location.of(config.lake), "shop").waiting({})


@pytest.mark.long
def test_a_command_asks_for_a_table(tmp_path: Path) -> None:
    file = tmp_path / "shop.json"

    def run(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["signal", *arguments, "--config", str(file)])
        return done.exit_code, " ".join(done.output.split())

    with StandIn(databases=(DATABASE,)) as server:
        world = World(server, str(tmp_path / "lake"))
        table = world.make("orders", "id int PRIMARY KEY, version int")
        world.sql("INSERT INTO dbo.orders VALUES (1, 1), (2, 20)")
        server.agent.start()
        server.agent.drain()
        properties = {
            "topic.prefix": "shop", "database.hostname": "127.0.0.1", "database.port": str(server.port),
            "database.user": "sa", "database.password": server.password, "database.names": DATABASE,
            "driver.encrypt": "no", "lake.path": str(tmp_path / "lake"),
        }  # fmt: skip
        file.write_text(json.dumps(properties))
        code, output = run("execute-snapshot", ORDERS, "--type", "blocking")
        assert (code, "into which shop was captured" in output) == (2, True)
        world.run("snapshot")
        code, output = run("execute-snapshot", ORDERS)
        assert (code, "signal.data.collection" in output) == (2, True)
        file.write_text(json.dumps(properties | {"signal.data.collection": SIGNALS}))
        assert run("execute-snapshot", ORDERS, "--where", "version > 10")[0] == 0
        assert run("execute-snapshot", f"{DATABASE}.dbo.orders", "--type", "blocking")[0] == 0
        world.run()
        assert world.reads(table) == [{"id": 2, "version": 20}]
        assert len([event for event in world.events(table) if event["value"]["op"] == "r"]) == 5
        told = {"notification.enabled.channels": "log,sink", "notification.sink.topic.name": "notes"}
        file.write_text(json.dumps(properties | told))
        assert run("log", "--message", "here: {}")[0] == 0
        done = CliRunner().invoke(app, ["capture", "--local", "--idle", "0.2", "--config", str(file)])
        assert "here: commit_lsn=" in done.output
        assert "[Notification Service]" in done.output
        done = CliRunner().invoke(app, ["tail", "notes", "-n", "1", "--config", str(file)])
        assert json.loads(done.output)["value"]["additional_data"] == {"connector_name": "shop"}
        code, output = run("execute-snapshot")
        assert (code, "name the tables to read" in output) == (2, True)
