"""Rows that tasks of one job stage for those of the next one, by numbers that say who reads them.

A batch of a staged file holds rows of one number, in the order in which they came; a `Piece` says where it is. Staged files
are in no table, and a job that is repeated writes others, so a crash leaves only files: whoever stages removes the folder.
"""

import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from cdc_assets.lake.location import Location

_WRITE_BYTES = 1024 * 1024
PORTION_BYTES = 128 * 1024 * 1024
"""Bytes of rows that are joined at most, but for the last table of them."""
_IPC = pa.ipc.IpcWriteOptions(compression="lz4")


class _InPieces(io.RawIOBase):
    """Splits large writes: an object store's client refuses one larger than its stream's buffer, which is not copied there."""

    def __init__(self, stream: pa.NativeFile) -> None:
        super().__init__()
        self._stream = stream

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data)
        for start in range(0, len(view), _WRITE_BYTES):
            self._stream.write(view[start : start + _WRITE_BYTES])
        return len(view)


@contextmanager
def open_in_pieces(files: fs.FileSystem, name: str) -> Iterator[io.RawIOBase]:
    """A stream into a file that takes writes of any size, in an object store as well."""
    with files.open_output_stream(name, buffer_size=2 * _WRITE_BYTES) as stream:
        yield _InPieces(stream)


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one number in a staged file.

    Args:
        name: of the file.
        number: of a leaf, a range of keys or a file: who reads the rows.
        batch: index of the batch in the file.
        size: bytes in memory.
    """

    name: str
    number: int
    batch: int
    rows: int
    size: int = 0


class StagedFile:
    """A file that is being written.

    Args:
        stream: where to; the first batch gives the schema.
    """

    def __init__(self, name: str, stream: io.RawIOBase) -> None:
        self._name, self._stream = name, stream
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self.pieces: list[Piece] = []

    def add(self, number: int, batches: Iterable[pa.RecordBatch]) -> None:
        """Stage rows of a number."""
        for batch in batches:
            self._writer = self._writer or pa.ipc.new_file(self._stream, batch.schema, options=_IPC)
            self.pieces.append(Piece(self._name, number, len(self.pieces), batch.num_rows, batch.nbytes))
            self._writer.write_batch(batch)

    def close(self) -> None:
        """Complete the file."""
        if self._writer is not None:
            self._writer.close()


@contextmanager
def staged_file(location: Location, folder: str) -> Iterator[StagedFile]:
    """A new file in a folder, complete when the block ends."""
    name = f"{uuid4().hex}.arrow"
    with open_in_pieces(location.filesystem(folder), name) as stream:
        file = StagedFile(name, stream)
        yield file
        file.close()


def staged_batches(location: Location, folder: str, pieces: Sequence[Piece]) -> Iterator[pa.RecordBatch]:
    """The rows of pieces, file by file."""
    files = location.existing(folder)
    for name in dict.fromkeys(piece.name for piece in pieces):
        with files.open_input_file(name) as stream, pa.ipc.open_file(stream) as reader:
            yield from (reader.get_batch(piece.batch) for piece in pieces if piece.name == name)


def rows_at_once(parquet: pq.ParquetFile, max_rows: int) -> int:
    """How many rows of a file are read at once: fewer if they are large."""
    groups = [parquet.metadata.row_group(at) for at in range(parquet.num_row_groups)]
    widest = max((group.total_byte_size // max(1, group.num_rows) for group in groups), default=0)
    return int(max(1, min(max_rows, PORTION_BYTES // max(1, widest))))


def portions(tables: Iterable[pa.Table], min_rows: int) -> Iterator[pa.Table]:
    """Tables joined until they have about so many rows, or bytes enough: a column of an array ends at 2 GB."""
    waiting, rows, size = list[pa.Table](), 0, 0
    for table in tables:
        waiting.append(table)
        rows, size = rows + table.num_rows, size + table.nbytes
        if rows >= min_rows or size >= PORTION_BYTES:
            yield pa.concat_tables(waiting).combine_chunks()
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def parted(rows: pa.Table, numbers: np.ndarray) -> Iterator[tuple[int, list[pa.RecordBatch]]]:
    """Rows of each number, in the order in which they came."""
    order = np.argsort(numbers, kind="stable")
    found, starts = np.unique(numbers[order], return_index=True)
    rows = rows.combine_chunks().take(pa.array(order))
    for number, start, end in zip(found, starts, [*starts[1:], len(numbers)], strict=True):
        yield int(number), rows.slice(start, end - start).to_batches()


def release_memory() -> None:
    """Have Arrow give back what it holds for later: each thread keeps what it once had, several times what is in use."""
    pa.default_memory_pool().release_unused()
