"""Structures that change again and again on the stand-in, with the T-SQL that doctor prints, and with names used before.

Whatever dies at which step, events have the columns of the instance that holds the change, the update mask is read by its
bits (a `max` column that an UPDATE leaves alone arrives as a placeholder, one that it sets to NULL as NULL), and the mirror
is the table.
"""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.core.identifiers import TableId
from cdc_assets.history.drift import Drift
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.readers import MirrorReader
from cdc_assets.overview import CaptureOverview
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.snapshot.world import DATABASE, World
from cdc_assets_tests.unit.streaming.law import state_of
from cdc_assets_tests.unit.streaming.tables import HAND_OVER
from mssql_standin.control import StandIn

pytestmark = pytest.mark.contract

TABLE = TableId(DATABASE, "dbo", "t")
KILLS = ["", *HAND_OVER, "window-complete"]
PLACEHOLDER = "__debezium_unavailable_value"


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn(databases=(DATABASE,)) as server:
        yield server


def made(server: StandIn, path: Path, **properties: str) -> World:
    """A captured table of two rows whose second column was dropped, so that columns and bits of the mask differ."""
    world = World(server, str(path), **properties)
    world.sql(
        "CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, gone int NULL, big nvarchar(max) NULL, note varchar(20))"
    )
    world.enable("t")
    world.sql("INSERT INTO dbo.t VALUES (1, 1, N'one', 'n'), (2, 2, N'two', 'n')")
    world.snapshot()
    world.sql("ALTER TABLE dbo.t DROP COLUMN gone")
    return world


def look(world: World) -> Drift:
    """What doctor says of the table."""
    with SqlServerSource.of(world.config) as source:
        [drift] = CaptureOverview(world.config, source).drifts()
    return drift


def stream(world: World, step: str = "") -> None:
    """A run that dies at a step, if it comes by, and another one."""
    with cut_at(step), contextlib.suppress(PowerCutError):
        world.stream()
    assert world.stream().troubled == ()


def work(world: World, columns: Sequence[str]) -> None:
    """Updates of all rows, of which one leaves each `max` column alone and one sets it to NULL."""
    for column in columns:
        world.sql(f"UPDATE dbo.t SET {column} = N'{column} again'")
    world.sql(
        f"UPDATE dbo.t SET note = 'later {len(columns)}' WHERE id = 1",
        f"UPDATE dbo.t SET {columns[-1]} = NULL WHERE id = 2",
    )


def rows_on(world: World) -> dict[int, dict[str, Any]]:
    with world.server.connect(DATABASE) as connection:
        cursor = connection.execute("SELECT * FROM dbo.t")
        names = [column[0] for column in cursor.description]
        return {row[0]: dict(zip(names, row, strict=True)) for row in cursor.fetchall()}


def check(world: World, columns: Sequence[str]) -> None:
    """The fold of the events, and the mirror, are the table; the newest events have exactly these columns."""
    folded: dict[int, dict[str, Any]] = {}
    events = world.events(TABLE)
    for event in events:
        known = folded.setdefault(event["after"]["id"], {})
        known |= {name: value for name, value in event["after"].items() if value != PLACEHOLDER}
    wanted = rows_on(world)
    assert {key: {name: row.get(name) for name in wanted[key]} for key, row in folded.items()} == wanted
    alone, emptied = (event["after"] for event in events[-2:])
    assert [(row["id"], {name: row[name] for name in columns}) for row in (alone, emptied)] == [
        (1, dict.fromkeys(columns, PLACEHOLDER)),
        (2, dict.fromkeys(columns, PLACEHOLDER) | {columns[-1]: None}),
    ]
    mirrors = CaptureMirrors(world.config, LocalRunner(2), SystemClock())
    assert mirrors.catch_up() == {}
    mirrored = MirrorReader(mirrors.tables, f"shop.{TABLE}").current().to_pylist()
    assert {row["id"]: {name: row[name] for name in wanted[row["id"]]} for row in mirrored} == wanted
    state = state_of(world.config).tables[TABLE]
    assert state.status == "healthy"


@pytest.mark.long
@pytest.mark.parametrize("step", KILLS)
def test_the_steps_of_the_page_again_and_again(server: StandIn, tmp_path: Path, step: str) -> None:
    world, columns, names = made(server, tmp_path), ["big"], []
    for number in range(1, 5):
        world.sql(f"ALTER TABLE dbo.t ADD c{number} nvarchar(max) NULL")
        stream(world)
        drift = look(world)
        assert [found.column for found in drift.differences if found.kind == "added"] == [f"c{number}"]
        world.sql(drift.remedy)
        columns.append(f"c{number}")
        work(world, columns)
        stream(world, step)
        drift = look(world)
        assert drift.differences == ()
        names.append(str(state_of(world.config).tables[TABLE].instance))
        world.sql(drift.removal)
        check(world, columns)
    assert names == ["dbo_t_v2", "dbo_t_v3", "dbo_t_v4", "dbo_t_v5"]
    assert state_of(world.config).tables[TABLE].gaps == ()


@pytest.mark.long
@pytest.mark.parametrize("step", ["", "history-recorded", "table-committed"])
def test_the_default_name_again(server: StandIn, tmp_path: Path, step: str) -> None:
    world, columns = made(server, tmp_path), ["big"]
    for number, (new, old) in enumerate([("other", "dbo_t"), ("dbo_t", "other"), ("other", "dbo_t")], 1):
        world.sql(f"ALTER TABLE dbo.t ADD c{number} nvarchar(max) NULL", enable(new))
        columns.append(f"c{number}")
        work(world, columns)
        stream(world, step)
        world.sql(disable(old))
        check(world, columns)


@pytest.mark.parametrize("step", ["", "tables-marked", "history-recorded", "table-committed"])
def test_another_list_of_columns_under_the_same_name_behind_a_gap(server: StandIn, tmp_path: Path, step: str) -> None:
    world = made(server, tmp_path, gap__policy="ignore")
    stream(world)
    world.sql(disable("dbo_t"), "ALTER TABLE dbo.t ADD c1 nvarchar(max) NULL, c2 nvarchar(max) NULL")
    world.sql(enable("dbo_t", "id, note, c1, c2"))
    world.sql("UPDATE dbo.t SET c1 = N'a', c2 = N'b', note = 'x'")
    world.sql("UPDATE dbo.t SET c1 = NULL WHERE id = 1", "UPDATE dbo.t SET note = 'y' WHERE id = 2")
    stream(world, step)
    assert [event["after"] for event in world.events(TABLE)][-4:] == [
        {"id": 1, "note": "x", "c1": "a", "c2": "b"} | rest(world),
        {"id": 2, "note": "x", "c1": "a", "c2": "b"} | rest(world),
        {"id": 1, "note": "x", "c1": None, "c2": PLACEHOLDER} | rest(world),
        {"id": 2, "note": "y", "c1": PLACEHOLDER, "c2": PLACEHOLDER} | rest(world),
    ]
    assert len(state_of(world.config).tables[TABLE].gaps) == 1


def rest(world: World) -> dict[str, None]:
    """Fields that the topic has of the former list."""
    return {name: None for name in world.events(TABLE)[-1]["after"] if name in ("gone", "big")}


def enable(name: str, columns: str = "") -> str:
    chosen = f", @captured_column_list = N'{columns}'" if columns else ""
    return (
        "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N't', @role_name = NULL"
        f"{chosen}, @capture_instance = N'{name}'"
    )


def disable(name: str) -> str:
    return f"EXEC sys.sp_cdc_disable_table @source_schema = N'dbo', @source_name = N't', @capture_instance = N'{name}'"
