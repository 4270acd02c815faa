"""Columns that settings leave out of events, or mask, for a while: the mirror stops before they are shown again, until the table was read."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.config.settings import ColumnRule
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.schema import Column, TableSchema
from cdc_assets.envelope.plan import EXCLUDED
from cdc_assets.errors import MirrorError
from cdc_assets.history.records import HistoryEntry, parse_structure
from cdc_assets.mirror.altered import changes
from cdc_assets.mirror.needs import NeedsOfMirrors
from cdc_assets.signals.requests import ask, compose
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.mirror.world import TOPIC, World, ordered, started
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn

COLUMN = ("dbo.t.v",)
RULES: dict[str, dict[str, Any]] = {
    "exclude": {"column_exclude": COLUMN},
    "include": {"column_include": ("dbo.t.id", "dbo.t.w")},
    "mask": {"column_rules": (ColumnRule("mask", COLUMN, 3),)},
    "truncate": {"column_rules": (ColumnRule("truncate", COLUMN, 1),)},
    "hash": {"column_rules": (ColumnRule("hash_v2", COLUMN, algorithm="SHA-256", salt="x"),)},
}
KEYED = "id int NOT NULL PRIMARY KEY, v varchar(9), w int"


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn(databases=(DATABASE,)) as server:
        yield server


def set_rule(world: World, **rules: Any) -> None:
    plain = {"column_exclude": (), "column_include": (), "column_rules": ()}
    world.config = replace(world.config, events=replace(world.config.events, **{**plain, **rules}))


def change(world: World, number: int) -> None:
    world.execute(f"INSERT INTO dbo.t VALUES ({number}, 'value {number}', {number})")
    world.capture()


@pytest.mark.long
@pytest.mark.parametrize("looks", ["always", "late", "anew"])
@pytest.mark.parametrize("rule", RULES)
def test_a_column_that_is_shown_again_is_waited_for(server: StandIn, tmp_path: Path, rule: str, looks: str) -> None:
    world = started(server, tmp_path, KEYED, "(1, 'value 1', 1)")
    set_rule(world, **RULES[rule])
    change(world, 2)
    change(world, 3)
    assert world.follow() is None
    shown = world.rows()
    assert len(shown) == 3
    set_rule(world)
    if looks == "always":  # no event has come since then
        assert "column v is no longer" in str(world.follow())
        assert world.rows() == shown
    change(world, 4)
    if looks == "always":
        for _ in range(2):
            assert "column v is no longer" in str(world.follow())
            assert world.rows() == shown
    world.read_again()
    change(world, 5)
    for _ in range(2):
        assert world.follow(anew=looks == "anew") is None
        assert ordered(world.rows()) == ordered(world.on_server("id, v, w"))


def test_a_table_that_is_read_again_at_once_needs_no_event(server: StandIn, tmp_path: Path) -> None:
    world = started(server, tmp_path, KEYED, "(1, 'value 1', 1)")
    set_rule(world, **RULES["exclude"])
    change(world, 2)
    assert world.follow() is None
    set_rule(world)
    world.read_again()
    world.capture()
    for _ in range(2):
        assert world.follow() is None
        assert ordered(world.rows()) == ordered(world.on_server("id, v, w"))
    change(world, 3)
    assert world.follow() is None
    assert ordered(world.rows()) == ordered(world.on_server("id, v, w"))


def test_what_was_read_by_the_former_settings_makes_nothing_good(server: StandIn, tmp_path: Path) -> None:
    """A snapshot that is ahead of the changes, which come by other settings."""
    world = started(server, tmp_path, KEYED, "(1, 'value 1', 1)")
    set_rule(world, **RULES["exclude"])
    change(world, 2)
    world.execute("INSERT INTO dbo.t VALUES (3, 'value 3', 3)")
    world.read_again()
    set_rule(world)
    world.capture()
    assert "column v is no longer left out of events" in str(world.follow())
    change(world, 4)
    assert "column v is no longer left out of events" in str(world.follow())
    world.read_again()
    change(world, 5)
    assert world.follow() is None
    assert ordered(world.rows()) == ordered(world.on_server("id, v, w"))


@pytest.mark.parametrize("rule", RULES)
def test_settings_under_which_no_event_came_and_columns_that_are_hidden_from_now_on(
    server: StandIn, tmp_path: Path, rule: str
) -> None:
    world = started(server, tmp_path, KEYED, "(1, 'value 1', 1)")
    set_rule(world, **RULES[rule])
    world.capture()
    assert world.follow() is None
    set_rule(world)
    change(world, 2)
    assert world.follow() is None
    assert ordered(world.rows()) == ordered(world.on_server("id, v, w"))
    set_rule(world, **RULES[rule])
    change(world, 3)
    assert world.follow() is None
    assert [row["v"] for row in world.rows() if row["id"] < 3] == ["value 1", "value 2"]


def test_a_column_that_was_never_shown_before(server: StandIn, tmp_path: Path) -> None:
    world = World(server, tmp_path / "lake", KEYED)
    set_rule(world, **RULES["exclude"])
    world.execute("INSERT INTO dbo.t VALUES (1, 'value 1', 1)")
    world.capture("snapshot")
    world.mirror()
    set_rule(world)
    change(world, 2)
    assert isinstance(world.follow(), MirrorError)
    world.read_again()
    change(world, 3)
    assert world.follow() is None
    assert sorted((row["id"], row["v"]) for row in world.rows()) == sorted(world.execute("SELECT id, v FROM dbo.t"))


@pytest.mark.long
@pytest.mark.parametrize("step", ["history-written", "files-written", "table-committed"])
@pytest.mark.parametrize("number", [2, 3])
def test_settings_that_change_while_a_window_is_in_flight(
    server: StandIn, tmp_path: Path, step: str, number: int
) -> None:
    """The first window by the rule, which has recorded it, and the next one, which has not."""
    world = started(server, tmp_path, KEYED, "(1, 'value 1', 1)")
    set_rule(world, **RULES["exclude"])
    for earlier in range(2, number):
        change(world, earlier)
    with cut_at(step), pytest.raises(PowerCutError):
        change(world, number)
    set_rule(world)
    world.capture()
    assert "column v is no longer left out of events" in str(world.follow())
    world.execute("INSERT INTO dbo.t VALUES (9, 'value 9', 9)")
    world.capture()
    assert "column v is no longer left out of events" in str(world.follow())
    world.read_again()
    change(world, 10)
    assert world.follow() is None
    assert ordered(world.rows()) == ordered(world.on_server("id, v, w"))


def test_rows_that_only_an_incremental_snapshot_has_read_by_the_rule(server: StandIn, tmp_path: Path) -> None:
    world = started(server, tmp_path, KEYED, "(1, 'value 1', 1)")
    world.execute("CREATE TABLE dbo.signals (id varchar(64), type varchar(64), data varchar(max))")
    world.execute("EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'signals', @role_name = NULL")
    signals = replace(world.config.signals, collections=(TableId(DATABASE, "dbo", "signals"),))
    world.config = replace(world.config, signals=signals)
    world.capture()
    set_rule(world, **RULES["mask"])
    ask(world.config, compose("some", "execute-snapshot", [rf"{DATABASE}\.dbo\.t"]))
    server.agent.start()
    for _ in range(3):
        world.capture()
    world.follow()
    assert [row["v"] for row in world.rows()] == ["***"]
    set_rule(world)
    world.capture()
    assert "column v is no longer masked in events" in str(world.follow())
    world.read_again()
    change(world, 2)
    assert world.follow() is None
    assert ordered(world.rows()) == ordered(world.on_server("id, v, w"))


def test_public_schema_changes_and_windows_without_other_settings_say_nothing(server: StandIn, tmp_path: Path) -> None:
    world = started(server, tmp_path, KEYED, "(1, 'value 1', 1)")
    published = DeltaTable(str(world.lake / "shop")).to_pyarrow_table().num_rows
    for number, rule in enumerate(("exclude", "exclude", "", "", "exclude"), 2):
        set_rule(world, **RULES.get(rule, {}))
        change(world, number)
    world.read_again()
    found = DeltaTable(str(world.lake / "shop.__schema_history")).to_pyarrow_table().sort_by("window_id")
    assert [parse_structure(text)[2] for text in found["structure"].to_pylist()] == [
        (),
        (("v", "exclude"),),
        (),
        (("v", "exclude"),),
    ]
    assert DeltaTable(str(world.lake / "shop")).to_pyarrow_table().num_rows == published


def test_a_history_without_what_was_hidden_stops_no_mirror() -> None:
    columns = Column("id", "int", 1), Column("v", "varchar", 2, length=9)
    for key in ((), ("id",)):
        schema = TableSchema(TableId(DATABASE, "dbo", "t"), 1, columns, key)
        at = datetime(2026, 1, 1, tzinfo=UTC)
        old = HistoryEntry("CREATE", schema, ("id", "v"), "i", Lsn.from_int(1), at)
        hidden = replace(old, kind="ALTER", lsn=Lsn.from_int(2), hidden=(("v", EXCLUDED),))
        shown = replace(hidden, lsn=Lsn.from_int(3), hidden=())
        assert changes([old, hidden], ()) == changes([old, old, shown], ()) == []
        assert [number for number, _ in changes([old, hidden, shown], ())] == [2]


def test_compaction_of_a_topic_without_a_mirror_waits_for_no_reading(server: StandIn, tmp_path: Path) -> None:
    world = started(server, tmp_path, KEYED, "(1, 'value 1', 1)")
    set_rule(world, **RULES["exclude"])
    change(world, 2)
    set_rule(world)
    change(world, 3)
    for enabled in (True, False):
        config = replace(world.config, mirror=replace(world.config.mirror, enabled=enabled))
        found = NeedsOfMirrors(config, LocalRunner(1), SystemClock()).describe(TableId(DATABASE, "dbo", "t"), TOPIC)
        assert isinstance(found, str) == enabled


@pytest.mark.parametrize("rule", ["exclude", "mask"])
def test_rows_of_a_table_without_a_key_are_named_otherwise(server: StandIn, tmp_path: Path, rule: str) -> None:
    world = started(server, tmp_path, "id int, v varchar(9), w int", "(1, 'a', 1)", "(2, 'b', 2)")
    for rules in (RULES[rule], {}):
        set_rule(world, **rules)
        world.execute("UPDATE dbo.t SET w = w + 10 WHERE id = 1")
        world.capture()
        assert "column v" in str(world.follow())
        world.read_again()
        world.execute("UPDATE dbo.t SET w = w + 10 WHERE id = 2")
        world.capture()
        assert world.follow() is None
        names = "id, w" if rules else "id, v, w"
        found = [{name: row[name] for name in names.split(", ")} for row in world.rows()]
        assert ordered(found) == ordered(world.on_server(names))
