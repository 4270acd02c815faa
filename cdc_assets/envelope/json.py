"""Debezium's JSON text of events, with and without schemas, from the lake's columns alone.

What Kafka Connect's JSON converter prints (`key.converter.schemas.enable`, `value.converter.schemas.enable`): payloads
with fields in schema order; with schemas each message is `{"schema":…,"payload":…}`. The converter replaces null in an
optional field that has a default by that default, and so does this code unless
`value.converter.replace.null.with.default` is false.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.envelope.json_numbers import with_numbers
from cdc_assets.envelope.json_schema import schema_text
from cdc_assets.envelope.json_text import (
    Pieces,
    joined,
    sparse,
    struct_pieces,
    text_pieces,
    value_pieces,
)
from cdc_assets.kernels import Numbers, numbers_of_offsets

KEY_HEADERS = ("__debezium.newkey", "__debezium.oldkey")
"""Headers whose text is JSON already."""

_STRING_SCHEMA = '{"type":"string","optional":false}'


def to_json(
    schema: pa.Schema, batch: pa.RecordBatch, *, schemas: bool, replace_null_with_default: bool = True
) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Key, value and headers of events as JSON text.

    Args:
        schema: topic schema, whose field metadata holds Connect's types.
        batch: rows of the topic table.
        schemas: whether each text contains its schema, about 10 KB; then pass small slices of a batch.
        replace_null_with_default: whether a default replaces null, as is the converter's default.

    Returns:
        Key and value texts, null where the event has none (`large_string` with schemas); headers, a JSON object each.
    """
    key, value = (
        event_text(schema.field(name), batch.column(name), schema=schemas, defaults=replace_null_with_default)
        for name in ("key", "value")
    )
    return key, value, headers_text(schema.field("key"), batch.column("headers"), schemas=schemas)


def event_text(field: pa.Field, array: pa.Array, *, schema: bool, defaults: bool, numeric: bool = False) -> pa.Array:
    """Keys or values as JSON text: `to_json` for one of the two columns.

    Args:
        numeric: whether decimals are numbers, and not their unscaled bytes as base64.
    """
    if numeric:
        field, array = with_numbers(field, array)
    target = pa.large_string() if schema else pa.string()
    if array.null_count == len(array):
        return pa.nulls(len(array), target)

    def pieces(present: pa.Array) -> Pieces:
        if pa.types.is_struct(field.type):
            payload = struct_pieces(list(field.type), present, defaults=defaults, known={})
        else:  # others than connectors may write plain keys and values
            payload = value_pieces(field, present, defaults=defaults)
        return ['{"schema":', schema_text(field), ',"payload":', *payload, "}"] if schema else payload

    if array.null_count == 0:
        return joined(pieces(array), len(array), target)
    return sparse(array, pieces, target)


def headers_text(key: pa.Field, headers: pa.Array, *, schemas: bool) -> pa.Array:
    """Headers of each event as a JSON object; a key header holds the key's JSON."""
    offsets, names, values = _parts(headers)
    if same_headers(headers):
        width = int(offsets[1])
        one = _objects(key, names[:width], values[:width], offsets[:2], schemas)
        return pa.repeat(one[0], len(headers))
    return _objects(key, names, values, offsets, schemas)


def _parts(headers: pa.Array) -> tuple[Numbers, pa.Array, pa.Array]:
    """Where the headers of each row begin, and the names and values of all rows."""
    offsets = numbers_of_offsets(headers)
    first, count = int(offsets[0]) if len(headers) else 0, int(offsets[-1] - offsets[0])
    return offsets - first, headers.keys.slice(first, count), headers.items.slice(first, count)


def same_headers(headers: pa.Array) -> bool:
    """Whether there are rows, and all of them have the same headers."""
    offsets, names, values = _parts(headers)
    width = int(offsets[1]) if len(headers) else 0
    if not len(headers) or not bool((np.diff(offsets) == width).all()):
        return False
    return _repeats(names, width) and _repeats(values, width)


def _repeats(array: pa.Array, width: int) -> bool:
    """Whether groups of `width` strings are all the same: each string is that of the group before it."""
    return bool(array.slice(width).equals(array.slice(0, len(array) - width)))


def _objects(key: pa.Field, names: pa.Array, values: pa.Array, offsets: Numbers, schemas: bool) -> pa.Array:
    """JSON objects of names and values."""
    plain = joined(text_pieces(values), len(values))
    is_key = pc.is_in(names, pa.array(KEY_HEADERS))
    shown = pc.if_else(is_key, values, plain)
    if schemas:
        schema = pc.if_else(is_key, schema_text(key) if described_key(key) else "null", _STRING_SCHEMA)
        shown = pc.binary_join_element_wise('{"schema":', schema, ',"payload":', shown, "}", "")
    entries = pc.binary_join_element_wise(joined(text_pieces(names), len(names)), ":", shown, "")
    body = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), entries), ",")
    return pc.binary_join_element_wise("{", body, "}", "")


def described_key(key: pa.Field) -> bool:
    """Whether the table has a key."""
    return bool(pa.types.is_struct(key.type))
