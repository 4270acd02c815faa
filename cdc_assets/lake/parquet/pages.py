"""Column chunks of Parquet for values that repeat, made without looking at each row.

Parquet writes levels and indexes into a dictionary as runs: a column that holds one value in a hundred thousand rows is a
few bytes. Its writers find the runs by going through all rows; here they are known. Pages are of version 1, a chunk is a
dictionary page and one data page, as Parquet's specification describes them and as pyarrow writes them.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from cdc_assets.lake.parquet import thrift
from cdc_assets.lake.parquet.metadata import (
    ColumnMetaData,
    CompressionCodec,
    DataPageHeader,
    Encoding,
    PageHeader,
    PageType,
    Statistics,
)
from cdc_assets.lake.parquet.thrift import BINARY, I32, I64, LIST, STRUCT, size_bytes

Numbers = np.ndarray[Any, np.dtype[Any]]
Path = tuple[str, ...]
"""Names of a leaf column and of what it is in, outermost first."""

_SMALL: Final = 200
"""Pages of fewer bytes are not compressed: it would cost more than it saves."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Rows with the same value.

    Args:
        rows: how many.
        level: their definition level.
        value: what they hold; None for null.
        present: which of the rows are there at all; the others have level 0. None if all are.
    """

    rows: int
    level: int
    value: str | int | None
    present: Numbers | None = None

    @property
    def values(self) -> int:
        """Number of values that are not null."""
        return 0 if self.value is None else self.rows if self.present is None else int(self.present.sum())


@dataclass(frozen=True, slots=True)
class Cycle:
    """Lists of the same texts in every row.

    Args:
        texts: of one row.
        rows: how many.
        level: definition level of the texts; of the empty list if there is none.
    """

    texts: tuple[str, ...]
    rows: int
    level: int


Repetition = tuple[Run, ...] | Cycle


@dataclass(frozen=True, slots=True)
class Leaf:
    """What Parquet's schema says about a leaf column.

    Args:
        kind: number of its physical type.
        defined: greatest definition level.
        statistics: whether its chunks tell least and greatest value.
    """

    kind: int
    defined: int
    statistics: bool = True


@dataclass(frozen=True, slots=True)
class Chunk:
    """A column chunk: its bytes, and the column's metadata as if it began at offset 0 of the file."""

    body: bytes
    metadata: thrift.Struct


def chunk_of(path: Path, leaf: Leaf, content: Repetition) -> Chunk:
    """The column chunk of values that repeat."""
    if isinstance(content, Cycle):
        return _cycle_chunk(path, leaf, content)
    known = dict.fromkeys(run.value for run in content if run.values)
    indexes = {value: place for place, value in enumerate(known)}
    levels = _levels(content, leaf.defined)
    body = [_sized(levels)] if leaf.defined else []
    if known:
        width = max(1, (len(known) - 1).bit_length())
        runs = [(run.values, indexes[run.value]) for run in content if run.values]
        body += [bytes([width]), *(_run(count, index, width) for count, index in runs)]
    rows = sum(run.rows for run in content)
    nulls = rows - sum(run.values for run in content)
    return _chunk(path, leaf, list(known), b"".join(body), rows, nulls)


def _cycle_chunk(path: Path, leaf: Leaf, cycle: Cycle) -> Chunk:
    each = len(cycle.texts)
    if not each:
        levels = _sized(_run(cycle.rows, 0, 1)) + _sized(_run(cycle.rows, cycle.level, _width(leaf.defined)))
        return _chunk(path, leaf, [], levels, cycle.rows, cycle.rows)
    values = cycle.rows * each
    known = list(dict.fromkeys(cycle.texts))
    width = max(1, (len(known) - 1).bit_length())
    begins = _repeated_pattern([0] + [1] * (each - 1), 1, cycle.rows)
    levels = _sized(begins) + _sized(_run(values, cycle.level, _width(leaf.defined)))
    indexes = _repeated_pattern([known.index(text) for text in cycle.texts], width, cycle.rows)
    return _chunk(path, leaf, list(known), levels + bytes([width]) + indexes, values, 0)


def _levels(runs: Sequence[Run], greatest: int) -> bytes:
    """Definition levels of some runs, without their size."""
    width = _width(greatest)
    if all(run.present is None for run in runs):
        return b"".join(_run(run.rows, run.level, width) for run in runs)
    levels = np.concatenate(
        [
            np.full(run.rows, run.level, np.uint8)
            if run.present is None
            else np.where(run.present, np.uint8(run.level), np.uint8(0))
            for run in runs
        ]
    )
    return _packed(levels, width)


def _width(greatest: int) -> int:
    """Bits of numbers up to this one."""
    return greatest.bit_length()


def _run(count: int, value: int, width: int) -> bytes:
    """A run: the count with a zero after it, and the value in whole bytes."""
    return size_bytes(count << 1) + value.to_bytes((width + 7) // 8, "little")


def _packed(values: Numbers, width: int) -> bytes:
    """Values bit by bit: the number of groups of eight with a one after it, and the bits, lowest first."""
    groups = -(-len(values) // 8)
    bits = values[:, None] >> np.arange(width, dtype=np.uint8) & 1
    data = np.packbits(bits.ravel(), bitorder="little").tobytes()
    return size_bytes(groups << 1 | 1) + data.ljust(groups * width, b"\0")


@lru_cache(maxsize=64)
def _pattern(values: tuple[int, ...], width: int) -> bytes:
    """The bits of eight rows, which are whole bytes."""
    return _packed(np.array(values * 8, np.uint8), width)[len(size_bytes(len(values) << 1 | 1)) :]


def _repeated_pattern(values: Sequence[int], width: int, rows: int) -> bytes:
    """The same few values in each row, bit by bit."""
    groups = -(-rows * len(values) // 8)
    data = _pattern(tuple(values), width) * -(-rows // 8)
    return size_bytes(groups << 1 | 1) + data[: groups * width]


def _sized(levels: bytes) -> bytes:
    return struct.pack("<I", len(levels)) + levels


def _plain(value: Any) -> bytes:
    """A value as a dictionary page holds it."""
    if isinstance(value, int):
        return struct.pack("<q", value)
    text = value.encode()
    return _sized(text)


def _chunk(path: Path, leaf: Leaf, known: list[Any], data: bytes, values: int, nulls: int) -> Chunk:
    statistics = _statistics(known, nulls)
    if not known:
        return _put_together(path, leaf, data, values, statistics, Encoding.PLAIN)
    dictionary = b"".join(map(_plain, known)), len(known)
    return _put_together(path, leaf, data, values, statistics, Encoding.RLE_DICTIONARY, dictionary)


def _put_together(
    path: Path,
    leaf: Leaf,
    data: bytes,
    values: int,
    statistics: thrift.Struct,
    encoding: Encoding,
    known: tuple[bytes, int] | None = None,
) -> Chunk:
    compressed = len(data) >= _SMALL
    pack: Callable[[bytes], bytes] = _zstd if compressed else bytes
    dictionary = _page(PageType.DICTIONARY_PAGE, known[0], pack, known[1]) if known else (b"", 0)
    page = _page(PageType.DATA_PAGE, data, pack, values, encoding)
    body = dictionary[0] + page[0]
    encodings = dict.fromkeys([Encoding.PLAIN, Encoding.RLE, encoding] if known else [Encoding.RLE, encoding])
    metadata: thrift.Struct = {
        ColumnMetaData.TYPE: (I32, leaf.kind),
        ColumnMetaData.ENCODINGS: (LIST, (I32, list(encodings))),
        ColumnMetaData.PATH_IN_SCHEMA: (LIST, (BINARY, [name.encode() for name in path])),
        ColumnMetaData.CODEC: (I32, CompressionCodec.ZSTD if compressed else CompressionCodec.UNCOMPRESSED),
        ColumnMetaData.NUM_VALUES: (I64, values),
        ColumnMetaData.TOTAL_UNCOMPRESSED_SIZE: (I64, dictionary[1] + page[1]),
        ColumnMetaData.TOTAL_COMPRESSED_SIZE: (I64, len(body)),
        ColumnMetaData.DATA_PAGE_OFFSET: (I64, len(dictionary[0])),
    }
    if known:
        metadata[ColumnMetaData.DICTIONARY_PAGE_OFFSET] = I64, 0
    if leaf.statistics:
        metadata[ColumnMetaData.STATISTICS] = STRUCT, statistics
    return Chunk(body, metadata)


def _page(
    kind: PageType, data: bytes, pack: Callable[[bytes], bytes], values: int, encoding: Encoding = Encoding.PLAIN
) -> tuple[bytes, int]:
    """A page with its header, and its size before compression."""
    packed = pack(data)
    fields: thrift.Struct = {DataPageHeader.NUM_VALUES: (I32, values), DataPageHeader.ENCODING: (I32, encoding)}
    own = PageHeader.DICTIONARY_PAGE_HEADER
    if kind is PageType.DATA_PAGE:
        own = PageHeader.DATA_PAGE_HEADER
        fields[DataPageHeader.DEFINITION_LEVEL_ENCODING] = I32, Encoding.RLE
        fields[DataPageHeader.REPETITION_LEVEL_ENCODING] = I32, Encoding.RLE
    header = thrift.struct_bytes(
        {
            PageHeader.TYPE: (I32, kind),
            PageHeader.UNCOMPRESSED_PAGE_SIZE: (I32, len(data)),
            PageHeader.COMPRESSED_PAGE_SIZE: (I32, len(packed)),
            own: (STRUCT, fields),
        }
    )
    return header + packed, len(header) + len(data)


def _zstd(data: bytes) -> bytes:
    return bytes(pa.Codec("zstd", 1).compress(data, asbytes=True))


def _statistics(known: list[Any], nulls: int) -> thrift.Struct:
    found: thrift.Struct = {Statistics.NULL_COUNT: (I64, nulls)}
    if known:
        found[Statistics.MAX_VALUE] = BINARY, _compared(max(known, key=_order))
        found[Statistics.MIN_VALUE] = BINARY, _compared(min(known, key=_order))
    return found


def _order(value: str | int) -> bytes | int:
    """Parquet orders texts by their bytes."""
    return value if isinstance(value, int) else value.encode()


def _compared(value: str | int) -> bytes:
    return struct.pack("<q", value) if isinstance(value, int) else value.encode()
