"""Reads files of a topic that may hold an event twice, and keeps each once.

The last means against rows that are there twice, where the log no longer says which commit put them in (`foreign`). Files of
windows do not overlap; what overlaps besides are files of one snapshot, of which only the positions are read, as of files that
were joined. An event is what its window and position say, and its tombstone shares both: so what schema changes of two windows say
after one LSN stays, and so do rows that users append, which have no window or no position. The work of files that overlap is one task, which holds their positions.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from cdc_assets.core.jobs import Job
from cdc_assets.core.ports import TaskRunner
from cdc_assets.lake.files import STATISTICS, DataFile, TopicWriter
from cdc_assets.lake.joining import JoinTask, batches_of
from cdc_assets.lake.location import Location
from cdc_assets.lake.reading import opened
from cdc_assets.lake.replacing import UNDONE, Fence, Replacement
from cdc_assets.lake.rewriting import rewrite_files
from cdc_assets.lake.tables import DeltaTables, arrow_schema

_OF_WINDOW = re.compile(r"w\d{10,}-")
_ANY_WINDOW = -1
_USERS = 0
"""Window of rows that users append, whose positions are theirs."""


@dataclass(frozen=True)
class OnceTask:
    """Files of a topic table that overlap; picklable.

    Args:
        writes: whether files with what stays are written.
        schema: columns of the table.
    """

    location: Location
    directory: str
    paths: tuple[str, ...]
    writes: bool
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class Once:
    """A file with rows that another one has, too.

    Args:
        files: with its other rows.
        gone: how many rows it has too many.
    """

    path: str
    files: tuple[DataFile, ...]
    gone: int


def doubled_rows(tables: DeltaTables, directory: str, runner: TaskRunner) -> int:
    """How many rows of a topic table have a position that another row has.

    Raises:
        LakeError: it cannot be read.
    """
    return sum(one.gone for one in _found(tables, directory, runner, writes=False))


def keep_once(tables: DeltaTables, directory: str, runner: TaskRunner, fence: Fence, undone: Iterable[int] = ()) -> int:
    """Remove rows whose position another row has, in one commit; returns how many.

    Args:
        undone: versions of the commits that put them in.

    Raises:
        LakeConflictError: another writer has replaced a file meanwhile.
        FencedError: another writer has taken over.
        LakeError: the lake cannot be read or written.
    """
    found = _found(tables, directory, runner, writes=True)
    gone = sum(one.gone for one in found)
    if found:
        files = [file for one in found for file in one.files]
        metadata = {UNDONE: ",".join(map(str, undone))}
        rewrite_files(
            tables, directory, Replacement([one.path for one in found], files, gone, metadata=metadata), fence
        )
    return gone


def _found(tables: DeltaTables, directory: str, runner: TaskRunner, *, writes: bool) -> list[Once]:
    handle = tables.open(directory)
    if handle is None:
        return []
    schema = arrow_schema(handle)
    tasks = [OnceTask(tables.location, directory, group, writes, schema) for group in _overlapping(handle)]
    return (
        [one for found in runner.run(once, tasks, Job("rewriting", f"doubled rows: {directory}")) for one in found]
        if tasks
        else []
    )


def _overlapping(handle: DeltaTable) -> list[tuple[str, ...]]:
    """Groups of files whose positions overlap, and single files that were joined of others."""
    rows = pa.table(handle.get_add_actions(flatten=True)).to_pylist()
    least, greatest = f"min.{STATISTICS}", f"max.{STATISTICS}"
    groups: list[list[str]] = []
    end = ""
    for row in sorted(rows, key=lambda row: (row.get(least) or "", row["modification_time"], row["path"])):
        if groups and (row.get(least) or "") <= end:
            groups[-1].append(row["path"])
        else:
            groups.append([row["path"]])
            end = ""
        end = max(end, row.get(greatest) or "~")
    return [tuple(group) for group in groups if len(group) > 1 or not _OF_WINDOW.match(group[0])]


def once(task: OnceTask) -> list[Once]:
    """Find, and leave out, rows of events that an earlier file has.

    Raises:
        LakeError, LakeFullError: the lake cannot be read or written.
    """
    parts = [_positions(task, path) for path in task.paths]
    whole = pa.concat_tables(parts).combine_chunks()
    position, window = whole["position"].combine_chunks(), whole["window_id"].fill_null(_USERS).to_numpy()
    codes = position.fill_null("").dictionary_encode().indices.to_numpy().astype(np.int64)
    _, windows = np.unique(window, return_inverse=True)
    events = (codes * len(codes) + windows) * 2 + whole["is_tombstone"].to_numpy()
    _, first = np.unique(events, return_index=True)
    stays = (window == _USERS) | position.is_null().to_numpy(zero_copy_only=False)
    stays[first] = True
    found, start = list[Once](), 0
    for path, part in zip(task.paths, parts, strict=True):
        own = stays[start : start + part.num_rows]
        start += part.num_rows
        if not own.all():
            files = _written(task, path, own) if task.writes else ()
            found.append(Once(path, files, int(len(own) - own.sum())))
    return found


def _positions(task: OnceTask, path: str) -> pa.Table:
    """Positions, windows and whether each is a tombstone, of the rows of a file.

    Raises:
        LakeError: it cannot be read.
    """
    with opened(task.location, task.directory, path) as parquet:
        return _read_positions(parquet)


def _read_positions(parquet: pq.ParquetFile) -> pa.Table:
    kind = parquet.schema_arrow.field("value").type if "value" in parquet.schema_arrow.names else pa.null()
    is_event = pa.types.is_struct(kind) and kind.get_field_index("op") >= 0
    table = parquet.read([STATISTICS, "window_id", *(["value.op"] if is_event else [])], use_threads=False)
    is_tombstone = pc.is_null(table["value"]) if is_event else pa.repeat(pa.scalar(False), table.num_rows)
    columns = [
        table[name].cast(kind) if name in table.column_names else pa.nulls(table.num_rows, kind)
        for name, kind in ((STATISTICS, pa.string()), ("window_id", pa.int64()))
    ]
    return pa.table([*columns, is_tombstone], names=["position", "window_id", "is_tombstone"])


def _written(task: OnceTask, path: str, stays: np.ndarray) -> tuple[DataFile, ...]:
    """A file with the rows that stay, in the columns of the table: other programs write types that Arrow does not filter."""
    start = 0
    with TopicWriter(task.location, task.directory, task.schema, _ANY_WINDOW, f"once-{uuid4().hex}-") as writer:
        for batch in batches_of(JoinTask(task.location, task.directory, (path,), task.schema), path):
            chosen = batch.filter(pa.array(stays[start : start + batch.num_rows]))
            start += batch.num_rows
            writer.write([chosen] if chosen.num_rows else [])
    return tuple(writer.files)
