"""Arrow columns from lines of Connect's JSON: the fast way, for records that fit their schema.

Arrow reads the payloads as they are, with the types that the schema says. Whatever it does not take as it is, or does
not hold exactly, goes the slow way (`values`), which also finds the record that is wrong.
"""

import binascii
import io
import re
from base64 import b64decode
from decimal import Context, Decimal
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from cdc_assets.connectors.engine.schemas import ENTRIES, whole
from cdc_assets.typemap.connect import element_of

_MIN_BLOCK: Final = 1 << 20
_EXACT: Final = Context(prec=1000)
_MANY_DIGITS: Final = re.compile(rb"\d[\d.]{15}|[eE][+-]?\d{3}")
"""Numbers that a double may not hold exactly, and more: each has more than 15 digits, or is very large or small."""


class NotDirectError(Exception):
    """Some of the lines must go the slow way."""


def is_direct(field: pa.Field) -> bool:
    """Whether Arrow reads the field's values as Connect's JSON has them."""
    if pa.types.is_map(field.type):
        return False
    if pa.types.is_list(field.type):
        return is_direct(element_of(field))
    return all(map(is_direct, field.type)) if pa.types.is_struct(field.type) else True


def read_payloads(schema: pa.Schema, data: bytes, longest: int, *, inferred: bool) -> pa.Table:
    """Lines as columns in the lake's types.

    Args:
        schema: of the topic.
        data: lines of `n`, `key`, `value` and `headers`.
        longest: bytes of the longest line.
        inferred: whether the schema was inferred, so that a number may have more digits than its type holds.

    Raises:
        NotDirectError: some lines must go the slow way.
    """
    fields = [field for field in schema if field.name in ("key", "value", "headers")]
    if inferred and _MANY_DIGITS.search(data):
        raise NotDirectError
    read = pa.schema([pa.field("n", pa.int64()), *(pa.field(field.name, _read_type(field)) for field in fields)])
    try:
        data.decode()
        table = pj.read_json(
            io.BytesIO(data),
            pj.ReadOptions(block_size=max(_MIN_BLOCK, longest + 2)),
            pj.ParseOptions(explicit_schema=read, unexpected_field_behavior="infer"),
        ).combine_chunks()
        if set(table.column_names) - set(read.names):
            raise NotDirectError
        columns = [_converted(whole(table.column(field.name)), field) for field in fields]
    except (pa.ArrowException, UnicodeDecodeError, binascii.Error, ValueError) as error:
        raise NotDirectError from error
    return pa.Table.from_arrays([whole(table.column("n")), *columns], schema=pa.schema([read.field("n"), *fields]))


def _read_type(field: pa.Field) -> pa.DataType:
    kind = field.type
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(child.name, _read_type(child)) for child in kind])
    if pa.types.is_map(kind):  # the headers
        return ENTRIES
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _read_type(element_of(field))))
    if pa.types.is_decimal(kind) or pa.types.is_binary(kind):
        return pa.string()
    if pa.types.is_date32(kind):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def _converted(values: pa.Array, field: pa.Field) -> pa.Array:
    kind = field.type
    if pa.types.is_struct(kind):
        return _struct(values, field)
    missing = values.is_null() if values.null_count else None
    if pa.types.is_map(kind):
        entries = values.values
        return pa.MapArray.from_arrays(values.offsets, entries.field(0), entries.field(1), type=kind, mask=missing)
    if pa.types.is_list(kind):
        items = _converted(values.values, element_of(field))
        _require(items, element_of(field))
        return pa.ListArray.from_arrays(values.offsets, items, type=kind, mask=missing)
    if pa.types.is_binary(kind) or pa.types.is_decimal(kind):
        unpacked = [None if text is None else b64decode(text, validate=True) for text in values.to_pylist()]
        return pa.array(unpacked, kind) if pa.types.is_binary(kind) else _decimals(unpacked, kind)
    if pa.types.is_timestamp(kind):
        return pc.multiply_checked(values, 1000).cast(kind)
    return values if values.type == kind else values.cast(kind)


def _struct(values: pa.Array, field: pa.Field) -> pa.Array:
    kind = field.type
    for child in values.type:
        if kind.get_field_index(child.name) < 0 and not pa.types.is_null(child.type):
            raise NotDirectError  # a field that the schema does not have
    children = [_converted(values.field(child.name), child) for child in kind]
    for child, column in zip(kind, children, strict=True):
        _require(column, child, values)
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=values.is_null())


def _require(values: pa.Array, field: pa.Field, parents: pa.Array | None = None) -> None:
    """Leave a record without a value that must be there to the slow way."""
    if values.null_count and (field.metadata or {}).get(b"connect.optional") == b"false":
        missing = values.is_null() if parents is None else pc.and_(values.is_null(), parents.is_valid())
        if pc.any(missing).as_py():
            raise NotDirectError


def _decimals(unpacked: list[bytes | None], kind: pa.DataType) -> pa.Array:
    numbers = [
        None if found is None else _EXACT.scaleb(Decimal(int.from_bytes(found, "big", signed=True)), -kind.scale)
        for found in unpacked
    ]
    return pa.array(numbers, kind)
