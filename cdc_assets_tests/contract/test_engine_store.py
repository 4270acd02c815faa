"""A lake in an object store takes an embedded engine's events, each once, as one in a folder does."""

from contextlib import suppress

import pytest

from cdc_assets.config.engine import engine_config
from cdc_assets.connectors.engine.run import EngineRun
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.object_store import SECRET, lake_properties, open_store
from cdc_assets_tests.unit.connectors.engine.feeds import READY, ListFeed, event

pytestmark = pytest.mark.contract
EVENTS = [event(number, topic=f"shop.t{number % 3}") for number in range(1, 61)]


@pytest.mark.long
def test_each_event_arrives_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_SECRET", SECRET)
    with open_store() as address:
        own = {"connector.class": "MySqlConnector", "topic.prefix": "shop", "engine.batch.rows": "10"}
        limits = {"engine.batch.ms": "60000", "stream.idle.timeout.ms": "1"}
        lake = {name: text.replace("${env:LAKE_SECRET}", SECRET) for name, text in lake_properties(address).items()}
        config = engine_config(own | limits | lake)
        for step in ("files-written", "batch-planned", "table-committed:2", "batch-complete", ""):
            tables = TopicTables(Location.of(config.lake), "shop", config.lake)
            name, _, count = step.partition(":")
            with suppress(PowerCutError), cut_at(name or "checkpoint-written", int(count or 1)):
                EngineRun(config, tables, ListFeed(EVENTS, range(4, 61, 4), again=3), habits=READY).run()
        rows = []
        for topic in ("shop.t0", "shop.t1", "shop.t2"):
            handle = tables.open(topic)
            assert handle is not None
            rows += handle.to_pyarrow_table(columns=["position", "key"]).to_pylist()
        assert [row["key"]["id"] for row in sorted(rows, key=lambda row: str(row["position"]))] == list(range(1, 61))
