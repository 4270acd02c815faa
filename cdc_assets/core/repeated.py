"""Columns whose texts repeat: which ones is known without a look at each row.

An array of repeated texts is made once, kept, and sliced. A slice shares its memory, so a later user, such as a writer of
files, can look up which texts it repeats and in which order.

*Why the answer is right.* An array is found by the address of its bytes, and only while it is alive, so nothing else can
be at that address. A copy is not found, and is then written like any other column.
"""

from functools import lru_cache
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
