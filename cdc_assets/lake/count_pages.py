"""Column chunks of Parquet for texts that count (`core.counted`), made from what they count.

Parquet's encoding DELTA_BYTE_ARRAY keeps, of each text, how many characters it shares with the one before and the others.
A writer finds these by comparing texts. Here they are known: 15 of 16 texts differ from the one before in their last digit
alone, and the lower four digits go through the same 65,536 numbers again and again. Lengths are packed in blocks of 128
(DELTA_BINARY_PACKED), of which few are different, so each is packed once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from cdc_assets.core.counted import Count, count_of, hexadecimal, low_digits
from cdc_assets.lake.run_pages import Chunk, Leaf, Numbers, Path, data_chunk, present_levels
from cdc_assets.lake.thrift import size_bytes

_DELTA_BYTE_ARRAY: Final = 7
_BLOCK, _PARTS = 128, 4
"""Numbers of a packed block, and in how many parts it is packed, as pyarrow does it."""
_LOW: Final = 1 << 16
_DIGITS: Final = len(hexadecimal(0))
_SHARED: Final = ((4, 7), (8, 6), (12, 5), (16, 3), (20, 2), (24, 1), (28, 0))
"""Characters that a number's digits share with those of the number before, if it is a multiple of that power of two."""
_LONGEST: Final = 127


@dataclass(frozen=True, slots=True)
class Counts:
    """Rows of texts that count, piece after piece."""

    pieces: tuple[Count, ...]


def counts_of(arrays: Sequence[object], most: int) -> Counts | None:
    """What the batches of a column count; None if one of them does not, or there are more than so many pieces."""
    pieces: list[Count] = []
    for array in arrays:
        found = count_of(array)
        if found is None or len(pieces) > most or len(found.text(0)) > _LONGEST:
            return None
        last = pieces[-1] if pieces else None
        if last and (last.head, last.first + last.rows, last.tail) == (found.head, found.first, found.tail):
            pieces[-1] = Count(last.head, last.first, last.rows + found.rows, last.tail)
        else:
            pieces.append(found)
    return Counts(tuple(pieces)) if pieces else None


def count_chunk(path: Path, leaf: Leaf, counts: Counts) -> Chunk:
    """The column chunk of texts that count."""
    rows = sum(piece.rows for piece in counts.pieces)
    widths = np.concatenate([np.full(piece.rows, len(piece.text(0)), np.int16) for piece in counts.pieces])
    shared = np.concatenate(list(_shared(counts.pieces)))
    texts = b"".join(part for place, piece in enumerate(counts.pieces) for part in _rests(counts.pieces, place, piece))
    data = present_levels(leaf, rows) + packed(shared) + packed(widths - shared) + texts
    ends = [text for piece in counts.pieces for text in (piece.text(0), piece.text(piece.rows - 1))]
    return data_chunk(path, leaf, data, rows, _DELTA_BYTE_ARRAY, ends)


def _before(pieces: Sequence[Count], place: int) -> int:
    """Characters that a piece's first text shares with the text before it."""
    if not place:
        return 0
    last, text = pieces[place - 1], pieces[place].text(0)
    before = last.text(last.rows - 1)
    return next(
        (at for at, (old, new) in enumerate(zip(before, text, strict=False)) if old != new), min(len(before), len(text))
    )


def _shared(pieces: Sequence[Count]) -> Iterator[Numbers]:
    """Characters that each text shares with the one before."""
    for place, piece in enumerate(pieces):
        shared = np.full(piece.rows, _DIGITS - 1, np.int16)
        for bits, characters in _SHARED:
            shared[-piece.first % (1 << bits) :: 1 << bits] = characters
        shared += len(piece.head)
        shared[0] = _before(pieces, place)
        yield shared


def _rests(pieces: Sequence[Count], place: int, piece: Count) -> Iterator[bytes | memoryview]:
    """What each text does not share with the one before."""
    yield piece.text(0)[_before(pieces, place) :].encode()
    texts, ends = _low_rests(piece.tail)
    number, end = piece.first + 1, piece.first + piece.rows
    while number < end:
        if number % _LOW == 0:  # the upper digits change
            bits = [characters for power, characters in _SHARED if number % (1 << power) == 0]
            yield (hexadecimal(number) + piece.tail)[bits[-1] :].encode()
            number += 1
        stop = min(end, number - number % _LOW + _LOW)
        yield texts[ends[number % _LOW - 1] : ends[(stop - 1) % _LOW]]
        number = max(number, stop)


@lru_cache(maxsize=4)
def _low_rests(tail: str) -> tuple[memoryview, list[int]]:
    """What the texts with the numbers from 1 to 65,535 do not share with the one before, and where each ends."""
    matrix = np.empty((_LOW, 4 + len(tail)), np.uint8)
    matrix[:, :4] = np.frombuffer(low_digits(), np.uint8).reshape(-1, 4)
    matrix[:, 4:] = np.frombuffer(tail.encode(), np.uint8)
    shared = np.full(_LOW, 3, np.int64)
    for power, digits in ((4, 2), (8, 1), (12, 0)):
        shared[:: 1 << power] = digits
    shared[0] = matrix.shape[1]
    texts = matrix[np.arange(matrix.shape[1]) >= shared[:, None]].tobytes()
    return memoryview(texts), np.cumsum(matrix.shape[1] - shared).tolist()


def packed(numbers: Numbers) -> bytes:
    """Numbers below 128, by their differences."""
    head = size_bytes(_BLOCK) + size_bytes(_PARTS) + size_bytes(len(numbers)) + size_bytes(int(numbers[0]) << 1)
    steps = np.diff(numbers).astype(np.int8).tobytes()
    size = _BLOCK
    return head + b"".join([_block(steps[start : start + size]) for start in range(0, len(steps), size)])


@lru_cache(maxsize=1024)
def _block(steps: bytes) -> bytes:
    """A block of differences: the least, the bits of each part's, and how much more than the least each is."""
    numbers = np.frombuffer(steps, np.int8).astype(np.int16)
    least = int(numbers.min())
    more = np.zeros(_BLOCK, np.uint8)
    more[: len(numbers)] = numbers - least
    parts = more.reshape(_PARTS, -1)
    widths = [int(part.max()).bit_length() for part in parts]
    body = [_bits(part, width) for part, width in zip(parts, widths, strict=True)]
    return size_bytes(least << 1 if least >= 0 else (-least << 1) - 1) + bytes(widths) + b"".join(body)


def _bits(numbers: Numbers, width: int) -> bytes:
    bits = numbers[:, None] >> np.arange(width, dtype=np.uint8) & 1
    return np.packbits(bits.ravel(), bitorder="little").tobytes()
