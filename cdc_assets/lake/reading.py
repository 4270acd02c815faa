"""Opens the data files of topics, and says what their footers tell of the rows."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cdc_assets.lake.location import STORE_ERRORS, Location, trouble

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)
Texts = TypeVar("Texts", pa.Array, pa.ChunkedArray)

PLACED = r"^[0-9a-f]{8}:[0-9a-f]{8}:[0-9a-f]{4}/"
"""How positions of events begin."""


@contextmanager
def opened(
    location: Location, directory: str, path: str, dictionaries: Collection[str] = ()
) -> Iterator[pq.ParquetFile]:
    """A file of a topic's table while it is read.

    Args:
        dictionaries: texts that come as numbers of their distinct values, where the file has them.

    Raises:
        LakeError: it cannot be read.
    """
    is_far = not location.is_local
    try:
        with location.existing(directory).open_input_file(path) as stream:
            with pq.ParquetFile(stream, pre_buffer=is_far) as parquet:
                if not dictionaries:
                    yield parquet
                    return
                there = {parquet.schema.column(at).path for at in range(len(parquet.schema))}
                metadata, chosen = parquet.metadata, [name for name in dictionaries if name in there]
            with pq.ParquetFile(stream, metadata=metadata, read_dictionary=chosen, pre_buffer=is_far) as parquet:
                yield parquet
    except STORE_ERRORS as error:
        place = f"{location.uri(directory)}/{path}"
        raise trouble(f"The events in {place} cannot be read", error, "restore the file") from error


def plain(rows: Rows) -> Rows:
    """Rows in the types of the capture's own files: other programs write texts that say to be views, which Arrow neither compares nor filters."""
    wanted = pa.schema([_plain_field(field) for field in rows.schema], rows.schema.metadata)
    return rows if wanted == rows.schema else rows.cast(wanted)


def placed(positions: Texts) -> Texts:
    """Positions of events; null for what users wrote in their place."""
    found: Texts = pc.if_else(pc.match_substring_regex(positions, PLACED), positions, pa.scalar(None, positions.type))
    return found


def _plain_field(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_string_view(kind):
        kind = pa.string()
    elif pa.types.is_binary_view(kind):
        kind = pa.binary()
    elif pa.types.is_struct(kind):
        kind = pa.struct([_plain_field(part) for part in kind])
    elif pa.types.is_map(kind):
        kind = pa.map_(_plain_field(kind.key_field), _plain_field(kind.item_field))
    elif pa.types.is_list(kind):
        kind = pa.list_(_plain_field(kind.value_field))
    return field.with_type(kind)


def has_column(parquet: pq.ParquetFile, name: str) -> bool:
    """Whether a file has a column of values, named by its path."""
    return any(parquet.schema.column(at).path == name for at in range(len(parquet.schema)))


def extent(parquet: pq.ParquetFile, group: int, name: str) -> tuple[Any, Any] | None:
    """The least and the greatest value of a column in a row group; None if the footer does not tell."""
    found = _statistics(parquet, group, name)
    return None if found is None or not found.has_min_max else (found.min, found.max)


def nulls(parquet: pq.ParquetFile, group: int, name: str) -> int | None:
    """How many values of a column are null in a row group; None if the footer does not tell."""
    found = _statistics(parquet, group, name)
    return None if found is None or not found.has_null_count else int(found.null_count)


def _statistics(parquet: pq.ParquetFile, group: int, name: str) -> pq.Statistics | None:
    about = parquet.metadata.row_group(group)
    columns = (about.column(at) for at in range(about.num_columns))
    return next((column.statistics for column in columns if column.path_in_schema == name), None)


def newest_position(location: Location, directory: str, path: str, until: str) -> str:
    """The greatest position of an event of a file up to a bound, by its rows: in Delta's log, and in footers, another program may have
    cut it, or it is a user's. Empty if there is none.

    Raises:
        LakeError: it cannot be read.
    """
    newest = ""
    with opened(location, directory, path) as parquet:
        groups = parquet.num_row_groups if has_column(parquet, "position") else 0
        bounds = [extent(parquet, group, "position") or ("", "~") for group in range(groups)]
        for group in sorted(range(groups), key=lambda group: bounds[group][1], reverse=True):
            least, greatest = bounds[group]
            if least <= until and greatest > newest:
                rows = placed(plain(parquet.read_row_group(group, columns=["position"]))["position"])
                newest = max(newest, pc.max(rows.filter(pc.less_equal(rows, until))).as_py() or "")
    return newest
