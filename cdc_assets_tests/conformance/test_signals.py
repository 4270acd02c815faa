"""What is told of incremental snapshots that rows of the signal table start, pause, resume and stop: ours as the connector's."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cdc_assets_tests.conformance.compare import Record, reads
from cdc_assets_tests.conformance.debezium import payload
from cdc_assets_tests.conformance.shop import ROWS, Shop
from cdc_assets_tests.conformance.side_by_side import side_by_side
from mssql_standin.control import StandIn

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]

ORDERS, LINES = "TestDB.dbo.orders", "TestDB.dbo.lines"


def only(filter_text: str) -> dict[str, Any]:
    """A signal's data: orders, with a condition."""
    return {"data-collections": [ORDERS], "additional-conditions": [{"data-collection": ORDERS, "filter": filter_text}]}


def inserted(*signals: tuple[str, str, dict[str, Any]]) -> str:
    """Rows of the signal table in one transaction, so that nothing is read between them."""
    rows = ", ".join(f"('{own_id}', '{kind}', '{json.dumps(data)}')" for own_id, kind, data in signals)
    return f"INSERT INTO dbo.cdc_signal VALUES {rows}"


BOTH = {"data-collections": [ORDERS, "TestDB[.]dbo[.]lines"]}
STEPS: list[tuple[str, str]] = [
    (inserted(("all", "execute-snapshot", BOTH)), "all COMPLETED"),
    (inserted(("unknown", "execute-snapshot", {"data-collections": ["TestDB.dbo.nothing"]})), "unknown COMPLETED"),
    (inserted(("empty", "execute-snapshot", only("id > 100000"))), "empty COMPLETED"),
    (inserted(("broken", "execute-snapshot", only("nowhere > 1"))), "broken COMPLETED"),
    (
        inserted(("again", "execute-snapshot", BOTH), ("pause", "pause-snapshot", {"type": "incremental"})),
        "again PAUSED",
    ),
    (inserted(("one", "stop-snapshot", {"type": "incremental", "data-collections": [LINES]})), ""),
    (inserted(("resume", "resume-snapshot", {"type": "incremental"})), "again COMPLETED"),
]
"""Statement, and what the connector tells last of it; of a stop while it is paused, nothing before it goes on."""


def notices(records: list[Record]) -> list[tuple[str, dict[str, str]]]:
    """Signal and type, and what goes with it, without how far each round went."""
    values = [payload(record["value"]) for record in records if record["topic"] == "notes"]
    return [
        (f"{value['id']} {value['type']}", dict(value["additional_data"]))
        for value in values
        if value["aggregate_type"] == "Incremental Snapshot" and value["type"] != "IN_PROGRESS"
    ]


def ends(wanted: str) -> Callable[[list[Record]], bool]:
    """Whether something was told."""
    return lambda records: any(what == wanted for what, _ in notices(records))


def seen(signal: str) -> Callable[[list[Record]], bool]:
    """Whether a signal's row was streamed."""

    def look(records: list[Record]) -> bool:
        rows = [payload(record["value"]) for record in records if record["topic"].endswith(".cdc_signal")]
        return any(row["after"]["id"] == signal for row in rows)

    return look


def progress(records: list[Record]) -> set[tuple[tuple[str, str], ...]]:
    """The last round of each table and signal, where all rows are through."""
    values = [payload(record["value"]) for record in records if record["topic"] == "notes"]
    rounds = [dict(value["additional_data"]) for value in values if value["type"] == "IN_PROGRESS"]
    return {
        tuple(sorted(data.items())) for data in rounds if data.get("last_processed_key") == data.get("maximum_key", "")
    }


PROPERTIES = {
    "table.include.list": "dbo\\.(orders|lines|cdc_signal)",
    "signal.data.collection": "TestDB.dbo.cdc_signal",
    "notification.enabled.channels": "sink",
    "notification.sink.topic.name": "notes",
    "incremental.snapshot.chunk.size": "25",
}


def test_notifications_of_incremental_snapshots_are_equal(server: StandIn, tmp_path: Path) -> None:
    shop = Shop(server)
    with side_by_side(server, tmp_path, **PROPERTIES) as (debezium, ours):
        debezium.wait(lambda records: len(reads(records)) == 2 * ROWS)
        for statement, last in STEPS:
            shop.run(statement)
            debezium.wait(ends(last) if last else seen("one"))
            ours.catch_up(failing="SQL_EXCEPTION" if last.startswith("broken") else "")
        theirs = debezium.records()
    own = ours.records()
    mine = ordered(notices(own))
    told = [(what, data.pop("reason", "")) for what, data in mine]
    assert mine == [honest(entry) for entry in ordered(notices(theirs))]
    assert [what for what, reason in told if reason] == [
        "broken TABLE_SCAN_COMPLETED"
    ]  # the connector does not say why
    assert progress(own) >= progress(theirs)


def ordered(found: list[tuple[str, dict[str, str]]]) -> list[tuple[str, dict[str, str]]]:
    """Without RESUMED: the connector stops a table that is to be stopped only when it has been resumed."""
    return [entry for entry in found if not entry[0].endswith("RESUMED")]


def honest(entry: tuple[str, dict[str, str]]) -> tuple[str, dict[str, str]]:
    """What we tell in place of the connector's COMPLETED where a table could not be read."""
    what, data = entry
    lost = {"unknown COMPLETED": "TestDB.dbo.nothing", "broken COMPLETED": ORDERS}.get(what)
    return entry if lost is None else (what.replace("COMPLETED", "ABORTED"), data | {"data_collections": lost})


def test_structure_that_a_signal_gives_is_taken_over_alike(server: StandIn, tmp_path: Path) -> None:
    shop = Shop(server)
    with side_by_side(server, tmp_path, **PROPERTIES) as (debezium, ours):
        records = debezium.wait(lambda records: len(reads(records)) == 2 * ROWS)
        (created,) = [change for change in changes(records) if change["id"].endswith('"lines"')]
        columns = [described(column) for column in created["table"]["columns"]]
        change = created | {"type": "ALTER", "table": {"primaryKeyColumnNames": ["no"], "columns": columns}}
        shop.run(inserted(("s1", "schema-changes", {"database": "TestDB", "schema": "dbo", "changes": [change]})))
        debezium.wait(seen("s1"))
        ours.catch_up()
        shop.run("UPDATE dbo.lines SET version = 9 WHERE no = 5")
        theirs = debezium.wait(lambda records: len(streamed_lines(records)) == 1)
        ours.catch_up()
    own = ours.records(as_written=True)
    key = json.dumps
    assert sorted(map(key, changes(own))) == sorted(map(key, changes(theirs)))
    assert streamed_lines(own) == streamed_lines(theirs) == [({"no": 5}, 9)]


def described(column: dict[str, Any]) -> dict[str, Any]:
    """A column of a public event as a signal gives it: without what is null, which the row of the table is short of."""
    return {name: value for name, value in column.items() if value is not None} | {"enumValues": []}


def changes(records: list[Record]) -> list[dict[str, Any]]:
    """What the public schema change events say."""
    return [
        change for record in records if record["topic"] == "shop" for change in payload(record["value"])["tableChanges"]
    ]


def streamed_lines(records: list[Record]) -> list[tuple[Any, int]]:
    """Keys and versions of lines' streamed events."""
    own = [record for record in records if record["topic"].endswith(".lines") and record["value"]]
    return [
        (payload(record["key"]), payload(record["value"])["after"]["version"])
        for record in own
        if payload(record["value"])["op"] != "r"
    ]
