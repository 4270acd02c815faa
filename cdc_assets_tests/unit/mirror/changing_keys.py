"""A table without a key of its own, whose rows get other message keys."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cdc_assets_tests.unit.mirror.world import World
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn

COLUMNS = "id, note, big"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Two rows that a snapshot has read, and their mirror."""
    with StandIn(databases=(DATABASE,)) as server:
        world = World(server, tmp_path / "lake", "id int NOT NULL, note varchar(10), big nvarchar(max)")
        events = replace(world.config.events, message_key_columns=("dbo.t:id",))
        world.config = replace(world.config, events=events, mirror=replace(world.config.mirror, enabled=True))
        world.execute("INSERT INTO dbo.t VALUES (1, 'x', N'A'), (2, 'y', N'B')")
        world.capture("snapshot")
        assert world.follow() is None
        yield world


def change(world: World, *statements: str) -> None:
    for statement in statements:
        world.execute(statement)
    world.capture()


def compacting(world: World, *, mirrored: bool) -> None:
    lake = replace(world.config.lake, topic_hours=0.0001, topic_policy="compact", topic_unmirrored=not mirrored)
    world.config = replace(world.config, lake=lake, mirror=replace(world.config.mirror, enabled=mirrored))
