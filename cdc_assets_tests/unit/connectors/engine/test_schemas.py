"""Connect's schemas and an engine's lines become the lake's columns."""

import datetime as dt
import json
from base64 import b64encode
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from cdc_assets.connectors.engine.schemas import field_of, read_lines, topic_schema
from cdc_assets.envelope.json import to_json
from cdc_assets.envelope.json_schema import schema_of
from cdc_assets.errors import EngineError

KEY = {"type": "struct", "fields": [{"type": "int64", "optional": False, "field": "id"}], "optional": False}
NUMERIC = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "version": 1}
ELEMENT = {"type": "struct", "fields": [{"type": "bytes", "optional": True, "field": "raw"}], "optional": False}
CASES: list[tuple[dict[str, Any], object, object]] = [
    ({"type": "int16"}, -3, -3),
    ({"type": "boolean"}, True, True),
    ({"type": "double"}, "1.0E10", 1e10),
    ({"type": "double"}, "-Infinity", float("-inf")),
    ({"type": "float"}, "2.5", 2.5),
    ({"type": "string", "name": "io.debezium.data.Json", "version": 1}, '{"ä":"\n"}', '{"ä":"\n"}'),
    ({"type": "bytes"}, b64encode(b"\0\xff").decode(), b"\0\xff"),
    (NUMERIC | {"parameters": {"scale": "2", "connect.decimal.precision": "10"}}, "-1.50", Decimal("-1.50")),
    (NUMERIC | {"parameters": {"scale": "3", "connect.decimal.precision": "60"}}, b64encode(b"\x01\0").decode(), b"\x01\0"),
    (NUMERIC | {"parameters": {"scale": "0"}}, b64encode(b"\x07").decode(), b"\x07"),
    (NUMERIC | {"parameters": {"scale": "-2", "connect.decimal.precision": "5"}}, b64encode(b"\x07").decode(), b"\x07"),
    (NUMERIC | {"parameters": {"scale": "5", "connect.decimal.precision": "2"}}, b64encode(b"\x07").decode(), b"\x07"),
    (NUMERIC | {"parameters": {"connect.decimal.precision": "5"}}, b64encode(b"\x07").decode(), b"\x07"),
    (NUMERIC | {"parameters": {"scale": "2", "connect.decimal.precision": "2"}}, "-0.50", Decimal("-0.50")),
    ({"type": "int32", "name": "org.apache.kafka.connect.data.Date", "version": 1}, 1, dt.date(1970, 1, 2)),
    ({"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp", "version": 1}, 1500, dt.datetime(1970, 1, 1, 0, 0, 1, 500_000)),  # noqa: DTZ001 - a wall-clock reading
    ({"type": "array", "items": {"type": "string", "optional": True}}, ["a", None], ["a", None]),
    ({"type": "array", "items": ELEMENT}, [{"raw": b64encode(b"x").decode()}], [{"raw": b"x"}]),
    ({"type": "map", "keys": {"type": "string", "optional": False}, "values": {"type": "string", "optional": True}}, [{"key": "k", "value": None}], [("k", None)]),
]  # fmt: skip


def envelope(schema: dict[str, Any]) -> dict[str, Any]:
    column = schema | {"optional": True, "field": "c"}
    after = {"type": "struct", "fields": [column], "optional": True, "field": "after", "name": "Value"}
    return {"type": "struct", "fields": [after], "optional": False, "name": "Envelope", "version": 2}


def read(schema: pa.Schema, *lines: dict[str, Any]) -> pa.Table:
    texts = [json.dumps({"n": number, "headers": [], **line}) for number, line in enumerate(lines)]
    return read_lines(schema, "\n".join(texts).encode() + b"\n", max(map(len, texts)))


@pytest.mark.parametrize(("schema", "written", "value"), CASES)
def test_values_of_each_type(schema: dict[str, Any], written: object, value: object) -> None:
    topic = topic_schema(KEY, envelope(schema))
    rows = [{"key": {"id": 1}, "value": {"after": {"c": written}}}, {"key": {"id": 2}, "value": {"after": {"c": None}}}]
    nothing = [{"key": {"id": 3}, "value": {"after": None}}, {"key": {"id": 4}, "value": None}]
    table = read(topic, *rows, *nothing)
    assert table.column("value").to_pylist() == [{"after": {"c": value}}, {"after": {"c": None}}, {"after": None}, None]
    assert table.column("key").to_pylist() == [{"id": number} for number in (1, 2, 3, 4)]
    assert table.column("n").to_pylist() == [0, 1, 2, 3]


PRINTED = [schema for schema, _, _ in CASES if schema["type"] != "map"]
"""Not those of maps, whose values the lake's JSON never prints as null."""


@pytest.mark.parametrize("schema", PRINTED)
def test_the_schema_can_be_printed_again(schema: dict[str, Any]) -> None:
    expected = envelope(schema)
    assert schema_of(field_of("value", expected)) == expected


def test_numbers_of_unknown_digits_are_printed_as_the_connector_prints_them() -> None:
    schema = topic_schema(KEY, envelope(NUMERIC | {"parameters": {"scale": "0"}}))
    table = read(schema, {"key": {"id": 1}, "value": {"after": {"c": "Bw=="}}})
    batch = pa.record_batch(
        {
            "position": ["0"],
            "key": table["key"].combine_chunks(),
            "value": table["value"].combine_chunks(),
            "headers": table["headers"].combine_chunks(),
        }
    )
    _, value, _ = to_json(schema, batch, schemas=False)
    assert value.to_pylist() == ['{"after":{"c":"Bw=="}}']


def test_maps_may_hold_nulls() -> None:
    text, maybe = {"type": "string", "optional": False}, {"type": "string", "optional": True}
    schema = topic_schema(KEY, envelope({"type": "map", "keys": text, "values": maybe}))
    entries = [{"key": "a", "value": "1"}, {"key": "b", "value": None}]
    rows = [{"key": {"id": 1}, "value": {"after": {"c": value}}} for value in (entries, None, [])]
    batch = read(schema, *rows).append_column("position", pa.array(["0", "1", "2"])).combine_chunks().to_batches()[0]
    _, value, _ = to_json(schema, batch, schemas=False)
    shown = ['{"a":"1","b":null}', "null", "{}"]
    assert value.to_pylist() == [f'{{"after":{{"c":{text}}}}}' for text in shown]


def test_tombstones_need_no_schema_of_values() -> None:
    table = read(topic_schema(KEY, None), {"key": {"id": 1}, "value": None})
    assert table.column_names == ["n", "key", "headers"]


def test_headers_are_kept() -> None:
    line = {"key": {"id": 1}, "value": None, "headers": [{"key": "__debezium.newkey", "value": '{"id":2}'}]}
    assert read(topic_schema(KEY, None), line)["headers"].to_pylist() == [[("__debezium.newkey", '{"id":2}')]]


def test_an_event_that_does_not_fit_is_told() -> None:
    with pytest.raises(EngineError, match="do not fit their own schema"):
        read(topic_schema(KEY, envelope({"type": "int32"})), {"key": {"id": 1}, "value": {"after": {"other": 1}}})


def test_a_map_of_numbers_is_told() -> None:
    text = {"type": "string", "optional": False}
    schema = {"type": "map", "keys": text, "values": {"type": "int32", "optional": True}}
    with pytest.raises(EngineError, match="expected a map of texts"):
        topic_schema(KEY, envelope(schema))
