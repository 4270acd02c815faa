"""What the lake has is published, whatever the settings of the publisher say."""

from dataclasses import replace
from pathlib import Path

import pytest

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.errors import ConfigurationError
from cdc_assets_tests.unit.publish.memory import MemoryBroker
from cdc_assets_tests.unit.publish.world import published, publisher
from cdc_assets_tests.unit.streaming.captures import make_capture, make_config
from cdc_assets_tests.unit.streaming.lake_reader import events_of
from cdc_assets_tests.unit.streaming.simulation import SimulatedServer


def with_topics(config: CaptureConfig, on: bool) -> CaptureConfig:
    """With and without topics of schema changes and transactions."""
    events = replace(config.events, transaction_metadata=on)
    return replace(config, events=events, history=replace(config.history, publish=on))


def test_topics_that_the_settings_leave_out_are_published_as_far_as_the_lake_has_them(tmp_path: Path) -> None:
    """A publisher that was not started again with the capture's new settings, and settings that were taken back while windows waited."""
    server, broker = SimulatedServer(), MemoryBroker()
    orders = server.create("orders", rows=2)
    server.idle_tick()
    former = with_topics(make_config(str(tmp_path / "lake")), on=False)
    present = with_topics(former, on=True)
    make_capture(server, former).snapshot()
    server.commit((orders, "insert", 10, "a"))
    make_capture(server, former).stream()
    beside = publisher(former, broker)
    beside.open()
    while beside.turn():
        pass
    for key in (11, 12):
        server.commit((orders, "insert", key, "b"))
        make_capture(server, present).stream()
        while beside.turn():
            pass
    assert len(broker.topics["shop.transaction"]) == 4, "BEGIN and END of both"

    server.commit((orders, "insert", 13, "c"))
    make_capture(server, present).stream()
    server.commit((orders, "insert", 14, "d"))
    make_capture(server, former).stream()
    for config in (former, present):
        assert not published(config, broker)
        assert len(broker.topics["shop.transaction"]) == 6, "of the last one there is none"
        assert len(broker.topics["shop"]) == len(events_of(present, "shop"))
    assert len(broker.topics[f"shop.{orders}"]) == 7


def test_a_publisher_that_gives_a_topic_another_name_passes_nothing_over(tmp_path: Path) -> None:
    server, broker = SimulatedServer(), MemoryBroker()
    orders, lines = server.create("orders", rows=2), server.create("lines", rows=2)
    server.idle_tick()
    config = make_config(str(tmp_path / "lake"))
    make_capture(server, config).snapshot()
    assert not published(config, broker)
    server.commit((orders, "insert", 10, "a"), (lines, "insert", 10, "a"))
    make_capture(server, config).stream()
    other = replace(config, events=replace(config.events, sanitize_pattern="e"))
    with pytest.raises(ConfigurationError, match=r"expected shop\.SalesDb\.dbo\.(orders|lines)"):
        published(other, broker)
    assert not published(config, broker)
    assert [len(broker.topics[f"shop.{table}"]) for table in (orders, lines)] == [3, 3]
