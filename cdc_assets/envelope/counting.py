"""Makes texts that count, many at once (`core.counted`)."""

from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from cdc_assets.core.counted import Count, CountedBytes, array_of, hexadecimal, low_digits

_LOW: Final = 1 << 16
"""Numbers that differ in the lower four digits alone."""
_LEAST: Final = 1024


def counted(head: str, first: int, rows: int, tail: str) -> pa.Array:
    """Texts with the numbers from `first` on, modulo 2³², between `head` and `tail`, which are ASCII.

    The first text is repeated, and in the others the digits that differ are written over it.
    """
    if not rows:
        return pa.array([], pa.string())
    text = f"{head}{hexadecimal(first)}{tail}".encode("ascii")
    data, width = CountedBytes(text), len(text)
    data *= rows
    high, low = (np.ndarray((rows,), np.uint32, data, len(head) + place, (width,)) for place in (0, 5))
    digits, begin = np.frombuffer(low_digits(), np.uint32), 0
    while begin < rows:
        number = first + begin
        end = min(rows, begin + _LOW - number % _LOW)
        low[begin:end] = digits[number % _LOW : number % _LOW + end - begin]
        if begin:
            high[begin:end] = digits[number // _LOW % _LOW]
        begin = end
    offsets = _offsets(width, max(_LEAST, 1 << (rows - 1).bit_length()))
    return array_of(data, offsets, Count(head, first, rows, tail))


@lru_cache(maxsize=8)
def _offsets(width: int, rows: int) -> pa.Buffer:
    return pa.py_buffer(np.arange(rows + 1, dtype=np.int32) * np.int32(width))
