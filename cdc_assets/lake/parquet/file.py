"""A Parquet file in which columns that repeat are not written row by row.

Each row group is taken apart: leaves that hold a few runs become column chunks here (`runs`, `pages`), pyarrow writes all
others into a file in memory, whose chunks are put beside them. The footer names all chunks in the order of the schema; what
pyarrow says about its chunks is kept but for their offsets, and the schema is the one that pyarrow writes for the whole. A row
group takes its chunks without gaps, the first column first: readers that divide files do so by these offsets.

A file is whole when its footer is there; a crash before leaves bytes that no commit names.
"""

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from cdc_assets.lake.encoding import encoding, has_statistics, ordered
from cdc_assets.lake.parquet import thrift
from cdc_assets.lake.parquet.metadata import (
    REQUIRED,
    ColumnChunk,
    ColumnMetaData,
    FileMetaData,
    RowGroup,
    SchemaElement,
    Statistics,
    elements_of,
    value_of,
)
from cdc_assets.lake.parquet.pages import Chunk, Leaf, Path, chunk_of
from cdc_assets.lake.parquet.runs import repetitions, without
from cdc_assets.lake.parquet.thrift import I16, I64, LIST, STRUCT

MAGIC: Final = b"PAR1"
_TAIL: Final = 8
"""Bytes behind the footer: its size and the magic."""
_OFFSETS: Final = (
    ColumnMetaData.DATA_PAGE_OFFSET,
    ColumnMetaData.INDEX_PAGE_OFFSET,
    ColumnMetaData.DICTIONARY_PAGE_OFFSET,
)


class Output(Protocol):
    """Where the bytes go."""

    def write(self, data: Any, /) -> object:
        """Append."""

    def tell(self) -> int:
        """Number of bytes so far."""


class ParquetFile:
    """One file that is being written, a row group at a time; the stream stays open.

    Args:
        stream: where it is written, from its beginning.
        schema: of all rows.
    """

    def __init__(self, stream: Output, schema: pa.Schema) -> None:
        self._stream = stream
        self._footer, self._leaves = _described(schema)
        self._groups: list[thrift.Struct] = []
        self._rows = 0
        stream.write(MAGIC)

    def write(self, table: pa.Table) -> dict[Path, thrift.Struct]:
        """Write a row group; returns the metadata of its columns."""
        found = repetitions(table)
        chunks = {path: chunk_of(path, self._leaves[path], content) for path, content in found.items()}
        rest = without(table, set(found)) if found else table
        written = _Written(rest) if rest.num_columns else None
        begun = self._stream.tell()
        columns = dict(self._append(chunks)) if next(iter(self._leaves)) in chunks else {}
        if written is not None:
            columns |= written.columns(self._stream.tell())
            self._stream.write(written.body)
        if not columns.keys() >= chunks.keys():
            columns |= self._append(chunks)
        self._groups.append(_group([columns[path] for path in self._leaves], table.num_rows, begun, len(self._groups)))
        self._rows += table.num_rows
        return columns

    def _append(self, chunks: dict[Path, Chunk]) -> dict[Path, thrift.Struct]:
        """Write chunks of ours in the order of the schema."""
        columns = {}
        for path in self._leaves:
            if path in chunks:
                columns[path] = _moved(chunks[path].metadata, self._stream.tell())
                self._stream.write(chunks[path].body)
        return columns

    def close(self) -> None:
        """Write the footer."""
        footer = self._footer | {
            FileMetaData.NUM_ROWS: (I64, self._rows),
            FileMetaData.ROW_GROUPS: (LIST, (STRUCT, self._groups)),
        }
        data = thrift.struct_bytes(footer)
        self._stream.write(data + struct.pack("<I", len(data)) + MAGIC)


class _Written:
    """What pyarrow makes of a row group."""

    def __init__(self, table: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        with pq.ParquetWriter(sink, table.schema, **encoding(table.schema, ordered(table))) as writer:
            writer.write_table(table, row_group_size=max(1, table.num_rows))
        self._buffer = sink.getvalue()
        self._footer_bytes = _footer_of(self._buffer)

    @property
    def body(self) -> pa.Buffer:
        """The chunks."""
        return self._buffer.slice(len(MAGIC), len(self._buffer) - len(MAGIC) - _TAIL - len(self._footer_bytes))

    def columns(self, at: int) -> dict[Path, thrift.Struct]:
        """Metadata of the chunks by path, if the first one is written at this offset."""
        footer, _ = thrift.read_struct(self._footer_bytes)
        [group] = elements_of(footer, FileMetaData.ROW_GROUPS)
        columns = [value_of(chunk, ColumnChunk.META_DATA) for chunk in elements_of(group, RowGroup.COLUMNS)]
        return {
            tuple(name.decode() for name in elements_of(column, ColumnMetaData.PATH_IN_SCHEMA)): _moved(
                column, at - len(MAGIC)
            )
            for column in columns
        }


def bounds_of(metadata: thrift.Struct) -> tuple[str, str] | None:
    """The least and the greatest text of a column chunk that has statistics; None if a row has none."""
    statistics = value_of(metadata, ColumnMetaData.STATISTICS)
    nulls = value_of(statistics, Statistics.NULL_COUNT) if Statistics.NULL_COUNT in statistics else 0
    if Statistics.MIN_VALUE not in statistics or nulls:
        return None
    return value_of(statistics, Statistics.MIN_VALUE).decode(), value_of(statistics, Statistics.MAX_VALUE).decode()


def _footer_of(file: pa.Buffer) -> bytes:
    [size] = struct.unpack("<I", file.slice(len(file) - _TAIL, 4).to_pybytes())
    return bytes(file.slice(len(file) - _TAIL - size, size).to_pybytes())


def _moved(metadata: thrift.Struct, by: int) -> thrift.Struct:
    return metadata | {field: (I64, metadata[field][1] + by) for field in _OFFSETS if field in metadata}


def _group(columns: Sequence[thrift.Struct], rows: int, begun: int, number: int) -> thrift.Struct:
    return {
        RowGroup.COLUMNS: (LIST, (STRUCT, [_chunk(column) for column in columns])),
        RowGroup.TOTAL_BYTE_SIZE: (I64, sum(value_of(c, ColumnMetaData.TOTAL_UNCOMPRESSED_SIZE) for c in columns)),
        RowGroup.NUM_ROWS: (I64, rows),
        RowGroup.FILE_OFFSET: (I64, begun),
        RowGroup.TOTAL_COMPRESSED_SIZE: (I64, sum(value_of(c, ColumnMetaData.TOTAL_COMPRESSED_SIZE) for c in columns)),
        RowGroup.ORDINAL: (I16, number),
    }


def _chunk(column: thrift.Struct) -> thrift.Struct:
    return {ColumnChunk.FILE_OFFSET: (I64, 0), ColumnChunk.META_DATA: (STRUCT, column)}


@lru_cache(maxsize=64)
def _described(schema: pa.Schema) -> tuple[thrift.Struct, dict[Path, Leaf]]:
    """The footer of an empty file, and its leaves in order."""
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, schema, **encoding(schema)).close()
    footer, _ = thrift.read_struct(_footer_of(sink.getvalue()))
    elements = iter(elements_of(footer, FileMetaData.SCHEMA)[1:])
    leaves: dict[Path, Leaf] = {}

    def walk(path: Path, defined: int) -> None:
        element = next(elements)
        path = (*path, value_of(element, SchemaElement.NAME).decode())
        defined += value_of(element, SchemaElement.REPETITION_TYPE) != REQUIRED
        if SchemaElement.NUM_CHILDREN in element:
            for _ in range(value_of(element, SchemaElement.NUM_CHILDREN)):
                walk(path, defined)
        else:
            leaves[path] = Leaf(value_of(element, SchemaElement.TYPE), defined, has_statistics(".".join(path)))

    for _ in schema:
        walk((), 0)
    return footer, leaves
