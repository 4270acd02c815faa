"""Snapshots of the real connector and of ours: which rows are read, and what is told about it.

The same server, tables, overrides and statements; each reads on its own. Our blocking snapshot is begun as the loop
begins one, since the signal itself is no part of what is compared.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.core.ports import KeyRange
from cdc_assets.core.schema import TableSchema
from cdc_assets.snapshot.plan import Request
from cdc_assets_tests.conformance.debezium import Debezium, Record, data_records, payload
from cdc_assets_tests.unit.snapshot.world import DATABASE, World
from mssql_standin.control import StandIn

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]

OVERRIDES = "snapshot.select.statement.overrides"
PROPERTIES = {
    "notification.enabled.channels": "sink",
    "notification.sink.topic.name": "notes",
    "signal.data.collection": f"{DATABASE}.dbo.debezium_signal",
    OVERRIDES: "dbo.orders",
    f"{OVERRIDES}.dbo.orders": "SELECT * FROM dbo.orders WHERE id > 2 ORDER BY id DESC",
}
BLOCKING = f"SELECT * FROM {DATABASE}.dbo.orders WHERE id < 3"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with StandIn(databases=(DATABASE,)) as server:
        server.agent.start()
        world = World(server, str(tmp_path / "lake"))
        world.make("empty")
        world.make("lines", 4)
        world.make("orders", 5)
        world.sql("CREATE TABLE dbo.debezium_signal (id varchar(64) PRIMARY KEY, type varchar(32), data varchar(2048))")
        world.enable("debezium_signal")
        world.properties = dict(PROPERTIES)
        yield world


def engine(world: World, work: Path, **more: str) -> Debezium:
    work.mkdir(exist_ok=True)
    server = {
        "database.hostname": world.server.host,
        "database.port": str(world.server.port),
        "database.user": world.server.user,
        "database.password": world.server.password,
        "database.names": DATABASE,
        "topic.prefix": "shop",
    }
    return Debezium(work, **server, **PROPERTIES, **more)


def notes(records: list[Record]) -> list[tuple[str, dict[str, str]]]:
    """Type and data of the notifications about snapshots, in order, each with its id."""
    values = [payload(record["value"]) for record in records if record.get("topic") == "notes"]
    return [
        (value["type"], {"id": value["id"]} | dict(value["additional_data"]))
        for value in values
        if value["aggregate_type"] == "Initial Snapshot"
    ]


def comparable(found: list[tuple[str, dict[str, str]]]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Without ids, and without the order that tables read at once and lists made of sets do not have."""
    return sorted(
        (kind, sorted((name, ",".join(sorted(text.split(",")))) for name, text in data.items() if name != "id"))
        for kind, data in found
    )


def reads(values: list[dict[str, Any]]) -> list[tuple[Any, str]]:
    """Id and marker of READ events, in order."""
    return [(value["after"]["id"], value["source"]["snapshot"]) for value in values if value["op"] == "r"]


def test_initial_and_blocking_snapshot(world: World, tmp_path: Path) -> None:
    done = ("COMPLETED", "ABORTED", "SKIPPED")
    with engine(world, tmp_path / "engine") as debezium:
        debezium.wait(lambda records: any(kind in done for kind, _ in notes(records)))
        first = len(notes(debezium.records()))
        data = {
            "type": "blocking",
            "data-collections": [f"{DATABASE}.dbo.orders"],
            "additional-conditions": [{"data-collection": f"{DATABASE}.dbo.orders", "filter": BLOCKING}],
        }
        world.sql(f"INSERT INTO dbo.debezium_signal VALUES ('s1', 'execute-snapshot', '{json.dumps(data)}')")
        theirs = debezium.wait(lambda records: any(kind in done for kind, _ in notes(records)[first:]))

    empty, lines, orders = world.tables
    world.snapshot()
    assert comparable(world.notes()) == comparable(notes(theirs)[:first])
    world.block("s1", Request(orders, select=BLOCKING))
    assert comparable(world.notes()) == comparable(notes(theirs))
    assert {data["id"] for _, data in world.notes()[first:]} == {"s1"}

    for table in (lines, orders):
        expected = reads([payload(record["value"]) for record in data_records(theirs, table.table)])
        found = reads(world.events(table))
        if table == lines:  # the first row of all: Debezium marks it only if it is of the first table, rows or not
            assert (found[0], expected[0]) == ((1, "first"), (1, "first_in_data_collection"))
            found, expected = found[1:], expected[1:]
        assert found == expected
    assert not data_records(theirs, "empty")
    assert not [value for value in world.events(empty) if value["op"] == "r"]


def test_what_is_reported_about_chunks(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table in two parts: ours are never so small, so the plan is told to make them."""
    with engine(world, tmp_path / "engine", **{"snapshot.max.threads": "2"}) as debezium:
        debezium.wait(lambda records: any(kind == "COMPLETED" for kind, _ in notes(records)))
        theirs = notes(debezium.records())

    def cut(_: object, schema: TableSchema, *_rows_and_parts: object) -> list[KeyRange]:
        halves = [KeyRange("id", None, "3"), KeyRange("id", "3", None)]
        return halves if schema.table.table == "lines" else [KeyRange(None, None, None)]

    monkeypatch.setattr("cdc_assets.adapters.sqlserver.source.key_ranges", cut)
    monkeypatch.setattr("cdc_assets.snapshot.plan.MIN_SLICE", 1)
    world.snapshot()

    def of_chunks(found: list[tuple[str, dict[str, str]]]) -> list[tuple[str, list[tuple[str, str]]]]:
        """What the connector's two threads tell alike in each run: how far one is when the other begins is chance."""
        lines = [(kind, dict(data)) for kind, data in found if "CHUNK" in kind and "lines" in str(data)]
        for kind, data in lines:
            if kind == "TABLE_CHUNK_IN_PROGRESS":
                assert data.pop("total_rows_scanned") in ("0", "2", "3")
        return [entry for entry in comparable(lines) if ("total_chunks", "2") in entry[1]]

    assert len(of_chunks(theirs)) == 4
    assert of_chunks(world.notes()) == of_chunks(theirs)
