"""JSON for Kafka is as Jackson writes bytes: characters beyond U+FFFF are two escapes."""

import json
from datetime import datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from cdc_assets.publish.forms import JsonForm, escape_pairs, escape_pairs_of
from cdc_assets.publish.render import simple_texts
from cdc_assets.typemap.connect import ConnectType, struct


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_only_characters_beyond_the_first_plane_are_escaped(kind: pa.DataType) -> None:
    texts = pa.array(["plain", None, "Zoë 日本", "a 😀 b \U0010ffff", ""], kind)
    escaped = escape_pairs(texts)
    assert escaped.type == kind
    assert escaped.to_pylist() == ["plain", None, "Zoë 日本", r"a \uD83D\uDE00 b \uDBFF\uDFFF", ""]
    assert escape_pairs(texts.slice(0, 3)).to_pylist() == texts.to_pylist()[:3]
    assert json.loads(f'"{escape_pairs_of("😀")}"') == "😀"


def test_values_are_escaped() -> None:
    field = struct("t.Value", [ConnectType("string").to_field("name")]).to_field("value")
    rendered = JsonForm(schema=False, defaults=True).render("t", field, pa.array([{"name": "😀"}], field.type))
    assert rendered.to_pylist() == [r'{"name":"\uD83D\uDE00"}']


NUMBERS = [
    ("10.50", 2, "10.50"),
    ("0.0000001", 7, "1E-7"),
    ("0", 7, "0E-7"),
    ("0", 6, "0.000000"),
    ("-0.00000012", 8, "-1.2E-7"),
    ("123456789012345678901234567890.12345678", 8, "123456789012345678901234567890.12345678"),
    ("-5", 0, "-5"),
    ("0", 10, "0E-10"),
]
"""Decimals, their scales, and what the JSON converter of Kafka 4.3 makes of them with `decimal.format=NUMERIC`."""
DECIMAL = "org.apache.kafka.connect.data.Decimal"


def decimal_type(scale: int, default: str | None = None) -> ConnectType:
    return ConnectType("bytes", DECIMAL, 1, (("scale", str(scale)),), pa.decimal128(38, scale), default=default)


@pytest.mark.parametrize(("value", "scale", "shown"), NUMBERS)
def test_decimals_are_numbers_if_the_converter_is_told_so(value: str, scale: int, shown: str) -> None:
    field = struct("t.Key", [decimal_type(scale).to_field("d")]).to_field("key")
    array = pa.array([{"d": Decimal(value)}, {"d": None}], field.type)
    rendered = JsonForm(schema=False, defaults=True, numeric=True).render("t", field, array)
    assert rendered.to_pylist() == [f'{{"d":{shown}}}', '{"d":null}']


def test_the_default_of_a_number_is_one_in_the_schema_and_in_place_of_null() -> None:
    row = struct("t.Value", [decimal_type(2, '"Arw="').to_field("d"), ConnectType("int32").to_field("i")])
    field = struct("t.Envelope", [row.to_field("before"), row.to_field("after")], optional=False).to_field("value")
    array = pa.array([{"before": None, "after": {"d": None, "i": 1}}] * 3, field.type)[1:]
    form = JsonForm(schema=True, defaults=True, numeric=True)
    described = (
        f'{{"type":"bytes","optional":true,"name":"{DECIMAL}","version":1,"parameters":{{"scale":"2"}},"default":7.00,'
        '"field":"d"}'
    )
    for text in form.render("t", field, array).to_pylist():
        assert text.count(described) == 2
        assert text.endswith('"payload":{"before":null,"after":{"d":7.00,"i":1}}}')
    null = form.null(field)
    assert null is not None
    assert null.count(described.encode()) == 2
    plain = JsonForm(schema=False, defaults=True).render("t", field, array)
    assert plain.to_pylist() == ['{"before":null,"after":{"d":"Arw=","i":1}}'] * 2


DAY_MS = 86_400_000
MOMENTS = [
    (0, "00:00:00.000Z"),
    (1, "00:00:00.001Z"),
    (DAY_MS - 1, "23:59:59.999Z"),
    (DAY_MS, "1970-01-02"),
    (DAY_MS + 1, "1970-01-02T00:00:00.001Z"),
    (1704067200000, "2024-01-01"),
    (1704078000123, "2024-01-01T03:00:00.123Z"),
    (-1, "23:59:59.999Z"),
    (-DAY_MS, "00:00:00.000Z"),
    (-305240400000, "03:00:00.000Z"),
    (-62135596800000, "00:00:00.000Z"),
    (253402300799999, "9999-12-31T23:59:59.999Z"),
]
"""Milliseconds since 1970, and what the simple header converter of Kafka 4.3 makes of them, whether as date, time or timestamp."""


@pytest.mark.parametrize(("ms", "shown"), MOMENTS)
def test_times_in_headers_are_as_the_simple_converter_prints_them(ms: int, shown: str) -> None:
    at = datetime(1970, 1, 1) + timedelta(milliseconds=ms)  # noqa: DTZ001 - without zone, as the values are
    kind = pa.timestamp("us")
    stamp = ConnectType("int64", "org.apache.kafka.connect.data.Timestamp", 1, arrow=kind).to_field("h")
    assert simple_texts(stamp, pa.array([at, None], kind)) == [shown, None]
    if ms % DAY_MS == 0:
        date = ConnectType("int32", "org.apache.kafka.connect.data.Date", 1, arrow=pa.date32()).to_field("h")
        assert simple_texts(date, pa.array([at.date(), None])) == [shown, None]
    if 0 <= ms < DAY_MS:
        time = ConnectType("int32", "org.apache.kafka.connect.data.Time", 1).to_field("h")
        assert simple_texts(time, pa.array([ms, None], pa.int32())) == [shown, None]
