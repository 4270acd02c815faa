"""The forms of keys and values in Kafka: JSON as the JSON converter writes it, Avro as the Avro converter does."""

from typing import Protocol

import pyarrow as pa

from cdc_assets.config.settings.kafka import ConverterSettings
from cdc_assets.envelope.avro import event_avro
from cdc_assets.envelope.avro_schema import avro_schema
from cdc_assets.envelope.json import event_text
from cdc_assets.registry import SchemaRegistry, wire_head


class Form(Protocol):
    """Renders keys or values of a topic."""

    def render(self, topic: str, field: pa.Field, array: pa.Array) -> pa.Array:
        """Bytes or text of each, null where there is none.

        Raises:
            InvalidValueError: the events of this topic cannot have this form.
            ConnectionLostError: a registry does not answer.
        """


class JsonForm:
    """JSON.

    Args:
        schema: whether each message contains its schema.
        defaults: whether a default replaces null.
    """

    def __init__(self, *, schema: bool, defaults: bool) -> None:
        self._schema, self._defaults = schema, defaults

    def render(self, topic: str, field: pa.Field, array: pa.Array) -> pa.Array:
        """See `Form`."""
        del topic
        return event_text(field, array, schema=self._schema, defaults=self._defaults)


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
        text = avro_schema(field)
        if (topic, text) not in self._heads:
            number = self._registry.number(f"{topic}-{self._part}", text, registers=self._settings.registers)
            self._heads[topic, text] = wire_head(number)
        return event_avro(field, array, self._heads[topic, text], defaults=self._settings.defaults)


def form_of(settings: ConverterSettings, part: str) -> Form:
    """The form that a converter writes."""
    if settings.format == "avro":
        return AvroForm(settings, part)
    return JsonForm(schema=settings.schema, defaults=settings.defaults)
