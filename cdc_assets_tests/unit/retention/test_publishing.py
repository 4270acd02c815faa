"""What retention drops while publishers begin, and beside idle ones."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cdc_assets.errors import ConnectionLostError
from cdc_assets.lake.topics import TopicTables
from cdc_assets.publish.feed import Feed, Topic
from cdc_assets.publish.follow import publish
from cdc_assets.publish.offset import Published
from cdc_assets.publish.publisher import Publisher
from cdc_assets.publish.render import Renderer
from cdc_assets.publish.span import Span
from cdc_assets.publish.start import Beginning
from cdc_assets_tests.unit.publish.memory import MemoryBroker
from cdc_assets_tests.unit.retention.world import HOURS, World, publish_all, require_published


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Three windows that are mirrored."""
    made = World(str(tmp_path_factory.mktemp("old") / "lake"))
    for picks in ([0, 1, 2, 3], [2, 3, 6, 7], [0, 1, 4, 5]):
        made.turn(picks)
    return made


@pytest.fixture
def world(old: World, tmp_path: Path) -> World:
    return old.copy(tmp_path / "lake")


def opened(world: World, broker: MemoryBroker, beginning: Beginning) -> Publisher:
    feed = Feed(world.config, TopicTables.of(world.config))
    found = Publisher(feed, broker, Renderer(world.config.kafka), 5, lambda _: None, beginning)
    found.open()
    return found


@pytest.mark.long
def test_a_replay_stops_where_events_are_dropped_while_it_begins(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """After it has read the manifest, and before the tables."""
    publish_all(world, MemoryBroker()).record_offset()
    world.later(2 * HOURS)
    broker, read, reads = MemoryBroker(), Feed.read, list[int]()
    beside = opened(world, broker, Beginning(span=Span()))

    def then_drop(feed: Feed) -> tuple[int, Sequence[Topic]]:
        found = read(feed)
        reads.append(found[0])
        if len(reads) == 1:
            world.stream()
        return found

    monkeypatch.setattr(Feed, "read", then_drop)
    while beside.turn():
        pass
    topics = [world.topic(table) for table in world.tables]
    assert all(world.holds(table).after for table in world.tables), "something was dropped"
    assert set(topics) <= beside.stopped.keys()
    assert "those between are gone" in beside.stopped[topics[0]]
    assert not any(broker.topics[topic] for topic in topics)


@pytest.mark.long
def test_an_idle_publisher_does_not_overwrite_the_place_of_its_successor(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else retention drops what the successor, which publishes everything again, has not published."""
    monkeypatch.setattr("cdc_assets.publish.publisher._RECORD_EVERY_S", 0.0)
    broker, recorded = MemoryBroker(), Feed(world.config, TopicTables.of(world.config)).recorded()
    idle = publish_all(world, broker)
    former = recorded.read()
    assert former is not None
    broker.topics.clear()
    broker.marker = None
    successor = opened(world, broker, Beginning(without_marker="anew"))
    begun = recorded.read()
    assert begun is not None
    assert begun.window < former.window
    idle.turn()
    idle.record_offset()
    assert recorded.read() == begun
    world.later(2 * HOURS)
    world.stream()
    while successor.turn():
        pass
    assert not successor.stopped
    require_published(world, broker)
    last = recorded.read()
    assert last is not None
    assert (last.writer, last.window) == (begun.writer, former.window)


@pytest.mark.long
def test_an_idle_publisher_ends_no_successor_though_the_broker_is_away(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would if it connected again."""
    monkeypatch.setattr("cdc_assets.publish.publisher._RECORD_EVERY_S", 0.0)
    broker = MemoryBroker()
    idle = publish_all(world, broker)
    opened(world, broker, Beginning())

    def away() -> str:
        raise ConnectionLostError("no broker")

    with monkeypatch.context() as patch:
        patch.setattr(broker, "newest", away)
        assert idle.turn() == 0


def test_only_the_broker_knows_which_publisher_is_newer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    broker, feed = MemoryBroker(), Feed(world.config, TopicTables.of(world.config))
    recorded, idle = feed.recorded(), publish_all(world, broker)
    other = replace(recorded.read() or Published(""), writer="other")

    def away() -> str:
        raise ConnectionLostError("no broker")

    def last_turn() -> int:
        recorded.write(other)
        monkeypatch.setattr(broker, "newest", away)
        return 0

    monkeypatch.setattr(idle, "turn", last_turn)
    publish(idle, feed, follow=False, pause_s=0, max_retries=0, close=lambda: None)
    assert recorded.read() == other, "all is published, and the broker went away"
    with pytest.raises(ConnectionLostError):
        idle.record_offset()
    monkeypatch.undo()
    idle.record_offset()
    assert recorded.read() != other, "the marker names it"
