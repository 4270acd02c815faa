"""A table whose key was changed is cut anew: the ranges of its first snapshot were made for another column or order."""

from pathlib import Path

import pytest

from cdc_assets.core.identifiers import TableId
from cdc_assets_tests.unit.snapshot.world import DATABASE, World
from mssql_standin.control import StandIn

ROWS = 3000


@pytest.fixture(autouse=True)
def slice_per_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc_assets.snapshot.plan.MIN_SLICE", 1)


def cut(server: StandIn, lake: Path) -> tuple[World, TableId]:
    """A table whose snapshot has several ranges."""
    world = World(server, str(lake))
    table = TableId(DATABASE, "dbo", "big")
    world.sql("CREATE TABLE dbo.big (id int NOT NULL CONSTRAINT pk PRIMARY KEY, other int NOT NULL, note varchar(20))")
    for first in range(0, ROWS, 500):
        values = ", ".join(f"({number - 500}, {-number}, 'n')" for number in range(first, first + 500))
        world.sql(f"INSERT INTO dbo.big VALUES {values}")
    world.enable("big")
    assert world.snapshot().tables == (table,)
    with world.capture() as capture:
        assert len(capture.state().tables[table].ranges) > 1
    return world, table


CHANGES = {
    "its column is gone": ("ALTER TABLE dbo.big ADD PRIMARY KEY (other)", "ALTER TABLE dbo.big DROP COLUMN id"),
    "another column leads": ("ALTER TABLE dbo.big ADD PRIMARY KEY (other)",),
    "its type is another": (
        "ALTER TABLE dbo.big ALTER COLUMN id varchar(10) NOT NULL",
        "ALTER TABLE dbo.big ADD PRIMARY KEY (id)",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("change", CHANGES)
def test_the_next_snapshot_reads_each_row_once(server: StandIn, tmp_path: Path, change: str) -> None:
    world, table = cut(server, tmp_path)
    disable = "EXEC sys.sp_cdc_disable_table N'dbo', N'big', N'all'"  # its index may not go while it is captured
    world.sql(disable, "ALTER TABLE dbo.big DROP CONSTRAINT pk", *CHANGES[change])
    world.enable("big")
    before = len(world.events(table))
    assert world.snapshot([table]).failed == ()
    again = [event["after"]["other"] for event in world.events(table) if event["op"] == "r"][before:]
    assert sorted(again) == sorted(-number for number in range(ROWS))
