"""Arrow values as JSON text, a whole array at once.

A value becomes *pieces*: a sequence of literals and string arrays. A struct without nulls only adds its own pieces to
its parent's, so that a whole envelope is joined in one pass, in C++. A piece that is null in a row means JSON's null
there. Arrays that hold the same value in every row, as most of the source block does, become literals; strings that
were read as numbers of a dictionary are escaped once for each distinct one. A column that no update of a batch changes
is rendered once, for both images.

Strings are escaped as Jackson does: quote, backslash and everything below 0x20, the rest as it is. Bytes are scanned
first, so that a batch without such characters costs one scan. Numbers that JSON does not have (NaN, infinities) become
strings, as in Jackson; SQL Server stores none.
"""

import json
from collections.abc import Callable, Sequence
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.envelope.json_numbers import NUMBER
from cdc_assets.kernels import as_type, numbers, numbers_of_offsets
from cdc_assets.typemap.connect import ConnectType, described, element_of
from cdc_assets.typemap.decimals import unscaled_bytes
from cdc_assets.typemap.textforms import base64

Pieces = list[str | pa.Array]
Known = dict[tuple[str, ConnectType], tuple[pa.Array, Pieces]]
"""Values that were rendered before, by their field's name and type."""

_MIN_NEAR, _MIN_FAR = 1e-3, 1e7
"""Java prints numbers from the one up to the other without an exponent."""

_SHORT = {0x08: "\\b", 0x09: "\\t", 0x0A: "\\n", 0x0C: "\\f", 0x0D: "\\r", 0x22: '\\"', 0x5C: "\\\\"}
_ORDER = [0x5C, 0x22, *range(0x20)]
"""Backslashes first, because the other replacements add some."""


def quoted(text: str) -> str:
    """One string as JSON text."""
    return json.dumps(text, ensure_ascii=False)


def joined(pieces: Sequence[str | pa.Array], rows: int, target: pa.DataType | None = None) -> pa.Array:
    """Pieces joined row by row; a null piece reads `null`."""
    target = target or pa.string()
    merged = _merged(pieces)
    if all(isinstance(piece, str) for piece in merged):
        return pa.repeat(pa.scalar("".join(str(piece) for piece in merged), target), rows)
    operands = [pa.scalar(piece, target) if isinstance(piece, str) else as_type(piece, target) for piece in merged]
    separator = pa.scalar("", target)
    return pc.binary_join_element_wise(*operands, separator, null_handling="replace", null_replacement="null")


def _merged(pieces: Sequence[str | pa.Array]) -> Pieces:
    merged: Pieces = []
    for piece in pieces:
        if isinstance(piece, str) and merged and isinstance(merged[-1], str):
            merged[-1] += piece
        else:
            merged.append(piece)
    return merged


def value_pieces(field: pa.Field, array: pa.Array, *, defaults: bool, known: Known | None = None) -> Pieces:
    """JSON of a field's values.

    Args:
        field: made by `ConnectType.to_field`.
        array: its values.
        defaults: whether the schema's default replaces null.
        known: what was rendered with the same `defaults`, to which this is added; None to keep nothing.
    """
    connect = described(field)
    absent = connect.default if defaults and connect.default is not None else None
    if len(array) and array.null_count == len(array):
        return [absent or "null"]
    if connect.kind == "struct":
        return _nullable_struct(connect, array, defaults, known)
    if connect.kind == "array":
        return [_list_text(field, array, defaults)]
    if connect.kind == "map":
        return [_map_text(array)]
    if known is None or pa.types.is_floating(array.type):  # of two that are equal one may be -0.0
        return _filled(_scalar_pieces(connect, array), array, absent)
    earlier, pieces = known.get((field.name, connect), (None, []))
    if earlier is None or not array.equals(earlier):
        pieces = _filled(_scalar_pieces(connect, array), array, absent)
        known[field.name, connect] = array, pieces
    return pieces


def _filled(pieces: Pieces, array: pa.Array, absent: str | None) -> Pieces:
    """Pieces of an array, its nulls as they are shown."""
    if array.null_count == 0:
        return pieces
    text = _with_nulls(pieces)
    return [text if absent is None else text.fill_null(absent)]


def _with_nulls(pieces: Pieces) -> pa.Array:
    """One array, null where a piece is null."""
    if len(pieces) == 1 and not isinstance(pieces[0], str):
        return pieces[0]
    return pc.binary_join_element_wise(*[pa.scalar(p) if isinstance(p, str) else p for p in pieces], "")


def struct_pieces(fields: Sequence[pa.Field], array: pa.Array, *, defaults: bool, known: Known | None = None) -> Pieces:
    """JSON object of a struct array without nulls; see `value_pieces`."""
    pieces: Pieces = ["{"]
    for index, field in enumerate(fields):
        pieces.append(("," if index else "") + quoted(field.name) + ":")
        pieces += value_pieces(field, array.field(index), defaults=defaults, known=known)
    return [*pieces, "}"]


def _nullable_struct(connect: ConnectType, array: pa.Array, defaults: bool, known: Known | None) -> Pieces:
    if array.null_count == 0:
        return struct_pieces(connect.fields, array, defaults=defaults, known=known)
    return [sparse(array, lambda present: struct_pieces(connect.fields, present, defaults=defaults, known=known))]


def sparse(array: pa.Array, pieces_of: Callable[[pa.Array], Pieces], target: pa.DataType | None = None) -> pa.Array:
    """JSON of an array's valid rows only, null in the others."""
    valid = array.is_valid()
    present = array.filter(valid)
    text = joined(pieces_of(present), len(present), target)
    shown = valid.to_numpy(zero_copy_only=False)
    return text.take(pa.array(np.cumsum(shown) - 1, mask=~shown))


def _list_text(field: pa.Field, array: pa.Array, defaults: bool) -> pa.Array:
    items = array.flatten()
    texts = joined(value_pieces(element_of(field), items, defaults=defaults), len(items))
    lengths = array.value_lengths().fill_null(0).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    body = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), texts), ",")
    text = pc.binary_join_element_wise("[", body, "]", "")
    return pc.if_else(array.is_valid(), text, pa.scalar(None, pa.string()))


def _map_text(array: pa.Array) -> pa.Array:
    """JSON objects of maps from text to text, or to null."""
    keys = joined(text_pieces(array.keys), len(array.keys))
    values = pc.fill_null(_with_nulls(text_pieces(array.items)), "null")
    entries = pc.binary_join_element_wise(keys, values, ":")
    body = pc.binary_join(pa.ListArray.from_arrays(array.offsets, entries), ",")
    text = pc.binary_join_element_wise("{", body, "}", "")
    return pc.if_else(array.is_valid(), text, pa.scalar(None, pa.string()))


def _scalar_pieces(connect: ConnectType, array: pa.Array) -> Pieces:
    kind = array.type
    if connect.form == NUMBER:
        return [array]
    if pa.types.is_dictionary(kind):
        return _distinct_pieces(array)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return text_pieces(as_type(array, pa.string()))
    if pa.types.is_boolean(kind):
        return [pc.if_else(array, "true", "false")]
    if pa.types.is_decimal(kind):
        return ['"', base64(unscaled_bytes(array)), '"']
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return ['"', base64(array), '"']
    if pa.types.is_floating(kind):
        return [_float_text(array)]
    return _integer_pieces(_integers(connect, array))


def _integers(connect: ConnectType, array: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(array.type):
        return pc.floor_temporal(array, unit="millisecond").cast(pa.timestamp("ms")).cast(pa.int64())
    return array.cast(pa.int32()) if pa.types.is_date32(array.type) else array


def _integer_pieces(array: pa.Array) -> Pieces:
    if array.null_count == 0 and len(array):
        values = numbers(array, array.type.to_pandas_dtype())
        if values[0] == values[-1] and bool((values == values[0]).all()):
            return [str(values[0])]
    return [array.cast(pa.string())]


def _float_text(array: pa.Array) -> pa.Array:
    text = array.cast(pa.string())
    whole = pc.invert(pc.match_substring_regex(text, "[.en]"))
    if pc.any(whole).as_py():
        text = pc.if_else(whole, pc.binary_join_element_wise(text, ".0", ""), text)
    size = pc.abs(array)
    far = pc.or_(pc.greater_equal(size, _MIN_FAR), pc.and_(pc.less(size, _MIN_NEAR), pc.greater(size, 0)))
    far = pc.fill_null(pc.and_(far, pc.is_finite(array)), False)
    if pc.any(far).as_py():
        shown = [_with_exponent(value) for value in text.filter(far).to_pylist()]
        text = pc.replace_with_mask(text, far, pa.array(shown, text.type))
    odd = pc.invert(pc.is_finite(array))
    if pc.any(odd).as_py():
        names = pc.if_else(pc.is_nan(array), '"NaN"', pc.if_else(pc.greater(array, 0), '"Infinity"', '"-Infinity"'))
        text = pc.if_else(odd, names, text)
    return text


def _with_exponent(text: str) -> str:
    """A number as Java prints those that are far from 1: `1.0E7`; the digits are the fewest that tell it."""
    sign, digits, exponent = Decimal(text).as_tuple()
    assert isinstance(exponent, int)  # noqa: S101 - the number is finite
    shown = "".join(map(str, digits)).rstrip("0")
    return f"{'-' * sign}{shown[0]}.{shown[1:] or '0'}E{len(digits) - 1 + exponent}"


def text_pieces(array: pa.Array) -> Pieces:
    """Quoted and escaped strings."""
    if array.null_count == 0 and len(array):
        same = constant_text(array)
        if same is not None:
            return [quoted(same)]
    return ['"', escaped(array), '"']


def _distinct_pieces(array: pa.DictionaryArray) -> Pieces:
    """Strings that were read as numbers of their distinct values."""
    shown = joined(text_pieces(array.dictionary), len(array.dictionary))
    if len(shown) == 1 and array.null_count == 0:
        return [str(shown[0])]
    return [shown.take(array.indices)]


def constant_text(array: pa.Array) -> str | None:
    """The value that all rows of a string array without nulls share, or None."""
    offsets = numbers_of_offsets(array)
    width = int(offsets[1] - offsets[0])
    if int(offsets[-1] - offsets[0]) != width * len(array):
        return None
    if width == 0:
        return ""
    data = np.frombuffer(array.buffers()[2], dtype=np.uint8)[offsets[0] : offsets[-1]].reshape(len(array), width)
    if not bool((data[-1] == data[0]).all()) or not bool((np.diff(offsets) == width).all()):
        return None
    if not bool((data == data[0]).all()):
        return None
    return str(data[0].tobytes(), "utf-8")


def escaped(array: pa.Array) -> pa.Array:
    """Strings with escapes for JSON, without quotes."""
    offsets = numbers_of_offsets(array)
    data = np.frombuffer(array.buffers()[2] or b"", dtype=np.uint8)[offsets[0] : offsets[-1]]
    if data.min(initial=0x20) >= 0x20 and not (data == 0x22).any() and not (data == 0x5C).any():
        return array
    present = set(np.flatnonzero(np.bincount(data)).tolist())
    for code in _ORDER:
        if code in present:
            array = pc.replace_substring(array, chr(code), _SHORT.get(code, f"\\u{code:04X}"))
    return array
