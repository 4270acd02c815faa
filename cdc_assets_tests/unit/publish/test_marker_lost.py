"""Without a marker nothing is published a second time unless somebody says so."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from cdc_assets.errors import ConfigurationError, ConnectionLostError, PreflightError
from cdc_assets.lake.topics import TopicTables
from cdc_assets.overview import CaptureOverview, published_of
from cdc_assets.overview.troubles import derived_troubles
from cdc_assets.publish.feed import Feed
from cdc_assets.publish.publisher import Publisher
from cdc_assets.publish.render import Renderer
from cdc_assets.publish.start import Beginning, WithoutMarker
from cdc_assets_tests.unit.publish.memory import TOPIC, MemoryBroker
from cdc_assets_tests.unit.publish.world import World, published
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with StandIn(databases=(DATABASE,)) as server:
        made = World(server, tmp_path_factory.mktemp("lost") / "lake")
        made.execute("INSERT INTO dbo.t VALUES (1, N'a'), (2, N'b')")
        made.capture("snapshot")
        yield made


@pytest.fixture
def lost(world: World) -> MemoryBroker:
    """A broker that has the topics, and no marker."""
    broker = MemoryBroker()
    published(world.config, broker)
    opened(world, broker).record_offset()
    broker.marker = None
    return broker


def opened(world: World, broker: MemoryBroker, without_marker: WithoutMarker = "", after: str = "") -> Publisher:
    feed = Feed(world.config, TopicTables.of(world.config))
    renderer = Renderer(world.config.kafka)
    found = Publisher(
        feed,
        broker,
        renderer,
        10,
        lambda _: None,
        Beginning({"": after} if after else {}, without_marker=without_marker),
    )
    found.open()
    while found.turn():
        pass
    return found


def told(world: World, broker: MemoryBroker) -> list[str]:
    """What doctor finds wrong."""
    return [
        trouble.what for trouble in derived_troubles(CaptureOverview(world.config), datetime.now(UTC), broker.newest)
    ]


def test_a_lost_marker_is_refused_with_both_next_steps(world: World, lost: MemoryBroker) -> None:
    before = len(lost.topics[TOPIC])
    with pytest.raises(PreflightError, match=r"(?s)there is no marker.*--resume.*--anew"):
        opened(world, lost)
    assert (len(lost.topics[TOPIC]), lost.marker) == (before, None)


def test_status_tells_a_lost_marker(world: World, lost: MemoryBroker) -> None:
    found = published_of(CaptureOverview(world.config), datetime.now(UTC), lost.newest)
    assert found is not None
    assert "no marker" in found.problem
    assert "no marker" in "".join(told(world, lost))
    assert not world.config.kafka.enabled, "a service publishes"


@pytest.mark.parametrize("changed", [{"lake": "another"}, {"window": 10**6}, {"places": {TOPIC: [10**6, "~"]}}])
def test_status_tells_a_marker_that_is_not_of_this_lake(world: World, changed: dict[str, object]) -> None:
    """What is published by its number may be anything; the publisher refuses it."""
    broker = MemoryBroker()
    published(world.config, broker)
    broker.marker = json.dumps(json.loads(broker.marker or "") | changed)
    with pytest.raises(PreflightError, match="another lake"):
        opened(world, broker)
    found = published_of(CaptureOverview(world.config), datetime.now(UTC), broker.newest)
    assert found is not None
    assert "another lake" in found.problem
    assert "another lake" in "".join(told(world, broker))


def test_status_sees_what_is_complete_since_it_began(world: World) -> None:
    broker, overview = MemoryBroker(), CaptureOverview(world.config)
    assert overview.state.complete_window
    world.execute("UPDATE dbo.t SET note = N'later' WHERE id = 2")
    world.capture()
    published(world.config, broker)
    found = published_of(overview, datetime.now(UTC), broker.newest)
    assert found is not None
    assert not found.problem
    assert not told(world, broker)


def test_a_broker_that_is_away_is_told_by_its_own_check_alone(world: World) -> None:
    def away() -> str:
        raise ConnectionLostError("Kafka does not answer.")

    found = published_of(CaptureOverview(world.config), datetime.now(UTC), away)
    assert found is not None
    assert "does not answer" in found.problem
    assert not list(derived_troubles(CaptureOverview(world.config), datetime.now(UTC), away))


def test_it_goes_on_where_the_lake_was_told_last(world: World, lost: MemoryBroker) -> None:
    before = list(lost.topics[TOPIC])
    opened(world, lost, "resume")
    assert lost.topics[TOPIC] == before
    world.execute("UPDATE dbo.t SET note = N'c' WHERE id = 1")
    world.capture()
    opened(world, lost)
    assert len(lost.topics[TOPIC]) == len(before) + 1


def test_everything_is_published_again_if_that_is_said(world: World, lost: MemoryBroker) -> None:
    lost.topics.clear()
    opened(world, lost, "anew")
    assert len(lost.topics[TOPIC]) >= 2
    with pytest.raises(ConfigurationError, match="there is a marker"):
        opened(world, lost, "anew")


@pytest.mark.parametrize("said", ["anew", "resume"])
def test_what_was_said_counts_once(world: World, lost: MemoryBroker, said: WithoutMarker) -> None:
    """A service that goes on for days does not publish everything again when its marker is lost a second time."""
    found = opened(world, lost, said)
    found.record_offset()
    before, lost.marker = len(lost.topics[TOPIC]), None
    with pytest.raises(PreflightError, match="there is no marker"):
        found.open()
    assert (len(lost.topics[TOPIC]), lost.marker) == (before, None)


def test_a_start_is_said_too(world: World, lost: MemoryBroker) -> None:
    before = len(lost.topics[TOPIC])
    opened(world, lost, after="ffffffff:00000000:0000")
    assert len(lost.topics[TOPIC]) == before


def test_the_start_of_the_first_time_says_nothing_now(world: World) -> None:
    """It may stand in the command of a service, which begins again by itself."""
    broker, first = MemoryBroker(), "00000000:00000000:0001"
    opened(world, broker, after=first).record_offset()
    before = len(broker.topics[TOPIC])
    broker.marker = None
    with pytest.raises(PreflightError, match="there is no marker"):
        opened(world, broker, after=first)
    assert len(broker.topics[TOPIC]) == before
    opened(world, broker, "anew", after=first)
    assert len(broker.topics[TOPIC]) == 2 * before


def test_the_connection_may_break_before_the_first_marker(world: World, lost: MemoryBroker) -> None:
    feed = Feed(world.config, TopicTables.of(world.config))
    found = Publisher(feed, lost, Renderer(world.config.kafka), 10, lambda _: None, Beginning(without_marker="anew"))
    found.open()
    found.open()
    assert not found.is_fenced()
