"""Events that are of no row, equal to those of the real Debezium: heartbeats, transactions, structures (see `golden/README.md`)."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.config.settings import EventSettings, HeartbeatSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.schema import Column, TableSchema
from cdc_assets.envelope.json import to_json
from cdc_assets.history.events import build_events
from cdc_assets.history.records import ChangeType, HistoryEntry
from cdc_assets.lake.location import Location
from cdc_assets.lake.system_topics import heartbeat_topic, transaction_topic
from cdc_assets.lake.topics import TopicTables
from cdc_assets.system_topics.heartbeat import SCHEMA, Heartbeat
from cdc_assets.system_topics.transactions import Stream, number
from cdc_assets_tests.unit.envelope.building import IDENTITY, change, change_batch, changed, plan_of
from cdc_assets_tests.unit.envelope.examples import CUSTOMERS, ORDERS, golden, same

SETTINGS = EventSettings("shop")


def sent(topic: str, events: pa.Table) -> list[dict[str, Any]]:
    """Each event as a golden file holds it."""
    (batch,) = events.combine_chunks().to_batches()
    rows = zip(*(array.to_pylist() for array in to_json(batch.schema, batch, schemas=True)), strict=True)
    return [
        {"topic": topic, "headers": json.loads(headers or "{}"), "key": json.loads(key), "value": json.loads(value)}
        for key, value, headers in rows
    ]


def at_ms(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


class Clock(SystemClock):
    """Stands at a time."""

    def __init__(self, milliseconds: int) -> None:
        self._now = at_ms(milliseconds)

    def now(self) -> datetime:
        return self._now

    def elapsed(self) -> timedelta:
        return timedelta()


def test_heartbeat(tmp_path: Path) -> None:
    expected = golden("heartbeat")
    settings, tables = HeartbeatSettings(1.0), TopicTables(Location(str(tmp_path)), "shop")
    assert Heartbeat(tables, settings, SETTINGS).beat(Clock(expected["value"]["payload"]["ts_ms"]), None)
    topic = heartbeat_topic(settings, SETTINGS)
    handle = tables.open(topic)
    assert handle is not None
    same(sent(topic, handle.to_pyarrow_table().cast(SCHEMA)), [expected])


def in_transaction(name: str, commit: str, at: str) -> Stream:
    """A row that a transaction has added to a table."""
    columns, row = (
        (CUSTOMERS, [3, "cara", "2025-05-06T07:08:09.1234567", None])
        if name == "customers"
        else (ORDERS, [1, 1, "first", 3])
    )
    plan = plan_of(name, columns, [columns[0].name])
    table = changed(plan, change_batch(plan, [(change(commit, f"{commit[:-4]}0003", 2, at=at), row)]))
    batches: Iterator[pa.RecordBatch] = iter(table.combine_chunks().to_batches())
    return Stream(f"TestDB.dbo.{name}", batches, lambda _: None, lambda _: None)


@pytest.mark.parametrize("name", ["transaction-begin", "transaction-end"])
def test_transaction(name: str) -> None:
    expected = golden(name)
    payload = expected["value"]["payload"]
    at = at_ms(payload["ts_ms"]).replace(tzinfo=None).isoformat()
    streams = [in_transaction(table, payload["id"], at) for table in ("customers", "orders")]
    found = pa.Table.from_batches(number(streams, ZERO_LSN, 1, database="testDB"))
    begin, end = sent(transaction_topic(SETTINGS), found)
    same(begin if payload["status"] == "BEGIN" else end, expected)


def entry_of(name: str) -> tuple[HistoryEntry, dict[str, Any]]:
    """The structure that a golden file tells, and the file."""
    expected = golden(name)
    payload = expected["value"]["payload"]
    [told] = payload["tableChanges"]
    wider = [replace(column, length=200) if column.name == "note" else column for column in ORDERS]
    columns = wider if name.endswith("no-data") else CUSTOMERS
    if told["type"] == "ALTER":
        columns = [*columns, Column("email", "varchar", 5, length=80)]
    placed = tuple(replace(column, ordinal=place) for place, column in enumerate(columns, 1))
    schema = TableSchema(TableId("TestDB", "dbo", payload["source"]["table"]), 1, placed, (placed[0].name,))
    kind: ChangeType = told["type"]
    source = payload["source"]
    entry = HistoryEntry(
        kind,
        schema,
        None,
        "dbo_t",
        Lsn.parse(source["commit_lsn"]),
        at_ms(source["ts_ms"]),
        "INITIAL" if kind == "CREATE" else None,
        last=source["snapshot"] == "last",
    )
    return entry, expected


@pytest.mark.parametrize("name", ["schema-change-create", "schema-change-alter", "schema-change-last-no-data"])
def test_structure(name: str) -> None:
    """The source block of an ALTER names the place from which the structure holds (docs/differences-from-debezium.md)."""
    entry, expected = entry_of(name)
    [found] = sent("shop", build_events([entry], 1, SETTINGS, IDENTITY))
    found["value"]["payload"]["ts_ms"] = 0
    if entry.kind == "ALTER":
        expected["value"]["payload"]["source"] |= {"change_lsn": None, "event_serial_no": None}
    same(found, expected)
