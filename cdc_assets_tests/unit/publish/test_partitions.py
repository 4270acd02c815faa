"""Partitions that the connector chooses itself."""

from pathlib import Path

from cdc_assets_tests.unit.publish.memory import TOPIC, MemoryBroker
from cdc_assets_tests.unit.publish.world import World, published
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn


def test_schema_changes_and_heartbeats_are_in_the_first_partition(tmp_path: Path) -> None:
    with StandIn(databases=(DATABASE,)) as server:
        world, broker = World(server, tmp_path / "lake"), MemoryBroker()
        world.execute("INSERT INTO dbo.t VALUES (1, N'a')")
        world.capture("snapshot")
        world.execute("INSERT INTO dbo.t VALUES (2, N'b')")
        world.capture()
        published(world.config, broker)
    for topic in ("shop", "__debezium-heartbeat.shop"):
        assert {record.partition for record in broker.topics[topic]} == {0}, topic
    assert {record.partition for record in broker.topics[TOPIC]} == {-1}
