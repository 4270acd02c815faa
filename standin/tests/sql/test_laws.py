"""Laws of conversions, arithmetic, dates and collations, over generated values."""

import contextlib
from datetime import datetime, timedelta
from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mssql_standin.errors import SqlError
from mssql_standin.sql import temporal
from mssql_standin.sql.coercion import decimal_result
from mssql_standin.sql.collation import sort_key, sqlite_collation
from mssql_standin.sql.convert import convert_value
from mssql_standin.sql.functions.dates import add, boundaries
from mssql_standin.sql.literals import literal
from mssql_standin.sql.patterns import matcher
from mssql_standin.sql.runtime import kernel, read_type, specification, type_text
from mssql_standin.sqltypes import (
    NVARCHAR_MAX,
    VARBINARY_MAX,
    SqlType,
    Value,
    decimal_from_stored,
    decimal_to_stored,
    offset_to_stored,
    parse_type,
)
from tests.sql.harness import Bench

LAST = temporal.END - 1
EXACT = Context(prec=200)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Value]:
    sql_type = SqlType("decimal", precision=precision, scale=scale)
    bound = 10**precision - 1
    return st.integers(-bound, bound).map(lambda scaled: decimal_to_stored(scaled, sql_type))


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bit": st.integers(0, 1),
    "tinyint": st.integers(0, 255),
    "smallint": st.integers(-(2**15), 2**15 - 1),
    "int": st.integers(-(2**31), 2**31 - 1),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "decimal(9,4)": decimals(9, 4),
    "decimal(38,10)": decimals(38, 10),
    "date": st.integers(0, 3652058),
    "time(7)": st.integers(0, temporal.DAY - 1),
    "time(3)": st.integers(0, 86_400_000 - 1).map(lambda ms: ms * 10_000),
    "datetime2(7)": st.integers(0, LAST),
    "datetime2(0)": st.integers(0, LAST // 10**7).map(lambda s: s * 10**7),
    "datetimeoffset(7)": st.builds(
        offset_to_stored, st.integers(840 * temporal.MINUTE, LAST - 840 * temporal.MINUTE), st.integers(-840, 840)
    ),
    "smalldatetime": st.integers(0, 65535 * 1440),
    "uniqueidentifier": st.binary(min_size=16, max_size=16),
    "varbinary(20)": st.binary(max_size=20),
}
TEXT_STYLES = {"varbinary(20)": 1}
BINARY = ["bit", "tinyint", "smallint", "int", "bigint", "uniqueidentifier"]


@pytest.mark.parametrize("declaration", VALUES)
@given(data=st.data())
def test_text_gives_every_value_back(declaration: str, data: st.DataObject) -> None:
    value = data.draw(VALUES[declaration])
    sql_type = parse_type(declaration)
    style = 121 if "date" in declaration or "time" in declaration else TEXT_STYLES.get(declaration)
    text = convert_value(value, sql_type, NVARCHAR_MAX, style)
    assert convert_value(text, NVARCHAR_MAX, sql_type, TEXT_STYLES.get(declaration)) == value


@pytest.mark.parametrize("declaration", BINARY)
@given(data=st.data())
def test_binary_gives_every_value_back(declaration: str, data: st.DataObject) -> None:
    value = data.draw(VALUES[declaration])
    sql_type = parse_type(declaration)
    assert convert_value(convert_value(value, sql_type, VARBINARY_MAX), VARBINARY_MAX, sql_type) == value


@given(st.integers(-53690 * 25920000, 2958463 * 25920000))
def test_datetime_survives_text_and_datetime2(ticks: int) -> None:
    datetime_type, wide = SqlType("datetime"), SqlType("datetime2", scale=7)
    assert convert_value(convert_value(ticks, datetime_type, wide), wide, datetime_type) == ticks
    assert convert_value(convert_value(ticks, datetime_type, NVARCHAR_MAX, 121), NVARCHAR_MAX, datetime_type) == ticks


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_float_survives_style_3(number: float) -> None:
    float_type = SqlType("float", precision=53)
    assert convert_value(convert_value(number, float_type, NVARCHAR_MAX, 3), NVARCHAR_MAX, float_type) == number


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_unicode_text_survives_binary(text: str) -> None:
    assert convert_value(convert_value(text, NVARCHAR_MAX, VARBINARY_MAX), VARBINARY_MAX, NVARCHAR_MAX) == text


@given(st.binary(max_size=50))
def test_any_bytes_survive_varchar(data: bytes) -> None:
    varchar = SqlType("varchar", -1)
    assert convert_value(convert_value(data, VARBINARY_MAX, varchar), varchar, VARBINARY_MAX) == data


# ---- arithmetic ------------------------------------------------------------------------------------------------


def as_python(value: Value, sql_type: SqlType) -> Decimal:
    assert isinstance(value, (int, bytes))
    return Decimal(decimal_from_stored(value)).scaleb(-sql_type.scale, EXACT)


TYPES = st.tuples(st.integers(1, 38), st.integers(0, 38)).filter(lambda t: t[1] <= t[0])


@given(sign=st.sampled_from("+-*/%"), shapes=st.tuples(TYPES, TYPES), data=st.data())
def test_decimal_arithmetic_is_exact_up_to_the_result_scale(
    sign: str, shapes: tuple[tuple[int, int], tuple[int, int]], data: st.DataObject
) -> None:
    left, right = (SqlType("decimal", precision=p, scale=s) for p, s in shapes)
    a, b = (data.draw(decimals(p, s)) for p, s in shapes)
    first, second = as_python(a, left), as_python(b, right)
    result = decimal_result(sign, left, right)
    run = kernel(specification("op", sign, left, right, result))
    if sign in "/%" and second == 0:
        with pytest.raises(SqlError, match="8134"):
            run(None, a, b)
        return
    exact = {
        "+": lambda: EXACT.add(first, second),
        "-": lambda: EXACT.subtract(first, second),
        "*": lambda: EXACT.multiply(first, second),
        "/": lambda: EXACT.divide(first, second),
        "%": lambda: EXACT.remainder(first, second),
    }[sign]()
    rounding = ROUND_DOWN if sign == "/" else ROUND_HALF_UP
    expected = exact.quantize(Decimal(1).scaleb(-result.scale), rounding, EXACT)
    if expected.scaleb(result.scale, EXACT).copy_abs() < 10**result.precision:
        assert as_python(run(None, a, b), result) == expected
    else:
        with pytest.raises(SqlError, match="8115"):
            run(None, a, b)


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1))
def test_integer_division_and_remainder_fit_together(a: int, b: int) -> None:
    assume(b != 0 and not (a == -(2**31) and b == -1))
    divide, remainder = (kernel(specification("op", sign, *[SqlType("int")] * 3)) for sign in "/%")
    quotient, rest = divide(None, a, b), remainder(None, a, b)
    assert isinstance(quotient, int)
    assert isinstance(rest, int)
    assert quotient * b + rest == a
    assert abs(rest) < abs(b)
    assert rest == 0 or (rest < 0) == (a < 0)


# ---- dates -----------------------------------------------------------------------------------------------------

MOMENTS = st.datetimes(min_value=datetime.fromisoformat("1000-01-01"), max_value=datetime.fromisoformat("9000-01-01"))
START = datetime.fromisoformat("0001-01-01")


def ticks(moment: datetime) -> int:
    return (moment - START) // timedelta(microseconds=1) * 10


@given(
    MOMENTS,
    st.integers(-100_000, 100_000),
    st.sampled_from(["day", "hour", "minute", "second", "millisecond", "microsecond"]),
)
def test_dateadd_is_timedelta(moment: datetime, number: int, part: str) -> None:
    assert add(part, number, ticks(moment)) == ticks(moment + timedelta(**{f"{part}s": number}))


@given(MOMENTS, st.integers(-5000, 5000))
def test_adding_months_moves_by_as_many_month_boundaries(moment: datetime, number: int) -> None:
    moved = add("month", number, ticks(moment))
    assert boundaries("month", moved) - boundaries("month", ticks(moment)) == number
    assert moved % temporal.DAY == ticks(moment) % temporal.DAY


@given(MOMENTS, MOMENTS, st.sampled_from(["year", "quarter", "month", "week", "day", "hour", "minute", "second"]))
def test_datediff_counts_antisymmetrically_and_monotonically(a: datetime, b: datetime, part: str) -> None:
    first, second = boundaries(part, ticks(a)), boundaries(part, ticks(b))
    assert (first <= second) or a > b
    if part == "week":
        sunday = timedelta(days=a.isoweekday() % 7)
        assert boundaries(part, ticks(a - sunday)) == first


# ---- collations and patterns -------------------------------------------------------------------------------------

COLLATIONS = [
    "SQL_Latin1_General_CP1_CI_AS",
    "Latin1_General_CS_AS",
    "Latin1_General_CI_AI",
    "Latin1_General_CS_AI",
    "Latin1_General_BIN2",
]
TEXTS = st.text(alphabet=st.sampled_from("aAbBäÄáæß ñé-_'1😀"), max_size=6)


@pytest.mark.parametrize("collation", COLLATIONS)
@given(texts=st.tuples(TEXTS, TEXTS, TEXTS))
def test_collations_are_total_preorders_that_ignore_trailing_blanks(
    collation: str, texts: tuple[str, str, str]
) -> None:
    key = sort_key(collation)
    a, b, c = sorted(texts, key=key)
    assert key(a) <= key(b) <= key(c)
    assert key(a) <= key(c)
    assert key(a + "  ") == key(a)
    if "CI" in collation:
        assert key(a.upper()) == key(a.lower()) or "ß" in a
    if "BIN" not in collation and key(a) == key(b):
        assert sort_key("Latin1_General_CI_AI")(a) == sort_key("Latin1_General_CI_AI")(b)


@given(TEXTS, TEXTS)
def test_collations_agree_with_sqlite(a: str, b: str) -> None:
    bench = Bench()
    text = SqlType("nvarchar", 50)
    for collation in COLLATIONS:
        name, key = sqlite_collation(collation), sort_key(collation)
        (less, equal) = bench.connection.execute(
            f"SELECT {literal(a, text)} < {literal(b, text)} COLLATE {name}, {literal(a, text)} = {literal(b, text)} COLLATE {name}"
        ).fetchone()
        assert (bool(less), bool(equal)) == (key(a) < key(b), key(a) == key(b))


@given(TEXTS, TEXTS, TEXTS)
def test_like_finds_a_quoted_text_between_anything(before: str, middle: str, after: str) -> None:
    match = matcher("ts_cs_as", "!")
    quoted = "".join(f"!{char}" if char in "%_[]!-^" else char for char in middle)
    assert match(before + middle + after, f"%{quoted}%")
    assert match(middle, quoted)


REFUSED_LATE = [
    "CASE WHEN REPLICATE('a', 4000) LIKE '%a%a%a%a%a%a%b' THEN 1 END",
    "TRY_CAST('-' + REPLICATE(' ', 7000) + 'x' AS int)",
    "TRY_CAST('-' + REPLICATE(' ', 7000) + 'x' AS money)",
    "TRY_CAST(REPLICATE('1', 7900) + 'x' AS float)",
    "TRY_CAST('10:00' + REPLICATE(' ', 7000) + 'x' AS datetime)",
]


@pytest.mark.parametrize("expression", REFUSED_LATE)
def test_long_texts_are_refused_at_once(expression: str) -> None:
    """Patterns whose parts could share characters took minutes."""
    assert Bench().value(expression) is None


def test_text_of_many_nuls_is_one_literal() -> None:
    assert Bench().value("DATALENGTH(REPLICATE(CAST(0 AS varbinary(6)), 1000))") == "4000"


@given(st.text(max_size=5), st.text(max_size=5))
def test_like_never_breaks_on_any_pattern(subject: str, pattern: str) -> None:
    matcher("ts_ci_as", "")(subject, pattern)


# ---- text of types and literals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "declaration", [*VALUES, "nvarchar(max)", "char(3)", "xml", "real", "money", "rowversion", "image"]
)
def test_types_survive_specifications(declaration: str) -> None:
    sql_type = parse_type(declaration).with_collation("Latin1_General_BIN2" if "char" in declaration else "")
    assert read_type(type_text(sql_type)) == sql_type


@given(
    st.one_of(
        st.none(),
        st.text(alphabet=st.characters(exclude_categories=["Cs"])),
        st.binary(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False),
    )
)
def test_literals_mean_their_value(value: Value) -> None:
    kind = SqlType("float") if isinstance(value, float) else SqlType("bigint")
    assert Bench().connection.execute(f"SELECT {literal(value, kind)}").fetchone()[0] == value


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ('<?xml version="1.0"?>\n<a>\n  <b x = \'1"\'></b> t </a>', '<a><b x="1&quot;"/> t </a>'),
        ("<a><![CDATA[x<y]]></a><c/>", "<a>x&lt;y</a><c/>"),
        ("<p:a xmlns:p='u'><!-- c --></p:a>", '<p:a xmlns:p="u"><!-- c --></p:a>'),
        ("plain &amp; text", "plain &amp; text"),
        ("", ""),
    ],
)
def test_xml_is_stored_normalized(written: str, stored: str) -> None:
    assert convert_value(written, NVARCHAR_MAX, SqlType("xml")) == stored
    assert convert_value(stored, NVARCHAR_MAX, SqlType("xml")) == stored


@pytest.mark.parametrize(("text", "number"), [("<a>", 9400), ("a & b", 9400), ("<!DOCTYPE a []><a/>", 9400)])
def test_bad_xml_is_refused(text: str, number: int) -> None:
    with pytest.raises(SqlError, match=str(number)):
        convert_value(text, NVARCHAR_MAX, SqlType("xml"))


WORDS = [
    "SELECT",
    "FROM",
    "WHERE",
    "a",
    "b",
    "t",
    "id",
    "name",
    "(",
    ")",
    ",",
    ".",
    "*",
    "+",
    "-",
    "=",
    "<>",
    "'x'",
    "1",
    "2.5",
    "NULL",
    "AND",
    "OR",
    "NOT",
    "IN",
    "EXISTS",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "END",
    "GROUP",
    "BY",
    "ORDER",
    "TOP",
    "DISTINCT",
    "AS",
    "JOIN",
    "ON",
    "LEFT",
    "CROSS",
    "APPLY",
    "UNION",
    "ALL",
    "COUNT(",
    "SUM(",
    "CAST(",
    "LIKE",
    "BETWEEN",
    "IS",
    "OVER(",
    "VALUES",
    "@p",
    "[x]",
    "0x01",
    "N'y'",
    "WITH",
]


@given(st.lists(st.sampled_from(WORDS), max_size=10), st.booleans())
def test_nonsense_gives_an_error_of_sql_server_or_a_result(words: list[str], source: bool) -> None:
    with contextlib.suppress(SqlError):
        NONSENSE.rows(f"SELECT {' '.join(words)}{' FROM t' if source else ''}")


NONSENSE = Bench()
NONSENSE.table("t", "id int; name nvarchar(10); a datetime; b xml", (1, "x", "2020-01-01", "<a/>"))
NONSENSE.set("@p", "int", "1")
