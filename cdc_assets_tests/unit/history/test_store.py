"""The schema history in the lake: once per window, and readable back."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable

from cdc_assets.config.settings import ColumnRule, EventSettings, HistorySettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.schema import Column, InstanceId, TableSchema
from cdc_assets.envelope.plan import ConnectorIdentity
from cdc_assets.errors import InvariantError
from cdc_assets.history.records import ChangeType, HistoryEntry
from cdc_assets.history.store import SchemaHistory
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets_tests.crashes import PowerCutError, cut_at

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
        assert (found.of_instance(ORDERS, InstanceId("a")), found.latest(ORDERS)) == (create, alter)
        assert found.written(4)
        assert not found.written(2)


def test_dropped_table_has_no_structure(tmp_path: Path) -> None:
    history = opened(tmp_path)
    history.commit(1, [entry("CREATE", 5, "a", "id")])
    history.commit(2, [entry("DROP", 9, "a", "id")])
    assert history.latest(ORDERS) is None
    assert history.of_instance(ORDERS, InstanceId("a")) is None


def test_repeat_writes_nothing_again(tmp_path: Path) -> None:
    for _ in range(2):
        opened(tmp_path).commit(1, [entry("CREATE", 5, "a", "id")])
    for directory in ("shop.__schema_history", "shop"):
        assert DeltaTable(tmp_path / directory).to_pyarrow_table().num_rows == 1
    [row] = DeltaTable(tmp_path / "shop.__schema_history").to_pyarrow_table().to_pylist()
    assert json.loads(row["record"])["tableChanges"][0]["id"] == '"SalesDb"."dbo"."orders"'


def test_defaults_of_columns_that_are_hidden_by_now_are_read_no_more(tmp_path: Path) -> None:
    found = entry("CREATE", 5, "a", "id", "note")
    columns = tuple(replace(column, default="((7))") for column in found.schema.columns)
    opened(tmp_path).commit(1, [replace(found, schema=replace(found.schema, columns=columns))])
    events = EventSettings("shop", column_rules=(ColumnRule("mask", (r"dbo\.orders\.note",), 3),))
    tables = TopicTables(Location(str(tmp_path)), "shop")
    history = SchemaHistory(tables, events, HistorySettings(), ConnectorIdentity())
    [(_, read)] = history.read()
    assert [column.default for column in read.schema.columns] == ["((7))", None]


def test_nothing_is_published_if_not_wanted(tmp_path: Path) -> None:
    opened(tmp_path, publish=False).commit(1, [entry("CREATE", 5, "a", "id")])
    assert not (tmp_path / "shop").exists()


def made(found: HistoryEntry, day: int, number: int) -> HistoryEntry:
    """An entry with all of its instance's identity."""
    return replace(found, made=datetime(2026, 10, day), change_table_id=number)  # noqa: DTZ001 - server time


def test_an_entry_of_another_instance_of_the_same_name_is_unknown(tmp_path: Path) -> None:
    first, again = made(entry("CREATE", 5, "a", "id"), 1, 11), made(entry("ALTER", 9, "a", "id", "note"), 2, 12)
    opened(tmp_path).commit(1, [first])
    opened(tmp_path).commit(2, [again])
    history = opened(tmp_path)
    assert (history.of_instance(ORDERS, first.identity), history.of_instance(ORDERS, again.identity)) == (first, again)
    assert history.of_instance(ORDERS, made(first, 3, 13).identity) is None
    assert history.of_instance(ORDERS, made(first, 1, 13).identity) is None


def test_structures_under_a_number_that_is_passed_are_an_error(tmp_path: Path) -> None:
    history = opened(tmp_path)
    history.commit(4, [entry("CREATE", 5, "a", "id")])
    for number in (3, 4):
        with pytest.raises(InvariantError, match="passed"):
            history.commit(number, [entry("ALTER", 9, "b", "id", "note")])
    assert history.latest(ORDERS) == entry("CREATE", 5, "a", "id")


def test_only_news_are_published_also_after_a_crash(tmp_path: Path) -> None:
    first, same = made(entry("CREATE", 5, "a", "id"), 1, 11), made(entry("ALTER", 9, "b", "id"), 2, 12)
    history = opened(tmp_path)
    history.commit(1, [first])
    with cut_at("history-recorded"), pytest.raises(PowerCutError):
        history.commit(2, [same])
    opened(tmp_path)
    with cut_at("history-recorded"), pytest.raises(PowerCutError):
        opened(tmp_path).commit(3, [made(entry("ALTER", 12, "c", "id", "note"), 3, 13)])
    opened(tmp_path)
    assert DeltaTable(tmp_path / "shop.__schema_history").to_pyarrow_table().num_rows == 3
    rows = DeltaTable(tmp_path / "shop").to_pyarrow_table().sort_by("window_id").to_pylist()
    assert [(row["window_id"], row["value"]["source"]["commit_lsn"]) for row in rows] == [
        (1, str(first.lsn)),
        (3, str(Lsn.from_int(12))),
    ]


def test_what_a_run_that_was_believed_dead_has_recorded_is_found(tmp_path: Path) -> None:
    create, alter = entry("CREATE", 5, "a", "id"), entry("ALTER", 9, "b", "id", "note")
    opened(tmp_path).commit(1, [create])
    history, woken = opened(tmp_path), opened(tmp_path)
    woken.commit(2, [alter])
    assert not history.commit(2, [alter])
    assert [found for _, found in history.recorded(2)] == [alter]
    assert history.latest(ORDERS) == alter
