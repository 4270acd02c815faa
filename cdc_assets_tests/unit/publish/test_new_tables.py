"""READs of a table that is new to a capture are published, though it has no state before its snapshot ends."""

from pathlib import Path

import pytest

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.sqlserver.bulk import MssqlBulkSource
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.capture.capture import Capture
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.steps import listening
from cdc_assets.errors import LakeError
from cdc_assets.publish.publisher import Publisher
from cdc_assets_tests.crashes import PowerCutError
from cdc_assets_tests.unit.publish.memory import TOPIC, MemoryBroker
from cdc_assets_tests.unit.publish.world import World, published, publisher
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn

NEW = TOPIC.replace("dbo.t", "dbo.a")
STEPS = ["", "snapshot-planned", "round-planned", "round-written", "table-committed", "round-complete"]


def snapshot_of_both(world: World) -> None:
    """Read the known and the new table by one snapshot, row by row."""
    with SqlServerSource(world.config.connection) as source:
        bulk = MssqlBulkSource(world.config.connection)
        capture = Capture(world.config, source, bulk, LocalRunner(1), SystemClock())
        capture.snapshot([TableId(DATABASE, "dbo", name) for name in ("t", "a")])


@pytest.mark.long
@pytest.mark.parametrize("dies", STEPS)
def test_reads_of_a_new_table_come_once(tmp_path: Path, dies: str) -> None:
    with StandIn(databases=(DATABASE,)) as server:
        world, broker = World(server, tmp_path / "lake"), MemoryBroker()
        world.execute("INSERT INTO dbo.t VALUES (1, N'a'), (2, N'b')")
        world.capture("snapshot")
        beside = publisher(world.config, broker)
        beside.open()
        publish(beside)
        world.execute("CREATE TABLE dbo.a (id int NOT NULL PRIMARY KEY)")
        world.execute("EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'a', @role_name = NULL")
        world.execute("INSERT INTO dbo.a VALUES (1), (2), (3)")
        server.agent.drain()
        seen = list[str]()

        def each(name: str) -> None:
            if name.startswith("publish-"):
                return
            seen.append(name)
            publish(beside)
            if name == dies:
                raise PowerCutError(name)

        try:
            with listening(each):
                snapshot_of_both(world)
        except PowerCutError:
            publish(beside)
            world.execute("INSERT INTO dbo.t VALUES (3, N'of another window')")
            world.capture()
            publish(beside)
        assert set(STEPS) - {""} <= set(seen) or dies
        publish(beside)
        world.capture("snapshot")
        world.capture()
        assert not published(world.config, broker)
        whole = MemoryBroker()
        assert not published(world.config, whole)
        assert len(whole.topics[NEW]) >= 3
        assert broker.held() == whole.held()


def publish(found: Publisher) -> None:
    """All that is complete."""
    try:
        while found.turn():
            pass
    except LakeError:  # a table that is just being made
        found.open()
