"""The data files of mirrors, read and written a portion of rows at a time."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cdc_assets.lake import pieces
from cdc_assets.lake.location import STORE_ERRORS, Location, trouble
from cdc_assets.lake.pieces import rows_at_once
from cdc_assets.mirror.leaves import NewFile
from cdc_assets.mirror.natural import cast
from cdc_assets.mirror.shape import LSN, has_bounds
from cdc_assets.mirror.texts import compacted, in_form, is_encoded, names_of_encoded, plain_type, repeats, whole

GROUP_ROWS = 64 * 1024
"""Rows of a row group, and of a portion."""
_Extent = tuple[object, object]
_BOUND, _ABOVE = 64, "\U0010ffff"
"""Characters of a bound, and what makes a cut one greater than all texts that begin so."""


def portions_of(
    location: Location, directory: str, paths: Sequence[str], schema: pa.Schema, plain: Sequence[str] | None = None
) -> Iterator[pa.Table]:
    """Rows of some files, in their order, in the given columns; one that a file lacks is null.

    Args:
        plain: columns whose texts are wanted one by one, while those of others may be dictionary arrays (`texts`); all if
            None.

    Raises:
        LakeError: a file cannot be read.
    """
    for path in paths:
        with _opened(location, directory, path) as stream:
            for batch in _batches(stream, location, plain):
                yield fitted(pa.Table.from_batches([batch]), schema)


@contextmanager
def _opened(location: Location, directory: str, path: str) -> Iterator[pa.NativeFile]:
    """A file while it is read.

    Raises:
        LakeError: it cannot be read.
    """
    try:
        with location.existing(directory).open_input_file(path) as stream:
            yield stream
    except (*STORE_ERRORS, ValueError) as error:
        raise trouble(
            f"{location.uri(directory)}/{path} cannot be read",
            error,
            "rebuild the mirror: cdc-assets mirror --rebuild",
        ) from error


def _batches(stream: pa.NativeFile, location: Location, plain: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(stream) as parquet:
        encoded = [] if plain is None else [name for name in names_of_encoded(parquet) if name not in plain]
        metadata = parquet.metadata
    with pq.ParquetFile(
        stream, metadata=metadata, read_dictionary=encoded, pre_buffer=not location.is_local
    ) as parquet:
        yield from parquet.iter_batches(rows_at_once(parquet, GROUP_ROWS), use_threads=False)


def last_rows(location: Location, directory: str, path: str, schema: pa.Schema) -> pa.Table:
    """The rows of a file's last row group, in some columns.

    Raises:
        LakeError: the file cannot be read.
    """
    with _opened(location, directory, path) as stream, pq.ParquetFile(stream) as parquet:
        groups = [parquet.num_row_groups - 1] if parquet.num_row_groups else []
        return fitted(parquet.read_row_groups(groups, columns=schema.names, use_threads=False), schema).combine_chunks()


def read_rows(location: Location, directory: str, paths: Sequence[str], schema: pa.Schema) -> pa.Table:
    """All rows of some files; see `portions_of`.

    Raises:
        LakeError: a file cannot be read.
    """
    plain = pa.schema([pa.field(field.name, field.type) for field in schema])
    return pa.concat_tables([plain.empty_table(), *portions_of(location, directory, paths, plain)])


def fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A table in other columns: values are cast, those that are not there are null, texts by number stay so."""
    plain = pa.schema([pa.field(field.name, field.type) for field in schema])
    columns = [
        _in_type(table[field.name], field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in plain
    ]
    return pa.Table.from_arrays(columns, names=plain.names)


def _in_type(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    if plain_type(column.type) == kind:
        return column
    return cast(whole(in_form(column, plain_type(column.type))), kind)


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
        self._forms: pa.Schema | None = None
        self._schema = schema
        self.rows = 0
        try:
            self._stream = location.filesystem(directory).open_output_stream(path)
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
        is_wide = sum(table.nbytes for table in self._waiting) >= pieces.PORTION_BYTES
        self._put(waiting if is_wide else waiting - waiting % GROUP_ROWS)

    def _put(self, count: int) -> None:
        """Write the first rows of those that wait."""
        if not count:
            return
        if self._forms is None:
            self._open(self._waiting[0])
        tables = [self._formed(table) for table in self._waiting]
        joint = pa.concat_tables(tables)
        self._waiting = [joint.slice(count)]
        try:
            for start in range(0, count, GROUP_ROWS):
                self._writer.write_table(_compacted(joint.slice(start, min(GROUP_ROWS, count - start))))
        except STORE_ERRORS as error:
            raise self._failed(error) from error

    def _open(self, first: pa.Table) -> None:
        """Begin the file; texts are written as they come in the first rows, or by number if they seem to repeat."""
        encoded = [name for name in first.column_names if repeats(first[name])]
        texts = {field.name for field in self._schema if pa.types.is_string(field.type)}
        self._forms = pa.schema(
            [field.with_type(first[field.name].type) if field.name in texts else field for field in self._schema]
        )
        named = [name for name in self._schema.names if name not in texts or name in {*self._statistics, LSN}]
        try:
            self._writer = pq.ParquetWriter(
                self._stream,
                self._forms,
                compression="zstd",
                compression_level=1,
                use_dictionary=encoded or False,
                write_statistics=named,
                store_schema=False,
            )
        except STORE_ERRORS as error:
            raise self._failed(error) from error

    def _formed(self, table: pa.Table) -> pa.Table:
        forms = self._forms or self._schema
        columns = [in_form(table[field.name], field.type) for field in forms]
        return pa.Table.from_arrays(columns, schema=forms)

    def end(self) -> NewFile:
        """End the file.

        Raises:
            LakeError, LakeFullError: it cannot be written.
        """
        if self._forms is None:
            self._open(self._waiting[0] if self._waiting else self._schema.empty_table())
        self._put(sum(table.num_rows for table in self._waiting))
        try:
            self._writer.close()
            size = self._stream.tell()
            self._stream.close()
        except STORE_ERRORS as error:
            raise self._failed(error) from error
        bounds = {name: bound for name, found in self._extents.items() if (bound := _joined(found)) is not None}
        return NewFile(self._path, size, self.rows, int(time.time() * 1000), bounds)

    def _failed(self, error: Exception) -> Exception:
        with suppress(*STORE_ERRORS, ValueError):  # a file that is open keeps its room, also if it is removed
            self._stream.close()
        return self._trouble(error)

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
    """Bounds of the values as JSON, those of long texts cut; None if there are none."""
    if is_encoded(column.type):
        column = pa.chunked_array([compacted(whole(column)).dictionary])
    found = pc.min_max(column).as_py() if has_bounds(column.type) else {"min": None}
    if found["min"] is None:
        return None
    least, greatest = found["min"], found["max"]
    if pa.types.is_date(column.type):
        return str(least), str(greatest)
    if isinstance(least, str) and isinstance(greatest, str):
        return least[:_BOUND], greatest[:_BOUND] + (_ABOVE if len(greatest) > _BOUND else "")
    return least, greatest


def _compacted(rows: pa.Table) -> pa.Table:
    """Rows in one piece, without texts that none of them has."""
    columns = [whole(column) for column in rows.columns]
    columns = [compacted(column) if is_encoded(column.type) else column for column in columns]
    return pa.Table.from_arrays(columns, schema=rows.schema)


def _joined(extents: Sequence[_Extent | None]) -> _Extent | None:
    """The extent of all portions; None if that of one is not known."""
    known = [extent for extent in extents if extent is not None]
    if not known or len(known) < len(extents):
        return None
    least, greatest = zip(*known, strict=True)
    return min(least), max(greatest)
