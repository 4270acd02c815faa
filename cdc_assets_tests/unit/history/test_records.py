"""History records and public events equal what the real Debezium wrote (samples beside, measured)."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.config.settings import EventSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.schema import Column, TableSchema
from cdc_assets.envelope.plan import ConnectorIdentity
from cdc_assets.history.events import build_events
from cdc_assets.history.records import HistoryEntry, debezium_record, parse_structure, quoted_id, structure_text
from cdc_assets.history.signalled_schema import table_of
from cdc_assets.typemap.jdbc import JdbcType, jdbc_type

SAMPLES: dict[str, Any] = json.loads((Path(__file__).parent / "samples.json").read_text(encoding="utf-8"))
AT = datetime.fromtimestamp(1795252153.811, UTC)

CUSTOMERS = TableSchema(
    TableId("TestDB", "dbo", "customers"),
    1,
    (
        Column("id", "int", 1, nullable=False, identity=True),
        Column("name", "varchar", 2, nullable=False, length=50),
        Column("created", "datetime2", 3, scale=7),
        Column("amount", "decimal", 4, precision=10, scale=2),
    ),
    ("id",),
)


def snapshot_entry(last: bool = False) -> HistoryEntry:
    low = Lsn.parse("0000002a:00000028:0001")
    return HistoryEntry("CREATE", CUSTOMERS, None, "dbo_customers", low, AT, "INITIAL", last)


def test_snapshot_record_equals_debeziums() -> None:
    assert debezium_record(snapshot_entry(), "shop") == SAMPLES["snapshot"]


def test_public_event_equals_debeziums() -> None:
    [row] = build_events([snapshot_entry()], 1, EventSettings("shop"), ConnectorIdentity(run_id="r")).to_pylist()
    wanted = SAMPLES["create"]
    for name in ("ts_ms", "ts_us", "ts_ns"):  # Debezium reads the server's clock a moment before its own
        wanted["source"][name] = row["value"]["source"][name]
    assert row["value"] == wanted
    assert row["key"] == {"databaseName": "TestDB"}


def test_column_types_equal_the_drivers() -> None:
    for column, wanted in zip(TYPES, SAMPLES["types"], strict=True):
        kind = jdbc_type(column)
        found = {"jdbcType": kind.number, "typeName": kind.name, "length": kind.length, "scale": kind.scale}
        assert found == {name: wanted.get(name) for name in found}, column.name


@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        (Column("c", "nvarchar", 1, length=20, alias="Phone"), JdbcType(-9, "Phone", 20, None)),
        (Column("c", "int", 1, identity=True, alias="Number"), JdbcType(4, "Number identity", 10, 0)),
        (Column("c", "float", 1, precision=24), JdbcType(7, "real", 24, None)),
        (Column("c", "numeric", 1, precision=12, scale=4), JdbcType(2, "numeric", 12, 4)),
        (Column("c", "timestamp", 1), JdbcType(-2, "timestamp", 8, None)),
        (Column("c", "vector", 1, length=8), JdbcType(1111, "vector", 8, None)),
    ],
)
def test_types_by_other_names(column: Column, wanted: JdbcType) -> None:
    assert jdbc_type(column) == wanted


@pytest.mark.parametrize("name", ["orders", 'say "hi"', "a.b", "x]y", '"'])
def test_ids_of_odd_names_are_read_back(name: str) -> None:
    table = TableId("Test.Db", "dbo", name)
    assert table_of({"id": quoted_id(table)}) == table


@pytest.mark.parametrize(
    "settings", [EventSettings("shop", event_version="2.3"), EventSettings("shop", extended_headers=False)]
)
def test_context_headers_can_be_left_out(settings: EventSettings) -> None:
    [row] = build_events([snapshot_entry()], 1, settings, ConnectorIdentity(run_id="r")).to_pylist()
    assert row["headers"] == []


def test_only_captured_columns_are_reported() -> None:
    entry = HistoryEntry("ALTER", CUSTOMERS, ("name", "id"), "dbo_customers_2", Lsn.from_int(9), AT)
    record = debezium_record(entry, "shop")
    assert [column["name"] for column in record["tableChanges"][0]["table"]["columns"]] == ["id", "name"]
    assert record["ddl"] == "N/A"


def test_drop_has_no_table() -> None:
    entry = HistoryEntry("DROP", CUSTOMERS, None, None, Lsn.from_int(9), AT)
    assert "table" not in debezium_record(entry, "shop")["tableChanges"][0]
    [row] = build_events([entry], 1, EventSettings("shop"), ConnectorIdentity()).to_pylist()
    assert row["value"]["tableChanges"][0]["table"] is None


@pytest.mark.parametrize("captured", [None, ("id", "amount")])
def test_structure_survives_as_text(captured: tuple[str, ...] | None) -> None:
    entry = HistoryEntry("CREATE", CUSTOMERS, captured, None, Lsn.from_int(9), AT)
    for hidden in (None, (), (("amount", "exclude"),)):
        assert parse_structure(structure_text(replace(entry, hidden=hidden))) == (CUSTOMERS, captured, hidden)


TYPES = [
    Column("id", "int", 1, nullable=False),
    Column("c_bit", "bit", 2),
    Column("c_ti", "tinyint", 3),
    Column("c_si", "smallint", 4),
    Column("c_bi", "bigint", 5),
    Column("c_fl", "float", 7),
    Column("c_dec", "decimal", 8, precision=18, scale=4),
    Column("c_money", "money", 10),
    Column("c_smoney", "smallmoney", 11),
    Column("c_date", "date", 12),
    Column("c_t2", "time", 13, scale=2),
    Column("c_t7", "time", 15, scale=7),
    Column("c_dt", "datetime", 16),
    Column("c_sdt", "smalldatetime", 17),
    Column("c_d23", "datetime2", 18, scale=3),
    Column("c_d27", "datetime2", 20, scale=7),
    Column("c_dto", "datetimeoffset", 21, scale=7),
    Column("c_ch", "char", 22, length=5),
    Column("c_nch", "nchar", 24, length=5),
    Column("c_nvc", "nvarchar", 25, length=20),
    Column("c_vmax", "varchar", 26, length=-1),
    Column("c_nmax", "nvarchar", 27, length=-1),
    Column("c_bin", "binary", 28, length=4),
    Column("c_vb", "varbinary", 29, length=10),
    Column("c_vbm", "varbinary", 30, length=-1),
    Column("c_xml", "xml", 31),
    Column("c_u", "uniqueidentifier", 32),
]


def test_what_an_earlier_version_did_not_record_as_hidden_is_no_news() -> None:
    former = HistoryEntry("CREATE", CUSTOMERS, None, None, Lsn.from_int(9), AT)
    altered = replace(former, kind="ALTER", lsn=Lsn.from_int(10), hidden=())
    assert former.hidden is None
    assert altered.is_news(former) == altered.is_news(replace(former, hidden=()))
    assert altered.is_news(former)
    assert not replace(altered, hidden=(("amount", "exclude"),)).is_news(former)
