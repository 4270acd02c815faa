"""Topics in Avro with a registry: read back by another library, they are the events; what a registry refuses stops its topic alone."""

import io
import json
import os
import signal
import socket
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.config.kafka import kafka_settings
from cdc_assets.config.settings import CaptureConfig, EventSettings
from cdc_assets.config.settings.kafka import AVRO
from cdc_assets.connectors.reader.avro import AvroParts
from cdc_assets.core.interruption import Interrupted, listening
from cdc_assets.envelope.avro import event_avro, varint, varints
from cdc_assets.envelope.avro_schema import avro_schema
from cdc_assets.errors import ConfigurationError, ConnectionLostError, InvalidValueError
from cdc_assets.registry import SchemaRegistry
from cdc_assets.typemap.connect import ConnectType, array, struct
from cdc_assets.typemap.structured import structured_type
from cdc_assets_tests.patience import wait_until
from cdc_assets_tests.unit.publish.memory import TOPIC, MemoryBroker
from cdc_assets_tests.unit.publish.registry import Registry, avro_of
from cdc_assets_tests.unit.publish.world import World, published
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn

INTEGER = st.integers(-(2**63), 2**63 - 1)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CaptureConfig]:
    with StandIn(databases=(DATABASE,)) as server:
        made = World(server, tmp_path_factory.mktemp("avro") / "lake")
        made.execute("INSERT INTO dbo.t VALUES (1, N'a'), (2, NULL), (3, N'ü')")
        made.capture("snapshot")
        made.execute("INSERT INTO dbo.t VALUES (4, REPLICATE(N'x', 3000)); UPDATE dbo.t SET note = N'b' WHERE id < 3")
        made.execute("DELETE FROM dbo.t WHERE id = 2")
        made.capture()
        yield made.config


def test_all_topics_read_back_are_the_events_in_json(config: CaptureConfig) -> None:
    plain, packed = MemoryBroker(), MemoryBroker()
    published(config, plain)
    with Registry() as registry:
        assert not published(replace(config, kafka=avro_of(registry)), packed)
        assert set(packed.topics) == set(plain.topics) >= {TOPIC, "shop", "shop.transaction"}
        parts = AvroParts(registry.address, "")
        for topic, records in packed.topics.items():
            for record, shown in zip(records, plain.topics[topic], strict=True):
                for name, data, text in (("key", record.key, shown.key), ("value", record.value, shown.value)):
                    if text is None:
                        assert data is None
                        continue
                    assert data is not None
                    part = parts.part(data)
                    assert part is not None
                    assert part.parsed == json.loads(text)["payload"]
                    assert int.from_bytes(data[1:5], "big") in registry.subjects[f"{topic}-{name}"]
        posts = [asked for asked in registry.asked if asked.startswith("POST")]
        assert len(posts) == len(set(posts)), "a schema is asked for once"


@pytest.mark.parametrize("status", [409, 400, 413])
def test_a_schema_that_the_registry_refuses_stops_its_topic_alone(config: CaptureConfig, status: int) -> None:
    broker = MemoryBroker()
    with Registry(f"{TOPIC}-value") as registry:
        registry.refusal = status
        stopped = published(replace(config, kafka=avro_of(registry)), broker)
        assert set(stopped) == {TOPIC}
        assert "not compatible" in stopped[TOPIC]
        assert TOPIC not in broker.topics
        assert broker.topics["shop"]
        registry.refused.clear()
        assert not published(replace(config, kafka=avro_of(registry)), broker)
        assert len(broker.topics[TOPIC]) > 5


def test_a_registry_that_redirects_elsewhere_is_an_error_and_takes_no_password_along() -> None:
    with Registry() as thief, Registry() as registry:
        registry.elsewhere = thief.address
        with pytest.raises(ConnectionLostError) as found:
            SchemaRegistry(registry.address, "user:secret").check()
        assert not thief.asked
    assert "secret" not in str(found.value)


@pytest.mark.parametrize("status", [408, 429, 500])
def test_what_a_registry_refuses_for_now_only_delays(config: CaptureConfig, status: int) -> None:
    with Registry(f"{TOPIC}-value") as registry:
        registry.refusal = status
        with pytest.raises(ConnectionLostError, match="does not answer"):
            published(replace(config, kafka=avro_of(registry)), MemoryBroker())


@contextmanager
def ended() -> Iterator[None]:
    """A block that listens, and ends because of a signal."""
    with pytest.raises(Interrupted), listening():
        yield


def test_a_registry_that_answers_nothing_keeps_no_run_that_is_to_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        own = SchemaRegistry(f"http://127.0.0.1:{silent.getsockname()[1]}")
        began = time.monotonic()
        with ended():
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
            own.number("s", "{}", registers=True)
        assert time.monotonic() - began < 3


@pytest.mark.parametrize(
    "address", ["me:secret@r:1", "http://me:secret@r:1", "http://me:sec/ret@r:1", "ftp://me:secret@r", "me:secret,2@r"]
)
def test_no_password_of_an_address_is_told(address: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        SchemaRegistry(address)
    given = {"value.converter": AVRO, "value.converter.schema.registry.url": f"http://r:1,{address}"}
    with pytest.raises(ConfigurationError) as told:
        kafka_settings({}, given, "debezium")
    assert not any(text in str(error.value) for error in (refused, told) for text in ("secret", "sec/ret"))


def test_connections_end_with_who_has_asked() -> None:
    with Registry() as registry:
        own = SchemaRegistry(registry.address)
        own.check()
        own.check()
        assert registry.connected == 1
        del own
        wait_until(lambda: registry.connected == 0, 30, lambda: registry.connected)


def test_a_registry_that_is_away_only_delays(config: CaptureConfig) -> None:
    broker = MemoryBroker()
    with Registry() as registry:
        registry.away = True
        with pytest.raises(ConnectionLostError, match="does not answer"):
            published(replace(config, kafka=avro_of(registry)), broker)
        assert not broker.topics
        registry.away = False
        assert not published(replace(config, kafka=avro_of(registry)), broker)


@pytest.mark.long
def test_schemas_are_not_added_if_that_is_turned_off(config: CaptureConfig) -> None:
    off = {f"{side}__converter__auto__register__schemas": "false" for side in ("key", "value")}
    with Registry() as registry:
        broker = MemoryBroker()
        assert TOPIC in published(replace(config, kafka=avro_of(registry, **off)), broker)
        assert not broker.topics
        assert not published(replace(config, kafka=avro_of(registry)), MemoryBroker())
        assert not published(replace(config, kafka=avro_of(registry, **off)), broker)
        assert broker.topics[TOPIC]


def test_credentials_and_several_addresses() -> None:
    with Registry() as registry, Registry() as down:
        down.away = True
        registry.credentials = "Basic " + b64encode(b"me:secret").decode()
        both = f"{down.address},{registry.address}/"
        assert SchemaRegistry(both, "me:secret").number("s", "{}", registers=True) == 1
        with pytest.raises(ConfigurationError, match="accepts") as found:
            SchemaRegistry(both, "me:wrong").number("s", "{}", registers=True)
        assert "wrong" not in str(found.value)


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("schema.registry.url", ""),
        ("scrub.invalid.names", "true"),
        ("value.subject.name.strategy", "io.confluent.kafka.serializers.subject.RecordNameStrategy"),
        ("no.such.option", "1"),
    ],
)
def test_options_that_would_change_bytes_are_refused(option: str, text: str) -> None:
    given = {"value.converter": AVRO, "value.converter.schema.registry.url": "http://r:1"}
    found = kafka_settings({}, given | {f"value.converter.{option}": text}, "debezium").problem
    assert found is not None
    assert found[0] == f"value.converter.{option}"


def test_names_that_avro_does_not_have_are_refused() -> None:
    with pytest.raises(InvalidValueError, match="adjustment"):
        avro_schema(struct("shop.my-table.Key", [ConnectType("int32").to_field("id")]).to_field("key"))
    with pytest.raises(InvalidValueError, match="adjustment"):
        avro_schema(struct("shop.Key", [ConnectType("int32").to_field("ä")]).to_field("key"))
    assert EventSettings("shop").schema_name_adjustment


@given(st.lists(INTEGER, max_size=20))
def test_integers_of_any_size(values: list[int]) -> None:
    found = varints(np.array(values, dtype=np.int64)).to_pylist()
    assert found == [varint(value) for value in values]
    for value, data in zip(values, found, strict=True):
        assert fastavro.schemaless_reader(io.BytesIO(data), "long") == value


FIELDS = [
    ConnectType("boolean").to_field("flag"),
    ConnectType("int16").to_field("small"),
    ConnectType("int64", optional=False).to_field("large"),
    ConnectType("float").to_field("single"),
    ConnectType("double", default="1.5").to_field("double"),
    ConnectType("string").to_field("text"),
    ConnectType("bytes", default='"AQI="').to_field("data"),
    array("list", ConnectType("string")),
    struct("t.Inner", [ConnectType("int32").to_field("number")]).to_field("inner"),
]
ROW = st.fixed_dictionaries(
    {
        "flag": st.none() | st.booleans(),
        "small": st.none() | st.integers(-(2**15), 2**15 - 1),
        "large": INTEGER,
        "single": st.none() | st.floats(width=32, allow_nan=False),
        "double": st.none() | st.floats(allow_nan=False),
        "text": st.none() | st.text(st.characters(exclude_categories=["Cs"])),
        "data": st.none() | st.binary(),
        "list": st.none() | st.lists(st.none() | st.text("ab")),
        "inner": st.none() | st.fixed_dictionaries({"number": st.none() | st.integers(-(2**31), 2**31 - 1)}),
    }
)


@pytest.mark.long
@given(st.lists(ROW, min_size=1, max_size=8), st.integers(0, 3))
def test_rows_of_any_values_are_read_back_by_another_library(rows: list[dict[str, Any]], first: int) -> None:
    field = struct("t.Row", FIELDS, optional=False).to_field("value")
    whole = pa.array([*rows[:1] * first, None, *rows], field.type)
    schema = fastavro.parse_schema(json.loads(avro_schema(field)))
    found = event_avro(field, whole.slice(first), b"", defaults=True).to_pylist()
    assert found[0] is None
    read = [fastavro.schemaless_reader(io.BytesIO(data), schema) for data in found[1:]]
    defaults = {"double": 1.5, "data": b"\1\2"}
    assert read == [
        {name: defaults.get(name) if value is None else value for name, value in row.items()} for row in rows
    ]


def test_a_default_that_is_a_record_takes_the_place_of_null() -> None:
    day = {"year": 2020, "month": 1, "day": 2, "specialValue": None}
    inner = replace(structured_type("StructuredDate"), default=json.dumps(day)).to_field("day")
    field = struct("t.Row", [inner], optional=False).to_field("value")
    (data,) = event_avro(field, pa.array([{"day": None}], field.type), b"", defaults=True).to_pylist()
    schema = fastavro.parse_schema(json.loads(avro_schema(field)))
    assert fastavro.schemaless_reader(io.BytesIO(data), schema) == {"day": day}


def test_defaults_stay_null_if_told_so() -> None:
    field = struct("t.Row", FIELDS[4:5], optional=False).to_field("value")
    (data,) = event_avro(field, pa.array([{"double": None}], field.type), b"", defaults=False).to_pylist()
    schema = fastavro.parse_schema(json.loads(avro_schema(field)))
    assert fastavro.schemaless_reader(io.BytesIO(data), schema) == {"double": None}


def test_golden_file_is_of_the_real_converter() -> None:
    """Written by `conformance/avro.py`; every kind of event of the other golden files is in it."""
    found = json.loads((Path(__file__).parents[2] / "golden" / "avro.json").read_text())
    assert len(found["events"]) > 25
