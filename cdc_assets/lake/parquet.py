"""A Parquet file in which columns that repeat are not written row by row.

Each row group is taken apart: leaves that hold a few runs become column chunks here (`runs`, `run_pages`), pyarrow writes all
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

from cdc_assets.lake import thrift
from cdc_assets.lake.encoding import encoding, has_statistics, ordered
from cdc_assets.lake.run_pages import Chunk, Leaf, Path, chunk_of
from cdc_assets.lake.runs import repetitions, without
from cdc_assets.lake.thrift import I16, I64, LIST, STRUCT

MAGIC: Final = b"PAR1"
_TAIL: Final = 8
"""Bytes behind the footer: its size and the magic."""
_REQUIRED, _REPEATED = 0, 2
_VERSION, _SCHEMA, _ROWS, _GROUPS = 1, 2, 3, 4
_OFFSETS: Final = (9, 10, 11)
"""Fields of a column's metadata that are offsets in the file."""


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
        footer = self._footer | {_ROWS: (I64, self._rows), _GROUPS: (LIST, (STRUCT, self._groups))}
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
        [group] = footer[_GROUPS][1][1]
        columns = [column[3][1] for column in group[1][1][1]]
        return {tuple(name.decode() for name in column[3][1][1]): _moved(column, at - len(MAGIC)) for column in columns}


def bounds_of(metadata: thrift.Struct) -> tuple[str, str] | None:
    """The least and the greatest text of a column chunk that has statistics; None if a row has none."""
    statistics = metadata[12][1]
    if 6 not in statistics or statistics.get(3, (0, 0))[1]:
        return None
    return statistics[6][1].decode(), statistics[5][1].decode()


def _footer_of(file: pa.Buffer) -> bytes:
    [size] = struct.unpack("<I", file.slice(len(file) - _TAIL, 4).to_pybytes())
    return bytes(file.slice(len(file) - _TAIL - size, size).to_pybytes())


def _moved(metadata: thrift.Struct, by: int) -> thrift.Struct:
    return metadata | {field: (I64, metadata[field][1] + by) for field in _OFFSETS if field in metadata}


def _group(columns: Sequence[thrift.Struct], rows: int, begun: int, number: int) -> thrift.Struct:
    return {
        1: (LIST, (STRUCT, [{2: (I64, 0), 3: (STRUCT, column)} for column in columns])),
        2: (I64, sum(column[6][1] for column in columns)),
        3: (I64, rows),
        5: (I64, begun),
        6: (I64, sum(column[7][1] for column in columns)),
        7: (I16, number),
    }


@lru_cache(maxsize=64)
def _described(schema: pa.Schema) -> tuple[thrift.Struct, dict[Path, Leaf]]:
    """The footer of an empty file, and its leaves in order."""
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, schema, **encoding(schema)).close()
    footer, _ = thrift.read_struct(_footer_of(sink.getvalue()))
    elements = iter(footer[_SCHEMA][1][1][1:])
    leaves: dict[Path, Leaf] = {}

    def walk(path: Path, defined: int) -> None:
        element = next(elements)
        path = (*path, element[4][1].decode())
        defined += element[3][1] != _REQUIRED
        if 5 in element:
            for _ in range(element[5][1]):
                walk(path, defined)
        else:
            leaves[path] = Leaf(element[1][1], defined, has_statistics(".".join(path)))

    for _ in schema:
        walk((), 0)
    return footer, leaves
