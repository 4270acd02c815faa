"""The statements that the real connector and its driver send compile and run exactly as given (spec debezium-live §2).

The functions of change data capture itself belong to `capture` and are tested there.
"""

import pytest

from tests.sql.harness import Bench

CHANGES = (
    "__$start_lsn binary(10); __$end_lsn binary(10); __$seqval binary(10); __$operation int; __$update_mask varbinary(128); "
    "c1 int; c2 nvarchar(20); __$command_id int"
)
MAPPING = "start_lsn binary(10); tran_begin_time datetime; tran_end_time datetime; tran_id varbinary(10)"
INSTANCES = "object_id int; version int; source_object_id int; capture_instance nvarchar(128); start_lsn binary(10); create_date datetime"


def lsn(number: int) -> str:
    return "\x00" * 9 + chr(number)


@pytest.fixture(scope="module")
def bench() -> Bench:
    bench = Bench()
    bench.table("dbo_t_CT", CHANGES, *[
        (lsn(1), None, lsn(1), 2, "\x03", 7, "seven", 1), (lsn(2), None, lsn(2), 3, "\x02", 7, "seven", 1),
        (lsn(2), None, lsn(2), 4, "\x02", 7, "eight", 1), (lsn(3), None, lsn(3), 1, "\x03", 7, "eight", 1),
    ], schema="cdc")  # fmt: skip
    bench.table("lsn_time_mapping", MAPPING, *[
        (lsn(number), "2024-01-01 10:00", f"2024-01-01 10:00:0{number}", "\x00" if number == 4 else chr(number))
        for number in (1, 2, 3, 4)
    ], schema="cdc")  # fmt: skip
    bench.table("change_tables", INSTANCES, (901, 0, 900, "old", lsn(1), "2024-01-01"), (902, 0, 900, "new", lsn(1), "2024-01-02"),
                (903, 0, 905, "other", lsn(2), "2024-01-01"), schema="cdc")  # fmt: skip
    bench.table(
        "captured_columns",
        "object_id int; column_name nvarchar(128); column_id int",
        (901, "b", 2),
        (901, "a", 1),
        schema="cdc",
    )
    bench.table(
        "dm_server_services",
        "servicename nvarchar(256); status int",
        ("SQL Server Agent (MSSQLSERVER)", 4),
        schema="sys",
    )
    bench.table(
        "dm_cdc_log_scan_sessions", "session_id int; start_lsn nvarchar(23)", (1, "old"), (2, "new"), schema="sys"
    )
    bench.table("databases", "name nvarchar(128)", ("TestDB",), ("master",), schema="sys")
    bench.table("t", "id int; c2 nvarchar(20)", *[(number, f"n{number}") for number in range(1, 6)])
    for number in range(7):
        bench.set(f"@P{number}", "varbinary(8000)", "0x" + "00" * 9 + "02")
    bench.set("@zero", "varbinary(8000)", "0x" + "00" * 10)
    for name, declaration, value in (("@n", "nvarchar(4000)", "testdb"), ("@two", "int", "2"), ("@three", "int", "3"),
                                     ("@date", "nvarchar(4000)", "2020-01-02")):  # fmt: skip
        bench.set(name, declaration, value)
    return bench


L = "0x" + "00" * 9
OFFSET = "TODATETIMEOFFSET(ltm.tran_end_time, DATEPART(TZOFFSET, SYSDATETIMEOFFSET()))"
DIRECT = (
    f"SELECT cdc_data.[__$start_lsn], cdc_data.[__$seqval], cdc_data.[__$operation], [cdc_data].[c2], {OFFSET} "
    "FROM [TestDB].cdc.[dbo_t_CT] AS cdc_data LEFT JOIN [TestDB].cdc.lsn_time_mapping ltm ON ltm.start_lsn = cdc_data.[__$start_lsn]  "
    "WHERE (([cdc_data].[__$start_lsn] =  @P0 AND [cdc_data].[__$seqval] =  @P1 AND [cdc_data].[__$operation] >  @three ) "
    "OR ([cdc_data].[__$start_lsn] =  @P3 AND [cdc_data].[__$seqval] >  @P4 ) OR ([cdc_data].[__$start_lsn] >  @P5 )) "
    "AND [cdc_data].[__$start_lsn] <=  0x00000000000000000003 ORDER BY cdc_data.[__$start_lsn] ASC, cdc_data.[__$command_id] ASC, "
    "cdc_data.[__$seqval] ASC, cdc_data.[__$operation] ASC"
)
TABLES = (
    "WITH ordered_change_tables AS (SELECT ROW_NUMBER() OVER (PARTITION BY ct.source_object_id, ct.start_lsn ORDER BY ct.create_date DESC) "
    "AS ct_sequence, ct.* FROM [TestDB].cdc.change_tables AS ct{}) SELECT OBJECT_SCHEMA_NAME(source_object_id, DB_ID( @n )), "
    "OBJECT_NAME(source_object_id, DB_ID( @n )), capture_instance, object_id, start_lsn FROM ordered_change_tables WHERE ct_sequence = 1"
)

STATEMENTS = [
    ("SELECT name FROM sys.databases WHERE name =  @n ", [("TestDB",)]),
    ("select min(start_lsn) from [TestDB].cdc.change_tables", [(L + "01",)]),
    ("SELECT TOP(0) * FROM [TestDB].[dbo].[t] WITH (TABLOCKX)", []),
    ("SELECT object_id, column_name FROM [TestDB].cdc.captured_columns ORDER BY object_id, column_id", [("901", "a"), ("901", "b")]),
    (TABLES.format(""), [(None, None, "new", "902", L + "01"), (None, None, "other", "903", L + "02")]),
    (TABLES.format(" WHERE ct.start_lsn <=  0x00000000000000000001 "), [(None, None, "new", "902", L + "01")]),
    ("SELECT PARSE( @date AS datetime)", [("2020-01-02 00:00:00.000",)]),
    ("SELECT SYSDATETIMEOFFSET()", [("2024-02-29 13:14:15.1234567 +01:00",)]),
    ("SELECT COUNT(1) FROM [TestDB].[dbo].[t]", [("5",)]),
    ("SELECT [id] FROM [TestDB].[dbo].[t] ORDER BY [id] OFFSET 2 ROWS FETCH NEXT 1 ROWS ONLY", [("3",)]),
    ("SELECT TOP 1 [id] FROM [TestDB].[dbo].[t] ORDER BY [id] DESC", [("5",)]),
    ("SELECT [id] FROM [TestDB].[dbo].[t] WHERE [id] >=  @two AND [id] <=  @three ORDER BY [id]", [("2",), ("3",)]),
    ("SELECT TOP 1024 * FROM [TestDB].[dbo].[t] WHERE ([id] >  @two ) AND NOT ([id] >  @three ) ORDER BY [id]", [("3", "n3")]),
    ("SELECT MAX(start_lsn) FROM (SELECT TOP ( @two + 1) start_lsn FROM [TestDB].cdc.lsn_time_mapping WHERE start_lsn >=  @zero AND tran_id <> 0x00 ORDER BY start_lsn) as next_lsns", [(L + "03",)]),
    ("SELECT MAX(start_lsn) FROM [TestDB].cdc.lsn_time_mapping WHERE tran_id <> 0x00", [(L + "03",)]),
    ("SELECT CASE WHEN dss.[status]=4 THEN 1 ELSE 0 END AS isRunning FROM [TestDB].sys.dm_server_services dss WHERE dss.[servicename] LIKE N'SQL Server Agent (%';", [("1",)]),
    ("SELECT capture_instance FROM [TestDB].cdc.change_tables WHERE start_lsn BETWEEN  @zero AND  0x00000000000000000001 ", [("old",), ("new",)]),
    ("SELECT TOP 1 start_lsn from sys.dm_cdc_log_scan_sessions ORDER BY session_id DESC", [("new",)]),
    (DIRECT, [(L + "02", L + "02", "4", "eight", "2024-01-01 10:00:02.000 +01:00"), (L + "03", L + "03", "1", "eight", "2024-01-01 10:00:03.000 +01:00")]),
    (DIRECT.replace("SELECT cdc", "SELECT TOP 1 cdc", 1), [(L + "02", L + "02", "4", "eight", "2024-01-01 10:00:02.000 +01:00")]),
    ("SELECT CAST(SERVERPROPERTY('EngineEdition') as INT)", [("3",)]),
    ("SELECT name AS TABLE_CAT FROM sys.databases order by name", [("master",), ("TestDB",)]),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "rows"), STATEMENTS, ids=[case[0][:70] for case in STATEMENTS])
def test_statement(bench: Bench, statement: str, rows: list[tuple[str | None, ...]]) -> None:
    assert bench.texts(statement) == rows
