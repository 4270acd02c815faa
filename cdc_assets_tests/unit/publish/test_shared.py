"""Two captures of one lake that write into the same topics: each record of them is in Kafka once."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cdc_assets.config.settings import NotificationSettings
from cdc_assets.lake.topics import TopicTables
from cdc_assets.system_topics.heartbeat import Heartbeat
from cdc_assets_tests.unit.publish.memory import MemoryBroker
from cdc_assets_tests.unit.publish.world import World, published
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn


class FixedClock:
    """A moment that is later than all others."""

    def now(self) -> datetime:
        return datetime(2100, 1, 1, tzinfo=UTC)

    def elapsed(self) -> timedelta:
        return timedelta()


TOPIC, BEATS = "of.all.notifications", "of.all.heartbeats"


def test_each_capture_publishes_its_own(tmp_path: Path) -> None:
    with StandIn(databases=(DATABASE,)) as server:
        world = World(server, tmp_path / "lake")
        world.config = replace(
            world.config,
            notifications=NotificationSettings(channels=("sink",), sink_topic=TOPIC),
            heartbeat=replace(world.config.heartbeat, topic_name=BEATS),
        )
        own = world.config
        other = replace(own, name="other", events=replace(own.events, topic_prefix="other"))
        kafka = MemoryBroker(), MemoryBroker()
        for turn in range(2):
            world.execute(f"INSERT INTO dbo.t VALUES ({turn}, N'a')")
            for config in (own, other):
                world.config = config
                world.capture("stream" if turn else "snapshot")
            for config, broker in zip((own, other), kafka, strict=True):
                assert not published(config, broker)
        clock = FixedClock()
        for config in (own, other):
            beat = Heartbeat(TopicTables.of(config), config.heartbeat, config.events)
            assert beat.beat(clock, None, forced=True), "at the same moment"
        for config, broker in zip((own, other), kafka, strict=True):
            assert not published(config, broker)
        for topic in (TOPIC, BEATS):
            handle = TopicTables.of(own).open(topic)
            assert handle is not None
            wanted = handle.to_pyarrow_table(columns=["key", "position"])["position"].to_pylist()
            sent = [record.position for broker in kafka for record in broker.topics[topic]]
            assert sorted(sent) == sorted(wanted)
            assert all(broker.topics[topic] for broker in kafka)
