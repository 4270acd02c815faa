"""Columns whose texts repeat, and what is known of them without looking at each row.

Repeated texts are made once, kept, and sliced. A slice shares their memory, so whoever gets one later, such as a writer of
dictionary-encoded files, can ask which texts it repeats and where.

Why an answer is right: texts are known by the address of their bytes, and only while the array that was made is alive, so
that nothing else can lie there. A copy is merely unknown.
"""

from functools import cached_property, lru_cache
from weakref import WeakValueDictionary

import pyarrow as pa


class Repeated:
    """Some texts one after the other, again and again.

    Args:
        texts: those of one round.
        times: how many rounds.
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
    """Where the bytes lie; 0 if there are none, for then arrays may share the address."""
    data = array.buffers()[2]
    return int(data.address) if data is not None and data.size else 0


@lru_cache(maxsize=64)
def repeated(texts: tuple[str, ...], times: int) -> Repeated:
    """Some texts as often as is said; kept for whoever asks for the same again."""
    return Repeated(texts, times)


def encoded(array: pa.Array) -> pa.DictionaryArray | None:
    """An array of texts as indexes into a dictionary, if it is a slice of repeated ones, else None."""
    known = _KNOWN.get(_address(array)) if array.null_count == 0 else None
    return None if known is None else known.encoded.slice(array.offset, len(array))
