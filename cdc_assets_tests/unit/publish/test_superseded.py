"""A publisher that another one has superseded while it had nothing to send ends by itself, and not its successor."""

from collections.abc import Callable, Iterator

import pytest

from cdc_assets.errors import CdcError, ConnectionLostError, FencedError, LakeAwayError, LakeError, PreflightError
from cdc_assets.lake.topics import TopicTables
from cdc_assets.publish import follow
from cdc_assets.publish.feed import Feed
from cdc_assets.publish.offset import parse_published
from cdc_assets.publish.publisher import Publisher
from cdc_assets.publish.render import Renderer
from cdc_assets_tests.unit.publish.memory import TOPIC, MemoryBroker
from cdc_assets_tests.unit.publish.world import World
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with StandIn(databases=(DATABASE,)) as server:
        made = World(server, tmp_path_factory.mktemp("superseded") / "lake")
        made.execute("INSERT INTO dbo.t VALUES (1, N'a')")
        made.capture("snapshot")
        yield made


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "_AFTER_FENCE_S", 0.0)


def publisher_of(world: World, broker: MemoryBroker) -> tuple[Feed, Publisher]:
    feed = Feed(world.config, TopicTables.of(world.config))
    broker.begins_with(feed)
    return feed, Publisher(feed, broker, Renderer(world.config.kafka), 10, lambda _: None)


def run(world: World, broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch, *then: Callable[[], None]) -> Publisher:
    """A publisher that follows, and does these things, one in a turn, once it has nothing to send; then it ends."""
    (feed, found), left = publisher_of(world, broker), list(then)
    turn = found.turn

    def disturbed() -> int:
        if rows := turn():
            return rows
        if left:
            left.pop(0)()
        return 0

    def ends() -> bool:
        return not left

    monkeypatch.setattr(found, "turn", disturbed)
    follow.publish(found, feed, follow=True, pause_s=0.0, max_retries=-1, close=broker.close, ends=ends)
    return found


def raises(error: CdcError) -> Callable[[], None]:
    def then() -> None:
        raise error

    return then


def writer(broker: MemoryBroker) -> str:
    return parse_published(broker.marker or "").writer


def nothing() -> None:
    """A turn without anything."""


ERRORS = [LakeError("it cannot be read"), LakeAwayError("it does not answer"), ConnectionLostError("a broker restarts")]


@pytest.mark.parametrize("error", ERRORS)
def test_it_opens_nothing_after_an_error(world: World, monkeypatch: pytest.MonkeyPatch, error: CdcError) -> None:
    broker = MemoryBroker()
    _, successor = publisher_of(world, broker)
    with pytest.raises(FencedError, match="Another publisher has taken over"):
        run(world, broker, monkeypatch, successor.open, raises(error), nothing)
    assert not successor.is_fenced()
    assert len(broker.topics[TOPIC]) == 1


def test_nor_does_one_that_had_not_written_its_first_marker(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = MemoryBroker()
    _, successor = publisher_of(world, broker)
    publisher_of(world, broker)[1].open()
    commit = broker.commit

    def superseded(_: str) -> dict[str, str]:
        monkeypatch.setattr(broker, "commit", commit)
        successor.open()
        raise ConnectionLostError("a broker restarts")

    monkeypatch.setattr(broker, "commit", superseded)
    with pytest.raises(FencedError):
        run(world, broker, monkeypatch, nothing)
    assert not successor.is_fenced()


@pytest.mark.parametrize("error", ERRORS)
def test_one_that_is_the_newest_opens_again(world: World, monkeypatch: pytest.MonkeyPatch, error: CdcError) -> None:
    broker = MemoryBroker()
    found = run(world, broker, monkeypatch, raises(error), nothing)
    assert not found.is_fenced()
    commit, former, opened = broker.commit, writer(broker), list[object]()

    def lost(_: str) -> dict[str, str]:
        monkeypatch.setattr(broker, "commit", commit)
        raise ConnectionLostError("before the first marker")

    monkeypatch.setattr(broker, "commit", lost)
    broker.called = lambda what: opened.append(what) if what == "open" else None
    found = run(world, broker, monkeypatch, nothing)
    assert len(opened) == 2
    assert not found.is_fenced()
    assert writer(broker) != former


@pytest.mark.parametrize("error", ERRORS)
def test_a_marker_that_is_gone_is_no_successor(world: World, monkeypatch: pytest.MonkeyPatch, error: CdcError) -> None:
    monkeypatch.setattr("cdc_assets.publish.publisher._RECORD_EVERY_S", 0.0)
    broker = MemoryBroker()

    def lose() -> None:
        broker.marker = None

    with pytest.raises(PreflightError, match="there is no marker"):
        run(world, broker, monkeypatch, lose, raises(error), nothing)
