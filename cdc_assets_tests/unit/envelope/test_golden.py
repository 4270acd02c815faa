"""Events equal to those of the real Debezium, field by field, schemas and order included (see `golden/README.md`)."""

import json
import os
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_assets.config.settings import EventSettings, KafkaSettings
from cdc_assets.config.settings.kafka import JSON, ConverterSettings
from cdc_assets.core.lsn import Lsn
from cdc_assets.envelope.amend import with_transactions
from cdc_assets.envelope.avro import event_avro
from cdc_assets.envelope.avro_schema import avro_schema
from cdc_assets.envelope.json import to_json
from cdc_assets.envelope.plan import EventPlan
from cdc_assets.envelope.reads import ReadContext, build_reads
from cdc_assets.publish.render import Renderer
from cdc_assets_tests.unit.envelope.building import (
    change,
    change_batch,
    changed,
    column,
    moment,
    plan_of,
    table_batch,
    zero,
)
from cdc_assets_tests.unit.envelope.examples import CUSTOMERS, GOLDEN, ORDERS, golden, same

AVRO = json.loads((GOLDEN / "avro.json").read_text())

NOKEY = [column("a", "int"), column("b", "varchar", length=10)]
SIGNAL = [
    column("id", "varchar", nullable=False, length=42),
    column("type", "varchar", nullable=False, length=32),
    column("data", "varchar", length=2048),
]
TYPES = [
    column("id", "int", nullable=False),
    column("c_bit", "bit", default="((1))"),
    column("c_ti", "tinyint"),
    column("c_si", "smallint"),
    column("c_bi", "bigint", nullable=False, default="((42))"),
    column("c_real", "float", precision=53),
    column("c_fl", "float", precision=53),
    column("c_dec", "decimal", precision=18, scale=4, default="((1.5))"),
    column("c_bigdec", "decimal", precision=38, scale=10),
    column("c_money", "money"),
    column("c_smoney", "smallmoney"),
    column("c_date", "date"),
    column("c_t2", "time", scale=2),
    column("c_t4", "time", scale=4),
    column("c_t7", "time", scale=7),
    column("c_dt", "datetime", default="(getdate())"),
    column("c_sdt", "smalldatetime"),
    column("c_d23", "datetime2", scale=3),
    column("c_d26", "datetime2", scale=6),
    column("c_d27", "datetime2", scale=7),
    column("c_dto", "datetimeoffset", scale=7),
    column("c_ch", "char", length=5),
    column("c_vc", "varchar", length=20, default="('new')"),
    column("c_nch", "nchar", length=5),
    column("c_nvc", "nvarchar", length=20, nullable=False, default="(N'n/a')"),
    column("c_vmax", "varchar", length=-1),
    column("c_nmax", "nvarchar", length=-1),
    column("c_bin", "binary", length=4),
    column("c_vb", "varbinary", length=10),
    column("c_vbm", "varbinary", length=-1),
    column("c_xml", "xml"),
    column("c_u", "uniqueidentifier"),
    column("c_last", "int"),
]
TYPES_ROW: list[Any] = [
    1, True, 200, -5, 9007199254740993, 1.5, 2.25, Decimal("123.45"), Decimal("-1.5"), Decimal("5.323"),
    Decimal("5.323"), date(2018, 7, 13), "10:23:45.68", "10:23:45.6789", "10:23:45.6789012", "2018-07-13T13:23:45.780",
    "2018-07-13T14:24:00", "2018-07-13T11:23:45.340", "2018-07-13T11:23:45.340001", "2018-07-13T11:23:45.34",
    "2018-07-13T12:23:45.456+11:00", "ab", "vc", "nc", "nvc", "vmax", "nmax", b"\1\2\3\4", b"\1\2\3", b"\1\2\3\4\5",
    "<a/>", "0E984725-C51C-4BF4-9960-E1C80E27ABA0", 7,
]  # fmt: skip
DEFAULTS = [
    column("id", "int", nullable=False),
    column("r", "real"),
    column("vc", "varchar", length=10, default="('new')"),
    column("d", "datetime", default="('2020-01-02 03:04:05')"),
    column("d2", "datetime2", scale=7, nullable=False, default="('2020-01-02')"),
    column("dd", "date", default="('2020-01-02')"),
    column("u", "uniqueidentifier", default="('0E984725-C51C-4BF4-9960-E1C80E27ABA0')"),
    column("n", "int", default="(NULL)"),
    column("dec", "decimal", precision=9, scale=3, default="((-2.5))"),
    column("m", "money", default="((3))"),
    column("bin", "varbinary", length=4, default="(0x0102)"),
]


def compact(part: Any) -> bytes:
    """As Kafka Connect's JSON converter writes it."""
    return json.dumps(part, ensure_ascii=False, separators=(",", ":")).encode()


def documents(plan: EventPlan, events: pa.RecordBatch | pa.Table, *, schemas: bool = True) -> list[dict[str, Any]]:
    """Each event as a golden file holds it."""
    batch = events if isinstance(events, pa.RecordBatch) else events.combine_chunks().to_batches()[0]
    texts = to_json(batch.schema, batch, schemas=schemas)
    rows = list(zip(*(array.to_pylist() for array in texts), strict=True))
    if schemas:
        same_as_avro_converter(batch, texts)
    side = ConverterSettings(schema=schemas)
    form = KafkaSettings(key=side, value=side, headers=JSON, header_schema=schemas)
    records = [record for one in Renderer(form).slices("t", batch) for record in one]
    for record, (key, value, headers) in zip(records, rows, strict=True):
        assert [record.key, record.value] == [text and compact(json.loads(text)) for text in (key, value)]
        assert list(record.headers) == [(name, compact(part)) for name, part in json.loads(headers).items()]
    return [
        {
            "topic": plan.topic,
            "headers": json.loads(headers),
            "key": key and json.loads(key),
            "value": value and json.loads(value),
        }
        for key, value, headers in rows
    ]


def same_as_avro_converter(batch: pa.RecordBatch, texts: Sequence[pa.Array]) -> None:
    """The schema and the bytes are those that Connect's Avro converter makes of the same event (`golden/avro.json`)."""
    for name, shown in zip(("key", "value"), texts, strict=False):
        field = batch.schema.field(name)
        found = event_avro(field, batch.column(name), b"", defaults=True)
        for text, data in zip(shown.to_pylist(), found.to_pylist(), strict=True):
            if text is None:
                assert data is None
                continue
            if note := os.environ.get("CDC_NOTE_EVENTS"):
                with Path(note).open("a") as file:
                    file.write(text + "\n")
                continue
            number, expected = AVRO["events"][sha256(text.encode()).hexdigest()]
            assert avro_schema(field) == AVRO["schemas"][number]
            assert data.hex() == expected


def same_read(plan: EventPlan, name: str, row: list[Any]) -> None:
    """A row gives the event that golden file `name` shows, but for what docs/differences-from-debezium.md says of READs."""
    expected = golden(name)
    source = expected["value"]["payload"]["source"]
    source |= {"change_lsn": None, "event_serial_no": None, "ts_ns": source["ts_us"] * 1000}
    context = ReadContext(
        1, Lsn.parse(source["commit_lsn"]), moment(source["ts_us"]), snapshot=source["snapshot"], processed=zero
    )
    (batch,) = build_reads(plan, iter([table_batch(plan, [row])]), context)
    same(documents(plan, batch)[0], expected)


def events(plan: EventPlan, *rows: tuple[tuple[Any, ...], list[Any]], schemas: bool = True) -> list[dict[str, Any]]:
    """Events of change rows."""
    return documents(plan, changed(plan, change_batch(plan, rows)), schemas=schemas)


ANN = "2024-01-02T03:04:05.1234567"


def test_snapshot_row_of_all_types() -> None:
    plan = plan_of("types", TYPES)
    same_read(plan, "types-read", TYPES_ROW)
    assert [text for text in plan.warnings if "c_dt" in text and "(getdate())" in text]


def test_defaults_stand_in_the_schema_and_replace_null() -> None:
    row = [1, 1.5, None, "2020-01-02T03:04:05", "2020-01-02T00:00:00", date(2020, 1, 2), *DEFAULT_TAIL]
    same_read(plan_of("t2", DEFAULTS), "defaults-read", row)


DEFAULT_TAIL = ["0E984725-C51C-4BF4-9960-E1C80E27ABA0", None, Decimal("-2.5"), Decimal(3), b"\1\2"]


@pytest.mark.parametrize("name", ["read-first", "read-last"])
def test_snapshot_rows(name: str) -> None:
    if name == "read-first":
        plan, row = plan_of("customers", CUSTOMERS), [1, "ann", ANN, Decimal("12.50")]
    else:
        plan, row = plan_of("orders", ORDERS, ["oid"]), [1, 1, "first", 3]
    same_read(plan, name, row)


def test_row_of_a_blocking_snapshot() -> None:
    same_read(plan_of("orders", ORDERS, ["oid"]), "blocking-read", [1, 1, "first", 3])


def test_row_of_an_incremental_snapshot() -> None:
    same_read(plan_of("customers", CUSTOMERS), "incremental-read", [1, "ann", ANN, Decimal("12.50")])


def test_create() -> None:
    row = [3, "cara", "2025-05-06T07:08:09.1234567", Decimal("99.95")]
    at = change("0000002a:00000028:0001", "0000002a:00000028:0003", 2, at="2026-11-21T09:07:20.563")
    same(events(plan_of("customers", CUSTOMERS), (at, row)), [golden("create")])


def test_update() -> None:
    place = ("0000002a:00000030:0001", "0000002a:00000030:0003")
    rows = [
        (change(*place, 3, mask=b"\x08", at="2026-11-21T09:07:20.966"), [1, "ann", ANN, Decimal("12.50")]),
        (change(*place, 4, mask=b"\x08", at="2026-11-21T09:07:20.966"), [1, "ann", ANN, Decimal("13.75")]),
    ]
    same(events(plan_of("customers", CUSTOMERS), *rows), [golden("update")])


def test_delete_and_tombstone() -> None:
    at = change("0000002a:00000038:0001", "0000002a:00000038:0003", 1, at="2026-11-21T09:07:21.366")
    row = (at, [2, "bob", None, None])
    same(events(plan_of("customers", CUSTOMERS), row), [golden("delete"), golden("tombstone")])


def test_delete_of_a_table_without_key() -> None:
    at = change("0000002a:00000078:0001", "0000002a:00000078:0003", 1, at="2026-11-21T09:15:57.923")
    built = events(plan_of("nokey", NOKEY, ()), (at, [2, "z"]))
    same(built, [golden("keyless-delete"), golden("keyless-tombstone")])


def test_change_of_the_primary_key() -> None:
    place, at = ("0000002a:00000040:0001", "0000002a:00000040:0003"), "2026-11-21T09:07:21.773"
    rows = [(change(*place, 1, at=at), [1, 1, "first", 3]), (change(*place, 2, at=at), [100, 1, "first", 3])]
    built = events(plan_of("orders", ORDERS, ["oid"]), *rows, schemas=False)
    same([{"key": event["key"], "value": event["value"]} for event in built], golden("primary-key-change-payloads"))


def test_change_of_the_message_key() -> None:
    settings = EventSettings("shop", message_key_columns=("dbo.orders:customer",))
    plan = plan_of("orders", ORDERS, ["oid"], settings)
    place, at = ("0000002a:00000050:0001", "0000002a:00000050:0003"), "2026-11-21T09:20:03.413"
    rows = [
        (change(*place, 3, mask=b"\2", at=at), [1, 1, "first", 3]),
        (change(*place, 4, mask=b"\2", at=at), [1, 77, "first", 3]),
    ]
    deleted, tombstone, created = events(plan, *rows)
    same([deleted, created], [golden("message-key-delete"), golden("message-key-create")])
    same(tombstone, {**golden("message-key-delete"), "value": None})


@pytest.mark.parametrize("name", ["create-in-transaction", "signal-window-open", "signal-window-close"])
def test_transaction_block(name: str) -> None:
    expected = golden(name)
    plan = plan_of("orders", ORDERS, ["oid"]) if name == "create-in-transaction" else plan_of("dbz_signal", SIGNAL)
    payload = expected["value"]["payload"]
    source, row = payload["source"], list(payload["after"].values())
    at = moment(source["ts_us"]).replace(tzinfo=None).isoformat()
    table = changed(plan, change_batch(plan, [(change(source["commit_lsn"], source["change_lsn"], 2, at=at), row)]))
    (batch,) = table.combine_chunks().to_batches()
    same(documents(plan, with_transactions(batch, pa.array([1]), pa.array([1]))), [expected])


def test_values_that_the_log_leaves_out() -> None:
    """Debezium 3.6.3 marks xml alone; we mark every value that the log does not hold (see `envelope/rows.py`)."""
    large = {"c_vmax": None, "c_nmax": None, "c_vbm": None, "c_xml": None}
    before = [large.get(column.name, value) for column, value in zip(TYPES, TYPES_ROW, strict=True)]
    before[0] = 2
    after = [*before[:-1], 8]
    place, at = ("0000002a:00000058:0001", "0000002a:00000058:0003"), "2026-11-21T09:15:57.913"
    only_last = b"\1\0\0\0\0"
    rows = [(change(*place, 3, mask=only_last, at=at), before), (change(*place, 4, mask=only_last, at=at), after)]
    expected = golden("types-update-max-unchanged")
    for image in ("before", "after"):
        values = expected["value"]["payload"][image]
        values["c_vmax"] = values["c_nmax"] = "__debezium_unavailable_value"
        values["c_vbm"] = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
    same(events(plan_of("types", TYPES), *rows), [expected])
