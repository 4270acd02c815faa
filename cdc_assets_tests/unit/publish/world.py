"""A captured table with its lake, and a broker in memory."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from cdc_assets.config.settings import CaptureConfig, HeartbeatSettings
from cdc_assets.lake.topics import TopicTables
from cdc_assets.publish.feed import Feed
from cdc_assets.publish.publisher import Publisher
from cdc_assets.publish.render import Renderer
from cdc_assets.publish.span import Replay
from cdc_assets.publish.start import Beginning
from cdc_assets_tests.unit.lake.writing import join_all
from cdc_assets_tests.unit.publish.memory import TOPIC, MemoryBroker
from cdc_assets_tests.unit.streaming.child import DATABASE, config_of, run
from mssql_standin.control import StandIn


class World:
    """A server with one table, and its lake."""

    def __init__(self, server: StandIn, lake: Path) -> None:
        self._server = server
        own = config_of(server.port, server.password, str(lake))
        self.config = replace(
            own, events=replace(own.events, transaction_metadata=True), heartbeat=HeartbeatSettings(0.001)
        )
        self.execute("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, note nvarchar(max))")
        self.execute("EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N't', @role_name = NULL")

    def execute(self, statement: str) -> None:
        self._server.execute(statement, database=DATABASE)

    def capture(self, what: str = "stream") -> None:
        self._server.agent.drain()
        run(self.config, what)

    def compact(self) -> None:
        join_all(TopicTables.of(self.config), TOPIC)


def publisher(
    config: CaptureConfig,
    broker: MemoryBroker,
    most: int = 5,
    after: str | Mapping[str, str] = "",
    replay: Replay | None = None,
) -> Publisher:
    feed = Feed(config, TopicTables.of(config))
    if replay is None:
        broker.begins_with(feed)
    rename = partial(replay.topic, config.events.topic_prefix) if replay else None
    renderer = Renderer(config.kafka, rename)
    starts = after if isinstance(after, Mapping) else {"": after} if after else {}
    return Publisher(feed, broker, renderer, most, lambda _: None, Beginning(starts, replay.span if replay else None))


def published(
    config: CaptureConfig, broker: MemoryBroker, most: int = 5, replay: Replay | None = None
) -> dict[str, str]:
    """Publish what there is, and return what is stopped."""
    found = publisher(config, broker, most, replay=replay)
    found.open()
    while found.turn():
        pass
    return found.stopped
