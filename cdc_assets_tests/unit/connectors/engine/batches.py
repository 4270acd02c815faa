"""Runs of an engine that is a list of events, and what the lake holds of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from cdc_assets.config.engine import EngineConfig, engine_config
from cdc_assets.connectors.engine.overview import EngineOverview
from cdc_assets.connectors.engine.run import EngineRun, EngineSummary
from cdc_assets.lake.location import Location
from cdc_assets.lake.sink import DIRECT, Sink
from cdc_assets.lake.topics import TopicTables
from cdc_assets_tests.unit.connectors.engine.feeds import READY, ListFeed, event

TOPICS = ("shop.t0", "shop.t1", "shop.t2")
EVENTS = [event(number, topic=TOPICS[number % 3]) for number in range(1, 61)]


def config_for(lake: Path, rows: int = 10) -> EngineConfig:
    return engine_config(
        {
            "connector.class": "MySqlConnector",
            "topic.prefix": "shop",
            "lake.path": str(lake),
            "engine.batch.rows": str(rows),
            "engine.batch.ms": "60000",
            "stream.idle.timeout.ms": "1",
        }
    )


def run(lake: Path, feed: ListFeed, rows: int = 10, sink: Sink = DIRECT) -> EngineSummary:
    config = config_for(lake, rows)
    tables = TopicTables(Location.of(config.lake), "shop", sink=sink)
    return EngineRun(config, tables, feed, habits=READY).run()


def held(lake: Path) -> list[dict[str, Any]]:
    """Events of all topics in the order of their positions."""
    found = []
    for topic in TOPICS:
        if DeltaTable.is_deltatable(str(lake / topic)):
            rows = DeltaTable(str(lake / topic)).to_pyarrow_table().to_pylist()
            found += [row | {"topic": topic} for row in rows]
    return sorted(found, key=lambda row: row["position"])


def assert_each_once(lake: Path, events: Sequence[dict[str, Any]] = EVENTS) -> None:
    rows = held(lake)
    assert [row["key"]["id"] for row in rows] == [entry["key"]["id"] for entry in events]
    assert [row["value"] for row in rows] == [entry["value"] for entry in events]
    assert [row["headers"] for row in rows] == [[("h", str(entry["key"]["id"]))] for entry in events]
    assert len({row["position"] for row in rows}) == len(rows)
    assert not EngineOverview(config_for(lake), audit_s=None).losses
