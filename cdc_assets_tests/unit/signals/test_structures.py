"""Signals `schema-changes`: taken into the history and told, once each, unless rows could not arrive so."""

import json
import logging
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.schema import Column, TableSchema
from cdc_assets.core.steps import listening
from cdc_assets.errors import InvalidValueError
from cdc_assets.history.records import HistoryEntry, table_change
from cdc_assets.history.signalled_schema import given_entry, table_of
from cdc_assets_tests.crashes import PowerCutError
from cdc_assets_tests.unit.signals.world import World
from cdc_assets_tests.unit.streaming.child import DATABASE
from cdc_assets_tests.unit.streaming.lake_reader import rows_of_topic
from mssql_standin.control import StandIn

ORDERS = TableId(DATABASE, "dbo", "orders")
COLUMNS = (
    Column("id", "int", 1, nullable=False, identity=True),
    Column("note", "varchar", 2, length=20),
    Column("price", "decimal", 3, precision=9, scale=2),
    Column("secret", "int", 4),
)
NOW = datetime(2026, 10, 1, tzinfo=UTC)
KNOWN = HistoryEntry(
    "CREATE", TableSchema(ORDERS, 7, COLUMNS, ("id",)), ("id", "note", "price"), "dbo_orders", Lsn(bytes(10)), NOW
)


def changed(edit: dict[str, Any] | None = None, **table: Any) -> dict[str, Any]:
    """The recorded structure as a change, with what `note` and the table say edited."""
    change = table_change(replace(KNOWN, kind="ALTER"))
    change["table"]["columns"][1] |= edit or {}
    return change | {"table": change["table"] | table}


def test_what_the_server_does_not_dictate_is_taken_over() -> None:
    lsn = Lsn(bytes(9) + b"\x07")
    change = changed({"defaultValueExpression": "('new')"}, primaryKeyColumnNames=["id", "price"])
    entry = given_entry(change, KNOWN, lsn, NOW)
    assert (entry.kind, entry.lsn, entry.instance, entry.captured) == ("ALTER", lsn, "dbo_orders", KNOWN.captured)
    assert entry.schema.key == ("id", "price")
    assert entry.schema.column("note") == replace(COLUMNS[1], default="('new')")
    assert entry.schema.column("secret") == COLUMNS[3]
    assert given_entry(changed(), KNOWN, lsn, NOW).same_structure(KNOWN)


def test_a_column_becomes_nullable_and_never_required() -> None:
    change = changed({"optional": False})
    change["table"]["columns"][0]["optional"] = True
    entry = given_entry(change, KNOWN, KNOWN.lsn, NOW)
    assert [column.nullable for column in entry.schema.columns] == [True, True, True, True]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (changed({"typeName": "nvarchar"}), "type of note"),
        (changed({"length": 30}), "type of note"),
        (changed({"name": "other"}), "captured columns"),
        (changed(columns=[]), "captured columns"),
        (changed(columns=None), "columns and primaryKeyColumnNames"),
        (changed(primaryKeyColumnNames=["nothing"]), "primaryKeyColumnNames"),
        (changed(primaryKeyColumnNames=["id", "id"]), "each column once"),
        (changed() | {"type": "DROP"}, "CREATE or ALTER"),
        (changed() | {"table": None}, "columns and primaryKeyColumnNames"),
    ],
)
def test_what_rows_could_not_arrive_in_is_refused(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidValueError, match=reason):
        given_entry(change, KNOWN, KNOWN.lsn, NOW)


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ('"a"."b"."c"', TableId("a", "b", "c")),
        ('"a.b"."c""d"."e"', TableId("a.b", 'c"d', "e")),
        ("[a].[b]].c].[d]", TableId("a", "b].c", "d")),
        ("a.b.c", TableId("a", "b", "c")),
    ],
)
def test_names(text: str, table: TableId) -> None:
    assert table_of({"id": text}) == table


def told(world: World) -> list[dict[str, Any]]:
    """Public schema change events of orders."""
    rows: list[dict[str, Any]] = sorted(rows_of_topic(world.config, "shop"), key=lambda row: str(row["position"]))
    return [row["value"] for row in rows if row["value"]["source"]["table"] == "orders"]


@pytest.mark.parametrize("cut", ["", "window-planned", "history-recorded", "history-written", "window-complete"])
def test_a_structure_is_reported_once_whatever_dies(
    server: StandIn, tmp_path: Path, cut: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(server, str(tmp_path))
    table = world.make("orders", "id int PRIMARY KEY, version int NOT NULL")
    world.run("snapshot")
    world.sql("INSERT INTO dbo.orders VALUES (1, 1)")
    server.agent.drain()
    world.run()
    [created] = told(world)
    change = json.loads(json.dumps(created["tableChanges"][0])) | {"type": "ALTER"}
    change["table"]["primaryKeyColumnNames"] = ["version"]
    wrong = {"type": "ALTER", "id": '"SalesDb"."dbo"."nothing"', "table": change["table"]}
    world.signal("s1", "schema-changes", database=DATABASE, schema="dbo", changes=[change, wrong])
    seen: list[str] = []

    def die(name: str) -> None:
        if name == "signals-recorded":
            seen.append(name)
        if seen and name == cut and len(seen) < 9:
            seen.extend("x" * 9)
            raise PowerCutError(name)

    with caplog.at_level(logging.WARNING), listening(die):
        try:
            world.run()
        except PowerCutError:
            server.agent.drain()
    world.run()
    world.sql("INSERT INTO dbo.orders VALUES (2, 7)")
    server.agent.drain()
    world.run()
    assert [event["tableChanges"][0]["type"] for event in told(world)] == ["CREATE", "ALTER"]
    assert [event["key"] for event in world.events(table)][-1] == {"version": 7}
    assert "nothing" in caplog.text
    assert not world.state().signals[DATABASE].unfinished


@pytest.mark.long
def test_a_structure_is_recorded_after_the_end_of_another_databases_tables(server: StandIn, tmp_path: Path) -> None:
    server.execute("CREATE DATABASE Other")
    server.execute("EXEC sys.sp_cdc_enable_db", database="Other")
    world = World(server, str(tmp_path))
    both = replace(world.config.connection, databases=(DATABASE, "Other"))
    world.config = replace(world.config, connection=both)
    world.make("orders", "id int PRIMARY KEY, version int NOT NULL")
    world.make("others", "id int PRIMARY KEY", "Other")
    world.run("snapshot")
    world.sql("INSERT INTO dbo.orders VALUES (1, 1)")
    world.sql("INSERT INTO dbo.others VALUES (1)", "Other")
    server.agent.drain()
    world.run()
    change = json.loads(json.dumps(told(world)[0]["tableChanges"][0])) | {"type": "ALTER"}
    change["table"]["primaryKeyColumnNames"] = ["version"]
    world.signal("s1", "schema-changes", database=DATABASE, schema="dbo", changes=[change])
    recorded: list[str] = []

    def die(name: str) -> None:
        recorded.extend([name] if name == "signals-recorded" else [])
        if len(recorded) == 2:  # the request, and the number under which it is tried
            raise PowerCutError(name)

    with listening(die), pytest.raises(PowerCutError):
        world.run()
    world.sql("EXEC sys.sp_cdc_disable_db", "Other")
    world.run()
    assert [event["tableChanges"][0]["type"] for event in told(world)] == ["CREATE", "ALTER"]
    assert not world.state().signals[DATABASE].unfinished
    assert world.state().tables[TableId("Other", "dbo", "others")].status == "failed"
