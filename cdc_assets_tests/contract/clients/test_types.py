"""Every type goes in by parameter and comes back, over every client stack."""

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest

from cdc_assets_tests.contract.clients.stacks import Client, Failure

# declaration, value given, value expected; text for dates and times that some driver would shorten on the way in
MATRIX: list[tuple[str, Any, Any]] = [
    ("bit", True, True),
    ("tinyint", 255, 255),
    ("smallint", -32768, -32768),
    ("int", -(2**31), -(2**31)),
    ("bigint", 2**63 - 1, 2**63 - 1),
    ("real", 0.1, pytest.approx(0.1, rel=1e-6)),
    ("float", 0.1, 0.1),
    ("float", -1.7976931348623157e308, -1.7976931348623157e308),
    ("decimal(10,2)", Decimal("-99999999.99"), Decimal("-99999999.99")),
    ("decimal(18,0)", Decimal(10**18 - 1), Decimal(10**18 - 1)),
    ("decimal(38,10)", Decimal("1234567890123456789012345678.0123456789"), Decimal("1234567890123456789012345678.0123456789")),
    ("numeric(5,5)", Decimal("0.00001"), Decimal("0.00001")),
    ("money", Decimal("922337203685477.5807"), Decimal("922337203685477.5807")),
    ("smallmoney", Decimal("5.3230"), Decimal("5.3230")),
    ("date", "0001-01-01", "0001-01-01"),
    ("date", date(9999, 12, 31), "9999-12-31"),
    ("time(0)", "10:23:46", "10:23:46"),
    ("time(3)", "10:23:45.678", "10:23:45.678"),
    ("time(6)", "10:23:45.678901", "10:23:45.678901"),
    ("datetime", datetime.fromisoformat("2018-07-13 13:23:45.790"), "2018-07-13 13:23:45.79"),
    ("datetime", datetime.fromisoformat("1753-01-01"), "1753-01-01 00:00:00"),
    ("smalldatetime", "2018-07-13 14:23:46", "2018-07-13 14:24:00"),
    ("datetime2(0)", "2018-07-13 11:23:45", "2018-07-13 11:23:45"),
    ("datetime2(3)", datetime.fromisoformat("2018-07-13 11:23:45.340"), "2018-07-13 11:23:45.34"),
    ("datetime2(6)", "9999-12-31 23:59:59.999999", "9999-12-31 23:59:59.999999"),
    ("datetime2(7)", "0001-01-01 00:00:00.000001", "0001-01-01 00:00:00.000001"),
    ("datetimeoffset(3)", "2018-07-13 12:23:45.456 +11:00", "2018-07-13 12:23:45.456+11:00"),
    ("datetimeoffset(0)", "2018-07-13 12:23:45 -09:30", "2018-07-13 12:23:45-09:30"),
    ("uniqueidentifier", "6F9619FF-8B86-D011-B42D-00C04FC964FF", "6F9619FF-8B86-D011-B42D-00C04FC964FF"),
    ("char(5)", "ab", "ab   "),
    ("varchar(20)", "naïve € 1", "naïve € 1"),
    ("varchar(20)", "", ""),
    ("varchar(max)", "x" * 20_000, "x" * 20_000),
    ("nchar(4)", "日本", "日本  "),
    ("nvarchar(20)", "Ω 😀 ẞ", "Ω 😀 ẞ"),
    ("nvarchar(max)", "日本語" * 5_000, "日本語" * 5_000),
    ("text", "old text", "old text"),
    ("ntext", "ältér Ω", "ältér Ω"),
    ("xml", "<a b=\"1\">ö</a>", "<a b=\"1\">ö</a>"),
    ("binary(4)", b"\x01\x02", b"\x01\x02\x00\x00"),
    ("varbinary(20)", b"\x00\xff\x10", b"\x00\xff\x10"),
    ("varbinary(max)", bytes(range(256)) * 100, bytes(range(256)) * 100),
    ("image", b"\x89PNG", b"\x89PNG"),
]  # fmt: skip

OWN_FORM = {("freetds", "datetimeoffset")}
"""(stack, type) whose values the driver hands out in a form of its own; they are read as text."""


def column_list() -> str:
    return ", ".join(f"c{place} {declared} NULL" for place, (declared, _, _) in enumerate(MATRIX))


def test_every_type_goes_round(client: Client, stack: str, table: str) -> None:
    client.execute(f"CREATE TABLE {table} (id int NOT NULL PRIMARY KEY, {column_list()})")
    problems = [problem for place in range(len(MATRIX)) if (problem := round_trip(client, stack, table, place))]
    assert not problems, "\n".join(problems)


def round_trip(client: Client, stack: str, table: str, place: int) -> str:
    """What went wrong with one entry of the matrix; empty if nothing did."""
    declared, given, expected = MATRIX[place]
    shown = f"c{place}"
    if (stack, declared.partition("(")[0]) in OWN_FORM:
        shown, expected = f"CONVERT(varchar(40), c{place}, 121)", given
    try:
        client.execute(f"INSERT {table} (id, c{place}) VALUES (?, ?)", place, given)
        found = client.execute(f"SELECT {shown} FROM {table} WHERE id = ?", place)[0][0]
    except Failure as failure:
        return f"{declared}: {given!r:.80} fails: {failure}"
    return "" if found == expected else f"{declared}: {given!r:.80} came back as {found!r:.80}"


def test_null_of_every_type(client: Client, table: str) -> None:
    client.execute(f"CREATE TABLE {table} (id int NOT NULL PRIMARY KEY, {column_list()})")
    client.execute(f"INSERT {table} (id) VALUES (?)", 1)
    assert client.execute(f"SELECT * FROM {table}") == [(1, *[None] * len(MATRIX))]


@pytest.mark.parametrize(
    ("declared", "literal", "text"),
    [
        ("time(7)", "10:23:45.6789012", "10:23:45.6789012"),
        ("time(2)", "10:23:45.678", "10:23:45.68"),
        ("datetime2(7)", "9999-12-31 23:59:59.9999999", "9999-12-31 23:59:59.9999999"),
        ("datetimeoffset(7)", "2018-07-13 12:23:45.4567891 +11:00", "2018-07-13 12:23:45.4567891 +11:00"),
        ("datetime", "2018-07-13 13:23:45.789", "2018-07-13 13:23:45.790"),
        ("smalldatetime", "2018-07-13 14:23:29", "2018-07-13 14:23:00"),
        ("decimal(38,0)", "9" * 38, "9" * 38),
    ],
)
def test_digits_that_drivers_drop_are_stored(odbc: Client, table: str, declared: str, literal: str, text: str) -> None:
    odbc.execute(f"CREATE TABLE {table} (c {declared})")
    odbc.execute(f"INSERT {table} VALUES ('{literal}')")
    style = {"smalldatetime": ", 120", "decimal(38,0)": ""}.get(declared, ", 121")
    assert odbc.execute(f"SELECT CONVERT(varchar(60), c{style}) FROM {table}") == [(text,)]


def test_row_version_changes_with_every_update(client: Client, table: str) -> None:
    client.execute(f"CREATE TABLE {table} (id int NOT NULL PRIMARY KEY, v rowversion)")
    client.execute(f"INSERT {table} (id) VALUES (?)", 1)
    (before,) = client.execute(f"SELECT v FROM {table}")[0]
    client.execute(f"UPDATE {table} SET id = id")
    (after,) = client.execute(f"SELECT v FROM {table}")[0]
    assert len(before) == 8
    assert before < after
