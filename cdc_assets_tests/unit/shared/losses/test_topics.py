"""What a topic has lost is noticed when a run begins, or while it streams, told with its interval, and mended by a snapshot."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from cdc_assets.capture import housekeeping
from cdc_assets.config.settings import FilterSettings
from cdc_assets.core.lsn import ZERO_LSN
from cdc_assets.core.steps import listening
from cdc_assets.lake import delta_log
from cdc_assets_tests.unit.shared.losses.losing import (
    LOSSES,
    commits,
    cut_newest_commit,
    empty_older_commit,
    lose_newest_file,
    lose_rows_by_rewriting,
    remove,
)
from cdc_assets_tests.unit.shared.losses.world import World, make_world
from cdc_assets_tests.unit.streaming.captures import make_capture

pytestmark = pytest.mark.delta_rs


@pytest.mark.long
@pytest.mark.parametrize(("lose", "lost"), LOSSES.values(), ids=LOSSES)
def test_a_topic_that_lost_data_has_a_gap_and_the_others_continue(
    world: World, lose: Callable[[Path], None], lost: str
) -> None:
    lose(world.topic(world.orders))
    world.insert(60)
    summary = world.stream()

    [trouble] = summary.troubled
    assert (trouble.table, trouble.status) == (world.orders, "gap")
    assert (trouble.gap_after, trouble.gap_until) == (world.after(lost), world.last)
    assert "snapshot asset, or cdc-assets capture --table" in trouble.reason
    assert world.state(world.lines).status == "healthy"
    assert 60 in world.keys(world.lines)
    assert world.stream().troubled == summary.troubled, "told again, found once"
    assert len(world.state(world.orders).gaps) == 1

    world.check_promise()


@pytest.mark.long
@pytest.mark.parametrize("times", [1, 2])
def test_changes_that_follow_reads_behind_them_are_lost_too(world: World, times: int) -> None:
    first = world.insert(60)
    for key in range(61, 61 + times):
        world.insert(key)
        make_capture(world.server, world.config).snapshot([world.orders])
    left = commits(world.topic(world.orders))
    world.stream()
    for commit in set(commits(world.topic(world.orders))) - set(left):
        commit.unlink()
    world.stream()
    after, until = world.state(world.orders).gaps[-1]
    assert world.last <= after < first < until


@pytest.mark.long
def test_older_copy_of_a_topic(world: World, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(world.topic(world.orders), copy)
    for key in (60, 61):
        world.insert(key)
        world.stream()
    shutil.rmtree(world.topic(world.orders))
    copy.rename(world.topic(world.orders))

    [trouble] = world.stream().troubled
    assert (trouble.table, trouble.gap_after) == (world.orders, world.last)
    assert trouble.gap_until == world.state(world.lines).position
    world.check_promise()


@pytest.mark.long
def test_a_table_with_a_gap_keeps_it_while_the_login_does_not_see_it(world: World) -> None:
    remove(world.topic(world.orders))
    [trouble] = world.stream().troubled
    world.server.hidden.add(world.orders)
    world.insert(60)
    assert world.stream().troubled == (trouble,)
    world.server.hidden.clear()
    world.insert(61)
    assert world.stream().troubled == (trouble,)
    world.check_promise()


def test_commit_that_is_cut_off_must_be_moved_away(world: World) -> None:
    """Delta cannot read such a table, so nothing can be written behind what it holds; but see `cut_newest_commit`."""
    torn = commits(world.topic(world.orders))[-2]
    torn.write_bytes(torn.read_bytes()[:-20])
    world.insert(60)
    [trouble] = world.stream().troubled
    assert (trouble.table, trouble.status) == (world.orders, "failed")
    assert (trouble.gap_after, trouble.gap_until) == (ZERO_LSN, world.last)
    assert "move that folder away" in trouble.reason
    assert 60 in world.keys(world.lines)

    [failed] = make_capture(world.server, world.config).snapshot([world.lines, world.orders]).failed
    assert (failed.table, "move that folder away" in failed.reason) == (world.orders, True)
    world.topic(world.orders).rename(world.lake / "elsewhere")
    world.check_promise()


def test_newest_commit_that_is_being_written_is_left_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_log, "_TORN_S", 60.0)
    cut_newest_commit(world.topic(world.orders))
    assert [trouble.status for trouble in world.stream().troubled] == ["failed"]
    assert not list(world.lake.rglob("*.damaged"))


@pytest.mark.long
@pytest.mark.parametrize("when", ["before the run", "window-planned", "window-complete"])
def test_rows_that_another_program_has_lost_are_a_gap_also_if_a_run_is_at_work(world: World, when: str) -> None:
    lost: list[str] = []

    def lose(step: str) -> None:
        if step == when and not lost:
            lost.append(step)
            lose_rows_by_rewriting(world.topic(world.orders))

    lose("before the run")
    world.insert(60)
    with listening(lose):
        [trouble] = world.stream().troubled
    assert (lost, trouble.table, trouble.status) == ([when], world.orders, "gap")
    assert "a commit of its log is lost" in trouble.reason
    assert world.stream().troubled == (trouble,), "it is told once"
    world.check_promise()
    assert len(world.state(world.orders).gaps) == 1


def lose_oldest_file(table: Path) -> None:
    (table / min(DeltaTable(str(table)).get_add_actions()["path"].to_pylist())).unlink()


@pytest.mark.long
@pytest.mark.parametrize("lose", [remove, empty_older_commit, lose_oldest_file])
def test_what_a_quiet_topic_loses_is_noticed_while_a_run_streams_others(
    world: World, lose: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run may go on for half a day."""
    monkeypatch.setattr(housekeeping, "_COMPARE_EVERY", timedelta())
    left = [1, 2, 3, 4]

    def work(step: str) -> None:
        if step != "window-complete" or not left:
            return
        if left == [1, 2, 3, 4]:
            lose(world.topic(world.lines))
        world.server.commit((world.orders, "insert", 60 + left.pop(), "a"))

    world.server.commit((world.orders, "insert", 60, "a"))
    with listening(work):
        [trouble] = world.stream().troubled
    assert not left
    assert (trouble.table, trouble.status) == (world.lines, "gap")
    assert world.state(world.orders).status == "healthy"
    assert world.keys(world.orders) >= {60, 61, 62, 63, 64}
    assert world.state(world.lines).gaps, "what was lost is remembered"
    make_capture(world.server, world.config).snapshot([world.lines])
    world.check_rows()


@pytest.mark.long
@pytest.mark.parametrize("policy", ["resnapshot", "ignore"])
def test_a_folder_that_goes_while_a_run_streams_is_made_anew_by_the_same_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    monkeypatch.setattr(housekeeping, "_COMPARE_EVERY", timedelta())
    world, left = make_world(tmp_path / "lake", gap_policy=policy), [1, 2, 3, 4]

    def work(step: str) -> None:
        if step != "window-complete" or not left:
            return
        at = left.pop()
        if at == 3:
            remove(world.topic(world.lines))
        both = at < 3
        world.server.commit(*((table, "insert", 60 + at, "a") for table in (world.orders, *[world.lines] * both)))

    world.insert(60)
    with listening(work):
        assert world.stream().troubled == ()
    assert not left
    assert world.keys(world.orders) >= {60, 61, 62, 63, 64}
    assert world.keys(world.lines) >= {61, 62}
    if policy == "resnapshot":
        world.check_rows()
    else:
        assert world.state(world.lines).gaps


@pytest.mark.long
def test_policies(tmp_path: Path) -> None:
    world = make_world(tmp_path / "resnapshot", gap_policy="resnapshot")
    remove(world.topic(world.orders))
    world.insert(60)
    assert world.stream().troubled == ()
    world.check_rows()

    world = make_world(tmp_path / "ignore", gap_policy="ignore")
    lose_newest_file(world.topic(world.orders))
    world.insert(60)
    assert world.stream().troubled == ()
    assert world.keys(world.orders) == {1, 2, 3, 50, 60}, "without 51, and readable"
    assert world.state(world.orders).gap_until == world.last


def with_a_gap(world: World) -> None:
    world.server.disable("dbo_orders")
    world.server.enable(world.orders)


def failed(world: World) -> None:
    world.server.disable("dbo_orders")


def left_out(world: World) -> None:
    world.config = replace(world.config, filters=FilterSettings(table_exclude=("dbo.orders",)))


@pytest.mark.long
@pytest.mark.parametrize("stop", [with_a_gap, failed, left_out], ids=lambda stop: stop.__name__)
def test_what_a_table_loses_while_it_is_stopped_is_told_too(world: World, stop: Callable[[World], None]) -> None:
    config, lost = world.config, (world.after("last file"), world.last)
    stop(world)
    world.stream()
    assert world.state(world.orders).status in ("gap", "failed", "excluded")
    lose_newest_file(world.topic(world.orders))
    world.stream()
    if not any(instance.table == world.orders for instance in world.server.instances):
        world.server.enable(world.orders)
    world.config = config
    world.stream()
    world.check_promise()
    assert any(after <= lost[0] and lost[1] <= until for after, until in world.state(world.orders).gaps)


def test_table_that_is_left_out_keeps_its_gap(world: World) -> None:
    remove(world.topic(world.orders))
    assert world.stream().troubled
    config, world.config = world.config, replace(world.config, filters=FilterSettings(table_exclude=("dbo.orders",)))
    assert world.stream().troubled == ()
    world.config = config
    assert [trouble.table for trouble in world.stream().troubled] == [world.orders]
