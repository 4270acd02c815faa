"""Expressions put together at random: each gives a value that fits its type on the wire, or an error of SQL Server."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mssql_standin.errors import SqlError
from tests.sql.harness import Bench

LEAVES = [
    "0", "-1", "255", "2147483647", "9223372036854775807", "99999999999999999999999999999999999999", "0.5", "1e308", "-2.5e-10",
    "CAST('-1.5' AS money)", "''", "' '", "'aB'", "N'😀x'", "'%[a-z]_'", "NCHAR(0)", "'2020-02-29 13:14:15.123'", "'12:30'", "0x", "0x0102",
    "NULL", "i", "s", "d", "x", "b", "CAST('0001-01-01' AS datetimeoffset)", "CAST('9999-12-31' AS smalldatetime)",
]  # fmt: skip
FORMS = [
    "({} + {})", "({} - {})", "({} * {})", "({} / {})", "({} % {})", "-{}",
    "CAST({} AS int)", "CAST({} AS decimal(38, 10))", "CAST({} AS varchar(5))", "CAST({} AS nchar(3))", "CAST({} AS varbinary(6))",
    "CAST({} AS datetime2(3))", "CAST({} AS datetimeoffset(0))", "TRY_CAST({} AS float)", "TRY_CAST({} AS uniqueidentifier)",
    "CONVERT(varchar(30), {}, 109)", "CONVERT(binary(4), {}, 1)", "CASE WHEN {} = {} THEN {} ELSE {} END", "CASE {} WHEN {} THEN {} END", "CASE WHEN {} LIKE {} THEN {} ELSE {} END", "CASE WHEN {} BETWEEN {} AND {} THEN 1 END", "CASE WHEN {} IN ({}, {}) THEN 1 END",
    "ISNULL({}, {})", "COALESCE({}, {})",
    "CONCAT({}, {})", "LEN({})", "LEFT({}, {})",
    "REPLICATE({}, {})", "ABS({})", "DATEPART(hour, {})", "TODATETIMEOFFSET({}, {})",
    "DATEADD(month, {}, {})", "DATEADD(ns, {}, {})", "DATEDIFF(second, {}, {})", "CHECKSUM({}, {})",
    "{} COLLATE Latin1_General_CI_AI", "(SELECT {})", "(SELECT MAX({}) FROM t)",
    "(SELECT TOP ({}) {} FROM t ORDER BY i)", "ROW_NUMBER() OVER (PARTITION BY {} ORDER BY i)",
]  # fmt: skip


INTERNAL = (8624, 8630)


def failure(bench: Bench, query: str) -> int:
    try:
        bench.rows(query)
    except SqlError as error:
        return error.number
    return 0


def filled(form: str, inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*[inner] * form.count("{}")).map(lambda parts: form.format(*parts))


EXPRESSIONS = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.sampled_from(FORMS).flatmap(lambda form: filled(form, inner)),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def bench() -> Bench:
    bench = Bench()
    bench.table(
        "t", "i int not null; s nvarchar(20); d decimal(20,5); x datetime2(7); b varbinary(9)",
        (1, "one", "1.5", "2020-02-29 13:14:15.1234567", "ab"), (2, None, None, None, None),
    )  # fmt: skip
    return bench


@settings(max_examples=300, deadline=None)
@given(EXPRESSIONS)
def test_any_expression_gives_a_value_of_its_type_or_an_error(bench: Bench, expression: str) -> None:
    assert failure(bench, f"SELECT {expression} FROM t") not in INTERNAL
