"""A restore while an incremental snapshot is in flight: its markers may be gone, or what it had read."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread, current_thread

import pytest

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.steps import listening
from cdc_assets.errors import CdcError, ConnectionLostError
from cdc_assets.streaming import planner
from cdc_assets_tests.unit.signals.world import World
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn


def restoring(
    server: StandIn, saved: Path | None, save_at: str, restore_at: str, done: list[str]
) -> Callable[[str], None]:
    """Back up at one step, unless there is a backup, and restore at another one, once."""
    backups = [saved] if saved else []

    def listener(step: str) -> None:
        if step == save_at and not backups:
            backups.append(server.backup())
        if step == restore_at and backups and not done:
            done.append(step)
            server.restore(backups[0])
            server.agent.start()

    return listener


def captured(server: StandIn, path: Path) -> tuple[World, TableId]:
    """A table whose first snapshot is complete."""
    world = World(server, str(path))
    world.config = replace(world.config, streaming=replace(world.config.streaming, retry_wait_s=0.1))
    table = world.make("orders", "id int PRIMARY KEY, version int")
    world.sql("INSERT INTO dbo.orders VALUES (1, 1), (2, 2), (3, 3)")
    server.agent.drain()
    world.run("snapshot")
    return world, table


@pytest.mark.long
@pytest.mark.parametrize(
    ("save_at", "restore_at", "lost"),
    [
        ("signals-recorded", "marker-written", False),
        ("marker-written", "chunk-read", False),
        ("chunk-read", "chunk-read", False),
        ("", "marker-written", True),
        ("", "chunk-read", True),
    ],
)
def test_a_round_is_read_again_or_given_up(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save_at: str, restore_at: str, lost: bool
) -> None:
    monkeypatch.setattr(planner, "IDLE_CHECK", planner.IDLE_CHECK * 0)
    world, table = captured(server, tmp_path)
    saved = server.backup() if lost else None
    world.signal("s1", "execute-snapshot", data_collections=[str(table)])
    done: list[str] = []
    with listening(restoring(server, saved, save_at, restore_at, done)), suppress(CdcError):
        world.run()
    assert done
    world.run()
    state = world.state()
    assert not state.signals[DATABASE].unfinished
    if lost:
        assert world.reads(table) == []
        assert state.tables[table].status == "failed"
    else:
        assert sorted(row["id"] for row in world.reads(table)) == [1, 2, 3]
        assert state.tables[table].status == "healthy"


def test_a_run_believed_dead_commits_no_rows_of_a_database_that_was_restored(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner, "IDLE_CHECK", planner.IDLE_CHECK * 0)
    world, table = captured(server, tmp_path)
    saved = server.backup()
    world.signal("s1", "execute-snapshot", data_collections=[str(table)])
    asleep, wake = Event(), Event()

    def run() -> None:
        with suppress(CdcError):
            world.run()

    sleeper = Thread(target=run)

    def listen(step: str) -> None:
        if current_thread() is sleeper and step == "signals-recorded" and world.state().signals[DATABASE].reads:
            asleep.set()
            wake.wait(60)

    with listening(listen):
        sleeper.start()
        assert asleep.wait(60)
        server.restore(saved)
        server.agent.start()
        with suppress(CdcError):
            world.run()
        assert world.state().tables[table].status == "failed"
        wake.set()
        sleeper.join(60)
    assert world.reads(table) == []


@pytest.mark.long
def test_a_round_is_read_again_though_the_window_fails_that_has_found_the_restore(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner, "IDLE_CHECK", planner.IDLE_CHECK * 0)
    world, table = captured(server, tmp_path)
    world.signal("s1", "execute-snapshot", data_collections=[str(table)])
    done: list[str] = []
    restored = restoring(server, None, "signals-recorded", "marker-written", done)

    def listener(step: str) -> None:
        known = len(done)
        restored(step)
        if len(done) > known:
            world.sql("INSERT INTO dbo.orders VALUES (4, 4)")
        if step == "window-planned" and len(done) == 1:
            done.append(step)
            raise ConnectionLostError("The server is away for a moment.")

    with listening(listener):
        world.run()
    assert done == ["marker-written", "window-planned"]
    assert not world.state().signals[DATABASE].unfinished
    assert {row["id"] for row in world.reads(table)} >= {1, 2, 3}
