"""Events of `event.version=2.3` are those of the connector's published pages, by their own examples.

The examples leave things out and are not always what a connector of that release sends. Each such place is named here,
and everything else must be equal, order included.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from cdc_assets.config.settings import EventSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.schema import Column, TableSchema
from cdc_assets.envelope.amend import with_transactions
from cdc_assets.envelope.changes import ChangeContext, build_changes
from cdc_assets.envelope.json import to_json
from cdc_assets.envelope.plan import EventPlan, plan_events
from cdc_assets.envelope.reads import ReadContext, build_reads
from cdc_assets.history.events import build_events
from cdc_assets.history.records import HistoryEntry
from cdc_assets.system_topics.transactions import Stream, number
from cdc_assets_tests.unit.envelope.building import IDENTITY, change, change_batch, table_batch

EXAMPLES: dict[str, Any] = json.loads((Path(__file__).parents[2] / "golden" / "documents-2.3.json").read_text())
SETTINGS = EventSettings("server1", event_version="2.3")
NAMES = ("first_name", "last_name", "email")
CUSTOMERS = (
    Column("id", "int", 1, nullable=False, identity=True),
    *(Column(name, "varchar", place, nullable=False, length=255) for place, name in enumerate(NAMES, 2)),
)
WRITTEN_AS_TEXT = ("ts_ms", "event_serial_no", "total_order", "data_collection_order")


def table_of(name: str, columns: tuple[Column, ...]) -> TableSchema:
    return TableSchema(TableId("testDB", "dbo", name), 1, columns, (columns[0].name,))


def plan_of(name: str, *columns: Column) -> EventPlan:
    return plan_events(table_of(name, columns), None, SETTINGS, connector=IDENTITY)


def sent(plan: EventPlan, batch: pa.RecordBatch) -> list[tuple[Any, Any]]:
    """Keys and values with their schemas."""
    keys, values, headers = (array.to_pylist() for array in to_json(batch.schema, batch, schemas=True))
    assert set(headers) == {"{}"}
    return [(json.loads(key), value and json.loads(value)) for key, value in zip(keys, values, strict=True)]


def as_sent(example: dict[str, Any]) -> dict[str, Any]:
    """The payload of an example with what it leaves out or writes in another way."""
    found = {name: int(value) if name in WRITTEN_AS_TEXT and value else value for name, value in example.items()}
    for name in ("source", "transaction"):
        if found.get(name):
            found[name] = as_sent(found[name])
    if "op" in found:
        found.setdefault("transaction", None)
    if "snapshot" in found:
        found["snapshot"] = str(found["snapshot"]).lower()
    if "db" in found:
        place = list(found).index("db") + 1
        found = dict([*list(found.items())[:place], ("sequence", None), *list(found.items())[place:]])
    return found


def as_told(schema: Any) -> Any:
    """A schema of ours with what the examples leave out or write in another way."""
    if not isinstance(schema, dict):
        return schema
    if schema.get("field") == "snapshot":
        return {"type": "boolean", "optional": True, "default": False, "field": "snapshot"}
    told = {name: value for name, value in schema.items() if name != "version"}
    if "fields" in told:
        told["fields"] = [as_told(part) for part in told["fields"] if part["field"] not in ("sequence", "transaction")]
    if "name" in told:
        told["name"] = told["name"].replace("server1.testDB.dbo.", "server1.dbo.testDB.")  # as the pages have it
    return told


def same(actual: Any, expected: Any) -> None:
    """Equal in value and in the order of all fields."""
    assert actual == expected
    assert json.dumps(actual) == json.dumps(expected)


def changed(name: str) -> list[tuple[Any, Any]]:
    """The events of the change that an example shows."""
    example = EXAMPLES[name]["payload"]
    source, plan = example["source"], plan_of("customers", *CUSTOMERS)
    at = datetime.fromtimestamp(source["ts_ms"] / 1000, UTC).replace(tzinfo=None).isoformat()
    images = {"create": {2: "after"}, "update": {3: "before", 4: "after"}, "delete": {1: "before"}}[name]
    rows = [
        (change(source["commit_lsn"], source["change_lsn"], code, mask=b"\x08", at=at), [*example[image].values()])
        for code, image in images.items()
    ]
    context = ChangeContext(1, 0, lambda: example["ts_ms"] * 1_000_000)
    (batch,) = build_changes(plan, iter([change_batch(plan, rows)]), context)
    return sent(plan, batch)


def test_create() -> None:
    [(key, value)] = changed("create")
    same(value["payload"], as_sent(EXAMPLES["create"]["payload"]))
    same(as_told(value["schema"]), EXAMPLES["create"]["schema"])
    same(key["payload"], {"id": 1005})
    own = as_told(key["schema"])
    same(own | {"name": key["schema"]["name"]}, EXAMPLES["key"]["schema"])


def test_update() -> None:
    [(_, value)] = changed("update")
    same(value["payload"], as_sent(EXAMPLES["update"]["payload"]))


def test_delete_and_tombstone() -> None:
    [(key, value), tombstone] = changed("delete")
    same(value["payload"], as_sent(EXAMPLES["delete"]["payload"]))
    assert tombstone == (key, None)


def test_row_of_an_incremental_snapshot() -> None:
    """The same example is in the Chinese and in the Japanese page; it shows one field of the source block."""
    example = as_sent(EXAMPLES["incremental"])
    plan = plan_of("t", Column("pk", "varchar", 1, nullable=False, length=9), Column("value", "varchar", 2, length=9))
    context = ReadContext(
        1,
        Lsn.parse("00000025:00000d98:00a2"),
        datetime(2021, 5, 7, tzinfo=UTC),
        snapshot="incremental",
        processed=lambda: example["ts_ms"] * 1_000_000,
    )
    (batch,) = build_reads(plan, iter([table_batch(plan, [[*example["after"].values()]])]), context)
    [(_, value)] = sent(plan, batch)
    source = value["payload"]["source"]
    assert (source["snapshot"], source["version"]) == ("incremental", "2.3.4.Final")
    same(value["payload"] | {"source": example["source"]}, example)


def rows_of(table: str, transaction: str) -> tuple[EventPlan, pa.RecordBatch]:
    plan = plan_of(table, Column("pk", "varchar", 1, nullable=False, length=9), Column("aa", "varchar", 2, length=9))
    change_lsn = f"{transaction[:-4]}0001"
    context = ChangeContext(1, 0, lambda: 1_580_390_884_335_000_000)
    rows = change_batch(plan, [(change(transaction, change_lsn, 2), ["2", "1"])])
    (batch,) = build_changes(plan, iter([rows]), context)
    return plan, batch


def test_place_in_a_transaction() -> None:
    example = as_sent(EXAMPLES["in-transaction"])
    plan, batch = rows_of("tablea", example["transaction"]["id"])
    [(_, value)] = sent(plan, with_transactions(batch, pa.array([1]), pa.array([1])))
    same(value["payload"] | {"source": example["source"]}, example)


def test_begin_and_end_of_a_transaction() -> None:
    """The pages give BEGIN and END times of their own and repeat the database's name; both have the commit's here."""

    def stream(table: str) -> Stream:
        batches: Iterator[pa.RecordBatch] = iter([rows_of(table, EXAMPLES["begin"]["id"])[1]])
        return Stream(f"testDB.dbo.{table}", batches, lambda _: None, lambda _: None)

    rows = [
        row
        for batch in number([stream("tablea"), stream("tableb")], ZERO_LSN, 1, database="testDB")
        for row in batch.to_pylist()
    ]
    for row, name in zip(rows, ("begin", "end"), strict=True):
        wanted = json.loads(json.dumps(EXAMPLES[name]).replace("testDB.dbo.testDB.", "testDB.dbo."))
        assert row["value"] | {"ts_ms": wanted["ts_ms"]} == wanted


def test_change_of_a_structure() -> None:
    """The pages tell no times, an identity column that does not count itself up, and an attribute nobody gave."""
    example = EXAMPLES["schema-change"]["payload"]
    at = datetime.fromtimestamp(example["ts_ms"] / 1000, UTC)
    lsn = Lsn.parse(example["source"]["commit_lsn"])
    entry = HistoryEntry("CREATE", table_of("customers", CUSTOMERS), None, "dbo_customers", lsn, at, "INITIAL")
    table = build_events([entry], 1, SETTINGS, IDENTITY)
    (batch,) = table.combine_chunks().to_batches()
    [(key, value)] = sent(plan_of("customers", *CUSTOMERS), batch)
    same(key["payload"], EXAMPLES["schema-change-key"]["payload"])
    same(as_told(key["schema"]), EXAMPLES["schema-change-key"]["schema"])
    payload = value["payload"]
    same(payload["source"] | {"ts_ms": 0}, as_sent(example["source"]))
    [change_of_ours], [wanted] = payload.pop("tableChanges"), example["tableChanges"]
    same({**payload, "source": None}, {**{k: v for k, v in example.items() if k != "tableChanges"}, "source": None})
    assert wanted["table"].pop("attributes") == [{"customAttribute": "attributeValue"}]
    own = change_of_ours["table"]
    assert own.pop("comment") is None
    for column in own["columns"]:
        assert [column.pop(name) for name in ("comment", "defaultValueExpression", "enumValues")] == [None] * 3
    assert own["columns"][0]["autoIncremented"] is True
    own["columns"][0]["autoIncremented"] = False
    same(change_of_ours, wanted)
