"""Expressions value by value, against what SQL Server's documentation says they give."""

import pytest

from mssql_standin.errors import SqlError
from tests.sql.harness import Bench


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench()


VALUES = [
    # literals and arithmetic
    ("1", "1", "int"),
    ("2147483648", "2147483648", "numeric(10,0)"),
    ("1.50", "1.50", "numeric(3,2)"),
    ("1e3", "1000", "float"),
    ("0x1F", "0x1F", "varbinary(1)"),
    ("0x", "0x", "varbinary(1)"),
    ("N'añ'", "añ", "nvarchar(2)"),
    ("N'😀a'", "😀a", "nvarchar(3)"),
    ("'it''s'", "it's", "varchar(4)"),
    ("$12.5", "12.5000", "money"),
    ("7 / 2", "3", "int"),
    ("-7 / 2", "-3", "int"),
    ("-7 % 3", "-1", "int"),
    ("2.0 / 3", "0.666666", "numeric(7,6)"),
    ("CAST(1.25 AS decimal(5,2)) * CAST(2.5 AS decimal(4,1))", "3.125", "decimal(10,3)"),
    ("CAST(1 AS decimal(38,10)) / CAST(3 AS decimal(38,10))", "0.333333", "decimal(38,6)"),
    ("CAST(10 AS money) / 3", "3.3333", "money"),
    ("'a' + 'b'", "ab", "varchar(2)"),
    ("'1' + 1", "2", "int"),
    ("N'a' + 'b'", "ab", "nvarchar(2)"),
    ("0x01 + 0x0203", "0x010203", "varbinary(3)"),
    ("1 + NULL", None, "int"),
    ("DATALENGTH(REPLICATE(N'a', 3000) + REPLICATE(N'b', 3000))", "8000", "int"),
    ("DATALENGTH(CAST(REPLICATE('a', 8000) AS varbinary(8000)) + 0x01)", "8000", "int"),
    # rounding and storing of numbers
    ("CAST(2.5 AS int)", "2", "int"),
    ("CAST(-2.7 AS int)", "-2", "int"),
    ("CAST(2.345 AS decimal(5,2))", "2.35", "decimal(5,2)"),
    ("CAST(-2.345 AS decimal(5,2))", "-2.35", "decimal(5,2)"),
    ("CAST(1.23456 AS money)", "1.2346", "money"),
    ("CAST(CAST(1.5 AS money) AS int)", "2", "int"),
    ("CAST(CAST(1e0/3 AS real) AS float)", "0.3333333432674408", "float"),
    ("CAST(123456789012345678901234567890.12 AS decimal(38,4))", "123456789012345678901234567890.1200", "decimal(38,4)"),
    ("CAST('  12 ' AS int)", "12", "int"),
    ("CAST('' AS int)", "0", "int"),
    ("CAST('-' AS int)", "0", "int"),
    ("CAST('1.5d2' AS float)", "150", "float"),
    (f"CAST('{'0' * 5000}1.{'5' * 2000}' AS decimal(5, 3))", "1.556", "decimal(5,3)"),
    ("CAST('1.5e2' AS float)", "150", "float"),
    ("CAST('true' AS bit)", "1", "bit"),
    ("CAST(17 AS bit)", "1", "bit"),
    ("CAST('$1,234.5' AS money)", "1234.5000", "money"),
    # numbers to text
    ("CAST(1234567.0 AS varchar(20))", "1234567.0", "varchar(20)"),
    ("CAST(1234567.5e0 AS varchar(20))", "1.23457e+006", "varchar(20)"),
    ("CONVERT(varchar(30), 1234567.5e0, 2)", "1.234567500000000e+006", "varchar(30)"),
    ("CONVERT(varchar(30), 0.1e0, 1)", "1.0000000e-001", "varchar(30)"),
    ("CONVERT(varchar(30), CAST(1234567.891 AS money), 1)", "1,234,567.89", "varchar(30)"),
    ("CONVERT(varchar(30), CAST(1234567.891 AS money), 2)", "1234567.8910", "varchar(30)"),
    ("CAST(CAST(1234567.891 AS money) AS varchar(30))", "1234567.89", "varchar(30)"),
    ("CAST(12345 AS varchar(3))", "*", "varchar(3)"),
    ("CAST('abcdef' AS varchar(3))", "abc", "varchar(3)"),
    ("CAST('ab' AS char(4)) + '|'", "ab  |", "varchar(5)"),
    ("CAST(N'snow☃man' AS varchar(10))", "snow?man", "varchar(10)"),
    ("CAST('x' AS varchar)", "x", "varchar(30)"),
    ("CAST(-0.5 AS varchar(10))", "-0.5", "varchar(10)"),
    # binary
    ("CAST(1 AS binary(4))", "0x00000001", "binary(4)"),
    ("CAST(256 AS varbinary(10))", "0x00000100", "varbinary(10)"),
    ("CAST(-1 AS binary(2))", "0xFFFF", "binary(2)"),
    ("CAST(CAST(258 AS bigint) AS binary(10))", "0x00000000000000000102", "binary(10)"),
    ("CAST('ab' AS binary(4))", "0x61620000", "binary(4)"),
    ("CAST(N'ab' AS varbinary(10))", "0x61006200", "varbinary(10)"),
    ("CAST(0x61620000 AS varchar(2))", "ab", "varchar(2)"),
    ("CAST(0x00000102 AS int)", "258", "int"),
    ("CAST(0x0102 AS bigint)", "258", "bigint"),
    ("CONVERT(varchar(20), 0x1F2B, 1)", "0x1F2B", "varchar(20)"),
    ("CONVERT(varchar(20), 0x1F2B, 2)", "1F2B", "varchar(20)"),
    ("CONVERT(varbinary(4), '0x1f2B', 1)", "0x1F2B", "varbinary(4)"),
    ("CONVERT(varbinary(4), '1F2B', 2)", "0x1F2B", "varbinary(4)"),
    ("CAST(CAST('2020-01-01' AS date) AS varbinary(10))", "0x90400B", "varbinary(10)"),
    ("CAST(CAST('12:34:56.1234567' AS time(7)) AS varbinary(10))", "0x0787EE977669", "varbinary(10)"),
    ("CAST(CAST('1900-01-02 00:00:01' AS datetime) AS varbinary(8))", "0x000000010000012C", "varbinary(8)"),
    ("CAST(CAST(1.5 AS decimal(5,2)) AS varbinary(20))", "0x0502000196000000", "varbinary(20)"),
    ("CAST(CAST('6F9619FF-8B86-D011-B42D-00C04FC964FF' AS uniqueidentifier) AS binary(16))", "0xFF19966F868B11D0B42D00C04FC964FF", "binary(16)"),
    ("CAST(0xFF19966F868B11D0B42D00C04FC964FF AS uniqueidentifier)", "6F9619FF-8B86-D011-B42D-00C04FC964FF", "uniqueidentifier"),
    ("CAST('{6f9619ff-8b86-d011-b42d-00c04fc964ff}' AS uniqueidentifier)", "6F9619FF-8B86-D011-B42D-00C04FC964FF", "uniqueidentifier"),
    # dates: text in
    ("CAST('20200229' AS date)", "2020-02-29", "date"),
    ("CAST('2020-02-29T13:14:15.1234567' AS datetime2)", "2020-02-29 13:14:15.1234567", "datetime2(7)"),
    ("CAST('Feb 29 2020  1:14PM' AS datetime)", "2020-02-29 13:14:00.000", "datetime"),
    ("CAST('29 February 2020' AS date)", "2020-02-29", "date"),
    ("CONVERT(date, '03/04/2020', 103)", "2020-04-03", "date"),
    ("CONVERT(date, '03/04/2020', 101)", "2020-03-04", "date"),
    ("CONVERT(datetime, '04.03.2020 10:00', 104)", "2020-03-04 10:00:00.000", "datetime"),
    ("CAST('13:14' AS time(0))", "13:14:00", "time(0)"),
    ("CAST('' AS datetime)", "1900-01-01 00:00:00.000", "datetime"),
    ("CAST('2020-01-01T00:00:00Z' AS datetimeoffset(0))", "2020-01-01 00:00:00 +00:00", "datetimeoffset(0)"),
    ("CAST('2020-01-01 10:00:00 -05:30' AS datetimeoffset(0))", "2020-01-01 10:00:00 -05:30", "datetimeoffset(0)"),
    ("CAST('1/2/49' AS date)", "2049-01-02", "date"),
    ("CAST('1/2/50' AS date)", "1950-01-02", "date"),
    # dates: rounding between types
    ("CAST('2020-01-01 00:00:00.995' AS datetime)", "2020-01-01 00:00:00.997", "datetime"),
    ("CAST('2020-01-01 23:59:59.999' AS datetime)", "2020-01-02 00:00:00.000", "datetime"),
    ("CAST(CAST('2020-01-01 00:00:00.003' AS datetime) AS datetime2)", "2020-01-01 00:00:00.0033333", "datetime2(7)"),
    ("CAST(CAST('2020-01-01 00:00:29.998' AS datetime) AS smalldatetime)", "2020-01-01 00:00:00.000", "smalldatetime"),
    ("CAST(CAST('2020-01-01 00:00:29.999' AS datetime) AS smalldatetime)", "2020-01-01 00:01:00.000", "smalldatetime"),
    ("CAST(CAST('2020-01-01 23:59:59.9999999' AS datetime2) AS datetime2(3))", "2020-01-02 00:00:00.000", "datetime2(3)"),
    ("CAST(CAST('9999-12-31 23:59:59.9999999' AS datetime2) AS datetime2(3))", "9999-12-31 23:59:59.999", "datetime2(3)"),
    ("CAST(CAST('23:59:59.9999999' AS time) AS time(0))", "00:00:00", "time(0)"),
    ("CAST(CAST('2020-06-01 23:30 -02:00' AS datetimeoffset(0)) AS date)", "2020-06-01", "date"),
    ("CAST(CAST('2020-01-01' AS date) AS datetimeoffset(0))", "2020-01-01 00:00:00 +00:00", "datetimeoffset(0)"),
    ("CAST(CAST('10:00' AS time) AS datetime)", "1900-01-01 10:00:00.000", "datetime"),
    # dates: text out
    ("CAST(CAST('2020-01-02 03:04:05.678' AS datetime) AS varchar(30))", "Jan  2 2020  3:04AM", "varchar(30)"),
    ("CONVERT(varchar(30), CAST('2020-01-02 15:04:05.678' AS datetime), 100)", "Jan  2 2020  3:04PM", "varchar(30)"),
    ("CONVERT(varchar(30), CAST('2020-01-02 15:04:05.677' AS datetime), 121)", "2020-01-02 15:04:05.677", "varchar(30)"),
    ("CONVERT(varchar(30), CAST('2020-01-02 15:04:05.677' AS datetime), 120)", "2020-01-02 15:04:05", "varchar(30)"),
    ("CONVERT(varchar(30), CAST('2020-01-02 15:04:05.677' AS datetime), 126)", "2020-01-02T15:04:05.677", "varchar(30)"),
    ("CONVERT(varchar(30), CAST('2020-01-02 15:04:05' AS datetime), 126)", "2020-01-02T15:04:05", "varchar(30)"),
    ("CONVERT(varchar(40), CAST('2020-01-02 15:04:05 +02:00' AS datetimeoffset(3)), 127)", "2020-01-02T13:04:05Z", "varchar(40)"),
    ("CONVERT(varchar(8), CAST('2020-01-02' AS datetime), 112)", "20200102", "varchar(8)"),
    ("CONVERT(varchar(8), CAST('2020-01-02 15:04:05' AS datetime2), 108)", "15:04:05", "varchar(8)"),
    ("CAST(CAST('2020-01-02' AS date) AS varchar(20))", "2020-01-02", "varchar(20)"),
    ("CAST(CAST('10:11:12.5' AS time(3)) AS varchar(20))", "10:11:12.500", "varchar(20)"),
    ("CAST(CAST('2020-01-02 10:11' AS datetimeoffset(1)) AS varchar(40))", "2020-01-02 10:11:00.0 +00:00", "varchar(40)"),
    ("CONVERT(varchar(30), CAST('2020-01-02 15:04:05.67' AS datetime2), 0)", "Jan  2 2020  3:04PM", "varchar(30)"),
    # date functions
    ("DATEADD(month, 1, CAST('2020-01-31' AS date))", "2020-02-29", "date"),
    ("DATEADD(year, -1, CAST('2020-02-29' AS date))", "2019-02-28", "date"),
    ("DATEADD(ms, 5, CAST('2020-01-01' AS datetime2(7)))", "2020-01-01 00:00:00.0050000", "datetime2(7)"),
    ("DATEADD(ns, 149, CAST('00:00' AS time(7)))", "00:00:00.0000001", "time(7)"),
    ("DATEADD(hour, 25, CAST('01:00' AS time(0)))", "02:00:00", "time(0)"),
    ("DATEADD(day, 1, '2020-02-28')", "2020-02-29 00:00:00.000", "datetime"),
    ("DATEADD(mi, 1, CAST('2020-01-01 00:00 +05:00' AS datetimeoffset(0)))", "2020-01-01 00:01:00 +05:00", "datetimeoffset(0)"),
    ("DATEDIFF(year, '2019-12-31', '2020-01-01')", "1", "int"),
    ("DATEDIFF(month, '2020-01-31', '2020-02-01')", "1", "int"),
    ("DATEDIFF(week, '2024-02-24', '2024-02-25')", "1", "int"),
    ("DATEDIFF(hour, '2020-01-01 00:59', '2020-01-01 01:00')", "1", "int"),
    ("DATEDIFF(day, '2020-03-01', '2020-02-28')", "-2", "int"),
    ("DATEPART(dayofyear, '2024-12-31')", "366", "int"),
    ("DATEPART(nanosecond, CAST('00:00:00.1234567' AS time))", "123456700", "int"),
    ("DATEPART(tzoffset, CAST('2020-01-01 00:00 -05:30' AS datetimeoffset))", "-330", "int"),
    ("DATEPART(TZOFFSET, SYSDATETIMEOFFSET())", "60", "int"),
    ("SYSDATETIME()", "2024-02-29 13:14:15.1234567", "datetime2(7)"),
    ("SYSUTCDATETIME()", "2024-02-29 12:14:15.1234567", "datetime2(7)"),
    ("GETDATE()", "2024-02-29 13:14:15.123", "datetime"),
    ("GETUTCDATE()", "2024-02-29 12:14:15.123", "datetime"),
    ("CURRENT_TIMESTAMP", "2024-02-29 13:14:15.123", "datetime"),
    ("SYSDATETIMEOFFSET()", "2024-02-29 13:14:15.1234567 +01:00", "datetimeoffset(7)"),
    ("TODATETIMEOFFSET(CAST('2020-01-01 10:00' AS datetime2(0)), '+02:00')", "2020-01-01 10:00:00 +02:00", "datetimeoffset(0)"),
    ("TODATETIMEOFFSET(CAST('2020-01-01 10:00' AS datetime2(0)), -90)", "2020-01-01 10:00:00 -01:30", "datetimeoffset(0)"),
    # strings
    ("LEN('ab  ')", "2", "int"),
    ("LEN(N'😀a')", "3", "int"),
    ("DATALENGTH(N'ab  ')", "8", "int"),
    ("DATALENGTH(CAST(1 AS bigint))", "8", "int"),
    ("REPLICATE('ab', 3)", "ababab", "varchar(8000)"),
    ("CONCAT('a', NULL, 1, 2.5)", "a12.5", "varchar(19)"),
    ("LEN(CONCAT(REPLICATE('a', 8000), 'b'))", "8000", "int"),
    # conditional
    ("ISNULL(CAST(NULL AS varchar(3)), 'abcdef')", "abc", "varchar(3)"),
    ("COALESCE(NULL, 1, 2.5)", "1.0", "numeric(11,1)"),
    ("CASE WHEN NULL = NULL THEN 1 ELSE 0 END", "0", "int"),
    ("CASE WHEN N'😀' LIKE N'__' AND N'😀' NOT LIKE N'_' THEN 1 ELSE 0 END", "1", "int"),
    ("CASE 'A ' WHEN 'a' THEN 1 END", "1", "int"),
    # numbers
    ("ABS(-5)", "5", "int"),
    # conversions that may fail, PARSE
    ("TRY_CAST('x' AS int)", None, "int"),
    ("TRY_CONVERT(date, '2020-02-30')", None, "date"),
    ("PARSE('2020-01-02' AS datetime)", "2020-01-02 00:00:00.000", "datetime"),
    # hashes
    ("CHECKSUM(5)", "5", "int"),
    # metadata
    ("DB_NAME()", "TestDB", "nvarchar(128)"),
    ("DB_ID('master')", "1", "smallint"),
    ("DB_ID('none')", None, "smallint"),
    ("SCHEMA_NAME(4)", "sys", "nvarchar(128)"),
    ("CAST(SERVERPROPERTY('EngineEdition') AS int)", "3", "int"),
    ("@@SPID", "51", "smallint"),
    ("@@ROWCOUNT", "3", "int"),
    ("CASE WHEN EXISTS((SELECT 1)) THEN 1 END", "1", "int"),
    ("USER", "dbo", "nvarchar(128)"),
    ("{fn IFNULL(NULL, {fn LENGTH('abc')})}", "3", "int"),
    ("{ts '2020-01-02 03:04:05'}", "2020-01-02 03:04:05.000", "datetime"),
    ("{d '2020-01-02'}", "2020-01-02 00:00:00.000", "datetime"),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "value", "type_name"), VALUES, ids=[case[0][:90] for case in VALUES])
def test_value_and_type(bench: Bench, expression: str, value: str | None, type_name: str) -> None:
    assert (bench.value(expression), bench.type(expression)) == (value, type_name)


ERRORS = [
    ("1 / 0", 8134),
    ("1 % 0", 8134),
    ("1.0 / 0", 8134),
    ("1e0 / 0", 8134),
    ("2147483647 + 1", 8115),
    ("CAST(9223372036854775807 AS bigint) + 1", 8115),
    ("CAST(300 AS tinyint)", 220),
    ("CAST(70000 AS smallint)", 220),
    ("CAST(3000000000 AS int)", 8115),
    ("CAST(3e9 AS int)", 232),
    ("CAST(123.45 AS decimal(4,2))", 8115),
    ("CAST('abc' AS int)", 245),
    ("CAST('1.5' AS int)", 245),
    ("CAST('99999999999' AS int)", 248),
    ("CAST('300' AS tinyint)", 244),
    ("CAST('x' AS bigint)", 8114),
    ("CAST('x' AS decimal(5,2))", 8114),
    ("CAST('x' AS float)", 8114),
    ("CAST('x' AS money)", 235),
    ("CAST('x' AS smallmoney)", 293),
    ("CAST('2020-02-30' AS date)", 241),
    ("CAST('2020-02-30' AS datetime)", 242),
    ("CAST('1752-12-31' AS datetime)", 242),
    ("CAST('2020-01-01 00:00:00.1234' AS datetime)", 241),
    ("CAST('nonsense' AS datetime2)", 241),
    ("CAST('zz' AS uniqueidentifier)", 8169),
    ("CAST(1 AS date)", 529),
    ("CAST(CAST('2020-01-01' AS date) AS int)", 529),
    ("CAST(0x01 AS float)", 529),
    ("CAST(12345.67 AS varchar(3))", 8115),
    ("CAST(CAST(123 AS bigint) AS varchar(2))", 8115),
    ("CAST(123 AS nvarchar(2))", 8115),
    ("CAST(1.5e30 AS varchar(5))", 232),
    ("CAST('1' AS int(4))", 291),
    ("CAST(CAST(0x01 AS image) AS varchar(20))", 529),
    ("CAST(1 AS bit) + CAST(1 AS bit)", 8117),
    ("DATEADD(hour, 1, CAST('2020-01-01' AS date))", 9810),
    ("DATEADD(year, 8000, CAST('2020-01-01' AS date))", 517),
    ("DATEDIFF(second, '0001-01-01', '9999-12-31')", 535),
    ("DATEADD(fortnight, 1, GETDATE())", 155),
    ("LEFT('abc', -1)", 536),
    ("PARSE('x' AS int)", 9819),
    ("1e999", 168),
    (f"CAST('{'9' * 5000}' AS int)", 248),
    (f"CAST('-{'9' * 5000}.5' AS decimal(38, 1))", 8115),
    (f"CAST('{'9' * 5000}' AS money)", 8115),
    ("9" * 5000, 1007),
    ("FORMAT(1, 'N999999999')", 40510),
    ("REPLICATE(CAST('x' AS varchar(max)), 2147483647)", 701),
    ("-CAST(-32768 AS smallint)", 8115),
    ("5e0 % 2", 402),
    ("CAST(0x00D8 AS nvarchar(5))", 40510),
    ("5 & 3", 40510),
    ("CAST(43830 AS datetime)", 40510),
    ("CAST('2020-01-31' AS datetime) + 1", 40510),
    ("CAST(0x0000A7BC0145E09C AS datetime)", 40510),
    ("NOSUCH(1)", 195),
    ("dbo.nosuch(1)", 4121),
    ("LEN()", 174),
    ("ISNULL(1)", 174),
    ("COALESCE(NULL, NULL)", 4127),
    ("CASE WHEN 1 = 1 THEN NULL END", 8133),
    ("CAST(1 AS nosuch)", 243),
    ("@undeclared", 137),
    ("nocolumn", 207),
    ("a.b", 4104),
    ("1 = 1", 102),
    ("'a' COLLATE NoSuchThing", 448),
    ("CASE WHEN 'a' COLLATE Latin1_General_BIN = 'b' COLLATE Latin1_General_CI_AS THEN 1 END", 468),
    ("CASE WHEN 1 THEN 1 END", 4145),
    ("CAST(CAST('x' AS xml) AS int)", 529),
    ("(SELECT 1, 2)", 116),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "number"), ERRORS, ids=[case[0][:90] for case in ERRORS])
def test_error_number(bench: Bench, expression: str, number: int) -> None:
    with pytest.raises(SqlError) as caught:
        bench.value(expression)
    assert caught.value.number == number


STATES = [
    ("2147483647 * 2", 8115, 2),
    ("CAST('x' AS decimal)", 8114, 5),
    ("CAST('ABC' AS money)", 235, 0),
    ("CAST('ABC' AS smallmoney)", 293, 0),
    ("CAST('2020-02-30' AS datetime)", 242, 3),
    ("CAST('zz' AS uniqueidentifier)", 8169, 2),
]


@pytest.mark.parametrize(("expression", "number", "state"), STATES, ids=[case[0] for case in STATES])
def test_error_state(bench: Bench, expression: str, number: int, state: int) -> None:
    with pytest.raises(SqlError) as caught:
        bench.value(expression)
    assert (caught.value.number, caught.value.state) == (number, state)


@pytest.mark.parametrize("name", ["AVG", "CHARINDEX", "FORMAT", "ROUND", "STRING_AGG", "YEAR"])
def test_functions_that_are_left_out_are_refused_by_name(bench: Bench, name: str) -> None:
    with pytest.raises(SqlError, match=rf"^40510: The stand-in does not support {name}\.$"):
        bench.value(f"{name}(1, 2)")


@pytest.mark.parametrize(
    "construct",
    [
        "@@CURSOR_ROWS",
        "GETDATE() AT TIME ZONE 'UTC'",
        "a.value('x', 'int')",
        "NEXT VALUE FOR dbo.s",
        "(SELECT 1 FOR JSON PATH)",
    ],
)
def test_unknown_constructs_are_refused(bench: Bench, construct: str) -> None:
    with pytest.raises(SqlError, match=r"^40510: "):
        bench.value(construct)


def test_varchar_literals_keep_only_their_code_page(bench: Bench) -> None:
    assert bench.texts("SELECT '日本', N'日本', CAST(NULL AS varchar(5)) + 'x'") == [("??", "日本", None)]
