"""Tables that were reset, and of which no rows are read."""

import shutil
from pathlib import Path

import pytest

from cdc_assets.capture.reset import Reset
from cdc_assets.overview.checks.sqlserver import continuity_result
from cdc_assets_tests.unit.streaming.captures import make_capture, make_config
from cdc_assets_tests.unit.streaming.lake_reader import events_of
from cdc_assets_tests.unit.streaming.law import state_of
from cdc_assets_tests.unit.streaming.simulation import SimulatedClock, SimulatedServer


def test_events_that_the_topic_has_are_not_repeated(tmp_path: Path) -> None:
    server, config = SimulatedServer(), make_config(str(tmp_path), mode="no_data")
    lines, orders = server.create("lines"), server.create("orders")
    server.idle_tick()
    make_capture(server, config).stream()
    for number in (1, 2):
        server.commit((lines, "insert", number, "a"), (orders, "insert", number, "a"))
        make_capture(server, config).stream()
        Reset(config, SimulatedClock(server)).forget([lines])
    server.commit((lines, "insert", 3, "a"))
    make_capture(server, config).stream()
    assert [event.key for event in events_of(config, lines)] == [1, 2, 3]
    assert state_of(config).tables[lines].gaps == ()


def test_changes_that_were_lost_before_stay_marked(tmp_path: Path) -> None:
    server, config = SimulatedServer(), make_config(str(tmp_path))
    lines = server.create("lines", rows=2)
    server.idle_tick()
    make_capture(server, config).snapshot()
    make_capture(server, config).stream()
    server.commit((lines, "insert", 50, "lost"))
    server.clean_up(server.commit((lines, "insert", 51, "new")))
    make_capture(server, config).stream()
    make_capture(server, config).snapshot([lines])
    [(after, _)] = state_of(config).tables[lines].gaps
    Reset(config, SimulatedClock(server)).forget([lines])
    server.commit((lines, "insert", 52, "new"))
    make_capture(server, config).snapshot()
    assert state_of(config).tables[lines].gaps[0][0] == after


@pytest.mark.parametrize("policy", ["ignore", "fail"])
def test_a_table_of_which_no_rows_are_read_lacks_what_was_lost_also_after_its_reset(
    tmp_path: Path, policy: str
) -> None:
    server = SimulatedServer()
    config = make_config(str(tmp_path), mode="no_data", gap_policy=policy)
    lines = server.create("lines")
    server.idle_tick()
    make_capture(server, config).stream()
    lost = server.commit((lines, "insert", 50, "lost"))
    server.clean_up(server.commit((lines, "insert", 51, "new")))
    make_capture(server, config).stream()
    for _ in range(2):
        Reset(config, SimulatedClock(server)).forget([lines])
        make_capture(server, config).stream()
        state = state_of(config).tables[lines]
        assert state.status == "healthy"
        assert any(after < lost <= until for after, until in state.ignored_gaps)
        assert not continuity_result(state).passed


def test_a_table_that_goes_on_without_its_rows_lacks_what_was_lost(tmp_path: Path) -> None:
    server, config = SimulatedServer(), make_config(str(tmp_path), mode="when_needed_no_data")
    lines = server.create("lines")
    server.idle_tick()
    make_capture(server, config).stream()
    lost = server.commit((lines, "insert", 50, "lost"))
    server.clean_up(server.commit((lines, "insert", 51, "new")))
    for _ in range(2):
        make_capture(server, config).stream()
    state = state_of(config).tables[lines]
    assert state.status == "healthy"
    assert any(after < lost <= until for after, until in state.ignored_gaps)
    make_capture(server, config).snapshot([lines])
    assert continuity_result(state_of(config).tables[lines]).passed


@pytest.mark.combinations
@pytest.mark.parametrize("when", ["before the reset", "after it"])
@pytest.mark.parametrize("mode", ["no_data", "initial"])
@pytest.mark.parametrize("found", ["nothing", "an older copy"])
def test_what_the_topic_has_lost_by_the_next_run_is_a_gap(tmp_path: Path, found: str, mode: str, when: str) -> None:
    server, config = SimulatedServer(), make_config(str(tmp_path / "lake"), mode=mode)
    orders = server.create("orders", rows=2)
    topic, copy = tmp_path / "lake" / f"shop.{orders}", tmp_path / "copy"
    server.idle_tick()
    make_capture(server, config).snapshot()
    ends = []
    for key in (10, 11, 12):
        ends.append(server.commit((orders, "insert", key, "a")))
        make_capture(server, config).stream()
        if key == 10 and found == "an older copy":
            shutil.copytree(topic, copy)

    def lose() -> None:
        shutil.rmtree(topic)
        if copy.exists():
            shutil.copytree(copy, topic)

    if when == "before the reset":
        lose()
    Reset(config, SimulatedClock(server)).forget([orders])
    if when == "after it":
        lose()
    for _ in range(2):
        make_capture(server, config).snapshot()
        server.commit((orders, "insert", 20 + len(server.rows[orders]), "a"))
        make_capture(server, config).stream()
    state = state_of(config).tables[orders]
    lost = [gap for gap in state.gaps if gap[0] < ends[1] and ends[2] <= gap[1]]
    assert len(lost) == 1
    assert (lost[0][0] >= ends[0]) == (found == "an older copy")
    assert continuity_result(state).passed == (mode == "initial")
    if mode == "initial":
        keys = {event.key: event for event in events_of(config, orders)}
        assert keys.keys() == server.rows[orders].keys()
