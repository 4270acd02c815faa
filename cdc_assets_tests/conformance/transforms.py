"""Debezium's and Kafka Connect's own transforms, in this process: what they make of events in JSON.

`python -m cdc_assets_tests.conformance.transforms` writes `golden/transforms.json` anew: for each trial of
`unit/publish/transforms/trials.py` what comes out, as Connect's JSON converters (with and without schemas) and the Avro
converter write it. `test_transforms.py` does the same and compares.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jpype

from cdc_assets.connectors.debezium.child import jars
from cdc_assets_tests.unit.publish.transforms.trials import GOLDEN, TRIALS, Event, Trial

_FORMS = {"json": {"schemas.enable": "true"}, "plain": {"schemas.enable": "false"}}
_JSON = "org.apache.kafka.connect.json.JsonConverter"


def made(trials: Sequence[Trial]) -> dict[str, Any]:
    """What comes out, by the trial's name; schemas stand in a list of their own."""
    if not jpype.isJVMStarted():
        jpype.startJVM("-Xmx500m", classpath=jars(), convertStrings=True)
    schemas: list[str] = []
    return {"trials": {trial.name: _results(trial, schemas) for trial in trials}, "schemas": schemas}


def _results(trial: Trial, schemas: list[str]) -> list[Any]:
    chain = [(_configured(step, trial.properties), step) for step in trial.steps]
    return [_result(chain, event, trial, schemas) for event in trial.events]


def _configured(name: str, properties: Any) -> Any:
    start = f"transforms.{name}."
    options = {key.removeprefix(start): text for key, text in properties.items() if key.startswith(start)}
    transform = _java(options.pop("type"))()
    own = {key: text for key, text in options.items() if key not in ("predicate", "negate")}
    transform.configure(_map(own))
    return transform


def _result(chain: Any, event: Event, trial: Trial, schemas: list[str]) -> Any:
    record = _record(event)
    try:
        for transform, name in chain:
            if _chosen(trial, name, record):
                record = transform.apply(record)
            if record is None:
                return None
    except jpype.JException as error:
        return {"error": str(error.getClass().getSimpleName())}
    return _written(record, schemas)


def _chosen(trial: Trial, name: str, record: Any) -> bool:
    predicate = trial.properties.get(f"transforms.{name}.predicate")
    if predicate is None:
        return True
    start = f"predicates.{predicate}."
    options = {key.removeprefix(start): text for key, text in trial.properties.items() if key.startswith(start)}
    found = _java(options.pop("type"))()
    found.configure(_map(options))
    return bool(found.test(record)) != (trial.properties.get(f"transforms.{name}.negate") == "true")


def _record(event: Event) -> Any:
    reader = _converter(_JSON, {"schemas.enable": "true", "replace.null.with.default": "false"})
    key, value = (
        (None, None) if part is None else _parts(reader.toConnectData("t", json.dumps(part).encode()))
        for part in (event.key, event.value)
    )
    headers = _java("org.apache.kafka.connect.header.ConnectHeaders")()
    for name, part in event.headers.items():
        schema, payload = _parts(reader.toConnectData("t", json.dumps(part).encode()))
        headers.add(name, payload, schema)
    none = jpype.JObject(None, _java("java.util.Map"))
    return _java("org.apache.kafka.connect.source.SourceRecord")(
        none, none, event.topic, None, *key, *value, None, headers
    )


def _parts(found: Any) -> tuple[Any, Any]:
    return found.schema(), found.value()


def _written(record: Any, schemas: list[str]) -> dict[str, Any]:
    topic = str(record.topic())
    found: dict[str, Any] = {"topic": topic}
    if record.kafkaPartition() is not None:
        found["partition"] = int(record.kafkaPartition())
    if record.timestamp() is not None:
        found["timestamp"] = int(record.timestamp())
    for side, schema, value in (
        ("key", record.keySchema(), record.key()),
        ("value", record.valueSchema(), record.value()),
    ):
        for form, options in _FORMS.items():
            data = _converter(_JSON, options, key=side == "key").fromConnectData(topic, schema, value)
            found[f"{side}.{form}"] = _shared(None if data is None else bytes(data).decode(), schemas)
        found[f"{side}.avro"] = _avro(topic, schema, value, schemas)
    for form, name, options in (
        ("simple", "org.apache.kafka.connect.storage.SimpleHeaderConverter", {}),
        ("json", _JSON, {"schemas.enable": "true", "converter.type": "header"}),
        ("plain", _JSON, {"schemas.enable": "false", "converter.type": "header"}),
    ):
        converter = _java(name)()
        converter.configure(_map(options))
        shown = []
        for header in record.headers():
            data = converter.fromConnectHeader(topic, header.key(), header.schema(), header.value())
            shown.append([str(header.key()), None if data is None else bytes(data).decode()])
        found[f"headers.{form}"] = shown
    return found


def _shared(text: str | None, schemas: list[str]) -> Any:
    """The text, its schema replaced by a number."""
    start, middle = '{"schema":', ',"payload":'
    if text is None or not text.startswith(start):
        return text
    _, end = json.JSONDecoder().raw_decode(text, len(start))
    assert text[end:].startswith(middle)
    return [_number(text[len(start) : end], schemas), text[end + len(middle) : -1]]


def _avro(topic: str, schema: Any, value: Any, schemas: list[str]) -> Any:
    registry = _java("io.confluent.kafka.schemaregistry.client.MockSchemaRegistryClient")()
    writer = _java("io.confluent.connect.avro.AvroConverter")(registry)
    writer.configure(_map({"schema.registry.url": "mock://none"}), False)
    try:
        data = writer.fromConnectData(topic, schema, value)
    except jpype.JException as error:
        return {"error": str(error.getClass().getSimpleName())}
    if data is None:
        return None
    text = str(registry.getLatestSchemaMetadata(f"{topic}-value").getSchema())
    return [_number(text, schemas), bytes(data)[5:].hex()]


def _number(schema: str, schemas: list[str]) -> int:
    if schema not in schemas:
        schemas.append(schema)
    return schemas.index(schema)


def _converter(name: str, options: dict[str, str], *, key: bool = False) -> Any:
    found = _java(name)()
    found.configure(_map(options), key)
    return found


def _map(options: dict[str, str]) -> Any:
    found = _java("java.util.HashMap")()
    for name, text in options.items():
        found.put(name, text)
    return found


def _java(name: str) -> Any:
    return jpype.JClass(name)


def main(out: Path = GOLDEN) -> None:
    """Write the golden file."""
    found = made(TRIALS)
    lines = [",\n".join(_line(result) for result in results) for results in found["trials"].values()]
    names = [json.dumps(name) for name in found["trials"]]
    trials = ",\n".join(f"{name}: [\n{text}\n]" for name, text in zip(names, lines, strict=True))
    schemas = ",\n".join(map(_line, found["schemas"]))
    out.write_text(f'{{"trials": {{\n{trials}\n}},\n"schemas": [\n{schemas}\n]}}\n')


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
