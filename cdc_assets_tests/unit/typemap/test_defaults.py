"""Defaults as the catalogue writes them (spec debezium-sqlserver §4.7)."""

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from cdc_assets.core.schema import Column
from cdc_assets.typemap.defaults import NotALiteralError, default_value
from cdc_assets_tests.unit.envelope.building import column

DAY = 864_000_000_000


def parsed(source: Column) -> Any:
    found = default_value(source)
    return None if found is None else found[0].as_py()


@pytest.mark.parametrize(
    ("type_name", "expression", "expected"),
    [
        ("int", "((1))", 1),
        ("int", "((-1))", -1),
        ("int", "(-1)", -1),
        ("bigint", "((3147483648.))", 3147483648),
        ("tinyint", "((255))", 255),
        ("bit", "((1))", True),
        ("bit", "((0))", False),
        ("float", "((1.2345000000000000e+003))", 1234.5),
        ("varchar", "('new')", "new"),
        ("nvarchar", "(N'n/a')", "n/a"),
        ("varchar", "('it''s (a) test')", "it's (a) test"),
        ("varchar", "('')", ""),
        ("varchar", "('NULL')", "NULL"),
        ("varbinary", "(0x0102)", b"\1\2"),
        ("varbinary", "(0x)", b""),
        ("money", "((922337203685477.58))", Decimal("922337203685477.5800")),
        ("date", "('2019-02-03')", date(2019, 2, 3)),
        ("date", "('20190203')", date(2019, 2, 3)),
        ("datetime", "('2020-01-02 03:04:05.789')", (18263 * DAY) + 110457900000),
        ("smalldatetime", "('1970-01-02T14:23:46')", DAY + (14 * 60 + 24) * 600_000_000),
        ("int", "(NULL)", None),
        ("varchar", "(NULL)", None),
        ("int", None, None),
    ],
)
def test_literals(type_name: str, expression: str | None, expected: Any) -> None:
    assert parsed(column("c", type_name, default=expression)) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (column("c", "decimal", precision=10, scale=5, default="((200.1))"), Decimal("200.10000")),
        (column("c", "decimal", precision=38, scale=1, default=f"(({'9' * 37}.9))"), Decimal(f"{'9' * 37}.9")),
        (column("c", "decimal", precision=4, scale=4, default="((0))"), Decimal(0)),
        (column("c", "time", scale=2, default="('10:23:45.678')"), 37425680000000),
        (column("c", "datetime2", scale=7, default="('1970-01-01 00:00:00.1234567')"), 1234567),
        (column("c", "datetime2", scale=3, default="('1970-01-01 00:00:00.1234567')"), 1230000),
        (column("c", "datetimeoffset", scale=7, default="('1970-01-01 02:00:00+02:00')"), {"ticks": 0, "minutes": 120}),
        (column("c", "datetimeoffset", default="('1970-01-01')"), {"ticks": 0, "minutes": 0}),
    ],
)
def test_literals_are_rounded_to_the_column(source: Column, expected: Any) -> None:
    assert parsed(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        column("c", "datetime", default="(getdate())"),
        column("c", "uniqueidentifier", default="(newid())"),
        column("c", "uniqueidentifier", default="('0E984725-C51C-4BF4-9960-E1C80E27ABA0')"),
        column("c", "varchar", default="(user_name())"),
        column("c", "varchar", default="('a'+'b')"),
        column("c", "int", default="((1)+(2))"),
        column("c", "bit", default="('true')"),
        column("c", "date", default="('03/02/2019')"),
        column("c", "date", default="('2019-02-30')"),
        column("c", "time", default="('25:00')"),
        column("c", "smallmoney", default="((922337203685477.58))"),
        column("c", "int", alias="Number", default="((1))"),
    ],
)
def test_what_is_no_literal_is_reported(source: Column) -> None:
    with pytest.raises(NotALiteralError):
        default_value(source)
