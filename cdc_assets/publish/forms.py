"""The forms of keys and values in Kafka: JSON as the JSON converter writes it, Avro as the Avro converter does."""

import re
from collections.abc import Callable
from typing import Protocol

import numpy as np
import pyarrow as pa

from cdc_assets.config.settings.kafka import ConverterSettings
from cdc_assets.envelope.avro import event_avro
from cdc_assets.envelope.avro_schema import avro_schema
from cdc_assets.envelope.json import event_text
from cdc_assets.envelope.json_numbers import number_field
from cdc_assets.envelope.json_schema import schema_text
from cdc_assets.envelope.nulls import by_description
from cdc_assets.registry import SchemaRegistry, wire_head

_BEYOND = re.compile("[\U00010000-\U0010ffff]")
_FOUR_BYTES = 0xF0
"""Begins a character beyond U+FFFF in UTF-8."""


class Form(Protocol):
    """Renders keys or values of a topic."""

    def render(self, topic: str, field: pa.Field, array: pa.Array) -> pa.Array:
        """Bytes or text of each, null where there is none.

        Raises:
            InvalidValueError: the events of this topic cannot have this form.
            ConnectionLostError: a registry does not answer.
        """

    def null(self, field: pa.Field) -> bytes | None:
        """What is written for a null that has a schema, which is no tombstone in JSON."""


class JsonForm:
    """JSON.

    Args:
        schema: whether each message contains its schema.
        defaults: whether a default replaces null.
        numeric: whether decimals are numbers.
    """

    def __init__(self, *, schema: bool, defaults: bool, numeric: bool = False) -> None:
        self._schema, self._defaults, self._numeric = schema, defaults, numeric

    def render(self, topic: str, field: pa.Field, array: pa.Array) -> pa.Array:
        """See `Form`."""
        del topic

        def text(own: pa.Field, rows: pa.Array) -> pa.Array:
            return event_text(own, rows, schema=self._schema, defaults=self._defaults, numeric=self._numeric)

        return escape_pairs(_rendered(field, array, text))

    def null(self, field: pa.Field) -> bytes | None:
        """See `Form`."""
        if not self._schema:
            return b"null"
        shown = number_field(field) if self._numeric else field
        return f'{{"schema":{schema_text(shown)},"payload":null}}'.encode()


def escape_pairs(texts: pa.Array) -> pa.Array:
    """Characters beyond U+FFFF as two escapes, as the JSON converter writes them."""
    kind = texts.type
    data = texts.buffers()[2]
    if data is None or not data.size or np.frombuffer(data, np.uint8).max() < _FOUR_BYTES:
        return texts
    return pa.array([None if text is None else escape_pairs_of(text) for text in texts.to_pylist()], kind)


def escape_pairs_of(text: str) -> str:
    """The same of one text."""
    return _BEYOND.sub(lambda found: "\\u{:02X}{:02X}\\u{:02X}{:02X}".format(*found[0].encode("utf-16-be")), text)


class AvroForm:
    """Avro, in the wire format with the number of a schema.

    Args:
        settings: the registry.
        part: `key` or `value`, which ends the subject's name.
    """

    def __init__(self, settings: ConverterSettings, part: str) -> None:
        self._settings, self._part = settings, part
        self._registry = SchemaRegistry(settings.registry, settings.credentials)
        self._heads: dict[tuple[str, str], bytes] = {}

    def render(self, topic: str, field: pa.Field, array: pa.Array) -> pa.Array:
        """See `Form`."""
        if array.null_count == len(array):
            return pa.nulls(len(array), pa.binary())
        return _rendered(field, array, lambda own, rows: self._packed(topic, own, rows))

    def _packed(self, topic: str, field: pa.Field, array: pa.Array) -> pa.Array:
        text = avro_schema(field)
        if (topic, text) not in self._heads:
            number = self._registry.number(f"{topic}-{self._part}", text, registers=self._settings.registers)
            self._heads[topic, text] = wire_head(number)
        return event_avro(field, array, self._heads[topic, text], defaults=self._settings.defaults)

    def null(self, field: pa.Field) -> bytes | None:
        """See `Form`."""
        del field
        return None


def _rendered(field: pa.Field, array: pa.Array, render: Callable[[pa.Field, pa.Array], pa.Array]) -> pa.Array:
    """Keys or values, each with a schema in which its nulls may be."""
    groups = by_description(field, array)
    if len(groups) == 1:
        return render(groups[0][1], array)
    rows = [pa.array(own) for own, _ in groups]
    parts = [render(described, array.take(own)) for own, (_, described) in zip(rows, groups, strict=True)]
    order = np.argsort(np.concatenate([own.to_numpy() for own in rows]))
    return pa.concat_arrays(parts).take(pa.array(order))


def form_of(settings: ConverterSettings, part: str) -> Form:
    """The form that a converter writes."""
    if settings.format == "avro":
        return AvroForm(settings, part)
    return JsonForm(schema=settings.schema, defaults=settings.defaults, numeric=settings.numeric)
