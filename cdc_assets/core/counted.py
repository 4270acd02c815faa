"""Columns of texts that count: equal but for a number in hexadecimal that grows by one from row to row.

The positions of READs are like that. An array of them is made at once, not text by text, and a later user, such as a writer
of files, can look up what it counts (compare `core.repeated`).

*Why the answer is right.* An array is found by the addresses of its bytes and of its offsets, and only while its bytes are
alive, so nothing else can be at that address. Both are as they were made, so the array is a slice of what was made, and
its offset tells which. A copy is not found, and is then written like any other column.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Self
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa

_LOW: Final = 1 << 16
"""Numbers that differ in the lower four digits alone."""
_LEAST: Final = 1024


@dataclass(frozen=True, slots=True)
class Count:
    """Texts that count.

    Args:
        head: what stands before the number.
        first: number of the first row.
        rows: how many.
        tail: what stands behind it.
    """

    head: str
    first: int
    rows: int
    tail: str

    def text(self, row: int) -> str:
        """The text of a row, from 0."""
        return f"{self.head}{hexadecimal(self.first + row)}{self.tail}"

    def part(self, start: int, rows: int) -> Self:
        """Some rows of it."""
        return type(self)(self.head, self.first + start, rows, self.tail)


class _Bytes(bytearray):
    """The bytes of texts, which live as long as any array of them."""

    __slots__ = ("__weakref__", "offsets", "said")
    said: Count
    offsets: int


_KNOWN: WeakValueDictionary[int, _Bytes] = WeakValueDictionary()


def hexadecimal(number: int) -> str:
    """Eight digits as in an LSN: two groups of four with a colon between them."""
    return f"{number >> 16 & 0xFFFF:04x}:{number & 0xFFFF:04x}"


def counted(head: str, first: int, rows: int, tail: str) -> pa.Array:
    """Texts with the numbers from `first` on, modulo 2³², between `head` and `tail`, which are ASCII."""
    if not rows:
        return pa.array([], pa.string())
    text = f"{head}{hexadecimal(first)}{tail}".encode("ascii")
    data, width = _Bytes(text), len(text)
    data *= rows
    high, low = (np.ndarray((rows,), np.uint32, data, len(head) + place, (width,)) for place in (0, 5))
    digits, begin = low_digits(), 0
    while begin < rows:
        number = first + begin
        end = min(rows, begin + _LOW - number % _LOW)
        low[begin:end] = digits[number % _LOW : number % _LOW + end - begin]
        if begin:
            high[begin:end] = digits[number // _LOW % _LOW]
        begin = end
    offsets = _offsets(width, max(_LEAST, 1 << (rows - 1).bit_length()))
    array = pa.Array.from_buffers(pa.string(), rows, [None, offsets, pa.py_buffer(data)])
    if first + rows <= 1 << 32:
        data.said, data.offsets = Count(head, first, rows, tail), offsets.address
        _KNOWN[array.buffers()[2].address] = data
    return array


def count_of(array: pa.Array) -> Count | None:
    """What an array counts, if it is a slice of one that was made by `counted`."""
    if not pa.types.is_string(array.type) or array.null_count or not len(array):
        return None
    _, offsets, data = array.buffers()
    known = None if data is None else _KNOWN.get(data.address)
    if known is None or offsets.address != known.offsets or array.offset + len(array) > known.said.rows:
        return None
    return known.said.part(array.offset, len(array))


@lru_cache(maxsize=8)
def _offsets(width: int, rows: int) -> pa.Buffer:
    return pa.py_buffer(np.arange(rows + 1, dtype=np.int32) * np.int32(width))


@lru_cache(maxsize=1)
def low_digits() -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    """Four digits of each number below 2¹⁶, as they lie in memory."""
    pairs = np.frombuffer(b"".join(b"%02x" % value for value in range(256)), np.uint16)
    both = np.empty((256, 256, 2), np.uint16)
    both[:, :, 0], both[:, :, 1] = pairs[:, None], pairs
    return both.reshape(-1).view(np.uint32)
