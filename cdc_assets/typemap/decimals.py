"""Decimal and money values, by `decimal.handling.mode`, and Connect's bytes for them.

| mode | event type | value |
|---|---|---|
| precise | Connect's Decimal, held as `decimal128(p, s)` | exact |
| double | double | nearest |
| string | string | plain notation with the column's scale |

Connect writes a Decimal as the unscaled integer, big-endian two's complement in
as few bytes as hold it (spec debezium-sqlserver §5.3).
"""

from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.config.settings import DecimalMode
from cdc_assets.core.schema import Column
from cdc_assets.kernels import Numbers, as_type, binaries, null_mask
from cdc_assets.typemap.connect import ConnectType
from cdc_assets.typemap.temporal import Convert

DECIMALS = ("decimal", "numeric", "money", "smallmoney")
_MONEY = {"money": (19, 4), "smallmoney": (10, 4)}


def precision_and_scale(column: Column) -> tuple[int, int]:
    """Total digits and digits after the decimal point."""
    if column.type_name in _MONEY:
        return _MONEY[column.type_name]
    return (18 if column.precision is None else column.precision), column.scale or 0


def decimal_form(column: Column, mode: DecimalMode) -> tuple[ConnectType, Convert]:
    """Event type of a decimal or money column and the kernel that fills it."""
    precision, scale = precision_and_scale(column)
    if mode == "double":
        return ConnectType("double"), nearest_double
    if mode == "string":
        return ConnectType("string"), plain_text
    parameters = (("scale", str(scale)), ("connect.decimal.precision", str(precision)))
    native = pa.decimal128(precision, scale)
    decimal = ConnectType("bytes", "org.apache.kafka.connect.data.Decimal", 1, parameters, native)
    return decimal, partial(as_type, target=native)


def unscaled_bytes(array: pa.Array) -> pa.Array:
    """Connect's bytes of a decimal128 array."""
    halves = words(array)
    width = _width(halves)
    matrix = np.ascontiguousarray(halves[:, ::-1]).byteswap().view(np.uint8).reshape(len(array), 16)[:, 16 - width :]
    lengths = width - _leading(matrix)
    nulls = null_mask(array)
    if nulls is not None:
        lengths[nulls] = 0
    offsets = np.zeros(len(array) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    keep = np.arange(width) >= (width - lengths)[:, None]
    return binaries(offsets, matrix[keep], nulls, pa.binary())


def words(array: pa.Array) -> Numbers:
    """Low and high 64 bits of each unscaled value."""
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros((len(array), 2), dtype=np.int64)
    return np.frombuffer(buffer, dtype=np.int64).reshape(-1, 2)[array.offset : array.offset + len(array)]


def _width(halves: Numbers) -> int:
    """Bytes that hold each of the values."""
    low, high = halves.T
    sign = low >> 63
    if bool((high != sign).any()):
        return 16
    return int((low ^ sign).max(initial=0)).bit_length() // 8 + 1


def _leading(matrix: Numbers) -> Numbers:
    """Number of leading bytes that only repeat the sign; never the last one."""
    sign = np.where(matrix[:, 0] >= 0x80, 0xFF, 0).astype(np.uint8)
    same = (matrix == sign[:, None]) & ((np.roll(matrix, -1, axis=1) >= 0x80) == (sign == 0xFF)[:, None])
    same[:, -1] = False
    count: Numbers = np.logical_and.accumulate(same, axis=1).sum(axis=1, dtype=np.int32)
    return count


def nearest_double(array: pa.Array) -> pa.Array:
    """The nearest double of each value. Converted through text, because Arrow's cast divides and so rounds twice."""
    return array.cast(pa.string()).cast(pa.float64())


def plain_text(array: pa.Array) -> pa.Array:
    """Plain notation, never an exponent, with all digits of the array's scale.

    Arrow prints small numbers of a large scale with an exponent, so integer part and fraction are printed separately.
    """
    text, scale = _unscaled_text(array), array.type.scale
    if scale == 0:
        return text
    negative = pc.starts_with(text, "-")
    size = pc.utf8_lpad(pc.if_else(negative, pc.utf8_slice_codeunits(text, 1), text), width=scale + 1, padding="0")
    whole, fraction = pc.utf8_slice_codeunits(size, 0, -scale), pc.utf8_slice_codeunits(size, -scale)
    return pc.binary_join_element_wise(pc.if_else(negative, "-", ""), whole, ".", fraction, "")


def _unscaled_text(array: pa.Array) -> pa.Array:
    """Decimal digits of the unscaled integers."""
    integers = pa.Array.from_buffers(pa.decimal128(38, 0), len(array), array.buffers(), offset=array.offset)
    return integers.cast(pa.string())
