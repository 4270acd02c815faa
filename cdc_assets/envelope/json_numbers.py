"""Decimals as numbers in JSON, as the JSON converter writes them with `decimal.format=NUMERIC`.

Connect's type stays; only how the value is printed changes. So the columns are exchanged before they are rendered: a decimal
becomes the text of its number, which is printed without quotes. That text has all digits of the scale, and an exponent where it is
smaller than a millionth (`1E-7`), which Arrow and Java's `BigDecimal` write alike (measured).
"""

import json
from base64 import b64decode
from decimal import Decimal

import pyarrow as pa

from cdc_assets.typemap.connect import described

NUMBER = "number"
"""The form of a text that is a number."""


def with_numbers(field: pa.Field, array: pa.Array) -> tuple[pa.Field, pa.Array]:
    """A field and its values with decimals as texts of numbers, at any depth of structs."""
    shown = number_field(field)
    return shown, _number_array(shown, array)


def number_field(field: pa.Field) -> pa.Field:
    """The field with decimals as texts of numbers, at any depth of structs, their defaults too."""
    kind = field.type
    if pa.types.is_struct(kind):
        return field.with_type(pa.struct([number_field(kind.field(index)) for index in range(kind.num_fields)]))
    if not pa.types.is_decimal(kind):
        return field
    metadata = {**(field.metadata or {}), b"lake.form": NUMBER.encode()}
    default = described(field).default
    if default is not None:
        metadata[b"connect.default"] = _number(default, kind.scale).encode()
    return pa.field(field.name, pa.string(), metadata=metadata)


def _number_array(field: pa.Field, array: pa.Array) -> pa.Array:
    if array.type == field.type:
        return array
    if not pa.types.is_struct(array.type):
        return array.cast(pa.string())
    fields = list(field.type)
    children = [_number_array(child, array.field(index)) for index, child in enumerate(fields)]
    return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())


def _number(default: str, scale: int) -> str:
    """The number of a default, which is the JSON text of its unscaled bytes."""
    unscaled = int.from_bytes(b64decode(json.loads(default)), signed=True)
    return str(Decimal(f"{unscaled}E-{scale}"))
