"""Rules and filters that are set, or taken away, for a column of the key of a topic that exists: rows stay told apart."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.config.settings import ColumnRule
from cdc_assets.core.lsn import Lsn
from cdc_assets.lake.events import EventRange, TopicReader
from cdc_assets.lake.topics import TopicTables
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.readers import MirrorReader
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.mirror.child import mirrors_of
from cdc_assets_tests.unit.mirror.world import TOPIC, World
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn

COLUMN = ("dbo.t.ssn",)
RULES: dict[str, dict[str, Any]] = {
    "mask": {"column_rules": (ColumnRule("mask", COLUMN, 3),)},
    "truncate": {"column_rules": (ColumnRule("truncate", COLUMN, 1),)},
    "hash": {"column_rules": (ColumnRule("hash_v2", COLUMN, algorithm="SHA-256", salt="x"),)},
    "exclude": {"column_exclude": COLUMN},
}


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn(databases=(DATABASE,)) as server:
        yield server


def rows(world: World) -> list[tuple[str, int]]:
    found = MirrorReader(mirrors_of(str(world.lake)).tables, TOPIC).current().to_pylist()
    return sorted((row.get("_key_ssn", row["ssn"]), row["v"]) for row in found)


def on_server(world: World) -> list[tuple[str, int]]:
    return sorted(world.execute("SELECT ssn, v FROM dbo.t"))  # type: ignore[arg-type]


def change(world: World, statement: str) -> None:
    world.execute(statement)
    world.capture()
    world.mirror()


def reached(world: World) -> str:
    """LSN that the mirror has reached."""
    return mirrors_of(str(world.lake)).states()[TOPIC].lsn


def shown_at(world: World, lsn: str) -> list[tuple[str, int]]:
    found = MirrorReader(mirrors_of(str(world.lake)).tables, TOPIC).as_of(Lsn.parse(lsn)).to_pylist()
    return sorted((row.get("_key_ssn") or row["ssn"], row["v"]) for row in found)


@pytest.mark.long
@pytest.mark.parametrize("rule", RULES)
def test_a_rule_for_a_key_that_comes_and_goes(server: StandIn, tmp_path: Path, rule: str) -> None:
    world = World(server, tmp_path / "lake", "ssn varchar(20) NOT NULL PRIMARY KEY, v int")
    plain = world.config
    world.execute("INSERT INTO dbo.t VALUES ('a1', 1), ('a2', 2), ('a3', 3)")
    world.capture("snapshot")
    world.mirror()
    world.config = replace(plain, events=replace(plain.events, **RULES[rule]))
    world.execute("UPDATE dbo.t SET v = 20 WHERE ssn = 'a2'")
    world.execute("INSERT INTO dbo.t VALUES ('a4', 4), ('a5', 5)")
    world.execute("DELETE FROM dbo.t WHERE ssn = 'a3'")
    world.capture()
    world.mirror()
    assert rows(world) == on_server(world)
    shown = MirrorReader(mirrors_of(str(world.lake)).tables, TOPIC).current().column("ssn").to_pylist()
    assert not {"a4", "a5"} & set(shown)
    world.config = plain
    world.execute("UPDATE dbo.t SET v = 40 WHERE ssn = 'a4'")
    world.execute("DELETE FROM dbo.t WHERE ssn = 'a5'")
    world.capture()
    if rule != "exclude":  # rows show it otherwise than it is, though their keys do not
        assert "column ssn is no longer" in str(world.follow())
        world.read_again()
        world.capture()
    for anew in (False, True):
        world.mirror(anew=anew)
        assert rows(world) == on_server(world)


def follow_in_part(world: World, step: str, *, anew: bool = False) -> None:
    """Begin to rebuild the mirror, and die at a step."""
    with pytest.raises(PowerCutError), cut_at(step):
        world.mirror(anew=anew)


@pytest.mark.combinations
@pytest.mark.parametrize("changed", [True, False], ids=["changed since", "nothing since"])
@pytest.mark.parametrize("step", ["mirror-history-committed", "mirror-committed", "another one planned"])
def test_a_rule_that_goes_while_the_mirror_is_rebuilt_for_it(
    server: StandIn, tmp_path: Path, step: str, changed: bool
) -> None:
    """The tables hold the rebuild in part, though the key is that of the newest complete step again."""
    world = World(server, tmp_path / "lake", "ssn varchar(20) NOT NULL PRIMARY KEY, v int")
    plain = world.config
    world.execute("INSERT INTO dbo.t VALUES ('a1', 1), ('a2', 2), ('a3', 3)")
    world.capture("snapshot")
    world.mirror()
    change(world, "UPDATE dbo.t SET v = 10 WHERE ssn = 'a1'")
    known = {reached(world): on_server(world)}
    world.config = replace(plain, events=replace(plain.events, **RULES["exclude"]))
    world.execute("INSERT INTO dbo.t VALUES ('a4', 4)")
    world.execute("UPDATE dbo.t SET v = 20 WHERE ssn = 'a2'")
    world.capture()
    follow_in_part(world, "mirror-history-committed" if step == "another one planned" else step)
    if step == "another one planned":
        follow_in_part(world, "mirror-planned", anew=True)
    world.config = plain
    if changed:
        world.execute("UPDATE dbo.t SET v = 40 WHERE ssn = 'a4'")
    world.capture()
    world.mirror()
    assert shown_at(world, reached(world)) == on_server(world)
    begun = [(row.get("_key_ssn") or row["ssn"], row["_valid_from_lsn"]) for row in world.versions()]
    assert len(begun) == len(set(begun)), "no version is there twice"
    known[reached(world)] = on_server(world)
    for lsn, expected in known.items():
        assert shown_at(world, lsn) == expected
    change(world, "DELETE FROM dbo.t WHERE ssn = 'a2'")
    assert shown_at(world, reached(world)) == on_server(world)


@pytest.mark.long
@pytest.mark.parametrize("rule", ["mask", "exclude"])
def test_compaction_by_key_tells_such_rows_apart(server: StandIn, tmp_path: Path, rule: str) -> None:
    world = World(server, tmp_path / "lake", "ssn varchar(20) NOT NULL PRIMARY KEY, v int")
    world.capture("snapshot")
    for events in (world.config.events, replace(world.config.events, **RULES[rule]), world.config.events):
        world.config = replace(world.config, events=events)
        world.execute("INSERT INTO dbo.t SELECT concat('b', count(*)), 1 FROM dbo.t")
        world.execute("INSERT INTO dbo.t SELECT concat('b', count(*)), 1 FROM dbo.t")
        world.capture()
        [found], troubles = CaptureMirrors(world.config, LocalRunner(2), SystemClock()).found(only_keys=True)
        assert not troubles
        about = found.description
        reader = TopicReader(TopicTables.of(world.config).location, about.shape, about.generations)
        read = list(reader.read(found.files, EventRange("", "~", 2**62, 2**62)))
        keys = [key for events in read for key in about.shape.keys(events).to_pylist()]
        assert len(set(keys)) == len(keys) == len(on_server(world))
