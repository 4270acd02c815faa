"""Connect's own Avro converter, in this process: what it makes of events in JSON.

`python -m cdc_assets_tests.conformance.avro EVENTS` writes `golden/avro.json` anew from a file with an event's key or value, as JSON with its
schema, in each line; `CDC_NOTE_EVENTS=EVENTS pytest cdc_assets_tests/unit/envelope/test_golden.py` writes that file.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import jpype

from cdc_assets.connectors.debezium.child import jars

GOLDEN = Path(__file__).parents[1] / "golden" / "avro.json"


def converted(texts: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """The schema that is registered, and the bytes after the wire format's head, of each text."""
    if not jpype.isJVMStarted():
        jpype.startJVM("-Xmx500m", classpath=jars(), convertStrings=True)
    reader, options = _java("org.apache.kafka.connect.json.JsonConverter")(), _java("java.util.HashMap")()
    options.put("schema.registry.url", "mock://none")
    reader.configure(options, False)
    for text in texts:
        registry = _java("io.confluent.kafka.schemaregistry.client.MockSchemaRegistryClient")()
        writer = _java("io.confluent.connect.avro.AvroConverter")(registry)
        writer.configure(options, False)
        event = reader.toConnectData("t", text.encode())
        data = bytes(writer.fromConnectData("t", event.schema(), event.value()))
        yield str(registry.getLatestSchemaMetadata("t-value").getSchema()), data[5:]


def _java(name: str) -> Any:
    return jpype.JClass(name)


def main(events: Path, out: Path = GOLDEN) -> None:
    """Write what the converter makes of a file of events."""
    texts = sorted(set(events.read_text().splitlines()))
    schemas: list[str] = []
    found = {}
    for text, (schema, data) in zip(texts, converted(texts), strict=True):
        if schema not in schemas:
            schemas.append(schema)
        found[sha256(text.encode()).hexdigest()] = (schemas.index(schema), data.hex())
    out.write_text(json.dumps({"schemas": schemas, "events": found}, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
