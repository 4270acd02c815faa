"""A table whose events are told apart by other columns from some LSN on."""

from dataclasses import replace
from pathlib import Path

from cdc_assets_tests.unit.mirror.world import World
from mssql_standin.control import StandIn

COLUMNS = "a, b, note"
ONE_ROW_OF_TWO = ("INSERT INTO dbo.t VALUES (2, 7, N'p')", "DELETE FROM dbo.t WHERE a = 2 AND b = 7")
"""With the key (a, b) they leave a row (2, 2), which a key of `a` would take for removed."""
MOVES = (
    "UPDATE dbo.t SET b = 8, note = N'moved' WHERE a = 1",
    "UPDATE dbo.t SET a = 9 WHERE b = 3",
    "DELETE FROM dbo.t WHERE a = 4",
    "INSERT INTO dbo.t VALUES (5, 5, N'new')",
)


def begun(server: StandIn, lake: Path, key: str, *, by_property: bool) -> World:
    """A world whose events have told of rows under the key."""
    world = World(server, lake, "a int NOT NULL, b int NOT NULL, note nvarchar(20)")
    if by_property:
        name_key(world, key)
    elif key:
        world.execute(f"CREATE UNIQUE INDEX first_key ON dbo.t ({key})")
    world.execute("INSERT INTO dbo.t VALUES (1, 1, N'x'), (2, 2, N'y'), (3, 3, N'z'), (4, 4, N'w')")
    world.capture("snapshot")
    world.mirror()
    for statement in (*(ONE_ROW_OF_TWO if key != "a" else ()), "UPDATE dbo.t SET b = 6 WHERE a = 1"):
        world.execute(statement)
    world.capture()
    return world


def name_key(world: World, key: str) -> None:
    named = (f"dbo.t:{key.replace(' ', '')}",) if key else ()
    world.config = replace(world.config, events=replace(world.config.events, message_key_columns=named))
