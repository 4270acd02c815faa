"""Files of a topic, with what decides whether they may be dropped: their bounds, their newest window and commit.

Bounds are in Delta's log. Windows and times are in the footers of the files, as statistics of row groups; so of a topic
only the files are opened that are going to be dropped, and the first that stays.

*Files of other programs* are opened where their log tells less: of rows without a position, or with a text that is none, which are no
events; or of a bound only its beginning, as Spark does, where that has to be compared as a whole.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cdc_assets.core.lsn import LSN_WIDTH, POSITION_WIDTH
from cdc_assets.lake.location import Location
from cdc_assets.lake.reading import PLACED, extent, has_column, nulls, opened, placed
from cdc_assets.lake.topics import TopicTables

_POSITION, _WINDOW, _COMMITTED = "position", "window_id", "value.source.ts_ms"
_BATCH_ROWS = 32 * 1024


@dataclass(frozen=True, slots=True)
class TopicFile:
    """A file of a topic.

    Args:
        directory: of its generation.
        written_ms: when it was written, in milliseconds since the epoch.
        greatest: position of its newest event, or the beginning of it; empty if it holds none.
        least: commit LSN of its oldest event.
        unplaced: number of rows without a position, as users append them.
    """

    directory: str
    path: str
    rows: int
    written_ms: int
    greatest: str
    least: str = ""
    unplaced: int = 0

    @property
    def until(self) -> str:
        """Commit LSN of its newest event."""
        return self.greatest[:LSN_WIDTH]


@dataclass(frozen=True, slots=True)
class Newest:
    """What is newest in a file.

    Args:
        window: greatest number of a window.
        committed_ms: time of the newest commit; of a file of tombstones only the time at which it was written.
    """

    window: int
    committed_ms: int


def listed(tables: TopicTables, topic: str) -> list[TopicFile]:
    """Files of all tables of a topic.

    Raises:
        LakeError: one cannot be read.
    """
    found: list[TopicFile] = []
    for directory in tables.generations(topic):
        handle = tables.open(directory)
        rows = [] if handle is None else pa.table(handle.get_add_actions(flatten=True)).to_pylist()
        for row in rows:
            greatest, least, rows_of = row.get("max.position") or "", row.get("min.position") or "", row["num_records"]
            unplaced = row.get("null_count.position")
            if None in (rows_of, unplaced) or not _are_placed(least, greatest):
                rows_of, least, greatest, unplaced = _bounds(tables.location, directory, row["path"])
            written_ms = row["modification_time"]
            found.append(TopicFile(directory, row["path"], rows_of, written_ms, greatest, least[:LSN_WIDTH], unplaced))
    return found


def _bounds(location: Location, directory: str, path: str) -> tuple[int, str, str, int]:
    """Number of rows of a file, least and greatest position, and number of rows without one."""
    with opened(location, directory, path) as parquet:
        parts = list(_parts(parquet)) if has_column(parquet, _POSITION) else [("", "", parquet.metadata.num_rows)]
        least = min((least for least, _, _ in parts if least), default="")
        greatest = max(greatest for _, greatest, _ in parts) if parts else ""
        return parquet.metadata.num_rows, least, greatest, sum(unplaced for _, _, unplaced in parts)


def _parts(parquet: pq.ParquetFile) -> Iterator[tuple[str, str, int]]:
    """Least and greatest position of each part of a file, and number of rows without one."""
    for group in range(parquet.num_row_groups):
        known, unplaced = extent(parquet, group, _POSITION), nulls(parquet, group, _POSITION)
        if known is not None and unplaced is not None and len(known[1]) >= POSITION_WIDTH and _are_placed(*known):
            yield *known, unplaced
            continue
        for batch in parquet.iter_batches(_BATCH_ROWS, row_groups=[group], columns=[_POSITION], use_threads=False):
            positions = placed(batch.column(0).cast(pa.string()))
            found = pc.min_max(positions).as_py()
            yield found["min"] or "", found["max"] or "", positions.null_count


def _are_placed(*bounds: str) -> bool:
    """Whether bounds are positions of events, or begin as these do."""
    return all(re.match(PLACED, bound) for bound in bounds)


def untouched(topic: str, files: Sequence[TopicFile]) -> str:
    """Why retention does not touch some files of a topic, for people; empty if there are none. Other files do not change it, since each
    change is recorded.
    """
    found = [file for file in files if file.unplaced]
    if not found:
        return ""
    rows, example = sum(file.unplaced for file in found), min(f"{file.directory}/{file.path}" for file in found)
    return (
        f"Old events stay in files of {topic} with {rows} rows that have no position, as another program has appended them, for example in "
        f"{example}. Next: if these rows are not needed, remove those WHERE position IS NULL OR position NOT LIKE '%:%:%/%' from that "
        "table; else nothing, what is in other files is dropped when it is old"
    )


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


def latest(location: Location, files: Sequence[TopicFile]) -> frozenset[tuple[str, str]]:
    """The file with the newest event of each table, as directory and path.

    By the whole position, since a large transaction is in several files: what is newest of another one, a later event may have removed.

    Raises:
        LakeError: it cannot be read.
    """
    ends: dict[str, str] = {}
    for file in files:
        ends[file.directory] = max(ends.get(file.directory, ""), file.until)
    newest: dict[str, tuple[str, str]] = {}
    for directory, end in ends.items():
        last = [file for file in files if file.directory == directory and file.until == end]
        is_known = {file.path: not end or len(last) == 1 or len(file.greatest) >= POSITION_WIDTH for file in last}
        found = {
            file.path: file.greatest if is_known[file.path] else _bounds(location, directory, file.path)[2]
            for file in last
        }
        newest[directory] = max((greatest, path) for path, greatest in found.items())
    return frozenset((directory, path) for directory, (_, path) in newest.items())
