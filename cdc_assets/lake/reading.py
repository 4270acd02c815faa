"""Opens the data files of topics, and says what their footers tell of the rows."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow.parquet as pq

from cdc_assets.lake.location import STORE_ERRORS, Location, trouble


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
