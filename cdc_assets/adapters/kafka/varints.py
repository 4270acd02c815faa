"""Numbers as Kafka's records have them, and bytes of Arrow's columns.

A number is a *zigzag varint*: its sign is moved into the lowest bit, and seven bits of what there is then are in each byte, the lowest
first; the highest bit of a byte says that another one follows.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[Any]

BYTES: Final = pa.large_binary()
"""The type of all columns here."""


class Varints(NamedTuple):
    """Numbers as they are sent."""

    found: Numbers
    """A row of bytes for each."""
    used: npt.NDArray[np.bool_]
    """Which of them."""
    lengths: Numbers
    """How many."""


def varints(numbers: Numbers) -> Varints:
    """Signed numbers as zigzag varints."""
    signed = numbers.astype(np.int64)
    rest = ((signed << 1) ^ (signed >> 63)).view(np.uint64)
    width = max(1, (int(rest.max(initial=0)).bit_length() + 6) // 7)
    shape = len(rest), width
    found, used, lengths = np.empty(shape, np.uint8), np.ones(shape, bool), np.ones(len(rest), np.int64)
    for at in range(width):
        low, rest = rest.astype(np.uint8) & np.uint8(127), rest >> np.uint64(7)
        if at + 1 < width:
            goes_on = rest != 0
            low |= goes_on.view(np.uint8) << np.uint8(7)
            used[:, at + 1] = goes_on
            lengths += goes_on
        found[:, at] = low
    return Varints(found, used, lengths)


def joined_bytes(parts: Sequence[Varints]) -> pa.Array:
    """Numbers side by side, as bytes of each row."""
    found, used = parts[0][:2]
    if len(parts) > 1:
        found, used = np.hstack([part.found for part in parts]), np.hstack([part.used for part in parts])
    ends = np.zeros(len(found) + 1, np.int64)
    np.cumsum(sum(part.lengths for part in parts), out=ends[1:])
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(found[used])]
    return pa.Array.from_buffers(BYTES, len(found), buffers)


def offsets(array: pa.Array) -> Numbers:
    """Where each begins in the data, and the end of the last one."""
    return np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array) + 1]


def data(joined: pa.Array) -> Any:
    """All bytes of an array, one after the other."""
    ends = offsets(joined)
    return joined.buffers()[2].slice(int(ends[0]), int(ends[-1] - ends[0]))


def lengths(array: pa.Array) -> Numbers:
    """Bytes of each; -1 of null."""
    if not len(array):
        return np.zeros(0, np.int64)
    found = np.diff(offsets(array))
    if array.null_count:
        found[array.is_null().to_numpy(zero_copy_only=False)] = -1
    return found


def varint(number: int) -> bytes:
    """One signed number as a zigzag varint."""
    return varints(np.array([number])).found.tobytes()
