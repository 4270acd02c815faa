"""Joins small files of tables to larger ones: tasks read and write them, the driver replaces them.

A loop writes one small file per table and slice in each window; many small files make every reader slow (500 files: 25
times, spec spark §5). Files are joined to files of 1/512 of the target size, eight of these to 1/64, and so on. So a row
is rewritten a few times in all; if all small files became one each time, a growing file would be rewritten again and
again until it has the target size.

*Crash between any two steps*, and writers beside it: as of any rewriting of files (`rewriting`), a table at a time. What was joined
while another writer replaced a file stays as it was, and is checked again the next time.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from cdc_assets.config.settings import LakeSettings
from cdc_assets.core.jobs import Job, named
from cdc_assets.core.ports import TaskRunner
from cdc_assets.core.steps import step
from cdc_assets.errors import LAKE_ERRORS, EngineError, InvariantError, LakeError, RetryableError
from cdc_assets.lake.files import TopicWriter
from cdc_assets.lake.location import STORE_ERRORS, Location, trouble
from cdc_assets.lake.pieces import rows_at_once
from cdc_assets.lake.replacing import Fence, NewFile, Replacement
from cdc_assets.lake.rewriting import rewrite_files
from cdc_assets.lake.tables import DeltaTables, arrow_schema, require_plain

log = logging.getLogger(__name__)

_SMALL = 0.75
"""Fraction of the target size below which a file counts as small."""
_STEP = 8
"""Ratio of the sizes to which files are joined, one after another, and number of files of one size that are joined."""
_LEVELS = 4
"""Number of these sizes; the last is the target size."""
_BATCH_ROWS = 32 * 1024
_ANY_WINDOW = -1
"""Number in the names of files with rows of several windows."""


@dataclass(frozen=True)
class JoinTask:
    """Files of a table that become one; picklable.

    Args:
        paths: in the order in which their rows are written.
        schema: columns of the table.
    """

    location: Location
    directory: str
    paths: tuple[str, ...]
    schema: pa.Schema


@dataclass(frozen=True)
class Joined:
    """What a task has made.

    Args:
        files: with all rows of the task's files.
        trouble: why there are none; empty if all went well.
    """

    files: tuple[NewFile, ...] = ()
    trouble: str = ""


Join = Callable[[JoinTask], Joined]
"""Runs in a task."""


def join_topic_files(task: JoinTask) -> Joined:
    """Join files of a topic."""
    try:
        name = f"joined-{uuid4().hex}-"
        with TopicWriter(task.location, task.directory, task.schema, _ANY_WINDOW, name) as writer:
            for path in task.paths:
                writer.write(batches_of(task, path))
        return Joined(tuple(writer.files))
    except LAKE_ERRORS as error:
        return Joined(trouble=str(error))


def batches_of(task: JoinTask, path: str) -> Iterator[pa.RecordBatch]:
    """Rows of a file in the columns of its table; one that the file lacks, at any depth, is null.

    Raises:
        LakeError: it cannot be read.
    """
    location = task.location
    try:
        with (
            location.existing(task.directory).open_input_file(path) as stream,
            pq.ParquetFile(stream, pre_buffer=not location.is_local) as parquet,
        ):
            for batch in parquet.iter_batches(rows_at_once(parquet, _BATCH_ROWS), use_threads=False):
                yield from _fitted(pa.Table.from_batches([batch]), task.schema).to_batches()
    except STORE_ERRORS as error:
        place = f"{location.uri(task.directory)}/{path}"
        raise trouble(f"{place} cannot be read", error, "restore the file") from error


def _fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        rows[field.name].cast(field.type) if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


class SmallFiles:
    """Finds small files of tables and joins them.

    Args:
        tables: the lake's Delta tables.
        settings: thresholds.
        runner: runs `join` for files that become one.
        fence: raises FencedError if another writer has taken over.
    """

    def __init__(
        self,
        tables: DeltaTables,
        settings: LakeSettings,
        runner: TaskRunner,
        fence: Fence,
        join: Join = join_topic_files,
    ) -> None:
        self._tables, self._settings, self._runner = tables, settings, runner
        self._fence, self._join = fence, join

    def join(self, directories: Iterable[str]) -> list[str]:
        """Join small files of the tables that have too many, in one job; return their names.

        After a failure it is retried at the next call: the data are complete without it.

        Raises:
            FencedError: another writer has taken over.
        """
        tasks = [
            task for directory in directories if self._settings.compact_after_files for task in self._due(directory)
        ]
        if not tasks:
            return []
        made: dict[str, list[tuple[JoinTask, Joined]]] = {}
        try:
            results = self._runner.run(
                self._join, tasks, Job("rewriting", f"joined: {named({task.directory for task in tasks})}")
            )
        except (RetryableError, EngineError) as error:
            log.warning("Small files are not joined; it is tried again: %s", error)
            return []
        for task, joined in zip(tasks, results, strict=True):
            made.setdefault(task.directory, []).append((task, joined))
        step("files-joined")
        return [directory for directory, found in made.items() if self._committed(directory, found)]

    def _due(self, directory: str) -> list[JoinTask]:
        """The tasks of a table that has too many small files."""
        try:
            files, schema = self._files(directory)
        except LAKE_ERRORS as error:
            log.warning("Small files of %s cannot be joined; it is tried again: %s", directory, error)
            return []
        after_files, target = self._settings.compact_after_files, self._settings.target_file_bytes
        if sum(size < target * _SMALL for size in files.values()) < after_files:
            return []
        groups = joined_groups(files, size_to_join(list(files.values()), target, after_files))
        return [JoinTask(self._tables.location, directory, group, schema) for group in groups]

    def _files(self, directory: str) -> tuple[Mapping[str, int], pa.Schema]:
        """Bytes of each file in the order of their least position, and the columns of the table without metadata."""
        handle = self._tables.open(directory)
        if handle is None:
            return {}, pa.schema([])
        require_plain(directory, handle)
        rows = pa.table(handle.get_add_actions(flatten=True)).to_pylist()
        rows.sort(key=lambda row: (row.get("min.position") or "", row["modification_time"], row["path"]))
        plain = [pa.field(field.name, _plain(field.type), field.nullable) for field in arrow_schema(handle)]
        return {row["path"]: row["size_bytes"] for row in rows}, pa.schema(plain)

    def _committed(self, directory: str, found: Sequence[tuple[JoinTask, Joined]]) -> bool:
        try:
            if troubles := [joined.trouble for _, joined in found if joined.trouble]:
                raise LakeError(troubles[0])
            paths = [path for task, _ in found for path in task.paths]
            files = [file for _, joined in found for file in joined.files]
            return rewrite_files(self._tables, directory, Replacement(paths, files), self._fence)
        except (*LAKE_ERRORS, InvariantError) as error:
            log.warning("Small files of %s are not joined; it is tried again: %s", directory, error)
            return False


def _plain(kind: pa.DataType) -> pa.DataType:
    """A type without the metadata of its fields, as files have it."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _plain(field.type), field.nullable) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, _plain(kind.value_type), kind.value_field.nullable))
    return kind


def size_to_join(sizes: Sequence[int], target: int, after_files: int) -> int:
    """Size up to which small files are joined now: the greatest for which there are enough files of the size before it.

    Args:
        sizes: of all files of a table.
        target: the greatest size.
        after_files: number of small files at which they are joined.
    """
    enough = max(2, min(_STEP, after_files // _LEVELS))
    levels = [max(int(target / _STEP**level), 1) for level in range(_LEVELS)]
    for level, before in pairwise([*levels, 0]):
        if sum(before * _SMALL <= size < level * _SMALL for size in sizes) >= enough:
            return level
    return target


def joined_groups(files: Mapping[str, int], max_bytes: int) -> list[tuple[str, ...]]:
    """Which files become one: each file goes where the first room for it is.

    Args:
        files: bytes by path.
        max_bytes: bytes of a group; larger files stay.

    Returns:
        Groups of at least two.
    """
    groups: list[list[str]] = []
    room: list[int] = []
    for path, size in files.items():
        if size > max_bytes:
            continue
        at = next((at for at, free in enumerate(room) if free >= size), len(groups))
        if at == len(groups):
            groups.append([])
            room.append(max_bytes)
        groups[at].append(path)
        room[at] -= size
    return [tuple(group) for group in groups if len(group) > 1]
