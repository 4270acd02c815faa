"""Files of a topic, with what decides whether they may be dropped: their bounds, their newest window and commit.

Bounds are in Delta's log. Windows and times are in the footers of the files, as statistics of row groups; so of a topic
only the files are opened that are going to be dropped, and the first that stays.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cdc_assets.core.lsn import LSN_WIDTH
from cdc_assets.lake.location import Location
from cdc_assets.lake.reading import extent, has_column, opened
from cdc_assets.lake.topics import TopicTables

_WINDOW, _COMMITTED = "window_id", "value.source.ts_ms"


@dataclass(frozen=True, slots=True)
class TopicFile:
    """A file of a topic.

    Args:
        directory: of its generation.
        written_ms: when it was written, in milliseconds since the epoch.
        until: commit LSN of its newest event.
        least: commit LSN of its oldest event.
    """

    directory: str
    path: str
    rows: int
    written_ms: int
    until: str
    least: str = ""


@dataclass(frozen=True, slots=True)
class Newest:
    """What is newest in a file.

    Args:
        window: greatest number of a window.
        committed_ms: time of the newest commit; of a file of tombstones only the time at which it was written.
    """

    window: int
    committed_ms: int


def listed(tables: TopicTables, directory: str) -> list[TopicFile] | None:
    """Files of one table; None if the bounds of one are not in the log, as another program may write them.

    Raises:
        LakeError: it cannot be read.
    """
    handle = tables.open(directory)
    rows = [] if handle is None else pa.table(handle.get_add_actions(flatten=True)).to_pylist()
    if any(not row.get("max.position") or row["num_records"] is None for row in rows):
        return None
    return [
        TopicFile(
            directory,
            row["path"],
            row["num_records"],
            row["modification_time"],
            row["max.position"][:LSN_WIDTH],
            (row.get("min.position") or "")[:LSN_WIDTH],
        )
        for row in rows
    ]


def newest_in(location: Location, file: TopicFile) -> Newest:
    """The newest window and commit in a file.

    Raises:
        LakeError: it cannot be read.
    """
    with opened(location, file.directory, file.path) as parquet:
        windows, times = (_greatest(parquet, name) for name in (_WINDOW, _COMMITTED))
    return Newest(-1 if windows is None else windows, file.written_ms if times is None else times)


def _greatest(parquet: pq.ParquetFile, name: str) -> int | None:
    """The greatest value of a column, from statistics if there are any; None if all are null."""
    found: list[int] = []
    for group in range(parquet.num_row_groups if has_column(parquet, name) else 0):
        known = extent(parquet, group, name)
        if known is not None:
            found.append(known[1])
        elif (value := _read(parquet, group, name)) is not None:
            found.append(value)
    return max(found, default=None)


def _read(parquet: pq.ParquetFile, group: int, name: str) -> int | None:
    column: pa.Array | pa.ChunkedArray = parquet.read_row_group(group, columns=[name])[name.partition(".")[0]]
    for field in name.split(".")[1:]:
        column = pc.struct_field(column, field)
    value: int | None = pc.max(column).as_py()
    return value


def latest(files: Sequence[TopicFile]) -> set[tuple[str, str]]:
    """The newest file of each table, as directory and path."""
    newest: dict[str, TopicFile] = {}
    for file in files:
        known = newest.get(file.directory)
        if known is None or (known.until, known.path) < (file.until, file.path):
            newest[file.directory] = file
    return {(file.directory, file.path) for file in newest.values()}
