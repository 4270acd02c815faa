"""What the row encoder writes, the parameter reader reads back: for every type and value."""

import math
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from mssql_standin.errors import SqlError
from mssql_standin.sqltypes import SqlType, Value, decimal_to_stored, offset_to_stored, parse_type
from mssql_standin.wire.rowenc import encode_value, row_encoder
from mssql_standin.wire.typeinfo import type_info
from mssql_standin.wire.values import read_typed

DAY = 864_000_000_000
LAST_DAY = 3652058
CP1252 = st.sampled_from(bytes(range(256)).decode("cp1252", "ignore"))  # `characters(codec=…)` tries a million first
TICKS = st.integers(0, LAST_DAY).map(lambda day: day * DAY)


def integers(bits: int) -> SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


def clock(scale: int) -> SearchStrategy[int]:
    step = 10 ** (7 - scale)
    return st.integers(0, DAY // step - 1).map(lambda count: count * step)


def decimals(sql_type: SqlType) -> SearchStrategy[int | bytes]:
    limit = 10**sql_type.precision - 1
    return st.integers(-limit, limit).map(lambda scaled: decimal_to_stored(scaled, sql_type))


def is_between_the_years(moment: tuple[int, int]) -> bool:
    """Whether the local time of a moment in UTC is in the years 1 to 9999."""
    ticks, minutes = moment
    return 0 <= ticks + minutes * 60 * 10**7 < (LAST_DAY + 1) * DAY


def values(sql_type: SqlType) -> SearchStrategy[Value]:
    """Any value that the type can hold."""
    name, scale = sql_type.name, sql_type.scale
    if name in ("decimal", "numeric"):
        return decimals(sql_type)
    if name == "datetime2":
        return st.builds(lambda day, time: day + time, TICKS, clock(scale))
    if name == "datetimeoffset":
        moments = st.builds(lambda day, time: day + time, TICKS, clock(scale))
        held = st.tuples(moments, st.integers(-840, 840)).filter(is_between_the_years)
        return held.map(lambda parts: offset_to_stored(*parts))
    others: dict[str, SearchStrategy[Value]] = {
        "bit": st.integers(0, 1), "tinyint": st.integers(0, 255), "smallint": integers(16), "int": integers(32),
        "bigint": integers(64), "money": integers(64), "smallmoney": integers(32),
        "float": st.floats(allow_nan=False, allow_infinity=False),
        "real": st.floats(width=32, allow_nan=False, allow_infinity=False),
        "date": st.integers(0, LAST_DAY), "time": clock(scale), "datetime": st.integers(-53690 * 25920000, 2958463 * 25920000),
        "smalldatetime": st.integers(0, 65535 * 1440 + 1439), "uniqueidentifier": st.binary(min_size=16, max_size=16),
        "varchar": st.text(CP1252, max_size=30), "char": st.text(CP1252, min_size=10, max_size=10),
        "nvarchar": st.text(max_size=15), "nchar": st.text(st.characters(max_codepoint=0xFFFF), min_size=10, max_size=10),
        "xml": st.text("aä€日😀 ", max_size=30).map(lambda text: f"<a>x{text}</a>"), "ntext": st.text(max_size=30), "text": st.text(CP1252, max_size=30), "varbinary": st.binary(max_size=30), "binary": st.binary(min_size=10, max_size=10),
    }  # fmt: skip
    return others.get(name, st.binary(max_size=30))


TYPES = [
    "bit", "tinyint", "smallint", "int", "bigint", "money", "smallmoney", "float", "real", "date", "datetime",
    "smalldatetime", "uniqueidentifier", "varchar(30)", "varchar(max)", "char(10)", "nvarchar(30)", "nvarchar(max)",
    "nchar(10)", "xml", "varbinary(30)", "varbinary(max)", "binary(10)", "decimal(9,2)", "decimal(18,4)",
    "numeric(19,0)", "decimal(28,28)", "decimal(38,10)",
    *(f"{name}({scale})" for name in ("time", "datetime2", "datetimeoffset") for scale in range(8)),
]  # fmt: skip

RARE = ["text", "ntext", "image", "rowversion", "sql_variant", "hierarchyid", "geography"]
"""Types that no parameter has, or whose column form is not a parameter's."""


@pytest.mark.parametrize("declared", TYPES)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_written_values_are_read_back(declared: str, data: st.DataObject) -> None:
    sql_type = parse_type(declared)
    value = data.draw(st.none() | values(sql_type))
    sent = type_info(sql_type) + encode_value(sql_type, value)
    assert read_typed(sent, 0) == (sql_type, value, len(sent))


def fixed(sql_type: SqlType, nullable: bool, value: Value) -> bytes:
    """A value as the column's TYPE_INFO announces it: numbers that are NOT NULL travel without their length byte."""
    sent = encode_value(sql_type, value)
    return sent[1:] if not nullable and len(type_info(sql_type, nullable)) < len(type_info(sql_type)) else sent


@pytest.mark.parametrize("declared", TYPES)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_a_row_is_its_values_one_after_the_other(declared: str, data: st.DataObject) -> None:
    """The fused encoder gives what single values give: in any order of any types, NULL or NOT NULL, few or many."""
    others = data.draw(st.lists(st.sampled_from([*TYPES, *RARE]), max_size=6))
    types = tuple(map(parse_type, data.draw(st.permutations([declared, *others]))))
    nullable = tuple(data.draw(st.booleans()) for _ in types)
    row = [
        data.draw(st.none() | values(sql_type) if may_be_null else values(sql_type))
        for sql_type, may_be_null in zip(types, nullable, strict=True)
    ]
    expected = b"\xd1" + b"".join(map(fixed, types, nullable, row))
    assert row_encoder(types, nullable)([row, row]) == (2, expected * 2)


@pytest.mark.parametrize("before", ["varchar(30)", "varbinary(max)", "binary(10)", "xml"])
@pytest.mark.parametrize("alone", ["bit", "tinyint"])
@pytest.mark.parametrize("behind", [(), ("varchar(max)",), ("binary(10)",)])
def test_a_lone_byte_that_is_never_null_is_a_value(before: str, alone: str, behind: tuple[str, ...]) -> None:
    types = tuple(map(parse_type, (before, alone, *behind)))
    row = [None, 1, *(None for _ in behind)]
    nullable = tuple(value is None for value in row)
    expected = b"\xd1" + b"".join(map(fixed, types, nullable, row))
    assert row_encoder(types, nullable)([row]) == (1, expected)


def test_xml_is_stored_as_a_column_gives_it_back() -> None:
    sql_type = parse_type("xml")
    sent = type_info(sql_type) + encode_value(sql_type, "\ufeff<?xml version='1.0'?><a b='1'></a>")
    assert read_typed(sent, 0)[1] == '<a b="1"/>'
    for wrong, number in (("<a>", "9400"), ("<a>\ud800</a>", "9420: XML parsing: line 1, character 4")):
        with pytest.raises(SqlError, match=number):
            read_typed(type_info(sql_type) + encode_value(sql_type, wrong), 0)


@pytest.mark.parametrize("declared", ["float", "real"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_no_column_can_hold_is_refused(declared: str, value: float) -> None:
    sql_type = parse_type(declared)
    with pytest.raises(SqlError, match="8023"):
        read_typed(type_info(sql_type) + encode_value(sql_type, value), 0)


def test_not_null_numbers_travel_without_length() -> None:
    types = (parse_type("int"), parse_type("money"), parse_type("varchar(5)"), parse_type("bigint"))
    encode = row_encoder(types, (False, False, False, True))
    expected = b"\xd1" + struct.pack("<i", 7) + struct.pack("<iI", 0, 5) + b"\x01\0a" + b"\0"
    assert encode([(7, 5, "a", None)]) == (1, expected)
    assert type_info(types[0], nullable=False) == b"\x38"


@pytest.mark.parametrize(
    ("declared", "value", "expected"),
    [
        ("int", 258, b"\x04\x02\x01\0\0"),
        ("int", None, b"\0"),
        ("varchar(5)", "ab€", b"\x03\0ab\x80"),
        ("varchar(5)", None, b"\xff\xff"),
        ("varchar(max)", "", b"\0" * 12),
        ("varchar(max)", None, b"\xff" * 8),
        ("nvarchar(5)", "é", b"\x02\0\xe9\0"),
        ("money", 1 << 32 | 7, struct.pack("<Bii", 8, 1, 7)),
        ("decimal(5,2)", -123, b"\x05\0\x7b\0\0\0"),
        ("date", 1, b"\x03\x01\0\0"),
        ("time(0)", 10_000_000, b"\x03\x01\0\0"),
        ("datetime2(7)", DAY + 1, b"\x08\x01\0\0\0\0\x01\0\0"),
        ("text", "ab", b"\x10standin text ptrstandin\0\x02\0\0\0ab"),
        ("ntext", None, b"\0"),
        ("sql_variant", None, b"\0\0\0\0"),
        ("sql_variant", b"\x09", b"\x05\0\0\0\xa5\x02\x40\x1f\x09"),
        ("rowversion", b"12345678", b"\x08\x0012345678"),
    ],
)
def test_form_on_the_wire(declared: str, value: Value, expected: bytes) -> None:
    assert encode_value(parse_type(declared), value) == expected
