"""Every type through the bulk reader: exact, and the same in snapshot and stream."""

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from cdc_assets.adapters.sqlserver.bulk import MssqlBulkSource
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.config.settings import ConnectionSettings, EventSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.envelope.changes import ChangeContext, build_changes, change_select_list
from cdc_assets.envelope.plan import ConnectorIdentity, EventPlan, plan_events
from cdc_assets.envelope.reads import ReadContext, build_reads
from mssql_standin.control import StandIn

pytestmark = pytest.mark.contract

VALUES: dict[str, tuple[str, str, Any]] = {
    "c_bit": ("bit", "1", True),
    "c_tinyint": ("tinyint", "255", 255),
    "c_smallint": ("smallint", "-32768", -32768),
    "c_int": ("int", "-2147483648", -2147483648),
    "c_bigint": ("bigint", "9223372036854775807", 9223372036854775807),
    "c_real": ("real", "1.1", 1.100000023841858),
    "c_float": ("float", "1.7976931348623157e308", 1.7976931348623157e308),
    "c_decimal": (
        "decimal(38,10)",
        "-9999999999999999999999999999.9999999999",
        "-9999999999999999999999999999.9999999999",
    ),
    "c_money": ("money", "-922337203685477.5808", "-922337203685477.5808"),
    "c_smallmoney": ("smallmoney", "5.323", "5.3230"),
    "c_date": ("date", "'0001-01-01'", -719162),
    "c_time_2": ("time(2)", "'10:23:45.678'", 37425680),
    "c_time_7": ("time(7)", "'23:59:59.9999999'", 86399999999900),
    "c_smalldatetime": ("smalldatetime", "'2018-07-13 14:23:46'", 1531491840000),
    "c_datetime": ("datetime", "'1753-01-01 13:23:45.789'", -6847756574210),
    "c_datetime2_0": ("datetime2(0)", "'9999-12-31 23:59:59'", 253402300799000),
    "c_datetime2_6": ("datetime2(6)", "'0001-01-01 00:00:00.000001'", -62135596799999999),
    "c_datetime2_7": ("datetime2(7)", "'2018-07-13 11:23:45.1234567'", 1531481025123456700),
    "c_offset_0": ("datetimeoffset(0)", "'2018-07-13 12:23:45 -05:30'", "2018-07-13T12:23:45-05:30"),
    "c_offset_7": ("datetimeoffset(7)", "'0001-01-02 00:00:00.0000001 +14:00'", "0001-01-02T00:00:00.0000001+14:00"),
    "c_char": ("char(5)", "'ab'", "ab   "),
    "c_nvarchar": ("nvarchar(20)", "N'ż 日本 😀'", "ż 日本 😀"),
    "c_varchar_max": ("varchar(max)", "'long'", "long"),
    "c_text": ("text", "'old'", "old"),
    "c_xml": ("xml", "N'<a>ż</a>'", "<a>ż</a>"),
    "c_guid": ("uniqueidentifier", "'0e984725-c51c-4bf4-9960-e1c80e27aba0'", "0E984725-C51C-4BF4-9960-E1C80E27ABA0"),
    "c_binary": ("binary(4)", "0x0102", b"\1\2\0\0"),
    "c_varbinary_max": ("varbinary(max)", "0x00FF", b"\0\xff"),
    "c_float_least": ("float", "2.2250738585072014e-308", 2.2250738585072014e-308),
    "c_decimal_38_0": ("decimal(38,0)", "9" * 38, "9" * 38),
    "c_decimal_38_38": ("decimal(38,38)", "-0." + "9" * 38, "-0." + "9" * 38),
    "c_datetime_last": ("datetime", "'9999-12-31 23:59:59.997'", 253402300799997),
    "c_nanos_first": ("datetime2(7)", "'1677-09-21 00:12:43.1452242'", -9223372036854775800),
    "c_nanos_last": ("datetime2(7)", "'2262-04-11 23:47:16.8547758'", 9223372036854775800),
    "c_offset_last": ("datetimeoffset(7)", "'9999-12-31 09:59:59.9999999 -14:00'", "9999-12-31T09:59:59.9999999-14:00"),
    "c_nchar_astral": ("nchar(5)", "N'😀'", "😀   "),
    "c_text_empty": ("nvarchar(max)", "N''", ""),
    "c_bytes_empty": ("varbinary(8)", "0x", b""),
    "c_hierarchy": ("hierarchyid", "CAST(0x5B40 AS hierarchyid)", b"\x5b\x40"),
}
"""Column → declaration, literal, event value (decimals as text)."""


@pytest.fixture(scope="module")
def server() -> Iterator[StandIn]:
    columns = ", ".join(f"{name} {declaration} NULL" for name, (declaration, _, _) in VALUES.items())
    with StandIn(databases=("TestDB",)) as server:
        server.execute(f"CREATE TABLE dbo.types (id int NOT NULL PRIMARY KEY, {columns})", database="TestDB")
        server.execute(
            "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'types', @role_name = NULL",
            database="TestDB",
        )
        literals = ", ".join(literal for _, literal, _ in VALUES.values())
        server.execute(f"INSERT dbo.types (id, {', '.join(VALUES)}) VALUES (1, {literals})", database="TestDB")
        server.execute("INSERT dbo.types (id) VALUES (2)", database="TestDB")
        yield server


def settings_of(server: StandIn) -> ConnectionSettings:
    return ConnectionSettings(
        server.host,
        server.user,
        server.password,
        ("TestDB",),
        port=server.port,
        encrypt="no",
        trust_server_certificate=True,
    )


@pytest.fixture(scope="module")
def plan(server: StandIn) -> EventPlan:
    with SqlServerSource(settings_of(server)) as source:
        schema = source.table_schema(TableId("TestDB", "dbo", "types"))
    assert schema is not None
    events = EventSettings("shop", decimal_mode="string")
    return plan_events(schema, None, events, connector=ConnectorIdentity(run_id="run"))


def expected() -> list[dict[str, Any]]:
    filled = {name: value for name, (_, _, value) in VALUES.items()}
    return [{"id": 1, **filled}, {"id": 2, **dict.fromkeys(VALUES)}]


def test_table_rows(server: StandIn, plan: EventPlan) -> None:
    context = ReadContext(1, Lsn(bytes(10)), server_time(server))
    batches = MssqlBulkSource(settings_of(server)).read(
        f"SELECT {plan.select_list('t')} FROM dbo.types AS t ORDER BY id"
    )
    assert after_images(build_reads(plan, batches, context)) == expected()


def test_change_rows(server: StandIn, plan: EventPlan) -> None:
    statement = (
        f"SELECT {change_select_list(plan, 'ct', '[ltm].[tran_end_time]')} FROM cdc.dbo_types_CT AS ct "
        "LEFT JOIN cdc.lsn_time_mapping AS ltm ON ltm.start_lsn = ct.[__$start_lsn] "
        "ORDER BY ct.[__$start_lsn], ct.[__$command_id], ct.[__$seqval], ct.[__$operation]"
    )
    bulk, end, found = MssqlBulkSource(settings_of(server)), time.monotonic() + 20, []
    while len(found) < 2 and time.monotonic() < end:
        found = after_images(build_changes(plan, bulk.read(statement), ChangeContext(1)))
        time.sleep(0.1)
    assert found == expected()


def after_images(built: Iterator[pa.RecordBatch]) -> list[Any]:
    return [row["value"]["after"] for batch in built for row in batch.to_pylist()]


def server_time(server: StandIn) -> Any:
    with SqlServerSource(settings_of(server)) as source:
        return source.server_time()
