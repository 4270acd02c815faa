"""A lake of an earlier release is gone on with.

`golden/old-lake.tar.gz` holds a small lake that the state before the rooms were untied has made, and the stand-in's database
beside it, in which one change waits that no window has read.
"""

import json
import tarfile
from pathlib import Path

import pyodbc
import pytest

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.sqlserver.bulk import MssqlBulkSource
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.config.load import load_config
from cdc_assets.lake.topics import TopicTables
from cdc_assets.run.capture import Capture
from cdc_assets.standin.control import StandIn

KEPT = Path(__file__).parent.parent / "golden" / "old-lake.tar.gz"
TOPIC = "old.Shop.dbo.orders"

pytestmark = pytest.mark.contract


def events(tables: TopicTables) -> list[tuple[str | None, int]]:
    """Operation and key of each event in order; no operation is a tombstone."""
    handle = tables.open(TOPIC)
    assert handle is not None
    rows = handle.to_pyarrow_table().sort_by("position").to_pylist()
    return [(row["value"] and row["value"]["op"], row["key"]["id"]) for row in rows]


def test_it_is_continued(tmp_path: Path) -> None:
    with tarfile.open(KEPT) as kept:
        kept.extractall(tmp_path, filter="data")
    with StandIn(directory=tmp_path / "server") as server:
        properties = {
            "name": "old",
            "topic.prefix": "old",
            "database.hostname": "127.0.0.1",
            "database.port": str(server.port),
            "database.user": server.user,
            "database.password": server.password,
            "database.names": "Shop",
            "driver.encrypt": "no",
            "lake.path": str(tmp_path / "lake"),
            "stream.idle.timeout.ms": "300",
            "provide.transaction.metadata": "true",
        }
        file = tmp_path / "old.json"
        file.write_text(json.dumps(properties))
        config = load_config(file, {})
        tables = TopicTables.of(config)
        before = events(tables)
        assert before == [("r", 0), ("r", 1), ("r", 2), ("r", 3), ("r", 4), ("u", 1), ("d", 2), (None, 2)]
        with pyodbc.connect(server.connection_string("Shop"), autocommit=True) as connection:
            connection.execute("INSERT INTO dbo.orders VALUES (11, 2, N'new')").close()
        server.agent.drain()
        with SqlServerSource.of(config) as source:
            capture = Capture(config, source, MssqlBulkSource.of(config), LocalRunner(), SystemClock())
            assert not capture.snapshot().tables, "what is in the lake is not read again"
            assert not capture.stream().troubled
        assert events(TopicTables.of(config)) == [*before, ("c", 10), ("c", 11)]
        history = TopicTables.of(config).open("old.__schema_history")
        assert history is not None
        structures = history.to_pyarrow_table().sort_by("window_id").to_pylist()
        [state] = capture.state().tables.values()
        assert [(row["type"], row["capture_instance"], row["change_table_id"]) for row in structures] == [
            ("CREATE", "dbo_orders", None),
            ("ALTER", "dbo_orders", state.change_table_id),
        ], "its structure is recorded again with the instance to which it belongs"
        public = TopicTables.of(config).open("old")
        assert public is not None
        assert public.to_pyarrow_table().num_rows == 1, "and is no news"
