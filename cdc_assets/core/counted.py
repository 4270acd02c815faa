"""Columns of texts that count: equal but for a number in hexadecimal that grows by one from row to row.

The positions of READs are like that. An array of them is made at once (`envelope.counting`), not text by text, and a later user, such as a writer
of files, can look up what it counts (compare `core.repeated`).

*Why the answer is right.* An array is found by the addresses of its bytes and of its offsets, and only while its bytes are
alive, so nothing else can be at that address. Both are as they were made, so the array is a slice of what was made, and
its offset tells which. A copy is not found, and is then written like any other column.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Self
from weakref import WeakValueDictionary

import pyarrow as pa


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


class CountedBytes(bytearray):
    """The bytes of texts that count, which live as long as any array of them."""

    __slots__ = ("__weakref__", "offsets", "said")
    said: Count
    offsets: int


_KNOWN: WeakValueDictionary[int, CountedBytes] = WeakValueDictionary()


def hexadecimal(number: int) -> str:
    """Eight digits as in an LSN: two groups of four with a colon between them."""
    return f"{number >> 16 & 0xFFFF:04x}:{number & 0xFFFF:04x}"


def array_of(data: CountedBytes, offsets: pa.Buffer, count: Count) -> pa.Array:
    """The array of some texts.

    Args:
        data: the texts, one after the other.
        offsets: where each begins, 32 bits wide.
        count: what they count.
    """
    array = pa.Array.from_buffers(pa.string(), count.rows, [None, offsets, pa.py_buffer(data)])
    if count.first + count.rows <= 1 << 32:  # the number does not begin again
        data.said, data.offsets = count, offsets.address
        _KNOWN[array.buffers()[2].address] = data
    return array


def count_of(array: pa.Array) -> Count | None:
    """What an array counts, if it is a slice of one that was made by `array_of`."""
    if not pa.types.is_string(array.type) or array.null_count or not len(array):
        return None
    _, offsets, data = array.buffers()
    known = None if data is None else _KNOWN.get(data.address)
    if known is None or offsets.address != known.offsets or array.offset + len(array) > known.said.rows:
        return None
    return known.said.part(array.offset, len(array))


@lru_cache(maxsize=1)
def low_digits() -> bytes:
    """Four digits of each number below 2¹⁶, one after the other."""
    pairs = [b"%02x" % value for value in range(256)]
    return b"".join([high + low for high in pairs for low in pairs])
