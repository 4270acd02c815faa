"""What waits for Kafka is known though the manifest does not list it any more."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable

from cdc_assets.core.lsn import Lsn
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger import manifest_rows
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.overview import CaptureOverview, published_of
from cdc_assets.publish.offset import parse_published
from cdc_assets.publish.view import PublishedReport
from cdc_assets_tests.unit.publish.memory import TOPIC, MemoryBroker
from cdc_assets_tests.unit.publish.world import World, published, publisher
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(manifest_rows, "_KEEP_ROWS", 3)
    monkeypatch.setattr(manifest_rows, "_CHECKPOINT_EVERY", 5)
    with StandIn(databases=(DATABASE,)) as server:
        made = World(server, tmp_path / "lake")
        made.execute("INSERT INTO dbo.t VALUES (1, N'a')")
        made.capture("snapshot")
        made.capture()
        yield made


def report(world: World, broker: MemoryBroker) -> PublishedReport:
    found = published_of(CaptureOverview(world.config), datetime.now(UTC), broker.newest)
    assert found is not None
    assert not found.problem
    return found


def move_on(world: World, times: int = 12) -> None:
    """The log moves, without a change of a captured table, until the manifest lists nothing else."""
    manifest = Manifest(TopicTables.of(world.config), world.config.events.topic_prefix)
    state = manifest.claim(datetime.now(UTC))
    [entry] = state.tables.values()
    assert entry.position is not None
    for step in range(1, times + 1):
        manifest.advance(datetime.now(UTC), DATABASE, Lsn.from_int(int(entry.position) + step))


@pytest.mark.long
def test_a_window_that_is_no_longer_listed_waits_until_it_is_published(world: World) -> None:
    broker = MemoryBroker()
    published(world.config, broker)
    assert report(world, broker).waiting == 0
    move_on(world)
    assert report(world, broker).waiting == 0, "there is nothing behind the place"

    world.execute("INSERT INTO dbo.t VALUES (2, N'b')")
    world.capture()
    assert report(world, broker).waiting == 1
    move_on(world)
    rows = CaptureOverview(world.config).rows()
    assert not [row for row in rows if row["event"] == "complete"]
    waits = report(world, broker)
    assert waits.waiting == 1
    assert waits.behind_s is not None
    assert waits.behind_s > 0
    world.execute("INSERT INTO dbo.t VALUES (3, N'c')")
    world.capture()
    assert report(world, broker).waiting == 2
    published(world.config, broker)
    assert (report(world, broker).waiting, report(world, broker).behind_s) == (0, 0.0)


@pytest.mark.long
def test_what_begins_behind_an_lsn_does_not_wait_for_what_is_before(world: World) -> None:
    broker = MemoryBroker()
    [entry] = CaptureOverview(world.config).state.tables.values()
    first = publisher(world.config, broker, after=str(entry.position))
    first.open()
    while first.turn():
        pass
    assert TOPIC not in broker.topics
    move_on(world)
    assert report(world, broker).waiting == 0
    world.execute("INSERT INTO dbo.t VALUES (2, N'b')")
    world.capture()
    move_on(world)
    assert report(world, broker).waiting == 1


def test_a_topic_that_is_stopped_waits_however_far_the_others_are(world: World) -> None:
    broker = MemoryBroker()
    published(world.config, broker)
    broker.most_bytes = 1
    world.execute("INSERT INTO dbo.t VALUES (2, N'b')")
    world.capture()
    assert published(world.config, broker)
    move_on(world)
    assert parse_published(broker.marker or "").stopped
    stopped = report(world, broker)
    assert set(stopped.stopped) == {TOPIC}
    assert stopped.waiting == 1
    broker.most_bytes = 10**9
    assert not published(world.config, broker)
    assert (report(world, broker).waiting, report(world, broker).stopped) == (0, {})


@pytest.mark.long
def test_a_mark_that_is_too_low_hides_nothing(world: World) -> None:
    broker = MemoryBroker()
    published(world.config, broker)
    before = CaptureOverview(world.config).state.marks[TOPIC]
    world.execute("INSERT INTO dbo.t VALUES (2, N'b')")
    world.capture()
    move_on(world)
    manifest = Manifest(TopicTables.of(world.config), world.config.events.topic_prefix)
    state = manifest.claim(datetime.now(UTC))
    manifest.record_audit(datetime.now(UTC), (), {TOPIC: before}, state.next_window)
    assert CaptureOverview(world.config).state.marks[TOPIC].window == before.window
    assert report(world, broker).waiting == 1
    published(world.config, broker)
    assert report(world, broker).waiting == 0


@pytest.mark.long
def test_the_logs_of_compacted_tables_are_read_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = MemoryBroker()
    world.execute("INSERT INTO dbo.t VALUES (2, N'b')")
    world.capture()
    published(world.config, broker)
    world.compact()
    opened: list[str] = []
    load = TopicTables._loaded

    def counted(tables: TopicTables, directory: str) -> DeltaTable:
        if directory == TOPIC:
            opened.append(directory)
        return load(tables, directory)

    monkeypatch.setattr(TopicTables, "_loaded", counted)
    assert [report(world, broker).waiting for _ in range(3)] == [0, 0, 0]
    assert len(opened) == 1
    before = CaptureOverview(world.config).state.marks[TOPIC]
    world.execute("INSERT INTO dbo.t VALUES (3, N'c')")
    world.capture()
    move_on(world)
    manifest = Manifest(TopicTables.of(world.config), world.config.events.topic_prefix)
    state = manifest.claim(datetime.now(UTC))
    manifest.record_audit(datetime.now(UTC), (), {TOPIC: before}, state.next_window)
    assert report(world, broker).waiting == 1, "another version is read, though no mark tells of it"
