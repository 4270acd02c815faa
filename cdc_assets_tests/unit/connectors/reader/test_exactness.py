"""Rows beside events, numbers, nulls and times: what a line holds is held exactly, or refused."""

import json
import tracemalloc
from contextlib import nullcontext
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.cli.tail import lines
from cdc_assets.cli.topic_events import newest, rows_by_operation
from cdc_assets.config.settings import TextSettings
from cdc_assets.connectors.reader.encode import Encoder
from cdc_assets.connectors.reader.messages import JsonDecoder, Message
from cdc_assets.errors import LakeError
from cdc_assets_tests.unit.connectors.reader.trial import Trial

CONNECT = "org.apache.kafka.connect.data"


def seen(trial: Trial) -> list[Any]:
    return [event["value"] for event in trial.held("t")]


COLUMNS = [
    "key",
    "value",
    "payload",
    "headers",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "ts",
    "schema",
    "position",
]


@pytest.mark.parametrize("name", COLUMNS)
def test_a_row_may_have_columns_that_are_called_as_parts_of_an_event(tmp_path: Path, name: str) -> None:
    trial = Trial(tmp_path, files__topic="t")
    rows: list[Any] = [{"id": 1, name: 3}, {name: 4, "id": 2}, {name: 5, "id": 3, "other": "x"}]
    texts = [{"id": 4, "text": "{no"}] if name in ("topic", "position") else [{"id": 4, "text": "{no", name: 1}]
    trial.write("a.json", *rows, *texts)
    trial.run()
    expected = [{"id": None, name: None, "other": None, "text": None} | row for row in rows + texts]
    assert [{**dict.fromkeys(expected[0]), **value} for value in seen(trial)] == expected
    assert all(event["key"] is None for event in trial.held("t"))


def test_a_row_may_have_columns_that_are_called_as_parts_of_a_value(tmp_path: Path) -> None:
    rows: list[Any] = [
        {"source": "web"},
        {"source": [1]},
        {"source": {"snapshot": {"a": 1}, "connector": {"b": 1}}},
        {"source": {"snapshot": 1, "connector": 5}},
        {"op": 5},
        {"op": {"a": 1}},
        {"status": "x", "id": 5, "event_count": 1},
        {"status": 1, "id": "x", "event_count": 1},
    ]
    trial = Trial(tmp_path)
    trial.write("a.json", *({"topic": f"t{place}", "value": row} for place, row in enumerate(rows)))
    trial.run()
    assert [[event["value"] for event in trial.held(f"t{place}")] for place in range(len(rows))] == [
        [row] for row in rows
    ]


def test_rows_beside_events_are_counted(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    key = {"key": {"id": 1}}
    trial.write("a.json", {"topic": "rows", **key, "value": {"op": 1}}, {"topic": "rows", **key, "value": None})
    trial.write("a.json", {"topic": "gone", **key, "value": None}, {"topic": "t", "value": {"op": "c", "after": None}})
    trial.run()
    counts = {topic: rows_by_operation(trial.tables(), [topic]) for topic in ("rows", "gone", "t")}
    assert counts == {"rows": {"event": 1, "tombstone": 1}, "gone": {"tombstone": 1}, "t": {"create": 1}}


@pytest.mark.parametrize("decimals", ["BASE64", "NUMERIC"])
def test_a_topic_of_nothing_but_tombstones_is_printed(tmp_path: Path, decimals: Any) -> None:
    trial = Trial(tmp_path)
    trial.write("a.json", {"topic": "gone", "key": {"id": 1}, "value": None})
    trial.run()
    rows = newest(trial.tables(), "gone", 10)
    text = TextSettings(value_schema=True, value_decimals=decimals)
    assert [json.loads(line)["value"] for line in lines([rows], text, headers=True)] == [None]
    assert list(lines([rows], TextSettings(format="flinkx"))) == []


def test_a_row_of_keys_and_values_with_more_is_a_row(tmp_path: Path) -> None:
    rows = [
        {"key": 7, "value": "x", "timestamp": 9},
        {"key": 7, "value": "x", "position": 1},
        {"key": 7, "value": "{no", "name": "x"},
        {"key": 7, "name": "x"},
        {"key": 7, "value": "x", "payload": "y"},
        {"key": 7},
    ]
    for place, row in enumerate(rows):
        folder = tmp_path / str(place)
        folder.mkdir()
        trial = Trial(folder, files__topic="t")
        trial.write("a.json", row)
        trial.run()
        assert [(event["key"], event["value"]) for event in trial.held("t")] == [(None, row)]


NUMBERS = [
    "123456789.12345678901", "12345678901.123456", "0.12345678901234567", "1234567890123456", "-0.1234567890123456",
    "1.2345678901234567e5", "1e400", "1e-400", "1.2345678901e-320", "5e-324", "0.1", "1e22", "123456789012345", "1.5E-310",
]  # fmt: skip


@pytest.mark.combinations
@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("is_known", [False, True])
def test_a_number_is_held_exactly_or_refused(tmp_path: Path, number: str, is_known: bool) -> None:
    """Whether its column is known already, so that Arrow reads it, or not."""
    trial = Trial(tmp_path, files__topic="t")
    if is_known:
        trial.write("a.json", {"v": 1.5})
        trial.run()
    trial.write("b.json", f'{{"v": {number}}}')
    exact = Decimal(repr(float(number))) == Decimal(number)
    with nullcontext() if exact else pytest.raises(LakeError, match="neither int64 nor double"):
        trial.run()
    assert seen(trial) == ([{"v": 1.5}] if is_known else []) + ([{"v": float(number)}] if exact else [])


REQUIRED = {
    "a field": ({"type": "int32", "optional": False}, 1, None),
    "in a struct": (
        {"type": "struct", "optional": True, "fields": [{"type": "int32", "optional": False, "field": "x"}]},
        {"x": 1},
        {"x": None},
    ),
    "of a list": ({"type": "array", "optional": True, "items": {"type": "int32", "optional": False}}, [1], [1, None]),
    "of a map": (
        {
            "type": "map",
            "optional": True,
            "keys": {"type": "string", "optional": False},
            "values": {"type": "string", "optional": False},
        },
        {"x": "1"},
        {"x": None},
    ),
}


@pytest.mark.combinations
@pytest.mark.parametrize("side", ["key", "value"])
@pytest.mark.parametrize("place", REQUIRED)
def test_a_null_that_the_schema_does_not_allow_is_told(tmp_path: Path, side: str, place: str) -> None:
    schema, good, bad = REQUIRED[place]
    whole = {"type": "struct", "optional": False, "name": "t.Envelope", "fields": [schema | {"field": "v"}]}
    other = {"payload": 1, "schema": {"type": "int32"}}
    trial = Trial(tmp_path, files__topic="t")
    parts = [{"schema": whole, "payload": {"v": value}} for value in (good, bad)]
    if schema["optional"]:
        parts.insert(0, {"schema": whole, "payload": {"v": None}})
    trial.write("a.json", *({"key": other, "value": other} | {side: part} for part in parts))
    with pytest.raises(LakeError, match=f"a.json line {len(parts)}: v.* (null|none)"):
        trial.run()
    assert len(trial.held("t")) == len(parts) - 1


def test_a_missing_value_that_has_a_default_is_the_default(tmp_path: Path) -> None:
    """As Connect's converter has it."""
    fields = [{"type": "int32", "optional": False, "default": 7, "field": "v"}]
    trial = Trial(tmp_path, files__topic="t")
    trial.write("a.json", {"schema": {"type": "struct", "optional": False, "fields": fields}, "payload": {}})
    trial.run()
    assert seen(trial) == [{"v": 7}]


@pytest.mark.parametrize("beside", [1.0, "NaN"])
def test_a_timestamp_that_the_lake_cannot_hold_is_told(tmp_path: Path, beside: object) -> None:
    """NaN lets the whole line go the slow way."""
    own = [
        {"type": "int64", "optional": True, "name": f"{CONNECT}.Timestamp", "version": 1, "field": "v"},
        {"type": "double", "optional": True, "field": "d"},
    ]
    schema = {"type": "struct", "optional": False, "fields": own}
    trial = Trial(tmp_path, files__topic="t")
    values = [9223372036854775, -9223372036854775, 9223372036854776]
    trial.write("a.json", *({"schema": schema, "payload": {"v": value, "d": beside}} for value in values))
    with pytest.raises(LakeError, match=r"a\.json line 3: v is 9223372036854776; expected .*Timestamp"):
        trial.run()
    table = trial.tables().open("t")
    assert table is not None
    assert table.to_pyarrow_table().num_rows == 2


@pytest.mark.long
def test_schemas_that_come_after_their_payloads_do_not_fill_memory() -> None:
    """Each message brings its own, though all are the same."""
    fields = [{"type": "string", "optional": True, "field": f"column_{number}"} for number in range(60)]
    schema = {"type": "struct", "optional": False, "fields": fields}
    text = json.dumps({"payload": {"column_1": "x"}, "schema": schema})
    decoder, encoder = JsonDecoder(None), Encoder({}, lambda _: {})
    taken = []
    tracemalloc.start()
    for _ in range(8):
        encoder.encode([Message("s", 1, "s 1", "t", None, decoder.decode(text)) for _ in range(500)])
        taken.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert max(taken) < 3 * taken[0]


def messages_of(*texts: str) -> list[Message]:
    return [Message("f", 1, "f line 1", "t", None, JsonDecoder(None).decode(text)) for text in texts]


def test_a_message_that_is_refused_shows_no_types() -> None:
    encoder = Encoder({}, lambda topic: {})
    texts = ['{"a":1}', '{"\\ud800":1}', '{"b":1,"c":1e400}', '{"a":2}']
    _, wrong = encoder.encode(messages_of(*texts))
    assert list(wrong) == [1, 2]
    [lines], wrong = encoder.encode(messages_of('{"a":3}'))
    assert not wrong
    assert lines.table is not None
    assert lines.table["value"].to_pylist() == [{"a": 3}]


@pytest.mark.parametrize("text", ["{}", "[]", '{"a":null}'])
def test_a_value_that_shows_no_type_becomes_no_tombstone(text: str) -> None:
    encoder = Encoder({}, lambda topic: {})
    assert "tombstone" in encoder.encode(messages_of(text))[1][0]
    assert not encoder.encode(messages_of('{"a":1}', '{"a":null}'))[1]
    encoder.encode(messages_of("[]"))
    [lines], wrong = encoder.encode(messages_of('{"a":null}', "null"))
    assert not wrong
    assert lines.table is not None
    assert lines.table["value"].to_pylist() == [{"a": None}, None]
