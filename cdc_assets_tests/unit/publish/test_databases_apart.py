"""A database that holds windows back holds back its own tables alone, in Kafka too."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN
from cdc_assets.core.steps import listening
from cdc_assets.errors import IncompleteReadError, ServerBusyError
from cdc_assets.overview import CaptureOverview, published_of
from cdc_assets.publish.offset import parse_published
from cdc_assets.publish.publisher import Publisher
from cdc_assets.publish.span import Replay, Span
from cdc_assets.publish.view import PublishedReport
from cdc_assets_tests.unit.publish.memory import MemoryBroker
from cdc_assets_tests.unit.publish.world import published, publisher
from cdc_assets_tests.unit.streaming.captures import make_capture
from cdc_assets_tests.unit.streaming.lake_reader import events_of
from cdc_assets_tests.unit.streaming.law import state_of
from cdc_assets_tests.unit.streaming.simulation import DATABASE
from cdc_assets_tests.unit.streaming.two_databases import OTHER, TwoDatabases, config_of_two


class Busy(TwoDatabases):
    """Its other database answers no question about structures while a snapshot of it is in flight."""

    fails = 0

    def table_schemas(self, tables, known=ZERO_LSN):  # type: ignore[no-untyped-def]
        if self.fails and any(table.database == OTHER for table in tables) and OTHER in state_of(self.config).snapshots:
            self.fails -= 1
            self.commit((self.orders, "insert", 20 + self.fails, "while the snapshot of Other waits"))
            raise ServerBusyError("deadlock victim")
        return super().table_schemas(tables, known)


def turn(found: Publisher) -> None:
    while found.turn():
        pass


def values(broker: MemoryBroker, topic: str) -> int:
    return len(broker.topics[f"shop.{topic}"])


@pytest.mark.long
@pytest.mark.parametrize("metadata", [False, True], ids=["plain", "with transactions"])
@pytest.mark.parametrize("anew", [False, True], ids=["one publisher", "a new one each time"])
def test_the_events_of_one_database_do_not_wait_for_the_snapshot_of_another(
    tmp_path: Path, metadata: bool, anew: bool
) -> None:
    server = Busy()
    orders, y = server.create("orders", rows=2), server.create_other("y", rows=1)
    server.idle_tick()
    config = config_of_two(tmp_path, transaction_metadata=metadata)
    server.config, server.orders = config, orders  # type: ignore[attr-defined]
    make_capture(server, config).snapshot()
    broker = MemoryBroker()
    beside = publisher(config, broker)
    beside.open()
    turn(beside)
    x = server.create_other("x", rows=3)
    server.idle_tick()
    server.fails = 2
    server.commit((orders, "insert", 11, "a"), (y, "insert", 6, "b"))
    held, seen = 0, list[PublishedReport]()

    def follow(name: str) -> None:
        nonlocal held, beside
        if name.startswith("publish-"):
            return
        if anew:
            beside = publisher(config, broker)
            beside.open()
        turn(beside)
        state = state_of(config)
        marker = parse_published(broker.marker or "")
        assert marker.window <= state.complete_window
        known = {table.table for run in state.snapshots.values() for table in run.tables}
        if name == "window-complete" and TableId(OTHER, "dbo", "x") in known:
            assert values(broker, f"{orders}") == len(events_of(config, orders)), "nothing of it waits"
            held += 1
            found = published_of(CaptureOverview(config), datetime.now(UTC), broker.newest)
            assert found is not None
            seen.append(found)

    with listening(follow):
        make_capture(server, config).stream(is_added=lambda table: True)
    assert held, "the snapshot was waited for"
    assert metadata or not any(report.waiting for report in seen)
    turn(beside)
    server.commit((orders, "insert", 12, "later"), (y, "insert", 7, "c"), (x, "insert", 8, "c"))
    make_capture(server, config).stream()
    turn(beside)
    whole = MemoryBroker()
    published(config, whole)
    assert broker.held() == whole.held()
    marker = parse_published(broker.marker or "")
    assert not any(window > marker.window for window, _ in marker.places.values()), "none is ahead any more"


def test_a_range_that_is_not_complete_is_not_reported_as_published(tmp_path: Path) -> None:
    """What a database has in it that is ahead is published; the command says how far it is, and what holds the rest."""
    server = Busy()
    orders, y = server.create("orders", rows=2), server.create_other("y", rows=1)
    server.idle_tick()
    config = config_of_two(tmp_path)
    server.config, server.orders = config, orders  # type: ignore[attr-defined]
    make_capture(server, config).snapshot()
    server.create_other("x", rows=3)
    server.idle_tick()
    server.fails = 2
    server.commit((orders, "insert", 11, "a"), (y, "insert", 6, "b"))
    broker, last = MemoryBroker(), 0

    def replayed() -> Publisher:
        found = publisher(config, broker, replay=Replay(Span(0, last), "old"))
        found.open()
        turn(found)
        return found

    def follow(name: str) -> None:
        nonlocal last
        state = state_of(config)
        if last or name.startswith("publish-") or state.complete_window_of(DATABASE) <= state.complete_window + 1:
            return
        last = state.complete_window_of(DATABASE)
        with pytest.raises(
            IncompleteReadError, match=rf"0\.\.{last} .*window {state.complete_window}.*\({OTHER}, number"
        ):
            replayed().require_whole()
        assert len(broker.topics[f"old.{orders}"]) == len(events_of(config, orders)), "nothing of it waits"
        whole = publisher(config, MemoryBroker(), replay=Replay(Span(0, state.complete_window), "old"))
        whole.open()
        turn(whole)
        whole.require_whole()

    with listening(follow):
        make_capture(server, config).stream(is_added=lambda table: True)
    assert last, "the snapshot was waited for"
    replayed().require_whole()
    assert len(broker.topics[f"old.{y}"]) == len([one for one in events_of(config, y) if one.window_id <= last])
    assert not replayed().stopped
