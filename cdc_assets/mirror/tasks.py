"""What runs in a task of a step: folding events into a leaf.

A step is two jobs. The first reads the topic (`staged`): each of its tasks reads some files, puts the events in the order of keys
and writes them, leaf by leaf, into one file of a staging folder. The second has a task for each leaf that events are
about: it reads its parts of the staged files, folds them into the leaf, and writes the leaf and the versions that ended
(`rewrite`). So no task holds more than the events of some files, or a range of those of one leaf (`ranges`), however large the table is;
only for tables without a key a task holds its leaf as well. Files count only
when a commit names them, so a task may be repeated or given up at any moment.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from itertools import chain, pairwise
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.core.lsn import LSN_WIDTH
from cdc_assets.errors import MirrorError, UnknownRowError
from cdc_assets.lake.events import EventFile, EventRange, TopicReader
from cdc_assets.lake.keys import as_bytes, bound_bytes
from cdc_assets.lake.location import Location
from cdc_assets.lake.pieces import Piece, release_memory
from cdc_assets.lake.row_shape import OPERATION
from cdc_assets.mirror.files import FileWriter, fitted, portions_of, read_rows, write_parquet
from cdc_assets.mirror.fold import Folded, Void
from cdc_assets.mirror.leaves import Leaf, NewFile, cut, new_name, unique
from cdc_assets.mirror.multiset import fold_multiset
from cdc_assets.mirror.ranges import EventRanges
from cdc_assets.mirror.retyped import as_they_were, converted, former_rows, with_former
from cdc_assets.mirror.rewrite import LeafWriter, folded_portions
from cdc_assets.mirror.shape import STEP, TO_LSN, Shape
from cdc_assets.mirror.spans import Span

MAX_BYTES = 1_500_000_000
"""Bytes of a column of which a table without a key may hold in one leaf: an array of Arrow ends at 2 GB."""
_SAMPLED = 4096
_UNKNOWN_RATIO = 3
"""Bytes in memory for one in a file, of rows that come from no file."""


@dataclass(frozen=True)
class FoldTask:
    """A leaf and the events about it.

    Args:
        leaf: its files, and where its keys begin.
        current: directory of the table.
        history: directory of the versions that ended.
        pieces: in the order of the topic's files.
        step: number of the step.
        attempt: see `leaves.new_attempt`.
        history_schema: columns of `history`.
        spans: within the step.
        retyped: columns whose type is another one now, as the leaf has them.
        complete_from: LSN after which the leaf lacks no changes, so each row that events remove, and each value that they omit, is
            there; None if it may lack some.
        doubt: see `PlannedStep`.
    """

    location: Location
    shape: Shape
    leaf: Leaf
    current: str
    history: str
    staging: str
    pieces: tuple[Piece, ...]
    void: Void | None
    step: int
    attempt: str
    history_schema: pa.Schema
    rewrite: bool = False
    spans: tuple[Span, ...] = ()
    retyped: tuple[pa.Field, ...] = ()
    complete_from: str | None = None
    doubt: str = ""

    @cached_property
    def folded(self) -> Shape:
        """The shape while events are folded."""
        return with_former(self.shape, self.retyped)

    def portions(self, plain: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """The leaf's rows; see `files.portions_of`.

        Raises:
            LakeError: a file cannot be read.
        """
        schema = former_rows(self.shape, self.retyped)
        for rows in portions_of(self.location, self.current, self.leaf.paths, schema, plain):
            yield converted(rows, self.shape, self.retyped)


@dataclass(frozen=True, slots=True)
class FoldResult:
    """What a task has made of a leaf.

    Args:
        removed: files that are replaced.
        leaves: files in their place.
        versions: files of versions that ended.
        ended: number of these versions.
        events: number of events that were folded.
        nulls: columns that should be NOT NULL and hold NULLs.
        newest: when the newest of these events was committed, if it is known.
    """

    removed: tuple[str, ...]
    leaves: tuple[NewFile, ...]
    versions: tuple[NewFile, ...]
    ended: int
    events: int
    nulls: tuple[str, ...] = ()
    newest: datetime | None = None


def fold_leaf(task: FoldTask) -> FoldResult:
    """Fold events into a leaf; nothing is written if they change nothing.

    Raises:
        LakeError: the lake cannot be read or written.
    """
    try:
        since = None if task.void is None else task.void.since
        ranges = EventRanges(task.location, task.staging, task.pieces, task.folded, task.spans, since=since)
        result = _fold_portions(task, ranges) if task.shape.keyed else _fold_rows(task, ranges)
        return replace(result, newest=ranges.newest, events=sum(piece.rows for piece in task.pieces))
    finally:
        release_memory()


def _fold_portions(task: FoldTask, ranges: EventRanges) -> FoldResult:
    """Fold a leaf of a table with a key, portion by portion."""
    repeats = not task.rewrite and all(_only_repeats(ranges.events(number)) for number in range(len(ranges)))
    if repeats and not any(folded.changed for folded in _folded(task, ranges)):
        return FoldResult((), (), (), 0, 0)
    ended, events = _Versions(task), sum(piece.rows for piece in task.pieces)
    rows = LeafWriter(task.location, task.current, task.shape, task.leaf, task.leaf.rows + events, task.attempt)
    for folded in _folded(task, ranges):
        rows.write(folded.rows.select(task.shape.rows.names))
        ended.write(folded.ended)
        del folded
        release_memory()
    return FoldResult(task.leaf.paths, tuple(rows.end()), ended.end(), ended.rows, 0, tuple(sorted(rows.nulls)))


def _only_repeats(events: pa.Table) -> bool:
    """Whether events may find every row as it is: then all are checked before anything is written."""
    return not bool(pc.any(pc.is_in(events[OPERATION], value_set=pa.array(["c", "u"]))).as_py())


def _folded(task: FoldTask, ranges: EventRanges) -> Iterator[Folded]:
    keys = [part.name for part in task.shape.key]
    left = task.folded.no_rows()
    for number in range(len(ranges)):
        rows = task.portions(keys)
        if len(ranges) > 1:
            rows = chain([left], (ranges.within(number, portion) for portion in rows))
        left, key = task.folded.no_rows(), ranges.going_on(number)
        for folded in folded_portions(task.folded, rows, ranges.events(number), task.void, task.doubt):
            last = folded.rows.slice(max(0, folded.rows.num_rows - 1))
            if key is not None and as_bytes(task.shape.keys(last)).to_pylist() == [key]:
                left, folded = last, replace(folded, rows=folded.rows.slice(0, folded.rows.num_rows - 1))
            if _is_unknown(task, folded):
                raise _unknown_values(task, folded.unknown)
            yield folded


def _is_unknown(task: FoldTask, folded: Folded) -> bool:
    return task.complete_from is not None and folded.unknown[:LSN_WIDTH] > task.complete_from


def _unknown_values(task: FoldTask, lsn: str) -> UnknownRowError:
    return UnknownRowError(
        f"At {lsn} a row of {task.current} has got another message key, and events omit values of it that did not change: its table has no "
        "key of its own, by which they are found. So the mirror has stopped before. Next: read the whole table again (its snapshot asset, "
        "or cdc-assets capture --table); then the mirror is rebuilt from that. A primary key saves it from now on."
    )


def _fold_rows(task: FoldTask, ranges: EventRanges) -> FoldResult:
    """Fold a leaf of a table without a key: readings count all copies of a row."""
    rows, changed, ended = pa.concat_tables([task.folded.no_rows(), *task.portions()]), False, _Versions(task)
    for number in range(len(ranges)):
        _require_room(task, rows)
        folded = fold_multiset(task.folded, rows.combine_chunks(), ranges.events(number), task.void)
        if _is_unknown(task, folded):
            raise _unknown(task, folded.unknown[:LSN_WIDTH])
        rows, changed = folded.rows, changed or folded.changed
        ended.write(folded.ended)
    if not changed and not task.rewrite:
        return FoldResult((), (), (), 0, 0)
    size = task.leaf.size / task.leaf.rows * rows.num_rows if task.leaf.rows else rows.nbytes / _UNKNOWN_RATIO
    leaves = tuple(_write_leaves(task, rows, int(size)))
    nulls = tuple(column.name for column in task.shape.columns if not column.nullable and rows[column.name].null_count)
    return FoldResult(task.leaf.paths, leaves, ended.end(), ended.rows, 0, nulls)


def _unknown(task: FoldTask, lsn: str) -> UnknownRowError:
    return UnknownRowError(
        f"At {lsn} a row of {task.current} goes that is not there: events no longer name its rows as they were read, such as after a captured "
        "column was dropped, and its table has no key. So the mirror has stopped before. Next: read the whole table again (its snapshot asset, "
        "or cdc-assets capture --table); then the mirror is rebuilt from that."
    )


def _require_room(task: FoldTask, rows: pa.Table) -> None:
    """Check that the rows of a leaf without a key are no more than one array of Arrow holds, and the task."""
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if column.nbytes > MAX_BYTES:
            raise MirrorError(
                f"{task.current} has {column.nbytes} bytes of {name}, and without a key one task holds all of them, at most {MAX_BYTES}. "
                "Next: give the table a key, its own or by message.key.columns, and read it again, or leave it out by mirror.table.include.list."
            )


def _write_leaves(task: FoldTask, rows: pa.Table, size: int) -> Iterator[NewFile]:
    if not rows.num_rows:
        return
    shape, rows = task.shape, rows.select(task.shape.rows.names)
    keys = shape.keys(rows)
    order = pc.array_sort_indices(keys)
    keys, rows = keys.take(order), rows.take(order)
    for start, end in pairwise(cut(keys, size)):
        bound = bound_bytes(keys[start].as_py()) if start else task.leaf.bound
        yield write_parquet(
            task.location, task.current, new_name(bound, task.attempt), rows.slice(start, end - start), []
        )


class _Versions:
    """Writes versions that ended to one file, if there are any."""

    def __init__(self, task: FoldTask) -> None:
        self._task = task
        self._writer: FileWriter | None = None
        self.rows = 0

    def write(self, ended: pa.Table) -> None:
        if not ended.num_rows:
            return
        task = self._task
        schema = pa.schema([pa.field(field.name, field.type) for field in task.history_schema])
        if self._writer is None:
            name = f"h{task.step:010d}-{unique(task.attempt)}.parquet"
            self._writer = FileWriter(task.location, task.history, name, schema, [TO_LSN])
        stepped = ended.append_column(STEP, pa.repeat(pa.scalar(task.step, pa.int64()), ended.num_rows))
        self._writer.write(fitted(as_they_were(stepped, task.retyped, schema), schema))
        self.rows += ended.num_rows

    def end(self) -> tuple[NewFile, ...]:
        return () if self._writer is None else (self._writer.end(),)


@dataclass(frozen=True)
class ConvertTask:
    """A file whose columns have other types now."""

    location: Location
    directory: str
    path: str
    schema: pa.Schema


def convert(task: ConvertTask) -> NewFile:
    """Write a file again in other types.

    Raises:
        LakeError: the lake cannot be read or written.
    """
    rows = read_rows(task.location, task.directory, [task.path], task.schema)
    name = f"h{0:010d}-{uuid4().hex}.parquet"
    return write_parquet(task.location, task.directory, name, rows, [TO_LSN])


@dataclass(frozen=True)
class SampleTask:
    """Files of a topic from which keys are taken, to see how rows lie."""

    reader: TopicReader
    files: tuple[EventFile, ...]
    wanted: EventRange


def sample(task: SampleTask) -> list[object]:
    """Some keys of the events in a range."""
    found: list[object] = []
    for events in task.reader.read(task.files, task.wanted):
        keys = task.reader.shape.keys(events)
        chosen = np.linspace(0, len(keys) - 1, min(len(keys), _SAMPLED)).astype(np.int64)
        found += keys.take(pa.array(chosen)).to_pylist()
    return found
