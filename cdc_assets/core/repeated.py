"""Columns whose texts repeat, or that hold one number: which ones is known without checking each row.

An array of repeated texts is made once, kept, and sliced. A slice shares its memory, so a later user, such as a writer of
files, can look up which texts it repeats and in which order; or which number is in all of its rows.

*Why the answer is right.* An array is found by the address of its bytes, and only while it is alive, so nothing else can
be at that address. A copy is not found, and is then written like any other column.
"""

from functools import lru_cache
from sys import byteorder
from typing import Final
from weakref import WeakValueDictionary

import pyarrow as pa


class Repeated:
    """A sequence of texts, repeated.

    Args:
        texts: the sequence.
        times: number of repetitions.
    """

    def __init__(self, texts: tuple[str, ...], times: int) -> None:
        self.texts = texts
        self.array = pa.array(texts, pa.string()).take(pa.array(list(range(len(texts))) * times, pa.int32()))
        if _address(self.array):
            _KNOWN[_address(self.array)] = self


_KNOWN: WeakValueDictionary[int, Repeated] = WeakValueDictionary()


def _address(array: pa.Array) -> int:
    """Address of the bytes; 0 if there are none, because then arrays may share it."""
    data = array.buffers()[2]
    return int(data.address) if data is not None and data.size else 0


@lru_cache(maxsize=64)
def repeated(texts: tuple[str, ...], times: int) -> Repeated:
    """A repeated sequence of texts; recent ones are cached."""
    return Repeated(texts, times)


def repeated_texts(array: pa.Array) -> tuple[str, ...] | None:
    """The texts that an array repeats, in turn, if it is a slice of repeated ones, else None."""
    known = _KNOWN.get(_address(array)) if array.null_count == 0 else None
    return None if known is None else known.texts


_MIN: Final = 1024


class _Number(bytearray):
    """The bytes of one number again and again, which live as long as any array of them."""

    __slots__ = ("__weakref__", "value")
    value: int


_NUMBERS: WeakValueDictionary[int, _Number] = WeakValueDictionary()


def repeated_number(value: int, rows: int) -> pa.Array:
    """A number of 64 bits in every row; the arrays of a batch or two are kept."""
    return _numbers(value, max(_MIN, 1 << (rows - 1).bit_length()) if rows > 0 else _MIN).slice(0, rows)


@lru_cache(maxsize=8)
def _numbers(value: int, rows: int) -> pa.Array:
    data = _Number(value.to_bytes(8, byteorder, signed=True))
    data.value = value
    data *= rows
    array = pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(data)])
    _NUMBERS[array.buffers()[1].address] = data
    return array


def number_of(array: pa.Array) -> int | None:
    """The number in every row, if the array is a slice of a repeated one, else None."""
    if not pa.types.is_int64(array.type) or array.null_count or array.buffers()[1] is None:
        return None
    known = _NUMBERS.get(array.buffers()[1].address)
    return None if known is None else known.value
