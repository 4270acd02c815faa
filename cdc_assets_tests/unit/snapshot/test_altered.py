"""A table that is altered between the record of its structure and the end of a round fails, and is read again."""

from pathlib import Path

import pytest

from cdc_assets.core.steps import listening
from cdc_assets_tests.unit.incremental.stories import Once
from cdc_assets_tests.unit.snapshot.world import World
from mssql_standin.control import StandIn

CHANGES = {
    "made again under its name": ("ALTER TABLE dbo.a DROP COLUMN note", "ALTER TABLE dbo.a ADD note varchar(20)"),
    "of another type": ("ALTER TABLE dbo.a ALTER COLUMN note nvarchar(40)",),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_column_that_is_another_by_now(server: StandIn, tmp_path: Path, change: str) -> None:
    world = World(server, str(tmp_path))
    a, b = world.make("a", 3), world.make("b", 3)
    with listening(Once("round-planned", lambda: world.sql(*CHANGES[change]))):
        done = world.snapshot()
    assert (done.tables, [trouble.table for trouble in done.failed]) == ((b,), [a])
    assert "note was altered" in done.failed[0].reason
    assert world.reads(a) == []
    assert world.snapshot().tables == (a,)
    assert world.reads(a) == [1, 2, 3]


def test_a_column_that_is_not_captured_may_change(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path))
    a = world.make("a", 3)
    with listening(Once("round-planned", lambda: world.sql("ALTER TABLE dbo.a ADD more int"))):
        assert world.snapshot().tables == (a,)
    assert world.reads(a) == [1, 2, 3]
