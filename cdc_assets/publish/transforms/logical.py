"""`ByLogicalTableRouter`: tables of one structure in one topic.

Keys get a field that tells the tables apart, and the schemas of keys and events the names that they have in the new topic.
As in Java, columns that are null get their default on the way.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from cdc_assets.config.settings import AdjustmentMode
from cdc_assets.config.settings.transforms import LogicalRouteSettings
from cdc_assets.envelope.naming import adjusted
from cdc_assets.errors import InvalidValueError
from cdc_assets.publish.transforms.part import (
    Column,
    Part,
    children,
    filled,
    is_envelope,
    is_valid,
    struct_of,
)
from cdc_assets.publish.transforms.route import Route
from cdc_assets.typemap.connect import ConnectType, described

_TEXT = ConnectType("string", optional=False)
_IMAGES = ("before", "after")


class LogicalRoute:
    """See the module."""

    def __init__(self, settings: LogicalRouteSettings) -> None:
        self._settings = settings
        self._topics = Route(settings.topics)
        self._values = Route(settings.key_value) if settings.key_value else None

    def apply(self, part: Part) -> Sequence[Part]:
        """See `Transform`."""
        topic = self._topics.new_name(part.topic)
        if not topic:
            return [part]
        value = self._envelope(part.value, topic) if is_envelope(part.value.field) else part.value
        return [replace(part, topic=topic, key=self._key(part, topic), value=value)]

    def _key(self, part: Part, topic: str) -> Column:
        if part.key.array.null_count == len(part):
            return part.key
        if not pa.types.is_struct(part.key.field.type):
            raise InvalidValueError("transform", part.topic, "keys that are structs", "add a predicate")
        columns = [filled(column) for column in children(part.key)]
        if self._settings.key_field:
            shown = (self._values.new_name(part.topic) if self._values else None) or part.topic
            texts = pa.array(np.full(len(part), shown), pa.string())
            columns.append(Column(_TEXT.to_field(self._settings.key_field), texts))
        return struct_of("key", self._named(part.key, f"{topic}.Key"), columns, ~is_valid(part.key.array))

    def _envelope(self, value: Column, topic: str) -> Column:
        columns = [self._image(column, topic) if column.field.name in _IMAGES else column for column in children(value)]
        return struct_of("value", self._named(value, f"{topic}.Envelope"), columns, ~is_valid(value.array))

    def _image(self, image: Column, topic: str) -> Column:
        columns = [filled(column) for column in children(image)]
        name = f"{topic}.Value"
        return struct_of(image.field.name, self._named(image, name), columns, ~is_valid(image.array))

    def _named(self, column: Column, name: str) -> ConnectType:
        mode: AdjustmentMode = "avro" if self._settings.adjusts else "none"
        return replace(described(column.field), name=adjusted(name, mode, dots=True), default=None)
