"""What is published after a table was altered, and nulls where a column is NOT NULL: read back by another library."""

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from cdc_assets.config.kafka import kafka_settings
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.config.settings.kafka import JSON
from cdc_assets.envelope.avro import event_avro
from cdc_assets.envelope.nulls import by_description
from cdc_assets.errors import InvalidValueError
from cdc_assets.typemap.connect import ConnectType, described, struct
from cdc_assets_tests.unit.publish.memory import MemoryBroker
from cdc_assets_tests.unit.publish.registry import Registry, avro_of
from cdc_assets_tests.unit.publish.world import World, published
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn

TOPIC = f"shop.{DATABASE}.dbo.d"
TABLE = """CREATE TABLE dbo.d (id int NOT NULL PRIMARY KEY, v varchar(10) NOT NULL, valid_to datetime2(7) NOT NULL,
  w int NULL DEFAULT 5, n int NOT NULL)"""
FAR = "'9999-12-31 23:59:59.9999999'"
ENABLE = "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'd', @role_name = NULL"


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CaptureConfig]:
    with StandIn(databases=(DATABASE,)) as server:
        world = World(server, tmp_path_factory.mktemp("nulls") / "lake")
        names = {"schema_name_adjustment": "avro", "field_name_adjustment": "avro"}
        world.config = replace(world.config, events=replace(world.config.events, **names))
        world.execute(TABLE)
        world.execute(f"{ENABLE}, @capture_instance = N'first'")
        world.execute(f"INSERT INTO dbo.d VALUES (1, 'x', {FAR}, 1, 7), (2, 'y', '2026-01-01', NULL, 8)")
        world.capture("snapshot")
        world.execute("UPDATE dbo.d SET n = n + 100")
        world.capture()
        world.execute("ALTER TABLE dbo.d ALTER COLUMN v varchar(10) NULL")
        world.execute(f"INSERT INTO dbo.d VALUES (3, NULL, {FAR}, 3, 9), (4, 'z', '2026-01-02', 4, 10)")
        world.capture()
        world.execute("ALTER TABLE dbo.d DROP COLUMN v")
        world.execute("INSERT INTO dbo.d (id, valid_to, w, n) VALUES (5, '2026-01-03', 5, 11)")
        world.capture()
        yield world.config


def rows_of(broker: MemoryBroker, registry: Registry) -> list[tuple[int, dict[str, Any], bytes]]:
    """Number of the schema, the event as fastavro reads it, and what it has left over."""
    found = []
    for record in broker.topics[TOPIC]:
        if record.value is None:
            continue
        number, stream = int.from_bytes(record.value[1:5], "big"), io.BytesIO(record.value[5:])
        event = fastavro.schemaless_reader(stream, fastavro.parse_schema(json.loads(registry.schemas[number - 1])))
        found.append((number, event, stream.read()))
    return found


@pytest.mark.long
def test_records_are_read_to_their_end_and_hold_what_the_table_held(config: CaptureConfig) -> None:
    broker = MemoryBroker()
    with Registry() as registry:
        assert not published(replace(config, kafka=avro_of(registry)), broker)
        found = rows_of(broker, registry)
    assert not any(rest for _, _, rest in found)
    states = [{name: event["after"].get(name) for name in ("id", "v", "n")} for _, event, _ in found]
    first = [{"id": 1, "v": "x", "n": 7}, {"id": 2, "v": "y", "n": 8}]
    moved = [{"id": 1, "v": "x", "n": 107}, {"id": 2, "v": "y", "n": 108}]
    later = [{"id": 3, "v": None, "n": 9}, {"id": 4, "v": "z", "n": 10}, {"id": 5, "v": None, "n": 11}]
    assert states == first + moved + later
    assert [event["after"]["valid_to"] is None for _, event, _ in found] == [
        True, False, True, False, True, False, False
    ]  # fmt: skip
    assert found[0][0] == found[2][0] != found[1][0] == found[3][0], "a schema for those rows alone"
    assert found[4][0] != found[0][0], "the structure has changed"
    assert found[6][0] == found[5][0]


@pytest.mark.long
def test_json_has_the_same_schemas(config: CaptureConfig) -> None:
    broker = MemoryBroker()
    texts = {f"{side}.converter": JSON for side in ("key", "value")}
    assert not published(replace(config, kafka=kafka_settings({}, texts, "debezium")), broker)
    for record in broker.topics[TOPIC]:
        whole = json.loads(record.value or b"")
        required_values(whole["schema"], whole["payload"])


def required_values(schema: dict[str, Any], value: Any) -> None:
    """What Connect's JSON converter requires."""
    if value is None:
        assert schema["optional"], schema.get("field")
        return
    for field in schema.get("fields", ()):
        required_values(field, value[field["field"]])


ROW = [
    ConnectType("int32").required().to_field("id"),
    ConnectType("string", default='"d"').required().to_field("v"),
    ConnectType("int64").required().to_field("n"),
]


def rows(values: Sequence[dict[str, Any] | None]) -> tuple[pa.Field, pa.Array]:
    row = struct("t.Value", ROW)
    field = struct("t.Envelope", [row.to_field("before"), row.to_field("after")], optional=False).to_field("value")
    return field, pa.array(
        [value if value is None else {"before": None, "after": value} for value in values], field.type
    )


def test_rows_without_such_nulls_are_described_as_they_were() -> None:
    field, array = rows([{"id": 1, "v": "a", "n": 2}, None])
    assert by_description(field, array) == [(None, field)]


def test_a_field_is_optional_and_has_no_default_where_it_is_null() -> None:
    field, array = rows(
        [{"id": 1, "v": "a", "n": 2}, {"id": 2, "v": None, "n": 3}, None, {"id": 3, "v": None, "n": None}]
    )
    groups = [(own.tolist(), shown) for own, shown in by_description(field, array) if own is not None]
    assert sorted(own for own, _ in groups) == [[0, 2], [1], [3]]
    for own, shown in groups:
        for side in shown.type:
            v, n = (described(side.type.field(name)) for name in ("v", "n"))
            assert (v.optional, v.default) == ((True, None) if own[0] else (False, '"d"'))
            assert n.optional == (own == [3])


def test_a_null_is_never_left_out() -> None:
    field = struct("t.Key", [ROW[2]], optional=False).to_field("key")
    with pytest.raises(InvalidValueError, match="a value of n, which its schema requires"):
        event_avro(field, pa.array([{"n": 1}, {"n": None}], field.type), b"", defaults=True)
    with pytest.raises(InvalidValueError, match="which its schema requires"):
        event_avro(field, pa.array([{"n": None}], field.type), b"", defaults=True)


@pytest.mark.long
def test_a_default_is_that_of_the_structure(tmp_path: Path) -> None:
    with StandIn(databases=(DATABASE,)) as server:
        world = World(server, tmp_path / "lake")
        world.execute("CREATE TABLE dbo.d (id int NOT NULL PRIMARY KEY, w int NULL CONSTRAINT of_w DEFAULT 5)")
        world.execute(f"{ENABLE}, @capture_instance = N'first'")
        world.execute("INSERT INTO dbo.d VALUES (1, NULL)")
        world.capture("snapshot")
        world.execute("ALTER TABLE dbo.d DROP CONSTRAINT of_w")
        world.execute("ALTER TABLE dbo.d ADD more int NULL")
        world.execute(f"{ENABLE}, @capture_instance = N'second'")
        world.execute("INSERT INTO dbo.d VALUES (2, NULL, 1)")
        world.capture()
        world.execute("INSERT INTO dbo.d VALUES (3, NULL, 1)")
        world.capture()
        broker = MemoryBroker()
        assert not published(world.config, broker)
        values = [json.loads(record.value or b"") for record in broker.topics[TOPIC]]
        found = {row["id"]: row["w"] for value in values for row in [(value.get("payload") or value)["after"]]}
        assert found == {1: 5, 2: None, 3: None}
