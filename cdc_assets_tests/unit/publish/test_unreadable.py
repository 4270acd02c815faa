"""Whatever ends the reading of one topic ends that of no other."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from cdc_assets.errors import LakeError, RetryableError
from cdc_assets.history.store import SchemaHistory
from cdc_assets.lake.tables import DeltaTables
from cdc_assets.lake.topics import TopicTables
from cdc_assets.publish import follow, publisher
from cdc_assets.publish.feed import Feed
from cdc_assets.publish.offset import parse_published
from cdc_assets.publish.publisher import Publisher
from cdc_assets.publish.render import Renderer
from cdc_assets.publish.rows import TopicRows
from cdc_assets_tests.crashes import PowerCutError
from cdc_assets_tests.unit.publish.memory import TOPIC, MemoryBroker
from cdc_assets_tests.unit.publish.world import World
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn

OTHER = TOPIC.replace("dbo.t", "dbo.u")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with StandIn(databases=(DATABASE,)) as server:
        made = World(server, tmp_path_factory.mktemp("unreadable") / "lake")
        made.execute("CREATE TABLE dbo.u (id int NOT NULL PRIMARY KEY)")
        made.execute("EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'u', @role_name = NULL")
        made.execute("INSERT INTO dbo.t VALUES (1, N'a'), (2, N'b')")
        made.execute("INSERT INTO dbo.u VALUES (1), (2), (3)")
        made.capture("snapshot")
        made.execute("INSERT INTO dbo.u VALUES (4)")
        made.capture()
        yield made


def published(world: World, broker: MemoryBroker, most: int = 2) -> Publisher:
    feed = Feed(world.config, TopicTables.of(world.config))
    broker.begins_with(feed)
    found = Publisher(feed, broker, Renderer(world.config.kafka), most, lambda _: None)
    follow.publish(found, feed, follow=False, pause_s=0.0, max_retries=3, close=broker.close)
    return found


@pytest.mark.parametrize("error", [pa.ArrowInvalid("offset overflow"), KeyError("__op"), LakeError("It is gone.")])
@pytest.mark.parametrize("after", [0, 1])
def test_a_topic_that_cannot_be_read_is_stopped_alone(
    world: World, monkeypatch: pytest.MonkeyPatch, error: Exception, after: int
) -> None:
    read = TopicRows.read

    def broken(self: TopicRows, *given: Any, **named: Any) -> Iterator[pa.RecordBatch]:
        batches = read(self, *given, **named)
        if self.topic != TOPIC:
            return batches
        return failing(batch.slice(0, after) for batch in batches)

    def failing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from [batch for batch in batches if len(batch)][:after]
        raise error

    broker = MemoryBroker()
    with monkeypatch.context() as patch:
        patch.setattr(TopicRows, "read", broken)
        stopped = published(world, broker).stopped
        assert set(stopped) == {TOPIC}
        assert "what comes next cannot be read" in stopped[TOPIC]
        assert str(error) in stopped[TOPIC]
    assert (len(broker.topics[TOPIC]), len(broker.topics[OTHER])) == (after, 4)
    assert set(parse_published(broker.marker or "").stopped) == {TOPIC}
    assert not published(world, broker).stopped, "the cause is gone"
    assert (len(broker.topics[TOPIC]), len(broker.topics[OTHER])) == (2, 4)


def test_a_topic_whose_table_cannot_be_opened_is_stopped_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    open_table, broker = DeltaTables.open, MemoryBroker()

    def broken(tables: DeltaTables, directory: str) -> DeltaTable | None:
        if directory == TOPIC:
            raise LakeError("Its log is damaged.")
        return open_table(tables, directory)

    with monkeypatch.context() as patch:
        patch.setattr(DeltaTables, "open", broken)
        assert set(published(world, broker).stopped) == {TOPIC}
    assert len(broker.topics[OTHER]) == 4
    assert not published(world, broker).stopped, "the cause is gone"


def test_a_topic_that_cannot_be_read_in_the_middle_of_a_window_keeps_its_place(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if others have events in the rest of that window."""
    read, broker = TopicRows.read, MemoryBroker()

    def broken(self: TopicRows, *given: Any, **named: Any) -> Iterator[pa.RecordBatch]:
        if self.topic == TOPIC:
            raise KeyError("window_id")
        return read(self, *given, **named)

    def die(name: object) -> None:
        if name == "committed" and broker.topics[TOPIC]:
            raise PowerCutError

    broker.called = die
    with pytest.raises(PowerCutError):
        published(world, broker, most=1)
    broker.called = lambda _: None
    assert (len(broker.topics[TOPIC]), len(broker.topics[OTHER])) == (1, 0)
    with monkeypatch.context() as patch:
        patch.setattr(TopicRows, "read", broken)
        assert set(published(world, broker).stopped) == {TOPIC}
    assert len(broker.topics[OTHER]) == 4
    assert not published(world, broker).stopped, "the cause is gone"
    assert len(broker.topics[TOPIC]) == 2


def test_a_stopped_topic_is_tried_again_while_a_publisher_follows(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = MemoryBroker(most_bytes=1)
    found = published(world, broker)
    assert set(found.stopped) == {TOPIC}
    broker.most_bytes = 10**9
    assert not found.turn()
    assert found.stopped
    monkeypatch.setattr(publisher, "_RETRY_AFTER_S", 0.0)
    while found.turn():
        pass
    assert not found.stopped
    assert len(broker.topics[TOPIC]) == 2
    assert not parse_published(broker.marker or "").stopped


def test_what_passes_by_itself_stops_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    read, left = TopicRows.read, [RetryableError("away"), LakeError("joined meanwhile")]

    def broken(self: TopicRows, *given: Any, **named: Any) -> Iterator[pa.RecordBatch]:
        if left and self.topic == TOPIC:
            raise left.pop()
        return read(self, *given, **named)

    monkeypatch.setattr(TopicRows, "read", broken)
    broker = MemoryBroker()
    assert not published(world, broker).stopped
    assert not left
    assert len(broker.topics[TOPIC]) == 2


def test_rows_are_not_described_by_less_than_there_is_where_structures_cannot_be_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: SchemaHistory) -> Any:
        raise LakeError("The schema history cannot be read.")

    broker = MemoryBroker()
    with monkeypatch.context() as patch:
        patch.setattr(SchemaHistory, "read", broken)
        assert set(published(world, broker).stopped) == {TOPIC, OTHER}, "none of them is published without"
    assert not {TOPIC, OTHER} & broker.topics.keys()
    assert not published(world, broker).stopped
    assert len(broker.topics[OTHER]) == 4


def test_tables_that_are_away_while_others_are_read_are_not_empty(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a lake that went away between two topics of one pass: nothing may be passed over."""
    opened, away = TopicTables.open, [OTHER]

    def gone(self: TopicTables, directory: str) -> object:
        return None if directory in away else opened(self, directory)

    broker = MemoryBroker()
    with monkeypatch.context() as patch:
        patch.setattr(TopicTables, "open", gone)
        stopped = published(world, broker).stopped
        assert set(stopped) == {OTHER}
        assert "its tables end with -1" in stopped[OTHER]
    assert not published(world, broker).stopped, "it is back"
    assert (len(broker.topics[TOPIC]), len(broker.topics[OTHER])) == (2, 4)
