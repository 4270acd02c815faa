"""JSON text is valid and holds the value, whatever the value is."""

import json
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.config.settings import EventSettings
from cdc_assets.envelope.json import event_text, same_headers, to_json
from cdc_assets.envelope.json_schema import schema_of
from cdc_assets.envelope.json_text import joined, value_pieces
from cdc_assets.typemap.connect import ConnectType, array, struct
from cdc_assets_tests.unit.envelope.building import change, change_batch, changed, column, plan_of

TEXT = ConnectType("string").to_field("c")
TEXTS = st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=10), min_size=1, max_size=20)


WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)


def rendered(field: pa.Field, array: pa.Array) -> list[Any]:
    texts = joined(value_pieces(field, array, defaults=True), len(array)).to_pylist()
    return [json.loads(text) for text in texts]


@given(TEXTS, st.integers(0, 2))
def test_every_string(values: list[str | None], start: int) -> None:
    array = pa.array(values, pa.string()).slice(start)
    assert rendered(TEXT, array) == values[start:]


@given(st.lists(st.none() | st.dictionaries(WORDS, WORDS, max_size=3), min_size=1), st.integers(0, 2))
def test_every_map(values: list[dict[str, str] | None], start: int) -> None:
    field = ConnectType("map", arrow=pa.map_(pa.string(), pa.string())).to_field("c")
    array = pa.array([list(value.items()) if value is not None else None for value in values], field.type)
    assert rendered(field, array.slice(start)) == values[start:]
    assert schema_of(field)["values"] == {"type": "string", "optional": False}


def test_each_control_character_as_jackson_writes_it() -> None:
    every = "".join(map(chr, range(0x80)))
    (text,) = joined(value_pieces(TEXT, pa.array([every, every + "x"]), defaults=True), 2).to_pylist()[:1]
    assert text.startswith('"\\u0000\\u0001\\u0002\\u0003\\u0004\\u0005\\u0006\\u0007\\b\\t\\n\\u000B\\f\\r\\u000E')
    assert '\\u001F !\\"#' in text
    assert "[\\\\]" in text
    assert json.loads(text) == every


@given(st.lists(st.none() | st.floats(), min_size=1))
def test_every_double(values: list[float | None]) -> None:
    found = rendered(ConnectType("double").to_field("c"), pa.array(values, pa.float64()))
    for value, shown in zip(values, found, strict=True):
        if value is None or math.isfinite(value):
            assert shown == value
            assert value is None or isinstance(shown, float)
        else:
            assert shown == {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")


def test_numbers_far_from_one_as_java_prints_them() -> None:
    values = [0.0, -0.0, 1.0, 0.001, 9.99e-4, 1e7, 9999999.0, -12345678.5, 1e22, 1.5e-9, 1.7976931348623157e308]
    texts = joined(value_pieces(ConnectType("double").to_field("c"), pa.array([*values, None]), defaults=True), 12)
    expected = "0.0 -0.0 1.0 0.001 9.99E-4 1.0E7 9999999.0 -1.23456785E7 1.0E22 1.5E-9 1.7976931348623157E308"
    assert texts.to_pylist() == [*expected.split(), "null"]
    single = pa.array([1.1e10, 3.4e-5, 0.1], pa.float32())
    shown = joined(value_pieces(ConnectType("float").to_field("c"), single, defaults=True), 3).to_pylist()
    assert shown == ["1.1E10", "3.4E-5", "0.1"]


@given(st.lists(st.none() | st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1))
def test_every_float_reads_back_as_itself(values: list[float | None]) -> None:
    array = pa.array(values, pa.float32())
    assert pa.array(rendered(ConnectType("float").to_field("c"), array), pa.float32()).equals(array)


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_every_integer(values: list[int | None]) -> None:
    assert rendered(ConnectType("int64").to_field("c"), pa.array(values, pa.int64())) == values


@given(TEXTS, st.integers(0, 2))
def test_texts_as_numbers_of_a_dictionary(values: list[str | None], start: int) -> None:
    array = pa.array(values, pa.string()).dictionary_encode().slice(start)
    assert rendered(TEXT, array) == values[start:]


NUMBERS = st.sampled_from([None, 0.0, -0.0, 1.5])
IMAGES = st.none() | st.tuples(st.sampled_from([None, "", 'a"', "b"]), NUMBERS, st.sampled_from([None, -1, 7]))


@given(st.lists(st.tuples(IMAGES, IMAGES), min_size=1, max_size=4))
def test_two_images_are_rendered_as_each_alone(rows: list[tuple[Any, Any]]) -> None:
    columns = [ConnectType(kind).to_field(kind) for kind in ("string", "double", "int32")]
    names = [column.name for column in columns]
    image = struct("image", columns)
    field = struct("event", [image.to_field("before"), image.to_field("after")], optional=False).to_field("value")
    given = [
        {
            side: None if one is None else dict(zip(names, one, strict=True))
            for side, one in zip(("before", "after"), row, strict=True)
        }
        for row in rows
    ]
    events = pa.array(given, field.type)
    alone = [
        event_text(field, events.slice(row, 1), schema=False, defaults=True)[0].as_py() for row in range(len(rows))
    ]
    assert event_text(field, events, schema=False, defaults=True).to_pylist() == alone
    assert list(map(json.loads, alone)) == given


def test_defaults_stand_for_null_unless_configured_otherwise() -> None:
    plan = plan_of("t", [column("id", "int", nullable=False), column("note", "varchar", length=9, default="('new')")])
    rows = [(change("00000001:00000001:0001", "00000001:00000001:0002", 2), [1, None])]
    (batch,) = changed(plan, change_batch(plan, rows)).to_batches()
    _, value, _ = to_json(batch.schema, batch, schemas=False)
    assert json.loads(value[0].as_py())["after"] == {"id": 1, "note": "new"}
    _, value, _ = to_json(batch.schema, batch, schemas=False, replace_null_with_default=False)
    assert json.loads(value[0].as_py())["after"] == {"id": 1, "note": None}


def test_lists_of_structs() -> None:
    item = struct(
        "event.collection", [ConnectType("string").to_field("name"), ConnectType("int64").to_field("count")], version=1
    )
    field = array("data_collections", item)
    values = [[{"name": "a", "count": 1}, {"name": 'b"', "count": None}], [], None, [{"name": "c", "count": 3}]]
    assert rendered(field, pa.array(values, field.type)) == values
    assert schema_of(field)["items"]["name"] == "event.collection"


def test_headers_that_differ_between_rows() -> None:
    settings = EventSettings("shop", message_key_columns=("dbo.t:note",))
    plan = plan_of("t", [column("id", "int", nullable=False), column("note", "varchar", length=9)], settings=settings)
    at = ("00000001:00000001:0001", "00000001:00000001:0002")
    rows = [
        (change(*at, 2), [1, "x"]),
        (change(*at, 3), [1, 'a"']),
        (change(*at, 4), [1, "b"]),
        (change(*at, 3), [1, "b"]),
        (change(*at, 4), [2, "b"]),
    ]
    (batch,) = changed(plan, change_batch(plan, rows)).combine_chunks().to_batches()
    _, _, headers = to_json(batch.schema, batch, schemas=False)
    found = [json.loads(text) for text in headers.to_pylist()]
    context = {name: found[0][name] for name in found[0]}
    assert list(context.values()) == ["shop", "0", "sqlserver", "run"]
    changed_key = {"__debezium.newkey": {"note": "b"}, **context}
    assert found == [context, changed_key, changed_key, {"__debezium.oldkey": {"note": 'a"'}, **context}, context]
    _, _, described = to_json(batch.schema, batch, schemas=True)
    assert json.loads(described[1].as_py())["__debezium.newkey"]["schema"]["name"] == "shop.TestDB.dbo.t.Key"


@pytest.mark.parametrize("schemas", [False, True])
def test_no_events(schemas: bool) -> None:
    plan = plan_of("t", [column("id", "int", nullable=False)])
    batch = pa.RecordBatch.from_pylist([], schema=plan.topic_schema)
    assert [len(array) for array in to_json(batch.schema, batch, schemas=schemas)] == [0, 0, 0]


@pytest.mark.parametrize(
    ("rows", "same"),
    [
        ([[("a", "1"), ("b", "2")]] * 3, True),
        ([[("a", None)]] * 2, True),
        ([[], []], True),
        ([], False),
        ([[("a", "1"), ("b", "2")], [("a", "1"), ("b", "3")]], False),
        ([[("a", "1"), ("b", "2")], [("a", "1")], [("b", "2"), ("a", "1"), ("b", "2")]], False),
    ],
)
def test_headers_that_all_rows_share(rows: list[list[tuple[str, str | None]]], same: bool) -> None:
    headers = pa.array([[("z", "0")], *rows, [("y", "9")]], pa.map_(pa.string(), pa.string()))
    assert same_headers(headers.slice(1, len(rows))) is same
