"""The data files of mirrors, read and written a portion of rows at a time."""

import time
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cdc_assets.lake.location import STORE_ERRORS, Location, trouble
from cdc_assets.mirror.leaves import NewFile
from cdc_assets.mirror.natural import cast

GROUP_ROWS = 64 * 1024
"""Rows of a row group, and of a portion."""
_Extent = tuple[object, object]


def portions_of(location: Location, directory: str, paths: Sequence[str], schema: pa.Schema) -> Iterator[pa.Table]:
    """Rows of some files, in their order, in the given columns; one that a file lacks is null.

    Raises:
        LakeError: a file cannot be read.
    """
    for path in paths:
        try:
            with location.existing(directory).open_input_file(path) as stream, pq.ParquetFile(stream) as parquet:
                for batch in parquet.iter_batches(GROUP_ROWS):
                    yield fitted(pa.Table.from_batches([batch]), schema)
        except (*STORE_ERRORS, ValueError) as error:
            raise trouble(
                f"{location.uri(directory)}/{path} cannot be read",
                error,
                "rebuild the mirror: cdc-assets mirror --rebuild",
            ) from error


def read_rows(location: Location, directory: str, paths: Sequence[str], schema: pa.Schema) -> pa.Table:
    """All rows of some files; see `portions_of`.

    Raises:
        LakeError: a file cannot be read.
    """
    plain = pa.schema([pa.field(field.name, field.type) for field in schema])
    return pa.concat_tables([plain.empty_table(), *portions_of(location, directory, paths, plain)])


def fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A table in other columns: values are cast, those that are not there are null."""
    plain = pa.schema([pa.field(field.name, field.type) for field in schema])
    columns = [
        _in_type(table[field.name], field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in plain
    ]
    return pa.Table.from_arrays(columns, schema=plain)


def _in_type(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    return column if column.type == kind else cast(column.combine_chunks(), kind)


class FileWriter:
    """Writes a file, row group after row group; it counts when a commit names it.

    Args:
        schema: of the rows.
        statistics: columns whose least and greatest values the commit tells.

    Raises:
        LakeError, LakeFullError: it cannot be written.
    """

    def __init__(
        self, location: Location, directory: str, path: str, schema: pa.Schema, statistics: Sequence[str]
    ) -> None:
        self._location, self._directory, self._path, self._statistics = location, directory, path, statistics
        self._extents: dict[str, list[_Extent | None]] = {name: [] for name in statistics}
        self._waiting: list[pa.Table] = []
        self.rows = 0
        texts = [field.name for field in schema if pa.types.is_string(field.type)]
        try:
            self._stream = location.filesystem(directory).open_output_stream(path)
            self._writer = pq.ParquetWriter(
                self._stream,
                schema,
                compression="zstd",
                compression_level=1,
                use_dictionary=texts or False,
                store_schema=False,
            )
        except STORE_ERRORS as error:
            raise self._trouble(error) from error

    def write(self, rows: pa.Table) -> None:
        """Add rows.

        Raises:
            LakeError, LakeFullError: they cannot be written.
        """
        for name in self._statistics:
            if rows.num_rows:
                self._extents[name].append(_extent(rows[name]))
        self._waiting.append(rows)
        self.rows += rows.num_rows
        waiting = sum(table.num_rows for table in self._waiting)
        self._put(waiting - waiting % GROUP_ROWS)

    def _put(self, count: int) -> None:
        """Write the first rows of those that wait."""
        if not count:
            return
        whole = pa.concat_tables(self._waiting)
        self._waiting = [whole.slice(count)]
        try:
            self._writer.write_table(whole.slice(0, count), row_group_size=GROUP_ROWS)
        except STORE_ERRORS as error:
            raise self._trouble(error) from error

    def end(self) -> NewFile:
        """End the file.

        Raises:
            LakeError, LakeFullError: it cannot be written.
        """
        self._put(sum(table.num_rows for table in self._waiting))
        try:
            self._writer.close()
            size = self._stream.tell()
            self._stream.close()
        except STORE_ERRORS as error:
            raise self._trouble(error) from error
        bounds = {name: bound for name, found in self._extents.items() if (bound := _joined(found)) is not None}
        return NewFile(self._path, size, self.rows, int(time.time() * 1000), bounds)

    def _trouble(self, error: Exception) -> Exception:
        place = self._location.uri(self._directory)
        return trouble(f"A data file in {place} cannot be written", error, "check the path and its rights")


def write_parquet(location: Location, directory: str, path: str, table: pa.Table, statistics: Sequence[str]) -> NewFile:
    """Write a file of these rows.

    Raises:
        LakeError, LakeFullError: it cannot be written.
    """
    writer = FileWriter(location, directory, path, table.schema, statistics)
    writer.write(table)
    return writer.end()


def _extent(column: pa.ChunkedArray) -> _Extent | None:
    """Least and greatest value, if they can be told as JSON without loss."""
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_string(kind)):
        return None
    found = pc.min_max(column).as_py()
    if found["min"] is None or len(str(found["min"])) > 64 or len(str(found["max"])) > 64:
        return None
    return (str(found["min"]), str(found["max"])) if pa.types.is_date(kind) else (found["min"], found["max"])


def _joined(extents: Sequence[_Extent | None]) -> _Extent | None:
    """The extent of all portions; None if that of one is not known."""
    known = [extent for extent in extents if extent is not None]
    if not known or len(known) < len(extents):
        return None
    least, greatest = zip(*known, strict=True)
    return min(least), max(greatest)
