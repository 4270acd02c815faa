"""A publisher that follows a lake looks as soon as something is committed there."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import pytest

from cdc_assets.lake.topics import TopicTables
from cdc_assets.publish import follow
from cdc_assets.publish.feed import Feed
from cdc_assets.publish.publisher import Commit, Publisher
from cdc_assets.publish.render import Renderer
from cdc_assets.standin.control import StandIn
from cdc_assets_tests.unit.publish.memory import TOPIC, MemoryBroker
from cdc_assets_tests.unit.publish.world import World
from cdc_assets_tests.unit.streaming.child import DATABASE


def test_a_commit_in_the_lake_is_seen_without_waiting_for_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "_LOOK_EVERY_S", 3600.0)
    with StandIn(databases=(DATABASE,)) as server:
        world, broker, ended, sent = World(server, tmp_path / "lake"), MemoryBroker(), Event(), list[Commit]()
        world.execute("INSERT INTO dbo.t VALUES (1, N'a')")
        world.capture("snapshot")
        feed = Feed(world.config, TopicTables.of(world.config))
        publisher = Publisher(feed, broker, Renderer(world.config.kafka), 100, sent.append)
        options = {"follow": True, "pause_s": 1.0, "most_retries": 0, "close": broker.close, "ends": ended.is_set}
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
