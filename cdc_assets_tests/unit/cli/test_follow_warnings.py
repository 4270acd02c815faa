"""What `cdc-assets capture` prints when a table stops, when rows are lost by the policy, and when the Agent does not run."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cdc_assets.cli.main import app
from cdc_assets_tests.unit.snapshot.world import World
from mssql_standin.control import StandIn

CLEAN = (
    "DECLARE @newest binary(10) = sys.fn_cdc_get_max_lsn(); "
    "EXEC sys.sp_cdc_cleanup_change_table N'dbo_orders', @newest, 5000"
)


def capture(world: World, **changes: str) -> str:
    """What the command prints on standard error."""
    path = Path(world.lake).parent / "shop.json"
    path.write_text(json.dumps(world.given | {name.replace("__", "."): text for name, text in changes.items()}))
    result = CliRunner().invoke(app, ["capture", "--local", "--idle", "1", "-c", str(path)], env={"COLUMNS": "400"})
    return result.stderr


@pytest.fixture
def world(server: StandIn, tmp_path: Path) -> World:
    world = World(server, str(tmp_path / "lake"))
    for name in ("orders", "lines"):
        world.make(name, 3)
    world.snapshot()
    world.stream()
    return world


@pytest.mark.parametrize(
    ("policy", "said"), [("fail", "does not stream: Changes after"), ("ignore", "are lost; it continues")]
)
def test_lost_changes(world: World, policy: str, said: str) -> None:
    world.sql("INSERT INTO dbo.orders VALUES (50, 'lost')", "INSERT INTO dbo.lines VALUES (50, 'kept')")
    world.sql("INSERT INTO dbo.orders VALUES (51, 'kept')", CLEAN)
    assert said in capture(world, gap__policy=policy)


@pytest.mark.long
def test_agent_that_does_not_run(world: World) -> None:
    world.server.agent.stop()
    assert "No changes arrive until then; the stream waits" in capture(world)
