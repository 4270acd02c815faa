"""Columns that hold the same value in every row, and LSNs and positions as text.

Constant arrays are cached and sliced, which costs nothing: most fields of a table's source block are constant. A writer
recognizes them (core.repeated).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from cdc_assets.core.repeated import repeated
from cdc_assets.kernels import Numbers, texts
from cdc_assets.typemap.textforms import byte_digits

_MIN = 1024

LAST_COMMAND = 0xFFFFFFFF
"""Command id of READs: sorts after every change of the same commit."""


def _room(rows: int) -> int:
    return max(_MIN, 1 << (rows - 1).bit_length()) if rows > 0 else _MIN


def constant(value: str, rows: int) -> pa.Array:
    """`value` in every row."""
    return repeated((value,), _room(rows)).array.slice(0, rows)


@lru_cache(maxsize=8)
def _repeated_headers(pairs: tuple[tuple[str, str], ...], size: int) -> pa.Array:
    offsets = np.arange(size + 1, dtype=np.int32) * np.int32(len(pairs))
    names, values = (repeated(tuple(texts), size).array for texts in (zip(*pairs, strict=True) if pairs else ((), ())))
    return pa.MapArray.from_arrays(pa.array(offsets), names, values)


def constant_headers(pairs: tuple[tuple[str, str], ...], rows: int) -> pa.Array:
    """The same headers in every row."""
    return _repeated_headers(pairs, _room(rows)).slice(0, rows)


def big_endian(values: Numbers, width: int) -> Numbers:
    """The lowest `width` bytes of non-negative integers, most significant first."""
    wide = np.ascontiguousarray(values.astype(">u8")).view(np.uint8).reshape(-1, 8)
    return wide[:, 8 - width :]


@dataclass(frozen=True)
class Printed:
    """Printed positions and what stands in them.

    Args:
        matrix: their characters, a row for each; the last one only if there are tombstones.
        tombstone: whose position has the suffix `t` and so follows its delete's.
    """

    matrix: Numbers
    tombstone: Numbers

    def position(self) -> pa.Array:
        """The whole of it."""
        if self.matrix.shape[1] < len(_FORM):
            return texts([self.matrix], None)
        keep = np.ones(self.matrix.shape, dtype=bool)
        keep[:, -1] = self.tombstone
        return texts([self.matrix], None, keep)

    def commit(self) -> pa.Array:
        """LSNs of the commits."""
        return texts([self.matrix[:, _COMMIT]], None)

    def change(self) -> pa.Array:
        """What stands in the place of the change LSN."""
        return texts([self.matrix[:, _CHANGE]], None)


_FORM = np.frombuffer(b"cccccccc:cccccccc:cccc/nnnnnnnn/ssssssss:ssssssss:ssss/ot", dtype=np.uint8)
_COMMIT, _CHANGE, _OPERATION = slice(0, 22), slice(32, 54), 55
_DIGITS = ((0, 8), (9, 17), (18, 22), (23, 31), (32, 40), (41, 49), (50, 54))
_PAIRS = [place for start, end in _DIGITS for place in range(start, end, 2)]
"""Where the two digits of each byte of commit LSN, command id and change LSN stand, one after the other."""


def printed(commit: Numbers, command: Numbers, change: Numbers, operation: Numbers, tombstone: Numbers) -> Printed:
    """Positions from the bytes of their LSNs; digits are made once for all texts that show them.

    Most of these bytes are the same in all rows of a batch, so the first row is copied and what differs is written over it.
    """
    rows, width = len(commit), len(_FORM) if tombstone.any() else len(_FORM) - 1
    matrix = np.empty((rows, width), dtype=np.uint8)
    if rows:
        matrix[0] = _FORM[:width]
        raw = np.ascontiguousarray(np.concatenate([commit, big_endian(command, 4), change], axis=1))
        _print(matrix[:1], raw[:1], range(len(_PAIRS)))
        matrix[1:] = matrix[0]
        _print(matrix, raw, np.flatnonzero(_differing(raw)))
    matrix[:, _OPERATION] = operation + ord("0")
    return Printed(matrix, tombstone)


def _print(matrix: Numbers, raw: Numbers, places: Iterable[int]) -> None:
    """Write the digits of these bytes of all rows."""
    rows, width = matrix.shape
    for place in places:
        pairs: Numbers = np.ndarray((rows,), np.uint16, matrix.data, _PAIRS[place], (width,))
        pairs[:] = byte_digits(raw[:, place])


def _differing(raw: Numbers) -> Numbers:
    """Which columns of a byte matrix, as wide as some 64-bit numbers, are not the same in all rows."""
    words = raw.view(np.uint64)
    found = [np.bitwise_or.reduce(words[:, place] ^ words[0, place]) for place in range(words.shape[1])]
    return np.array(found, dtype=np.uint64).view(np.uint8)
