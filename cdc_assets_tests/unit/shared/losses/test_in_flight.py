"""A topic loses something while a window or a snapshot is in flight."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cdc_assets.core.steps import listening
from cdc_assets_tests.unit.shared.losses.losing import (
    empty_newest_commit,
    lose_newest_commit,
    lose_newest_file,
    remove,
)
from cdc_assets_tests.unit.shared.losses.world import World, make_world
from cdc_assets_tests.unit.streaming.captures import make_capture
from cdc_assets_tests.unit.streaming.law import state_of

pytestmark = pytest.mark.delta_rs


def stopped_at(step: str, action: Callable[[], object]) -> None:
    def stop(reached: str) -> None:
        if reached == step:
            raise KeyboardInterrupt

    with listening(stop), pytest.raises(KeyboardInterrupt):
        action()


@pytest.mark.long
@pytest.mark.parametrize("lose", [remove, empty_newest_commit, lose_newest_file])
@pytest.mark.parametrize("step", ["window-planned", "files-written", "table-committed"])
def test_lost_while_a_window_is_in_flight(world: World, step: str, lose: Callable[[Path], None]) -> None:
    world.insert(60)
    stopped_at(step, world.stream)
    lose(world.topic(world.orders))
    assert [trouble.table for trouble in world.stream().troubled] in ([world.orders], [])
    assert 60 in world.keys(world.lines)
    if world.state(world.orders).gaps:
        world.check_promise()
    world.check_rows()


@pytest.mark.long
@pytest.mark.parametrize("known", [True, False], ids=["again", "first"])
def test_lost_while_a_snapshot_is_in_flight(tmp_path: Path, known: bool) -> None:
    world = make_world(tmp_path / "lake", partitions=8)
    new = world.orders if known else world.server.create("news", rows=3)
    stopped_at("round-complete", lambda: make_capture(world.server, world.config).snapshot([new]))
    remove(world.topic(new))
    make_capture(world.server, world.config).snapshot()
    assert world.keys(new) == (set() if known else set(world.server.rows[new]))
    if known:
        assert world.state(new).status == "gap"
        world.check_promise()


def remove_log(table: Path) -> None:
    """Its data files are there."""
    remove(table / "_delta_log")


@pytest.mark.long
@pytest.mark.parametrize("lose", [remove, remove_log, lose_newest_commit])
@pytest.mark.parametrize(
    ("first", "step"), [("new", "round-written"), ("gap", "round-written"), ("gap", "round-complete")]
)
def test_what_a_snapshot_loses_before_a_table_streams_stops_no_other_table(
    tmp_path: Path, first: str, step: str, lose: Callable[[Path], None]
) -> None:
    world = make_world(tmp_path / "lake", partitions=8)
    table = world.server.create("news", rows=3) if first == "new" else world.orders
    if first == "gap":
        remove(world.topic(table))
        world.stream()
    stopped_at(step, lambda: make_capture(world.server, world.config).snapshot([table]))
    lose(world.topic(table))
    world.server.commit((world.lines, "insert", 60, "a"))
    world.stream()
    assert 60 in world.keys(world.lines)
    known = state_of(world.config).tables.get(table)
    assert known is None or known.status == "gap" or world.keys(table) == set(world.server.rows[table])
    make_capture(world.server, world.config).snapshot([table])
    assert world.state(table).status == "healthy"
    assert world.keys(table) == set(world.server.rows[table])
