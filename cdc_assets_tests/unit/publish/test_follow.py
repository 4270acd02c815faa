"""A publisher that follows a lake looks as soon as something is committed there."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from cdc_assets.errors import ConnectionLostError, FencedError, LakeAwayError, LakeError, PreflightError
from cdc_assets.lake.topics import TopicTables
from cdc_assets.publish import follow
from cdc_assets.publish.feed import Feed
from cdc_assets.publish.publisher import Commit, Publisher
from cdc_assets.publish.render import Renderer
from cdc_assets_tests.unit.publish.memory import TOPIC, MemoryBroker
from cdc_assets_tests.unit.publish.world import World
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn


def test_a_commit_in_the_lake_is_seen_without_waiting_for_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "_POLL_S", 3600.0)
    with StandIn(databases=(DATABASE,)) as server:
        world, broker, ended, sent = World(server, tmp_path / "lake"), MemoryBroker(), Event(), list[Commit]()
        world.execute("INSERT INTO dbo.t VALUES (1, N'a')")
        world.capture("snapshot")
        feed = Feed(world.config, TopicTables.of(world.config))
        publisher = Publisher(feed, broker, Renderer(world.config.kafka), 100, sent.append)
        options = {"follow": True, "pause_s": 1.0, "max_retries": 0, "close": broker.close, "ends": ended.is_set}
        thread = Thread(target=follow.publish, args=(publisher, feed), kwargs=options, daemon=True)
        thread.start()
        wait_for(lambda: len(broker.topics[TOPIC]) == 1)
        world.execute("INSERT INTO dbo.t VALUES (2, N'b')")
        world.capture()
        wait_for(lambda: len(broker.topics[TOPIC]) == 2)
        ended.set()
        world.capture()  # claims the manifest, which is a commit
        thread.join(60)
        assert not thread.is_alive()


def test_a_store_that_is_not_local_has_no_stamp(tmp_path: Path) -> None:
    with StandIn(databases=(DATABASE,)) as server:
        world = World(server, tmp_path / "lake")
        world.execute("INSERT INTO dbo.t VALUES (1, N'a')")
        local = Feed(world.config, TopicTables.of(world.config))
        assert local.commit_stamp() is None
        world.capture("snapshot")
        before = local.commit_stamp()
        assert before == local.commit_stamp() is not None
        world.capture()
        assert local.commit_stamp() != before
        elsewhere = replace(world.config, lake=replace(world.config.lake, path=f"file://{tmp_path}/lake"))
        assert Feed(elsewhere, TopicTables.of(elsewhere)).commit_stamp() is None


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Endings:
    """A publisher whose attempts end as it is told, and a feed."""

    def __init__(self, *endings: Exception | int, fenced: Sequence[Exception | bool] = ()) -> None:
        self.endings, self.fenced = list(endings), list(fenced)
        self.opened = self.forgotten = 0
        self.at_open: list[Exception | None] = []

    def open(self) -> None:
        self.opened += 1
        if self.at_open and (error := self.at_open.pop(0)) is not None:
            raise error

    def turn(self) -> int:
        found = self.endings.pop(0) if self.endings else 0
        if isinstance(found, Exception):
            raise found
        return found

    def is_fenced(self) -> bool:
        found = self.fenced.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def record_offset(self) -> None: ...

    def commit_stamp(self) -> None: ...

    def forget(self) -> None:
        self.forgotten += 1

    def run(self, max_retries: int = -1, *, following: bool = False) -> None:
        own: Any = self
        ends = (lambda: not self.endings) if following else (lambda: False)
        follow.publish(own, own, follow=following, pause_s=0.0, max_retries=max_retries, close=lambda: None, ends=ends)


AWAY, GONE, FENCED = ConnectionLostError("away"), LakeError("a file is gone"), FencedError("another one")


def test_a_broker_that_goes_away_behind_a_fence_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "_AFTER_FENCE_S", 0.0)
    Endings(FENCED, 0, fenced=[AWAY, AWAY, False]).run()
    other = Endings(FENCED, fenced=[AWAY, AWAY, True])
    with pytest.raises(FencedError):
        other.run()
    assert other.opened == 1, "who opens the broker ends the newer publisher"
    with pytest.raises(ConnectionLostError):
        Endings(FENCED, fenced=[AWAY] * 9).run(max_retries=2)


def test_a_second_error_of_the_lake_in_a_row_ends_it_and_other_errors_do_not_count() -> None:
    found = Endings(AWAY, AWAY, GONE, AWAY, GONE, 1, GONE, 0)
    found.run()
    assert found.forgotten == 3
    with pytest.raises(LakeError):
        Endings(GONE, GONE).run()
    away = LakeAwayError("The store does not answer.")
    Endings(away, away, away, 0).run()
    with pytest.raises(LakeAwayError):
        Endings(away, away, away, 0).run(max_retries=2)


def test_who_follows_waits_for_a_lake_that_cannot_be_read_once_publishing_has_begun(
    caplog: pytest.LogCaptureFixture,
) -> None:
    found = Endings(1, GONE, GONE, GONE, AWAY, GONE, 1, 0)
    found.run(following=True)
    assert (found.opened, found.forgotten) == (6, 4)
    told = [record for record in caplog.records if record.levelname == "WARNING" and "a file is gone" in record.message]
    assert len(told) == 1, "one line when it begins"
    with pytest.raises(LakeError):
        Endings(1, GONE, GONE, GONE, 1).run(max_retries=2, following=True)
    with pytest.raises(LakeError):
        Endings(1, GONE, GONE, 1).run()
    never = Endings(0)
    never.at_open = [GONE, GONE]
    with pytest.raises(LakeError):
        never.run(following=True)
    other = Endings(1, GONE, 1)
    other.at_open = [None, PreflightError("The topics were published from another lake.")]
    with pytest.raises(PreflightError):
        other.run(following=True)


@pytest.mark.long
@pytest.mark.parametrize("there", ["", "folder", "file"])
def test_a_lake_that_is_away_for_a_while_is_waited_for(tmp_path: Path, there: str) -> None:
    """As a file system that is not mounted, which leaves an empty folder, or that gives errors."""
    lake, away = tmp_path / "lake", tmp_path / "away"
    with StandIn(databases=(DATABASE,)) as server:
        world, broker, ended, sent = World(server, lake), MemoryBroker(), Event(), list[Commit]()
        world.execute("INSERT INTO dbo.t VALUES (1, N'a')")
        world.capture("snapshot")
        feed = Feed(world.config, TopicTables.of(world.config))
        publisher = Publisher(feed, broker, Renderer(world.config.kafka), 100, sent.append)
        options = {"follow": True, "pause_s": 0.2, "max_retries": -1, "close": broker.close, "ends": ended.is_set}
        thread = Thread(target=follow.publish, args=(publisher, feed), kwargs=options, daemon=True)
        thread.start()
        wait_for(lambda: len(broker.topics[TOPIC]) == 1)
        world.execute("INSERT INTO dbo.t VALUES (2, N'b')")
        world.capture()
        lake.rename(away)
        if there == "folder":
            lake.mkdir()
        elif there:
            lake.write_text("no folder")
        time.sleep(2)
        assert thread.is_alive()
        if there == "folder":
            assert not list(lake.iterdir()), "nothing is written where the lake is not"
            lake.rmdir()
        elif there:
            lake.unlink()
        away.rename(lake)
        wait_for(lambda: len(broker.topics[TOPIC]) == 2)
        ended.set()
        world.capture()
        thread.join(60)
        assert not thread.is_alive()
