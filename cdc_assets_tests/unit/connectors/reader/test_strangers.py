"""Messages and schemas of strangers: none takes more memory than its size lets expect, or ends the run by an error of its own."""

import json
import re
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema

from cdc_assets.connectors.reader.avro import AvroParts, fetch_from
from cdc_assets.connectors.reader.encode import Encoder
from cdc_assets.connectors.reader.event_lines import RECORDS, EventLines, checked_topic
from cdc_assets.connectors.reader.messages import BadRecordError, JsonDecoder, Message, Part, normalised
from cdc_assets.envelope.naming import CURRENT, HISTORY
from cdc_assets.registry import SchemaRegistry

ROOT = Path(__file__).parents[4]
HEAD = b"\0\0\0\0\1"


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields.items()]}


def doubled(levels: int) -> dict[str, Any]:
    """Records of which each holds the one below it twice."""
    found: Any = record("r0", a="int")
    for level in range(1, levels):
        found = record(f"r{level}", a=found, b=f"r{level - 1}")
    return dict(found)


BILLIONS = b"\x80\x80\x80\x80\x40\x00"
"""A block of 2**33 items, and the end of the list."""


@pytest.mark.parametrize(
    ("schema", "data", "reason"),
    [
        (doubled(40), b"", "more than 100000 parts"),
        (record("r", a={"type": "array", "items": record("nothing")}), BILLIONS, "takes no bytes"),
        (record("r", a={"type": "array", "items": record("one", b=record("nothing"))}), BILLIONS, "takes no bytes"),
        (record("r", a={"type": "fixed", "name": "f", "size": 0}), b"", "no bytes"),
        (record("r", a={"type": "array", "items": "null"}), BILLIONS, "cannot be used"),
    ],
)
def test_what_would_fill_memory_is_refused(schema: Any, data: bytes, reason: str) -> None:
    parts = AvroParts("http://127.0.0.1:1", "", lambda number: schema)
    with pytest.raises(BadRecordError, match=reason):
        parts.part(HEAD + data)


def test_one_name_that_is_used_again_is_no_trouble() -> None:
    parts = AvroParts("http://127.0.0.1:1", "", lambda number: doubled(6))
    part = parts.part(HEAD + b"\x02" * 32)
    assert part is not None
    assert json.dumps(part.parsed).count('"a": 1') == 32


@pytest.mark.parametrize("text", ["[" * 100_000, "no JSON", None])
def test_an_answer_that_is_no_schema_is_a_bad_record(monkeypatch: pytest.MonkeyPatch, text: str | None) -> None:
    registry = SchemaRegistry("http://127.0.0.1:1")
    monkeypatch.setattr(registry, "schema", lambda number: Schema(text, "AVRO"))
    with pytest.raises(BadRecordError, match="schema 1 cannot be read"):
        fetch_from(registry)(1)


@pytest.mark.parametrize("text", [f'{{"a": {"9" * 5000}}}', "[" * 100_000, '{"a": 1} 2'])
@pytest.mark.parametrize("schemas", [True, False, None])
def test_json_that_python_does_not_read_is_a_bad_record(text: str, schemas: bool | None) -> None:
    with pytest.raises(BadRecordError):
        JsonDecoder(schemas).decode(text)


@pytest.mark.parametrize("facts", [{"name": 5}, {"name": {}}, {"version": "x"}, {"version": True}, {"parameters": [1]}])
def test_a_schema_that_says_something_else_than_connects_is_a_bad_record(facts: dict[str, Any]) -> None:
    text = json.dumps({"schema": {"type": "int32", **facts}, "payload": 1})
    with pytest.raises(BadRecordError, match=next(iter(facts))):
        EventLines(JsonDecoder(None), JsonDecoder(None), "t", "mine").message("f", 1, "f line 1", text)
    written = record("r", a={"type": "int", **{f"connect.{name}": fact for name, fact in facts.items()}})
    with pytest.raises(BadRecordError, match=next(iter(facts))):
        AvroParts("http://127.0.0.1:1", "", lambda number: written).part(HEAD + b"\x02")


@pytest.mark.parametrize("value", [2, 1.5, True, None, {"b": 1}, ["c"]])
def test_parameters_of_a_schema_that_are_no_texts_are_a_bad_record(value: Any) -> None:
    """No JSON converter of Connect's reads such a schema, and an object could not be read again here either."""
    field = {"type": "int32", "field": "v", "parameters": {"scale": value}}
    text = json.dumps({"schema": {"type": "struct", "fields": [field]}, "payload": {"v": 1}})
    with pytest.raises(BadRecordError, match=r"parameters have .* for scale; expected a text"):
        JsonDecoder(None).decode(text)


def struct(*names: str, **inner: Any) -> dict[str, Any]:
    fields = [{"field": name, "type": "int32", "optional": True} for name in names]
    return {"type": "struct", "fields": fields + [{**schema, "field": name} for name, schema in inner.items()]}


def nested(levels: int) -> dict[str, Any]:
    return reduce(lambda schema, _: struct(a=schema), range(levels), struct("a"))


@pytest.mark.parametrize("text", ['{"id":1,"ID":2}', '{"id":' * 60 + "1" + "}" * 60, '{"id":' * 600 + "1" + "}" * 600])
def test_a_value_that_the_lake_cannot_hold_stops_no_other_of_its_topic(text: str) -> None:
    texts = ['{"id":1}', text, '{"id":2}']
    messages = [Message("f", 1, "f line 1", "t", None, JsonDecoder(None).decode(one)) for one in texts]
    found, wrong = Encoder({}, lambda topic: {}).encode(messages)
    assert list(wrong) == [1]
    assert sum(lines.rows for lines in found) == 2


def test_a_schema_that_is_nested_without_end_is_a_bad_record() -> None:
    schema = '{"type":"array","items":' * 600 + "{}" + "}" * 600
    with pytest.raises(BadRecordError):
        JsonDecoder(None).decode(f'{{"schema":{schema},"payload":null}}')


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (struct(), "without fields"),
        (struct("a", b=struct()), "without fields"),
        (struct("a", b={"type": "array", "items": struct()}), "without fields"),
        (struct("id", "ID"), "letter case"),
        (struct("id", "id"), "letter case"),
        (nested(60), "nests more than"),
        (nested(150), "nests more than"),
        ({"type": "int32", "name": "\ud800"}, "surrogates"),
        ({"type": "array", "items": {"type": "map", "keys": {"type": "string"}, "values": {"type": "string"}}}, "maps"),
    ],
)
def test_a_schema_that_the_lake_cannot_hold_stops_no_other_topic(schema: dict[str, Any], reason: str) -> None:
    parts = {"a": Part(normalised(schema), "1", 1), "b": Part(None, '{"id":1}', {"id": 1})}
    messages = [Message("f", 1, "f line 1", topic, None, part) for topic, part in parts.items()]
    found, wrong = Encoder({}, lambda topic: {}).encode(messages)
    assert [one.topic for one in found] == ["b"]
    assert reason in wrong[0]


@pytest.mark.parametrize(
    "topic", ["mine.__anything", "other.__windows", "other.__signals", "..", "../x", "a/b", "x" * 250]
)
def test_a_topic_that_would_be_a_record_of_any_capture_or_a_path_is_refused(topic: str) -> None:
    with pytest.raises(BadRecordError, match="no name of a topic"):
        checked_topic(topic, "mine")


@pytest.mark.parametrize("topic", ["other.Db.dbo.__orders", "windows", "other.windows", "mine.Db.dbo.orders"])
def test_other_topics_are_taken(topic: str) -> None:
    assert checked_topic(topic, "mine") == topic


def test_all_records_of_the_lake_are_known() -> None:
    files = (ROOT / "cdc_assets").rglob("*.py")
    found = {name for path in files for name in re.findall(r"\}\.__([a-z_]+)", path.read_text())}
    assert found | {mirror.removeprefix(".__") for mirror in (CURRENT, HISTORY)} == RECORDS
