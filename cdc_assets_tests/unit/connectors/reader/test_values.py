"""Values of all types come out as they went in, by Arrow and one by one; and what has no schema shows its types."""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from cdc_assets_tests.unit.connectors.reader.trial import Trial

DECIMAL = "org.apache.kafka.connect.data.Decimal"
CONNECT = "org.apache.kafka.connect.data"


def field(kind: str, name: str = "", **more: Any) -> dict[str, Any]:
    return {"type": kind, "optional": True} | ({"name": name, "version": 1} if name else {}) | more


def decimal(scale: int, digits: int | None) -> dict[str, Any]:
    more = {} if digits is None else {"connect.decimal.precision": str(digits)}
    return field("bytes", DECIMAL, parameters={"scale": str(scale)} | more)


TYPES: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "int8": (field("int8"), [-128, 127, None]),
    "int64": (field("int64"), [-(2**63), 2**63 - 1]),
    "unsigned": (field("int64", "x.Unsigned"), [1]),
    "float": (field("float"), [1.5, -0.25, None]),
    "double": (field("double"), [0.1, 1e300, 5e-324, 3.0]),
    "odd double": (field("double"), ["NaN", "Infinity", "-Infinity", 1.0]),
    "boolean": (field("boolean"), [True, False, None]),
    "string": (field("string"), ["", 'ä\n"\\\u0001', "2018-01-01T00:00:00", "\U0001f600"]),
    "bytes": (field("bytes"), ["", "AAH/", None]),
    "decimal": (decimal(2, 10), ["EtaH", "/w==", "AA==", None]),
    "decimal 38": (decimal(0, 38), [b64encode((10**38 - 1).to_bytes(16, "big")).decode(), "AQ=="]),
    "wide decimal": (decimal(3, 50), ["AQIDBAUGBwgJCgsMDQ4PEBESExQ=", None]),
    "decimal of many digits": (decimal(2, 38), ["CUmw9vACMxPESZBQ3jjzTg=="]),
    "decimal of unknown digits": (decimal(0, None), ["AQIDBAUGBwgJCgsMDQ4PEBESExQ="]),
    "decimal with its point behind its digits": (decimal(-2, 5), ["ew==", "/w=="]),
    "decimal with its point before its digits": (decimal(5, 2), ["DA==", None]),
    "variable decimal": (
        field(
            "struct",
            "io.debezium.data.VariableScaleDecimal",
            fields=[field("int32") | {"field": "scale"}, field("bytes") | {"field": "value"}],
        ),
        [{"scale": 3, "value": "AQI="}, None],
    ),
    "date": (field("int32", f"{CONNECT}.Date"), [0, -1, 20000, None]),
    "time": (field("int32", f"{CONNECT}.Time"), [0, 86399999]),
    "timestamp": (field("int64", f"{CONNECT}.Timestamp"), [0, -1, 1700000000123, None]),
    "micro": (field("int64", "io.debezium.time.MicroTimestamp"), [1700000000123456]),
    "zoned": (field("string", "io.debezium.time.ZonedTimestamp"), ["2024-01-01T00:00:00.5Z"]),
    "list": (field("array", items=field("string")), [["a", None], [], None]),
    "list of structs": (
        field("array", items=field("struct", fields=[field("int32") | {"field": "a"}])),
        [[{"a": 1}, {"a": None}]],
    ),
    "map": (
        field("map", keys={"type": "string", "optional": False}, values={"type": "string", "optional": True}),
        [{"a": "1", "b": "2"}, None],
    ),
    "default": (field("int32", default=7), [7, 8]),
}


@pytest.mark.parametrize("slowly", [False, True])
def test_values_of_declared_types(tmp_path: Path, slowly: bool) -> None:
    trial = Trial(tmp_path)
    expected = {}
    for number, (schema, values) in enumerate(TYPES.values()):
        fields = [schema | {"field": "v"}, field("double") | {"field": "way"}]
        whole = {"type": "struct", "optional": False, "name": f"s.t{number}.Envelope", "fields": fields}
        payloads = [{"v": value, "way": "NaN" if slowly else 1.0} for value in values]
        trial.write("a.json", *({"schema": whole, "payload": payload} for payload in payloads))
        expected[f"s.t{number}"] = whole, payloads
    trial.run()
    for topic, (schema, payloads) in expected.items():
        found = [event["value"] for event in trial.held(topic, schemas=True)]
        assert [value["payload"] for value in found] == payloads
        assert all(_loosely(value["schema"]) == _loosely(schema) for value in found)


def _loosely(schema: Any) -> Any:
    """A map's values are printed as required texts."""
    return json.loads(
        json.dumps(schema).replace(
            '"values": {"type": "string", "optional": true}', '"values": {"type": "string", "optional": false}'
        )
    )


def test_numbers_for_decimals_are_read_exactly(tmp_path: Path) -> None:
    """Written with `decimal.format=NUMERIC`."""
    fields = [decimal(2, 38) | {"field": "a"}, decimal(30, None) | {"field": "b"}]
    whole = {"type": "struct", "name": "s.t.Envelope", "fields": fields}
    text = '{"a":123456789012345678901234567890123456.78,"b":0.123456789012345678901234567891}'
    trial = Trial(tmp_path)
    trial.write("a.json", f'{{"schema":{json.dumps(whole)},"payload":{text}}}')
    trial.run()
    table = trial.tables().open("s.t")
    assert table is not None
    [row] = table.to_pyarrow_table()["value"].to_pylist()
    assert str(row["a"]) == "123456789012345678901234567890123456.78"
    assert int.from_bytes(row["b"], "big", signed=True) == 123456789012345678901234567891


def seen(trial: Trial, topic: str = "t") -> list[Any]:
    return [event["value"] for event in trial.held(topic)]


def write(trial: Trial, name: str, *values: Any) -> None:
    trial.write(name, *({"topic": "t", "key": None, "value": value} for value in values))


def test_types_without_schemas(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    value = {
        "op": "c",
        "before": None,
        "after": {"i": 1, "d": 1.5, "s": "2018-01-01T00:00:00", "b": True, "l": [1, None], "n": None, "o": {"x": "y"}},
        "transaction": None,
    }
    write(trial, "a.json", value)
    trial.run()
    table = trial.tables().open("t")
    assert table is not None
    kind = table.to_pyarrow_table().schema.field("value").type
    names = {found.name: str(found.type) for found in kind.field("after").type}
    assert names | {"l": "", "o": ""} == {"i": "int64", "d": "double", "s": "string", "b": "bool", "l": "", "o": ""}
    assert kind.field("before").type == kind.field("after").type
    assert seen(trial) == [{"op": "c", "before": None, "after": {k: v for k, v in value["after"].items() if k != "n"}}]


def test_a_field_is_added_when_a_value_shows_it(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    write(trial, "a.json", {"a": 1, "b": None})
    trial.run()
    write(trial, "b.json", {"a": 2, "b": None}, {"a": 3, "b": "x", "c": {"d": None}}, {"a": 4})
    trial.run()
    assert seen(trial) == [{"a": 1, "b": None}, {"a": 2, "b": None}, {"a": 3, "b": "x"}, {"a": 4, "b": None}]
    assert trial.tables().generations("t") == ["t"]


@pytest.mark.parametrize("together", [True, False])
def test_a_value_of_another_type_is_in_another_generation(tmp_path: Path, together: bool) -> None:
    trial = Trial(tmp_path)
    for place, value in enumerate([{"a": 1}, {"a": "x"}, {"a": 2.5}, {"a": 3}, {"a": 9007199254740993}]):
        write(trial, "a.json" if together else f"{place}.json", value)
        if not together:
            trial.run()
    trial.run()
    assert seen(trial) == [{"a": 1}, {"a": "x"}, {"a": 2.5}, {"a": 3.0}, {"a": 9007199254740993}]
    assert len(trial.tables().generations("t")) == 3


def test_schemas_can_be_given_by_a_file(tmp_path: Path) -> None:
    given = tmp_path / "schemas.json"
    fields = [field("int32", f"{CONNECT}.Date") | {"field": "day"}, field("string") | {"field": "note"}]
    given.write_text(json.dumps({"t": {"value": {"type": "struct", "fields": fields}}}))
    trial = Trial(tmp_path, schemas__file=str(given))
    write(trial, "a.json", {"day": 20000, "note": None})
    trial.run()
    [event] = trial.held("t", schemas=True)
    assert event["value"]["payload"] == {"day": 20000, "note": None}
    assert event["value"]["schema"]["fields"][0]["name"] == f"{CONNECT}.Date"
