"""What runs in tasks of a compaction: finding the events that stay, and writing them.

Three jobs. The first reads the keys of a topic's files and stages them by ranges of keys, without those that it sees replaced itself
(`mark`); the second has a task for each range, which finds what stays of it (`choose`); the third has a task for each file, which
writes it again without what goes (`rewrite`), or not at all if nothing does. A task holds some files' batch of events, or the
keys of one range, or a row group. Files that are written count when a commit names them.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.kernels import Numbers, mask_of
from cdc_assets.lake.events import EventFile, EventRange, TopicReader
from cdc_assets.lake.files import DataFile, TopicWriter
from cdc_assets.lake.keys import bound_bytes, bound_key, ranges_of
from cdc_assets.lake.location import STORE_ERRORS, Location, trouble
from cdc_assets.lake.pieces import Piece, parted, portions, release_memory, rows_at_once, staged_batches, staged_file
from cdc_assets.lake.reading import opened, placed, plain
from cdc_assets.lake.row_shape import MISSING, OPERATION, POSITION
from cdc_assets.retention.replaced import UNIT, staying

FILE, ROW = "__file", "__row"
_BATCH_ROWS, _PORTION_ROWS = 32 * 1024, 256 * 1024
_SAMPLED = 1024
_NO_WINDOW = -1
"""Number in the names of files with rows of any windows."""


@dataclass(frozen=True, slots=True)
class Numbered:
    """A file of a topic and its number."""

    number: int
    file: EventFile


@dataclass(frozen=True)
class MarkTask:
    """Files of a topic.

    Args:
        reader: of the columns that identify rows, and of those that events may omit.
        files: of one of the topic's tables.
        wanted: events that may go.
        bounds: of the ranges of keys, in order.
        staging: folder of the staged keys.
    """

    reader: TopicReader
    files: tuple[Numbered, ...]
    wanted: EventRange
    bounds: tuple[bytes, ...]
    staging: str


def mark(task: MarkTask) -> list[Piece]:
    """Stage the keys of events by ranges.

    Raises:
        LakeError: the lake cannot be read or written.
    """
    location, shape = task.reader.location, task.reader.shape
    bounds = [bound_key(bound, shape.key_type) for bound in task.bounds[1:]]
    with _staging(location, task.staging), staged_file(location, task.staging) as file:
        for events in portions(_entries(task), _PORTION_ROWS):
            events = events.filter(pa.array(staying(shape, events, whole=False)))
            for range_, batches in parted(events, ranges_of(shape.keys(events), bounds)):
                file.add(range_, batches)
    return file.pieces


def sample(task: MarkTask) -> list[bytes]:
    """Some keys of the events, as bounds of ranges.

    Raises:
        LakeError: the lake cannot be read.
    """
    found: list[bytes] = []
    for events in _entries(task):
        keys = task.reader.shape.keys(events)
        chosen = np.linspace(0, len(keys) - 1, min(len(keys), _SAMPLED)).astype(np.int64)
        found += [bound_bytes(key) for key in keys.take(pa.array(chosen)).to_pylist()]
    return found


def _entries(task: MarkTask) -> Iterator[pa.Table]:
    """What is to be known of the events that may go."""
    reader, shape = task.reader, task.reader.shape
    own = [*(part.name for part in shape.key), POSITION, OPERATION, *(MISSING + name for name in shape.large)]
    for numbered in task.files:
        for events, rows in reader.numbered(numbered.file, task.wanted):
            columns = {
                UNIT: np.full(len(rows), numbered.file.generation, dtype=np.int16),
                FILE: np.full(len(rows), numbered.number, dtype=np.int32),
                ROW: rows,
            }
            yield pa.table({**{name: events[name] for name in dict.fromkeys(own)}, **columns})


@dataclass(frozen=True)
class ChooseTask:
    """A range of keys.

    Args:
        pieces: of the range, in staged files.
    """

    reader: TopicReader
    staging: str
    pieces: tuple[Piece, ...]


def choose(task: ChooseTask) -> list[Piece]:
    """Stage the numbers of the rows that stay, file by file.

    Returns:
        Pieces with the numbers of the topic's files.

    Raises:
        LakeError: the lake cannot be read or written.
    """
    location = task.reader.location
    with _staging(location, task.staging), staged_file(location, task.staging) as file:
        events = pa.Table.from_batches(list(staged_batches(location, task.staging, task.pieces)))
        stays = staying(task.reader.shape, events, whole=True)
        events = events.select([FILE, ROW]).filter(pa.array(stays))
        for number, batches in parted(events, events[FILE].to_numpy()):
            file.add(number, (batch.select([ROW]) for batch in batches))
    return file.pieces


@contextmanager
def _staging(location: Location, staging: str) -> Iterator[None]:
    """A block that reads the lake and writes staged files.

    Raises:
        LakeError: it cannot.
    """
    try:
        yield
    except STORE_ERRORS as error:
        raise trouble(
            f"Keys cannot be staged in {location.uri(staging)}", error, "check the path and its rights"
        ) from error
    finally:
        release_memory()


@dataclass(frozen=True)
class RewriteTask:
    """A file of a topic and what stays of it.

    Args:
        wanted: events that may go.
        pieces: staged numbers of those that stay.
        newest: whether the table may have its newest event in this file: then the file's newest one stays.
    """

    location: Location
    directory: str
    path: str
    wanted: EventRange
    staging: str
    pieces: tuple[Piece, ...]
    newest: bool


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A file from which events go.

    Args:
        path: of the file.
        files: with what stays.
        gone: number of events that go.
        window: greatest number of a window of these.
    """

    path: str
    files: tuple[DataFile, ...]
    gone: int
    window: int


def rewrite(task: RewriteTask) -> Rewritten | None:
    """Write a file again without the events that go; None if all stay.

    Raises:
        LakeError, LakeFullError: the lake cannot be read or written.
    """
    try:
        stays, window = _stays(task)
        if stays.all():
            return None
        return Rewritten(task.path, _written(task, stays), int(len(stays) - stays.sum()), window)
    except STORE_ERRORS as error:
        place = f"{task.location.uri(task.directory)}/{task.path}"
        raise trouble(f"The events in {place} cannot be rewritten", error, "check the path and its rights") from error
    finally:
        release_memory()


def _stays(task: RewriteTask) -> tuple[Numbers, int]:
    """Which rows of the file stay, and the greatest window of the others."""
    chosen = [batch[ROW].to_numpy() for batch in staged_batches(task.location, task.staging, task.pieces)]
    kept = np.sort(np.concatenate([np.empty(0, dtype=np.int64), *chosen]))
    masks, start, window, newest = [np.empty(0, dtype=bool)], 0, _NO_WINDOW, ("", 0)
    for batch in _batches(task, ["position", "window_id"]):
        table = pa.Table.from_batches([batch])
        positions = placed(table["position"])
        mask = ~mask_of(task.wanted.takes(positions, table["window_id"]))
        low, high = np.searchsorted(kept, [start, start + batch.num_rows])
        mask[kept[low:high] - start] = True
        masks.append(mask)
        greatest = pc.max(positions)
        if greatest.is_valid:  # rows that users append have none
            newest = max(newest, (greatest.as_py(), start + pc.index(positions, greatest).as_py()))
        window = max(window, int(table["window_id"].to_numpy()[~mask].max(initial=_NO_WINDOW)))
        start += batch.num_rows
    stays = np.concatenate(masks)
    if task.newest and start:
        stays[newest[1]] = True
    return stays, window


def _written(task: RewriteTask, stays: Numbers) -> tuple[DataFile, ...]:
    start, writer = 0, None
    with ExitStack() as stack:
        for batch in _batches(task, None):
            chosen = batch.filter(pa.array(stays[start : start + batch.num_rows]))
            start += batch.num_rows
            if writer is None:
                name = f"compacted-{uuid4().hex}-"
                writer = TopicWriter(task.location, task.directory, batch.schema, _NO_WINDOW, name)
                stack.enter_context(writer)
            writer.write([chosen] if chosen.num_rows else [])
    return () if writer is None else tuple(writer.files)


def _batches(task: RewriteTask, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
    with opened(task.location, task.directory, task.path) as parquet:
        rows = rows_at_once(parquet, _BATCH_ROWS)
        yield from map(plain, parquet.iter_batches(rows, columns=columns, use_threads=False))
