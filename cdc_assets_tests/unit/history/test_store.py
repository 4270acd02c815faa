"""The schema history in the lake: once per window, and readable back."""

import json
from datetime import UTC, datetime
from pathlib import Path

from deltalake import DeltaTable

from cdc_assets.config.settings import EventSettings, HistorySettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.schema import Column, TableSchema
from cdc_assets.envelope.plan import ConnectorIdentity
from cdc_assets.history.records import ChangeType, HistoryEntry
from cdc_assets.history.store import SchemaHistory
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables

ORDERS = TableId("SalesDb", "dbo", "orders")


def entry(kind: ChangeType, lsn: int, instance: str, *columns: str) -> HistoryEntry:
    found = tuple(Column(name, "int", place) for place, name in enumerate(columns, 1))
    return HistoryEntry(
        kind, TableSchema(ORDERS, 7, found), columns, instance, Lsn.from_int(lsn), datetime(2026, 10, 1, tzinfo=UTC)
    )


def opened(path: Path, publish: bool = True) -> SchemaHistory:
    tables = TopicTables(Location(str(path)), "shop")
    history = SchemaHistory(tables, EventSettings("shop"), HistorySettings(publish=publish), ConnectorIdentity())
    history.load()
    return history


def test_structure_is_that_of_the_instance(tmp_path: Path) -> None:
    create, alter = entry("CREATE", 5, "a", "id"), entry("ALTER", 9, "b", "id", "note")
    history = opened(tmp_path)
    history.commit(1, [create])
    history.commit(4, [alter])
    for found in (history, opened(tmp_path)):
        assert (found.of_instance(ORDERS, "a"), found.latest(ORDERS)) == (create, alter)
        assert found.written(4)
        assert not found.written(2)


def test_dropped_table_has_no_structure(tmp_path: Path) -> None:
    history = opened(tmp_path)
    history.commit(1, [entry("CREATE", 5, "a", "id")])
    history.commit(2, [entry("DROP", 9, "a", "id")])
    assert history.latest(ORDERS) is None
    assert history.of_instance(ORDERS, "a") is None


def test_repeat_writes_nothing_again(tmp_path: Path) -> None:
    for _ in range(2):
        opened(tmp_path).commit(1, [entry("CREATE", 5, "a", "id")])
    for directory in ("shop.__schema_history", "shop"):
        assert DeltaTable(tmp_path / directory).to_pyarrow_table().num_rows == 1
    [row] = DeltaTable(tmp_path / "shop.__schema_history").to_pyarrow_table().to_pylist()
    assert json.loads(row["record"])["tableChanges"][0]["id"] == '"SalesDb"."dbo"."orders"'


def test_nothing_is_published_if_not_wanted(tmp_path: Path) -> None:
    opened(tmp_path, publish=False).commit(1, [entry("CREATE", 5, "a", "id")])
    assert not (tmp_path / "shop").exists()
