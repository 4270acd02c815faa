"""Events as rows of the lake, and what the publisher makes of them with the transforms of a trial."""

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa

from cdc_assets.config.kafka import kafka_settings
from cdc_assets.config.settings.kafka import AVRO, JSON, KafkaSettings
from cdc_assets.connectors.reader.encode import Encoder
from cdc_assets.connectors.reader.messages import JsonDecoder, Message, one_line
from cdc_assets.publish.records import Record
from cdc_assets.publish.render import Renderer
from cdc_assets_tests.unit.publish.registry import Registry
from cdc_assets_tests.unit.publish.transforms.trials import Event, Trial

_START, _MIDDLE = '{"schema":', ',"payload":'


def batches(events: Sequence[Event]) -> list[tuple[str, pa.RecordBatch]]:
    """Rows of each topic and pair of schemas, `position` being the event's number."""
    parts = JsonDecoder(True)
    messages = [
        Message(
            "s",
            0,
            "p",
            event.topic,
            parts.decode(one_line(event.key)) if event.key is not None else None,
            parts.decode(one_line(event.value)) if event.value is not None else None,
            tuple((name, _text(part)) for name, part in event.headers.items()),
        )
        for event in events
    ]
    lines, wrong = Encoder({}, lambda _: {}).encode(messages)
    assert not wrong
    found = []
    for group in lines:
        assert group.table is not None
        table = group.table
        columns = {name: table[name] for name in table.column_names}
        fields = {name: table.schema.field(name) for name in table.column_names}
        if "key" not in columns:  # as the lake holds it
            fields["key"] = pa.field(
                "key", pa.string(), metadata={"connect.type": "string", "connect.optional": "true"}
            )
            columns["key"] = pa.nulls(len(table), pa.string())
        own = {
            "position": [str(number) for number in columns.pop("n").to_pylist()],
            "window_id": [1] * len(table),
            **columns,
        }
        schema = pa.schema([fields.get(name) or pa.field(name, pa.array(own[name]).type) for name in own])
        found.append((group.topic, pa.table(own, schema=schema).combine_chunks().to_batches()[0]))
    return found


def results(trial: Trial) -> list[Any]:
    """What comes out, in the form of the golden file with the schemas in place of their numbers."""
    with Registry() as registry:
        forms = {
            "json": _rendered(trial, _settings(trial, JSON, True)),
            "plain": _rendered(trial, _settings(trial, JSON, False)),
            "simple": _rendered(trial, _settings(trial, "", True)),
            "avro": _rendered(trial, _avro(trial, registry)),
        }
        return [
            _result({form: made[number] for form, made in forms.items()}, registry)
            for number in range(len(trial.events))
        ]


def _rendered(trial: Trial, settings: KafkaSettings) -> list[Record | None]:
    found: list[Record | None] = [None] * len(trial.events)
    renderer = Renderer(settings)
    for topic, batch in batches(trial.events):
        for record in chain.from_iterable(renderer.slices(topic, batch)):
            found[int(record.position)] = None if record.is_left_out else record
            if record.problem:
                for position in batch.column("position").to_pylist():
                    found[int(position)] = record
    return found


def _settings(trial: Trial, headers: str, schemas: bool) -> KafkaSettings:
    own = {f"{side}.converter.schemas.enable": str(schemas).lower() for side in ("key", "value", "header")}
    servers = {"bootstrap.servers": "nowhere:9092"}
    found = kafka_settings(
        {}, {**trial.properties, **servers, **own} | ({"header.converter": headers} if headers else {}), ""
    )
    assert found.problem is None
    return found


def _avro(trial: Trial, registry: Registry) -> KafkaSettings:
    own = {f"{side}.converter": AVRO for side in ("key", "value")}
    own |= {f"{side}.converter.schema.registry.url": registry.address for side in ("key", "value")}
    return kafka_settings({}, {**trial.properties, "bootstrap.servers": "nowhere:9092", **own}, "")


def _result(made: Mapping[str, Record | None], registry: Registry) -> Any:
    record = made["simple"]
    if record is None:
        return None
    if record.problem:
        return {"error": record.problem}
    found: dict[str, Any] = {"topic": record.topic}
    if record.partition >= 0:
        found["partition"] = record.partition
    if record.timestamp is not None:
        found["timestamp"] = record.timestamp
    for side in ("key", "value"):
        for form in ("json", "plain"):
            data = getattr(made[form], side)
            found[f"{side}.{form}"] = _pieces_of(None if data is None else data.decode())
        avro = made["avro"]
        assert avro is not None
        data = getattr(avro, side)
        found[f"{side}.avro"] = (
            {"error": avro.problem}
            if avro.problem
            else None
            if data is None
            else [registry.schemas[int.from_bytes(data[1:5], "big") - 1], data[5:].hex()]
        )
    for form in ("simple", "json", "plain"):
        shown = made[form]
        assert shown is not None
        found[f"headers.{form}"] = [[name, None if data is None else data.decode()] for name, data in shown.headers]
    return found


def _pieces_of(text: str | None) -> Any:
    if text is None or not text.startswith(_START):
        return text
    _, end = json.JSONDecoder().raw_decode(text, len(_START))
    return [text[len(_START) : end], text[end + len(_MIDDLE) : -1]]


def _text(part: Any) -> str:
    payload = part["payload"]
    return payload if isinstance(payload, str) else one_line(payload)


def with_schemas(result: Any, schemas: Sequence[str]) -> Any:
    """A result of the golden file with its schemas."""
    if not isinstance(result, dict):
        return result
    return {name: [schemas[part[0]], part[1]] if _is_numbered(part) else part for name, part in result.items()}


def _is_numbered(part: Any) -> bool:
    return isinstance(part, list) and len(part) == 2 and isinstance(part[0], int)
