"""Columns whose texts repeat: their dictionary and indexes are known without hashing each row.

An array of repeated texts is made once, kept, and sliced. A slice shares its memory, so a later user, such as a writer of
dictionary-encoded files, can look up which texts it repeats and in which order.

*Why the answer is right.* An array is found by the address of its bytes, and only while it is alive, so nothing else can
be at that address. A copy is not found, and is then encoded like any other column.
"""

from functools import cached_property, lru_cache
from weakref import WeakValueDictionary

import pyarrow as pa


class Repeated:
    """A sequence of texts, repeated.

    Args:
        texts: the sequence.
        times: number of repetitions.
    """

    def __init__(self, texts: tuple[str, ...], times: int) -> None:
        self.texts, self.times = texts, times
        self.array = pa.array(texts, pa.string()).take(self._indexes)
        if _address(self.array):
            _KNOWN[_address(self.array)] = self

    @property
    def _indexes(self) -> pa.Array:
        return pa.array(list(range(len(self.texts))) * self.times, pa.int32())

    @cached_property
    def encoded(self) -> pa.DictionaryArray:
        """The same as indexes into a dictionary."""
        return pa.DictionaryArray.from_arrays(self._indexes, pa.array(self.texts, pa.string()))


_KNOWN: WeakValueDictionary[int, Repeated] = WeakValueDictionary()


def _address(array: pa.Array) -> int:
    """Address of the bytes; 0 if there are none, because then arrays may share it."""
    data = array.buffers()[2]
    return int(data.address) if data is not None and data.size else 0


@lru_cache(maxsize=64)
def repeated(texts: tuple[str, ...], times: int) -> Repeated:
    """A repeated sequence of texts; recent ones are cached."""
    return Repeated(texts, times)


def encoded(array: pa.Array) -> pa.DictionaryArray | None:
    """An array of texts as indexes into a dictionary, if it is a slice of repeated ones, else None."""
    known = _KNOWN.get(_address(array)) if array.null_count == 0 else None
    return None if known is None else known.encoded.slice(array.offset, len(array))
