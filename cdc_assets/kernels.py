"""Small vectorised building blocks over Arrow arrays and numpy.

Every kernel works on a whole array at once. Null slots hold arbitrary values while a kernel computes; `with_nulls`
restores the validity, so that results of such slots are never visible.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Numbers = np.ndarray[Any, np.dtype[Any]]
"""A numpy vector or matrix."""


def as_type(array: pa.Array, target: pa.DataType) -> pa.Array:
    """`array` in the type `target`; the same object if it has that type already."""
    if array.type == target:
        return array
    if array.offset and (pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)):
        array = pa.concat_arrays([array])  # Arrow refuses any slice that starts after 2 GB
    return array.cast(target)


def numbers(array: pa.Array, dtype: Any) -> Numbers:
    """The fixed-width values of an array without copying; null slots hold arbitrary values."""
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros(len(array), dtype=dtype)
    return np.frombuffer(buffer, dtype=dtype)[array.offset : array.offset + len(array)]


def null_mask(array: pa.Array) -> Numbers | None:
    """True where the array is null, or None if it has no nulls."""
    if array.null_count == 0:
        return None
    mask: Numbers = array.is_null().to_numpy(zero_copy_only=False)
    return mask


def mask_of(array: pa.Array | pa.ChunkedArray) -> Numbers:
    """Where an array is true; null is not."""
    found: Numbers = np.asarray(pc.fill_null(array, False)).astype(bool)
    return found


def with_nulls(values: Numbers, nulls: Numbers | None, target: pa.DataType) -> pa.Array:
    """An Arrow array of `values` that is null where `nulls` is true."""
    return pa.array(values, type=target, mask=nulls)


def fixed_bytes(array: pa.Array, width: int) -> Numbers:
    """The values of a binary array whose values all have `width` bytes, as a matrix; zeros where null."""
    filled = array if array.null_count == 0 else pc.fill_null(array, b"\0" * width)
    if isinstance(filled, pa.ChunkedArray):
        filled = filled.combine_chunks()
    filled = as_type(filled, pa.binary())
    starts = numbers_of_offsets(filled)
    data = np.frombuffer(filled.buffers()[2] or b"", dtype=np.uint8)[starts[0] : starts[-1]]
    if data.size != len(array) * width or not bool(np.all(np.diff(starts) == width)):
        raise ValueError(f"expected values of {width} bytes")
    return data.reshape(len(array), width)


def differ(matrix: Numbers) -> Numbers:
    """Which rows of a byte matrix differ from the row before; the first one does."""
    rows, width = matrix.shape
    different = np.ones(rows, dtype=bool)
    different[1:] = False
    matrix = np.ascontiguousarray(matrix)
    index = 0
    for size in (8, 4, 2, 1):  # as numbers side by side: short rows compared byte by byte cost ten times as much
        while width - index >= size:
            word = np.ndarray((rows,), f"u{size}", matrix.data, index, (width,))
            different[1:] |= word[1:] != word[:-1]
            index += size
    return different


def numbers_of_offsets(array: pa.Array) -> Numbers:
    """The `len + 1` offsets of a string or binary array with 32-bit offsets."""
    if len(array) == 0:
        return np.zeros(1, dtype=np.int32)
    return np.frombuffer(array.buffers()[1], dtype=np.int32)[array.offset : array.offset + len(array) + 1]


def digits(values: Numbers, width: int) -> Numbers:
    """Decimal digits of non-negative integers, zero padded, as a matrix of ASCII codes."""
    powers = 10 ** np.arange(width - 1, -1, -1, dtype=np.int64)
    return (values[:, None] // powers % 10 + ord("0")).astype(np.uint8)


def literal(text: str, rows: int) -> Numbers:
    """The same ASCII text in every row of a matrix."""
    return np.broadcast_to(np.frombuffer(text.encode("ascii"), dtype=np.uint8), (rows, len(text)))


def texts(parts: Sequence[Numbers], nulls: Numbers | None, keep: Numbers | None = None) -> pa.Array:
    """Strings from matrices of ASCII codes laid side by side.

    Args:
        parts: matrices with the same number of rows.
        nulls: rows that are null.
        keep: mask of the characters of the joined matrix to keep; all if None.
    """
    matrix = np.ascontiguousarray(parts[0] if len(parts) == 1 else np.hstack(parts))
    rows, width = matrix.shape
    if keep is None:
        offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(width)
        data = matrix
    else:
        offsets = np.zeros(rows + 1, dtype=np.int32)
        np.cumsum(keep.sum(axis=1, dtype=np.int32), out=offsets[1:])
        data = matrix[keep]
    return _variable(pa.string(), offsets, data, nulls)


def _variable(target: pa.DataType, offsets: Numbers, data: Numbers, nulls: Numbers | None) -> pa.Array:
    validity = None if nulls is None else pa.array(~nulls).buffers()[1]
    buffers = [validity, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(target, len(offsets) - 1, buffers)


def binaries(offsets: Numbers, data: Numbers, nulls: Numbers | None, target: pa.DataType) -> pa.Array:
    """A string or binary array from 32-bit offsets and bytes."""
    return _variable(target, offsets.astype(np.int32, copy=False), data, nulls)
