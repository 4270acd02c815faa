"""Makes texts that are equal but for a number in hexadecimal that grows by one from row to row: positions of READs."""

from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

_LOW: Final = 1 << 16
"""Numbers that differ in the lower four digits alone."""
_MIN: Final = 1024


def number_texts(head: str, first: int, rows: int, tail: str) -> pa.Array:
    """Texts with the numbers from `first` on, modulo 2³², between `head` and `tail`, which are ASCII.

    The first text is repeated, and in the others the digits that differ are written over it.
    """
    if not rows:
        return pa.array([], pa.string())
    text = f"{head}{hexadecimal(first)}{tail}".encode("ascii")
    data, width = bytearray(text) * rows, len(text)
    high, low = (np.ndarray((rows,), np.uint32, data, len(head) + place, (width,)) for place in (0, 5))
    digits, begin = np.frombuffer(_low_digits(), np.uint32), 0
    while begin < rows:
        number = first + begin
        end = min(rows, begin + _LOW - number % _LOW)
        low[begin:end] = digits[number % _LOW : number % _LOW + end - begin]
        if begin:
            high[begin:end] = digits[number // _LOW % _LOW]
        begin = end
    offsets = _offsets(width, max(_MIN, 1 << (rows - 1).bit_length()))
    return pa.Array.from_buffers(pa.string(), rows, [None, offsets, pa.py_buffer(data)])


@lru_cache(maxsize=8)
def _offsets(width: int, rows: int) -> pa.Buffer:
    return pa.py_buffer(np.arange(rows + 1, dtype=np.int32) * np.int32(width))


def hexadecimal(number: int) -> str:
    """Eight digits as in an LSN: two groups of four with a colon between them."""
    return f"{number >> 16 & 0xFFFF:04x}:{number & 0xFFFF:04x}"


@lru_cache(maxsize=1)
def _low_digits() -> bytes:
    """Four digits of each number below 2¹⁶, one after the other."""
    pairs = [b"%02x" % value for value in range(256)]
    return b"".join([high + low for high in pairs for low in pairs])
