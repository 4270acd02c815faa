"""`cdc-assets reconcile`: what it prints, and its exit codes."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cdc_assets.cli.main import app
from cdc_assets_tests.unit.reconcile.world import World
from mssql_standin.control import StandIn


@pytest.mark.long
def test_differences_are_printed_and_the_exit_code_tells_of_them(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path / "lake"), "id int NOT NULL PRIMARY KEY, v nvarchar(9)", "(1, N'a'), (2, N'b')")
    properties = {
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": "sa",
        "database.password": server.password,
        "database.names": world.table.database,
        "driver.encrypt": "no",
        "topic.prefix": "shop",
        "lake.path": str(tmp_path / "lake"),
        "signal.data.collection": f"{world.table.database}.dbo.cdc_signal",
        "mirror.reconcile.settle.ms": "200",
    }
    file = tmp_path / "shop.json"
    file.write_text(json.dumps(properties))

    def reconcile(*options: str) -> Result:
        return CliRunner().invoke(app, ["reconcile", "dbo.t", "--local", "-c", str(file), *options])

    equal = reconcile()
    assert (equal.exit_code, "The mirror equals the server" in equal.output) == (0, True), equal.output
    world.behind_the_log("UPDATE dbo.t SET v = N'c' WHERE id = 2")
    differs = reconcile()
    assert differs.exit_code == 1
    assert "differs: id=2\n  server: v=c\n  mirror: v=b\n1 of 2 rows differ" in differs.output
    printed = reconcile("--json", "--anew")
    [document] = json.loads(printed.stdout)
    assert (printed.exit_code, document["table"], document["differing"]) == (1, str(world.table), 1)
    assert document["differences"] == [
        {"kind": "differs", "key": {"id": "2"}, "server": {"v": "c"}, "mirror": {"v": "b"}}
    ]
    page = (Path(__file__).parents[3] / "docs" / "command-line.md").read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if line.startswith("| `reconcile` |"))
    assert {*document, *document["differences"][0]} == set(re.findall(r"`(\w+)`", row)) - {"reconcile"}
    asked = reconcile("--repair")
    assert (asked.exit_code, "1 of them will be read again" in asked.output) == (0, True), asked.output
