"""The first rows of a table's newest file: what a page shows of a table, at a cost that does not grow with it.

Few rows are decoded, page by page. Columns whose values are large are left out, since a few rows of them may be megabytes.
A file may be gone when it is read, because it was replaced meanwhile; then there is no sample.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cdc_assets.lake.location import STORE_ERRORS
from cdc_assets.lake.tables import DeltaTables

_MAX_TRIED = 64
"""Rows that are read at most, to find some that are wanted."""
_LARGE = 4 * 1024
"""Average bytes of a value above which a column is not read."""
_BUFFER = 64 * 1024


def newest_rows(
    tables: DeltaTables,
    directory: str,
    columns: Collection[str],
    count: int,
    wanted: Callable[[Mapping[str, Any]], bool] = lambda row: True,
) -> list[dict[str, Any]]:
    """Rows of a table's newest file; none if there is no table, or it cannot be read now.

    Args:
        columns: paths of the columns to read; others, and large ones, are not in the rows.
        count: how many rows at most.
        wanted: which rows.

    Raises:
        LakeError: the table's log cannot be read.
    """
    handle = tables.open(directory)
    actions = pa.table(handle.get_add_actions()) if handle is not None else None
    if actions is None or not actions.num_rows or not count:
        return []
    times, paths = actions["modification_time"].to_pylist(), actions["path"].to_pylist()
    path = max(zip(times, paths, strict=True))[1]
    found: list[dict[str, Any]] = []
    try:
        with tables.location.existing(directory).open_input_file(path) as file:
            for tried, row in enumerate(_rows(pq.ParquetFile(file, buffer_size=_BUFFER), columns, count), 1):
                if wanted(row):
                    found.append(row)
                if len(found) == count or tried == _MAX_TRIED:
                    break
    except STORE_ERRORS:
        return []
    return found


def _rows(file: pq.ParquetFile, columns: Collection[str], batch: int) -> Iterator[dict[str, Any]]:
    if not file.metadata.num_row_groups:
        return
    group = file.metadata.row_group(0)
    parts = [group.column(at) for at in range(group.num_columns)]
    small = [
        part.path_in_schema
        for part in parts
        if any(part.path_in_schema == name or part.path_in_schema.startswith(f"{name}.") for name in columns)
        and part.total_uncompressed_size <= _LARGE * max(1, group.num_rows)
    ]
    for rows in file.iter_batches(batch_size=batch, row_groups=[0], columns=small):
        yield from rows.to_pylist()
