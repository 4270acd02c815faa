"""Events of every topic of a capture in Avro, beside what Connect's own Avro converter makes of their JSON."""

import json
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pytest

from cdc_assets.envelope.avro import event_avro
from cdc_assets.envelope.avro_schema import avro_schema
from cdc_assets.envelope.json import event_text
from cdc_assets.lake.system_topics import HISTORY, WINDOWS, system_topics
from cdc_assets.lake.topics import TopicTables
from cdc_assets_tests.unit.publish.memory import TOPIC
from cdc_assets_tests.unit.publish.world import World
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn

pytestmark = pytest.mark.conformance


def test_every_topic_is_as_the_converter_writes_it(tmp_path: Path) -> None:
    with StandIn(databases=(DATABASE,)) as server:
        world = World(server, tmp_path / "lake")
        world.execute("INSERT INTO dbo.t VALUES (1, N'a'), (2, NULL), (3, N'ü')")
        world.capture("snapshot")
        world.execute("UPDATE dbo.t SET note = NULL WHERE id < 3; DELETE FROM dbo.t WHERE id = 3")
        world.capture()
    tables, events, expected = TopicTables.of(world.config), tmp_path / "events", tmp_path / "expected"
    system = [topic for name, topic in system_topics(world.config).items() if name not in (WINDOWS, HISTORY)]
    made: dict[str, tuple[str, str]] = {}
    for topic in (TOPIC, *system):
        handle = tables.open(topic)
        assert handle is not None
        schema = pa.schema(handle.schema().to_arrow())
        rows = handle.to_pyarrow_table().cast(schema).combine_chunks().to_batches()[0]
        for name in ("key", "value"):
            field, column = schema.field(name), rows.column(name)
            texts = event_text(field, column, schema=True, defaults=True).to_pylist()
            data = event_avro(field, column, b"", defaults=True).to_pylist()
            for text, one in zip(texts, data, strict=True):
                if text is not None:
                    made[text] = avro_schema(field), one.hex()
    events.write_text("\n".join(made) + "\n")
    command = [sys.executable, "-m", "cdc_assets_tests.conformance.avro", str(events), str(expected)]
    subprocess.run(command, check=True, timeout=300)
    found = json.loads(expected.read_text())
    assert len(made) > 10
    for text, (schema_text, shown) in made.items():
        number, data_of_converter = found["events"][sha256(text.encode()).hexdigest()]
        assert (schema_text, shown) == (found["schemas"][number], data_of_converter), text[:300]
