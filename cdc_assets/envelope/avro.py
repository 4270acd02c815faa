"""Events in Avro's binary form from the lake's columns alone, a whole array at once: what Connect's Avro converter writes.

As for JSON (`json_text`), a value becomes *pieces*: bytes that all rows share, and binary arrays; a struct without nulls
adds its pieces to its parent's, so a whole envelope is joined in one pass, in C++. Integers are variable-length zigzag,
strings and bytes have their length before them, an optional field is a union: the branch's number, then the value. The
branch of null comes first unless the field has a default (`avro_schema`).

The converter replaces null in a field that has a default by that default, unless `ignore.default.for.nullables`.
"""

import json
import struct
from base64 import b64decode
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.envelope.json_text import constant_text
from cdc_assets.errors import InvalidValueError
from cdc_assets.kernels import Numbers, as_type, binaries, null_mask, numbers, numbers_of_offsets
from cdc_assets.typemap.connect import ConnectType, described, element_of
from cdc_assets.typemap.decimals import unscaled_bytes

Pieces = list[bytes | pa.Array]

_GROUP, _MAX_GROUPS = 7, 10
"""Bits of an integer in one byte, and bytes of the longest one."""
_INTEGERS = ("int8", "int16", "int32", "int64")


def event_avro(field: pa.Field, array: pa.Array, head: bytes, *, defaults: bool) -> pa.Array:
    """Keys or values in Avro, null where there is none.

    Args:
        field: made by `ConnectType.to_field`.
        array: its values.
        head: bytes before each: those of the wire format.
        defaults: whether the schema's default replaces null.
    """
    if array.null_count == len(array):
        return pa.nulls(len(array), pa.binary())

    def pieces(present: pa.Array) -> Pieces:
        return [head, *_value_pieces(field, present, defaults=defaults)]

    return _joined(pieces(array), len(array)) if array.null_count == 0 else _sparse(array, pieces)


def _value_pieces(field: pa.Field, array: pa.Array, *, defaults: bool) -> Pieces:
    """A field's values, with the branch of a union if it is optional."""
    connect = described(field)
    value, null = _branches(connect)
    absent = null
    if connect.default is not None and (defaults or not connect.optional):
        absent = value + default_bytes(connect)
    if array.null_count and not absent:
        hint = "report this: such rows have a schema of their own (envelope.nulls)"
        raise InvalidValueError("Avro value", None, f"a value of {field.name}, which its schema requires", hint)
    if len(array) and array.null_count == len(array):
        return [absent]
    if array.null_count == 0:
        return [value, *_present_pieces(field, connect, array, defaults=defaults)]
    some = _sparse(array, lambda present: [value, *_present_pieces(field, connect, present, defaults=defaults)])
    return [some.fill_null(pa.scalar(absent, pa.binary()))]


def _branches(connect: ConnectType) -> tuple[bytes, bytes]:
    """Numbers of the union's branches for a value and for null; empty if the field is no union."""
    if not connect.optional:
        return b"", b""
    return (b"\x02", b"\x00") if connect.default is None else (b"\x00", b"\x02")


def _present_pieces(field: pa.Field, connect: ConnectType, array: pa.Array, *, defaults: bool) -> Pieces:
    if connect.kind == "struct":
        found: Pieces = []
        for index, child in enumerate(connect.fields):
            found += _value_pieces(child, array.field(index), defaults=defaults)
        return found
    if connect.kind == "array":
        items = array.flatten()
        return [_block(array, _joined(_value_pieces(element_of(field), items, defaults=defaults), len(items)))]
    if connect.kind == "map":
        first, last = array.offsets[0].as_py(), array.offsets[len(array)].as_py()
        keys, values = array.keys.slice(first, last - first), array.items.slice(first, last - first)
        return [_block(array, _joined([*_sized(keys), *_sized(values)], last - first))]
    return _scalar_pieces(connect, array)


def _block(array: pa.Array, items: pa.Array) -> pa.Array:
    """Lists or maps without nulls: one block with its number of items, and the end."""
    offsets = array.offsets.to_numpy()
    counts, starts = np.diff(offsets), (offsets - offsets[0]).astype(np.int32)
    body = pc.binary_join(pa.ListArray.from_arrays(pa.array(starts), items), b"")
    head = pc.if_else(pa.array(counts > 0), varints(counts), pa.scalar(b"", pa.binary()))
    return _joined([head, body, b"\x00"], len(array))


def _scalar_pieces(connect: ConnectType, array: pa.Array) -> Pieces:
    kind = array.type
    if pa.types.is_boolean(kind):
        return [_fixed(array.cast(pa.uint8()), np.uint8)]
    if pa.types.is_decimal(kind):
        return _sized(unscaled_bytes(array))
    if pa.types.is_float32(kind):
        return [_fixed(array, np.dtype("<f4"))]
    if pa.types.is_floating(kind):
        return [_fixed(array, np.dtype("<f8"))]
    if pa.types.is_timestamp(kind):
        whole = pc.floor_temporal(array, unit="millisecond").cast(pa.timestamp("ms")).cast(pa.int64())
        return _varint_pieces(whole)
    if pa.types.is_date32(kind):
        return _varint_pieces(array.cast(pa.int32()))
    if connect.kind in _INTEGERS:
        return _varint_pieces(array)
    return _sized(array)


def _varint_pieces(array: pa.Array) -> Pieces:
    values = numbers(array, array.type.to_pandas_dtype())
    if len(values) and values[0] == values[-1] and bool((values == values[0]).all()):
        return [varint(int(values[0]))]
    return [varints(values)]


def _sized(array: pa.Array) -> Pieces:
    """Strings or bytes with their lengths before them."""
    if pa.types.is_string(array.type) and len(array) and array.null_count == 0:
        same = constant_text(array)
        if same is not None:
            return [varint(len(same.encode())) + same.encode()]
    plain = as_type(array, pa.binary())
    return [varints(np.diff(numbers_of_offsets(plain))), plain]


def _fixed(array: pa.Array, dtype: Any) -> pa.Array:
    """Numbers of a fixed width, little-endian."""
    data = np.ascontiguousarray(numbers(array, dtype)).view(np.uint8)
    width = np.dtype(dtype).itemsize
    return binaries(np.arange(len(array) + 1) * width, data, null_mask(array), pa.binary())


def varints(values: Numbers) -> pa.Array:
    """Avro's integers of any size."""
    signed = values.astype(np.int64)
    zigzag = ((signed << 1) ^ (signed >> 63)).view(np.uint64)
    lengths = np.ones(len(zigzag), dtype=np.int32)
    widest = int(zigzag.max(initial=0))
    groups = max(1, -(-widest.bit_length() // _GROUP))
    for group in range(1, groups):
        lengths += zigzag >= np.uint64(1 << (_GROUP * group))
    places = np.arange(groups)
    matrix = ((zigzag[:, None] >> (places * _GROUP).astype(np.uint64)) & np.uint64(0x7F)).astype(np.uint8)
    matrix |= np.where(places < (lengths - 1)[:, None], np.uint8(0x80), np.uint8(0))
    offsets = np.zeros(len(zigzag) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return binaries(offsets, matrix[places < lengths[:, None]], None, pa.binary())


def varint(value: int) -> bytes:
    """One of Avro's integers."""
    rest, found = (value << 1) ^ (value >> 63), bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= _GROUP
    return bytes([*found, rest])


def default_bytes(connect: ConnectType) -> bytes:
    """A default in Avro, without the branch of a union."""
    value = json.loads(connect.default or "null")
    if connect.kind == "struct":
        return b"".join(_part_of_default(child, value[child.name]) for child in connect.fields)
    if connect.kind in _INTEGERS:
        return varint(value)
    if connect.kind == "boolean":
        return bytes([value])
    if connect.kind in ("float", "double"):
        return struct.pack("<f" if connect.kind == "float" else "<d", float(value))
    data = b64decode(value) if connect.kind == "bytes" else str(value).encode()
    return varint(len(data)) + data


def _part_of_default(field: pa.Field, value: Any) -> bytes:
    """A field of a record that is a default."""
    connect = described(field)
    present, null = _branches(connect)
    return null if value is None else present + default_bytes(replace(connect, default=json.dumps(value)))


def _joined(pieces: Sequence[bytes | pa.Array], rows: int) -> pa.Array:
    merged: Pieces = []
    for piece in pieces:
        if isinstance(piece, bytes) and merged and isinstance(merged[-1], bytes):
            merged[-1] += piece
        elif not isinstance(piece, bytes) or piece:
            merged.append(piece)
    if all(isinstance(piece, bytes) for piece in merged):
        return pa.repeat(pa.scalar(b"".join(bytes(piece) for piece in merged), pa.binary()), rows)
    operands = [pa.scalar(piece, pa.binary()) if isinstance(piece, bytes) else piece for piece in merged]
    return pc.binary_join_element_wise(*operands, pa.scalar(b"", pa.binary()))


def _sparse(array: pa.Array, pieces_of: Callable[[pa.Array], Pieces]) -> pa.Array:
    """An array's valid rows only, null in the others."""
    valid = array.is_valid()
    present = array.filter(valid)
    found = _joined(pieces_of(present), len(present))
    shown = valid.to_numpy(zero_copy_only=False)
    return found.take(pa.array(np.cumsum(shown) - 1, mask=~shown))
