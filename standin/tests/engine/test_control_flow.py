"""Variables, conditions, errors, EXEC."""

import time

import pytest

from mssql_standin.contract import Cancelled, Parameter
from mssql_standin.sqltypes import INT, SqlType
from tests.engine.collect import Client, Collected


def test_variables_and_conditions(client: Client) -> None:
    text = """
    DECLARE @i int = 1, @text varchar(3) = 'abcdef', @sum int = 0
    IF @i = 1
    BEGIN
        SET @i += 1
        SET @sum = @sum + @i
    END
    ELSE SET @sum = 9
    IF @i = 1 SET @sum = 9
    SELECT @i, @text, @sum
    """
    assert client.rows(text) == [(2, "abc", 2)]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("SELECT @nosuch", 137),
        ("SELECT * FROM @nosuch", 1087),
        ("DECLARE @a int DECLARE @a int", 134),
        ("SELECT * FROM nosuch", 208),
        ("SELECT nosuch FROM sys.tables", 207),
        ("EXEC nosuch", 2812),
        ("USE nosuch", 911),
        ("SET NOSUCH ON", 195),
        ("SET SHOWPLAN_ALL ON", 40510),
        ("SELECT 1 +", 102),
    ],
)
def test_errors_by_number(client: Client, text: str, number: int) -> None:
    assert client.errors(text) == [number]


def test_error_208_repeats_the_name_as_written(client: Client) -> None:
    message = client.run("SELECT * FROM [D].cdc.[fn_cdc_get_all_changes_dbo_x](0x00, 0x00, N'all')").errors[0].message
    assert message == "Invalid object name 'D.cdc.fn_cdc_get_all_changes_dbo_x'."
    assert client.run("SELECT * FROM D..nosuch").errors[0].message == "Invalid object name 'D..nosuch'."


def test_errors_carry_their_line(client: Client) -> None:
    assert client.run("SELECT 1\n\nSELECT 1/0").errors[0].line == 3


def test_compile_errors_end_the_batch_and_others_do_not(client: Client) -> None:
    after_compile = client.run("SELECT * FROM nosuch SELECT 1")
    assert (len(after_compile.errors), after_compile.results) == (1, [])
    after_statement = client.run("SELECT 1/0 SELECT 1")
    assert ([e.number for e in after_statement.errors], after_statement.results[-1]) == ([8134], [(1,)])


def test_raiserror(client: Client) -> None:
    sink = client.run("RAISERROR('%s has %5d of %x%%', 16, 2, 'a', 42, 255) RAISERROR('low', 5, 1) SELECT @@ERROR")
    assert [(e.number, e.severity, e.state, e.message) for e in sink.errors] == [(50000, 16, 2, "a has    42 of ff%")]
    assert sink.messages == ["low"]


def test_nocount_and_rowcount(client: Client) -> None:
    client.do("CREATE TABLE t (id int)")
    sink = client.do("SET NOCOUNT ON INSERT t VALUES (1), (2) SELECT @@ROWCOUNT")
    assert (sink.counts[-2:], sink.results[-1]) == ([None, None], [(2,)])


@pytest.mark.parametrize(
    ("statement", "count"),
    [
        ("SET @v = 1", 1),
        ("DECLARE @w int = 1", 1),
        ("DECLARE @w int", 2),
        ("PRINT 'x'", 0),
        ("RAISERROR ('x', 10, 1)", 0),
        ("SET LOCK_TIMEOUT -1", 0),
        ("BEGIN TRAN", 0),
        ("SELECT 1 / 0", 0),
    ],
)
def test_row_count_after_statements_that_count_none(client: Client, statement: str, count: int) -> None:
    before = "DECLARE @v int SELECT v FROM (VALUES (1), (2)) AS t (v)"
    assert client.run(f"{before} {statement} SELECT @@ROWCOUNT").results[-1] == [(count,)]


def test_settings_that_would_change_answers_are_refused(client: Client) -> None:
    assert client.errors("SET DATEFORMAT dmy") == [40510]
    assert client.errors("SET ANSI_WARNINGS OFF") == [40510]


def test_a_type_without_length_takes_none(client: Client) -> None:
    assert client.errors("DECLARE @v int(4)") == [2716]


def test_set_rowcount_limits_queries(client: Client) -> None:
    assert len(client.rows("SET ROWCOUNT 2 SELECT v FROM (VALUES (1), (2), (3)) AS t (v) SET ROWCOUNT 0")) == 2


def test_sp_executesql_with_output(client: Client) -> None:
    text = """
    DECLARE @out int, @rc int
    EXEC @rc = sp_executesql N'SET @o = @i * 2', N'@i int, @o int OUTPUT', @i = 21, @o = @out OUTPUT
    SELECT @out, @rc
    """
    assert client.rows(text) == [(42, 0)]


def test_execute_sql_by_rpc(client: Client) -> None:
    sink = Collected()
    parameters = [Parameter("@a", INT, 4), Parameter("@b", SqlType("nvarchar", 2), None, output=True)]
    assert client.session.execute_sql("SET @b = N'x' + CAST(@a AS nvarchar(5)) SELECT @a", parameters, sink) == 0
    assert (sink.results, parameters[1].value) == ([[(4,)]], "x4")


def test_insert_exec_into_a_table_variable(client: Client) -> None:
    client.do("CREATE PROCEDURE two AS SELECT 1, 'x' SELECT 2, NULL")
    text = "DECLARE @t TABLE (a int, b nvarchar(10)) INSERT @t EXEC two SELECT * FROM @t ORDER BY a"
    assert client.rows(text) == [(1, "x"), (2, None)]


def test_the_columns_batch_of_the_jdbc_driver(client: Client) -> None:
    client.do("CREATE TABLE t (id int IDENTITY PRIMARY KEY, name nvarchar(20) DEFAULT 'new')")
    text = """DECLARE @mssqljdbc_temp_sp_columns_result TABLE(TABLE_QUALIFIER SYSNAME,TABLE_OWNER SYSNAME,TABLE_NAME SYSNAME,COLUMN_NAME SYSNAME,DATA_TYPE SMALLINT,TYPE_NAME SYSNAME,PRECISION INT,LENGTH INT,SCALE SMALLINT,RADIX SMALLINT,NULLABLE SMALLINT,REMARKS VARCHAR(254),COLUMN_DEF NVARCHAR(4000),SQL_DATA_TYPE SMALLINT,SQL_DATETIME_SUB SMALLINT,CHAR_OCTET_LENGTH INT,ORDINAL_POSITION INT,IS_NULLABLE VARCHAR(254),SS_IS_SPARSE SMALLINT,SS_IS_COLUMN_SET SMALLINT,SS_IS_COMPUTED SMALLINT,SS_IS_IDENTITY SMALLINT,SS_UDT_CATALOG_NAME NVARCHAR(128),SS_UDT_SCHEMA_NAME NVARCHAR(128),SS_UDT_ASSEMBLY_TYPE_NAME NVARCHAR(max),SS_XML_SCHEMACOLLECTION_CATALOG_NAME NVARCHAR(128),SS_XML_SCHEMACOLLECTION_SCHEMA_NAME NVARCHAR(128),SS_XML_SCHEMACOLLECTION_NAME NVARCHAR(128),SS_DATA_TYPE TINYINT);INSERT INTO @mssqljdbc_temp_sp_columns_result EXEC sp_columns_100 @P0 ,  @P1 ,  @P2 ,  @P3 ,  @P4 ,  @P5 ;SELECT TABLE_QUALIFIER AS TABLE_CAT, TABLE_OWNER AS TABLE_SCHEM, TABLE_NAME, COLUMN_NAME, DATA_TYPE,TYPE_NAME, PRECISION AS COLUMN_SIZE, LENGTH AS BUFFER_LENGTH, COLUMN_DEF, CASE WHEN SS_IS_IDENTITY = 0 THEN 'NO' WHEN SS_IS_IDENTITY = 1 THEN 'YES' ELSE '' END AS IS_AUTOINCREMENT FROM @mssqljdbc_temp_sp_columns_result ORDER BY TABLE_CAT, TABLE_SCHEM, TABLE_NAME, ORDINAL_POSITION;"""
    text_type = SqlType("nvarchar", 4000)
    values = ["t", "dbo", "D", "%", 2, 3]
    parameters = [Parameter(f"@P{n}", INT if isinstance(v, int) else text_type, v) for n, v in enumerate(values)]
    sink = Collected()
    client.session.execute_sql(text, parameters, sink)
    assert not sink.errors
    assert [(row[3], row[5], row[8], row[9]) for row in sink.results[-1]] == [
        ("id", "int identity", None, "YES"),
        ("name", "nvarchar", "('new')", "NO"),
    ]


def test_waitfor(client: Client) -> None:
    begin = time.monotonic()
    client.do("WAITFOR DELAY '00:00:00.150'")
    assert 0.15 <= time.monotonic() - begin < 20


def test_an_attention_ends_a_long_query(client: Client) -> None:
    sink = Collected(stop=Cancelled())
    begin = time.monotonic()
    with pytest.raises(Cancelled):
        client.session.batch(
            "SELECT COUNT(*) FROM GENERATE_SERIES(1, 2000000000)",
            sink,
        )
    assert time.monotonic() - begin < 20
    assert client.value("SELECT 1") == 1


def test_an_attention_undoes_the_statement_but_not_the_transaction(client: Client) -> None:
    client.do("CREATE TABLE t (id int) BEGIN TRAN INSERT t VALUES (1)")
    sink = Collected(stop=Cancelled())
    with pytest.raises(Cancelled):
        client.session.batch(
            "INSERT t SELECT value FROM GENERATE_SERIES(10, 90000)",
            sink,
        )
    assert client.rows("SELECT id FROM t SELECT @@TRANCOUNT") == [(1,)]
    assert client.rows("COMMIT SELECT id FROM t") == [(1,)]


def test_describe_parameters(client: Client) -> None:
    client.do("CREATE TABLE t (id int, name nvarchar(20), amount decimal(9, 2))")

    def described(text: str) -> list[tuple[str, str]]:
        return [(p.name, str(p.type)) for p in client.session.describe_parameters(text)]

    assert described("INSERT t VALUES (@P1, @P2, @P3)") == [
        ("@P1", "int"),
        ("@P2", "nvarchar(20)"),
        ("@P3", "decimal(9,2)"),
    ]
    assert described("INSERT INTO t (amount, id) VALUES (@P1, @P2)") == [("@P1", "decimal(9,2)"), ("@P2", "int")]
    assert described("UPDATE t SET name = @P1 WHERE id = @P2") == [("@P1", "nvarchar(20)"), ("@P2", "int")]
    assert described("SELECT TOP (@P1) * FROM t WHERE amount > @P2") == [("@P1", "bigint"), ("@P2", "decimal(9,2)")]


def test_connection_reset(client: Client) -> None:
    client.do("CREATE TABLE #t (id int) SET NOCOUNT ON BEGIN TRAN USE master")
    client.session.reset()
    assert client.value("SELECT DB_NAME()") == "D"
    assert client.value("SELECT @@TRANCOUNT") == 0
    assert client.errors("SELECT * FROM #t") == [208]
