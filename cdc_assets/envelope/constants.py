"""Columns that hold the same value in every row, and LSNs and positions as text.

Constant arrays are cached and sliced, which costs nothing: most fields of a table's source block are constant.
"""

from functools import lru_cache

import numpy as np
import pyarrow as pa

from cdc_assets.typemap.kernels import Numbers, literal, texts
from cdc_assets.typemap.textforms import hex_digits

_LEAST = 1024

LAST_COMMAND = 0xFFFFFFFF
"""Command id of READs: sorts after every change of the same commit."""


def _room(rows: int) -> int:
    return max(_LEAST, 1 << (rows - 1).bit_length()) if rows > 0 else _LEAST


@lru_cache(maxsize=64)
def _repeated(value: str, size: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.string()), size)


def constant(value: str, rows: int) -> pa.Array:
    """`value` in every row."""
    return _repeated(value, _room(rows)).slice(0, rows)


@lru_cache(maxsize=8)
def _repeated_headers(pairs: tuple[tuple[str, str], ...], size: int) -> pa.Array:
    offsets = np.arange(size + 1, dtype=np.int32) * np.int32(len(pairs))
    names = pa.array([name for name, _ in pairs] * size, pa.string())
    values = pa.array([value for _, value in pairs] * size, pa.string())
    return pa.MapArray.from_arrays(pa.array(offsets), names, values)


def constant_headers(pairs: tuple[tuple[str, str], ...], rows: int) -> pa.Array:
    """The same headers in every row."""
    return _repeated_headers(pairs, _room(rows)).slice(0, rows)


def lsn_parts(raw: Numbers) -> list[Numbers]:
    """Printed form of LSNs as matrices side by side."""
    text, colon = hex_digits(raw), literal(":", len(raw))
    return [text[:, :8], colon, text[:, 8:16], colon, text[:, 16:20]]


def lsn_texts(raw: Numbers) -> pa.Array:
    """Printed form of LSNs."""
    return texts(lsn_parts(raw), None)


def big_endian(values: Numbers, width: int) -> Numbers:
    """The lowest `width` bytes of non-negative integers, most significant first."""
    wide = np.ascontiguousarray(values.astype(">u8")).view(np.uint8).reshape(-1, 8)
    return wide[:, 8 - width :]


def positions(commit: Numbers, command: Numbers, change: Numbers, operation: Numbers, tombstone: Numbers) -> pa.Array:
    """Printed positions; a tombstone's has the suffix `t` and so follows its delete."""
    rows, slash = len(commit), literal("/", len(commit))
    codes = (operation + ord("0")).astype(np.uint8)[:, None]
    parts = [*lsn_parts(commit), slash, hex_digits(big_endian(command, 4)), slash, *lsn_parts(change), slash, codes]
    if not tombstone.any():
        return texts(parts, None)
    keep = np.ones((rows, 57), dtype=bool)
    keep[:, 56] = tombstone
    return texts([*parts, literal("t", rows)], None, keep)
