"""Parquet files of a topic table, written inside tasks and described for a Delta commit.

Written by pyarrow in the task (3.4 times the JVM writer, spec spark §2b). Small batches are coalesced into row groups,
which end at rows or at bytes, whichever comes first; a file is closed before it becomes too large, and a writer holds
one row group at most: memory is bounded by bytes, not by the window. A file counts only when a commit names it, so a
task may be repeated or abandoned at any moment; vacuum removes unnamed files.

*A full disk.* A writer that fails removes its files, and `remove_attempt` removes those of parallel tasks, because
otherwise each repetition would use more of the missing space. The attempt's id in their names identifies them: files of
an earlier attempt, or of a process that was believed dead, may still be committed.
"""

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.transaction import AddAction
from pyarrow import fs

from cdc_assets.core.repeated import repeated_texts
from cdc_assets.lake.location import STORE_ERRORS, Location, list_files, trouble
from cdc_assets.lake.parquet.file import ParquetFile, bounds_of

STATISTICS = "position"
"""The only column with statistics in the Delta log. A table property tells compaction so: its default are the first 32
leaf columns, which may contain only a part of a struct, and such statistics break some readers."""
ROW_GROUP_ROWS = 128 * 1024
"""Maximum rows per row group; fewer if rows are wide."""
ROW_GROUP_BYTES = 64 * 1024 * 1024
"""Arrow bytes of a row group at most; a row is never divided."""
_WIDE_ROW, _WIDE_GROUP_BYTES = 4 * 1024, 16 * 1024 * 1024
"""Arrow bytes from which on a row is wide, and at which a row group of wide rows is written: to encode and compress it
takes as much again several times over, and groups of thousands of rows are not what wide rows gain from."""
_PART_BYTES = 1024 * 1024
"""Bytes that are given to a stream at once."""
FILE_BYTES = 256 * 1024 * 1024
"""Bytes of a file at most, for a row group that might exceed them opens a new one; but a row is never divided."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A written file, with the facts that a commit needs.

    Args:
        path: relative to the topic table's directory.
        size: bytes.
        rows: number of rows, tombstones included.
        least: smallest `position`; empty if a row has none.
        greatest: greatest `position`; empty if a row has none.
        window_id: the window or snapshot round that wrote it.
        operations: rows by envelope `op`; tombstones as `tombstone`.
        written_ms: milliseconds since the epoch.
    """

    path: str
    size: int
    rows: int
    least: str
    greatest: str
    window_id: int
    operations: Mapping[str, int] = field(default_factory=dict)
    written_ms: int = 0

    def action(self, *, is_new: bool = True) -> AddAction:
        """The `add` action of the Delta log, with the statistics that let readers skip files.

        Args:
            is_new: whether it holds rows that the table did not have before.
        """
        stats: dict[str, object] = {"numRecords": self.rows}
        if self.least:
            stats |= {
                "minValues": {STATISTICS: self.least},
                "maxValues": {STATISTICS: self.greatest},
                "nullCount": {STATISTICS: 0},
            }
        return AddAction(self.path, self.size, {}, self.written_ms, is_new, json.dumps(stats))


class TopicWriter:
    """Writes one topic table's rows of one task; use as a context manager and read `files` after it.

    Args:
        directory: the topic table's directory.
        schema: schema of every batch.
        window_id: number that becomes part of the file names.
        attempt: id that becomes part of the file names, so that two attempts never write the same file.
    """

    def __init__(
        self, location: Location, directory: str, schema: pa.Schema, window_id: int, attempt: str = ""
    ) -> None:
        self._location, self._directory, self._schema, self._window_id = location, directory, schema, window_id
        self._prefix = _prefix(window_id, attempt)
        self._filesystem: fs.FileSystem | None = None
        self._buffer: list[pa.RecordBatch] = []
        self._buffered_rows = self._buffered_bytes = 0
        self._open: _OpenFile | None = None
        self.files: list[DataFile] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._flush()
                self._close()
        finally:
            if kind is not None:
                self._abandon()

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Add rows in position order.

        Raises:
            LakeFullError: the storage is full.
            LakeError: the store refuses.
        """
        for batch in batches:
            for part in _parts(batch):
                self._add(part)

    def _add(self, batch: pa.RecordBatch) -> None:
        size = _size(batch)
        if self._buffered_bytes + size > ROW_GROUP_BYTES:
            self._flush()
        self._buffer.append(batch)
        self._buffered_rows += batch.num_rows
        self._buffered_bytes += size
        is_wide = self._buffered_bytes >= max(_WIDE_GROUP_BYTES, _WIDE_ROW * self._buffered_rows)
        if self._buffered_rows >= ROW_GROUP_ROWS or is_wide:
            self._flush()

    def _flush(self) -> None:
        if not self._buffer:
            return
        table = pa.Table.from_batches(self._buffer, self._schema)
        self._buffer, self._buffered_rows, self._buffered_bytes = [], 0, 0
        if self._open is not None and self._open.size + table.nbytes > FILE_BYTES:
            self._close()
        with self._translated_errors():
            if self._open is None:
                self._filesystem = self._filesystem or self._location.filesystem(self._directory)
                self._open = _OpenFile(self._filesystem, self._prefix, self._window_id, table.schema)
            self._open.write(table)

    def _close(self) -> None:
        if self._open is not None:
            with self._translated_errors():
                self.files.append(self._open.close())
        self._open = None

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Translate errors of the store, and remove this writer's files."""
        try:
            yield
        except STORE_ERRORS as error:
            self._abandon()
            uri = self._location.uri(self._directory)
            raise trouble(f"A data file in {uri} cannot be written", error, "check the path and its rights") from error

    def _abandon(self) -> None:
        """Remove the written files; they were not returned, so nobody commits them."""
        names = [file.path for file in self.files]
        if self._open is not None:
            names.append(self._open.path)
            with suppress(*STORE_ERRORS):
                self._open.abandon()
        self._open, self.files = None, []
        for name in names:
            with suppress(*STORE_ERRORS):
                self._location.existing(self._directory).delete_file(name)


def _size(batch: pa.RecordBatch) -> int:
    """Arrow bytes of a batch without headers that all rows share, which are in memory once for all batches."""
    return sum(
        column.nbytes
        for column in batch.columns
        if not pa.types.is_map(column.type) or repeated_texts(column.items) is None
    )


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch, in parts that are no larger than a row group may be."""
    max_bytes = ROW_GROUP_BYTES if batch.nbytes < _WIDE_ROW * batch.num_rows else _WIDE_GROUP_BYTES
    if batch.nbytes <= max_bytes:
        yield from [batch] if batch.num_rows else []
    elif batch.num_rows < 2:
        yield batch
    else:
        half = batch.num_rows // 2
        yield from _parts(batch.slice(0, half))
        yield from _parts(batch.slice(half))


def _prefix(window_id: int, attempt: str) -> str:
    return f"w{window_id:010d}-{attempt}"


def remove_attempt(location: Location, directories: Iterable[str], window_id: int, attempt: str) -> None:
    """Remove the files of an attempt whose tasks have ended and of which nothing was committed; failures are
    ignored."""
    remove_named(location, directories, _prefix(window_id, attempt))


def remove_named(location: Location, directories: Iterable[str], part: str) -> None:
    """Remove files with a text in their names, which no commit names or will; failures are ignored."""
    for directory in set(directories):
        with suppress(*STORE_ERRORS):
            files = location.existing(directory)
            for info in list_files(files):
                if part in info.base_name:
                    files.delete_file(info.base_name)


class _Parts:
    """A stream that is written in parts smaller than its buffer: pyarrow passes a whole buffer on as an object that a
    store's client refuses."""

    def __init__(self, stream: pa.NativeFile) -> None:
        self._stream = stream

    def write(self, data: bytes | pa.Buffer) -> None:
        for start in range(0, len(data), _PART_BYTES):
            self._stream.write(data[start : start + _PART_BYTES])

    def tell(self) -> int:
        return int(self._stream.tell())


class _OpenFile:
    """One file being written; statistics are collected at the same time."""

    def __init__(self, filesystem: fs.FileSystem, prefix: str, window_id: int, schema: pa.Schema) -> None:
        self.path = f"{prefix}{uuid4().hex}.parquet"
        self._window_id = window_id
        self._stream = filesystem.open_output_stream(self.path, buffer_size=_PART_BYTES + 1)
        self._writer = ParquetFile(_Parts(self._stream), schema)
        self._smallest: list[str] = []
        self._greatest: list[str] = []
        self._is_bounded = True
        """Whether each row has a position; those that users append may lack it."""
        self._rows = 0
        self._operations: Counter[str] = Counter()

    @property
    def size(self) -> int:
        return int(self._stream.tell())

    def write(self, table: pa.Table) -> None:
        columns = self._writer.write(table)
        if (STATISTICS,) in columns:  # its writer has made them anyway
            bounds = bounds_of(columns[(STATISTICS,)])
            self._is_bounded &= bounds is not None
            if bounds is not None:
                self._smallest.append(bounds[0])
                self._greatest.append(bounds[1])
        self._rows += table.num_rows
        self._operations.update(operations_of(table))

    def close(self) -> DataFile:
        self._writer.close()
        size = self.size
        self._stream.close()
        return DataFile(
            self.path,
            size,
            self._rows,
            min(self._smallest, default="") if self._is_bounded else "",
            max(self._greatest, default="") if self._is_bounded else "",
            self._window_id,
            dict(self._operations),
            int(time.time() * 1000),
        )

    def abandon(self) -> None:
        """Close the stream without a footer; `close` has closed it already if it found no room for the rest."""
        self._stream.close()


def operations_of(table: pa.Table) -> dict[str, int]:
    """Rows by envelope operation; a null value is a tombstone; rows without a text `op` (schema changes) count as `event`."""
    if "value" not in table.column_names:
        return {}
    value = table["value"]
    place = value.type.get_field_index("op") if pa.types.is_struct(value.type) else -1
    if place >= 0 and pa.types.is_string(value.type.field(place).type):
        found: Counter[str] = Counter()
        for chunk in value.chunks:
            operation = pc.struct_field(chunk, "op")
            same = repeated_texts(operation)
            if same is not None and len(same) == 1:
                found[same[0]] += len(chunk)
                continue
            for entry in pc.value_counts(operation).to_pylist():
                found[entry["values"] or "tombstone"] += entry["counts"]
        return dict(found)
    return {"event": len(value) - value.null_count} if len(value) else {}
