"""The code that runs inside the tasks of an incremental round: rows go into staged files, and then into the topic table.

A READ carries the position at which it is committed, which is known only once the stream has passed the round's close
marker. So a task first writes the rows of a span unchanged into Arrow IPC files in the lake's staging folder. When the
position is known, another task drops the rows that have changed and builds events of the others. If all changes of a row are
updates that omit the large values, perhaps no event holds these. They are still as they were read, so there is an event of it,
too: with these, and the others of the newest update. Both tasks stream: memory is
bounded by a batch and a row group, however large the round is. No commit refers to a staged file; it is removed with its round, or
by the next run that claims the capture. Also if the round failed, because on a full disk each repetition would take more of the
missing room.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from cdc_assets.core.lsn import Lsn
from cdc_assets.core.ports import BulkSource
from cdc_assets.envelope.plan import EventPlan
from cdc_assets.envelope.reads import ReadContext, build_reads
from cdc_assets.errors import LakeAwayError, LakeError, LakeFullError
from cdc_assets.lake.files import DataFile, TopicWriter
from cdc_assets.lake.folder import Folder
from cdc_assets.lake.location import STORE_ERRORS, Location, trouble
from cdc_assets.lake.pieces import open_in_pieces
from cdc_assets.shared.statements import Statement

FILE_BYTES = 16 * 1024 * 1024
"""Size in bytes after which the next staged file begins: one task reads a span, but several build its events."""

OMITS, HOLDS, VALUE = "omits", "holds", "v{}"
"""Columns of changed rows, after those of the identity: whether the image is of an update that omits a large value, whether its
change may have given the row another one, and the plan's columns that are not large, of images that omit one."""


@dataclass(frozen=True, slots=True)
class Staged:
    """A staged file: its name, its number of rows, and their size in Arrow's form in bytes."""

    name: str
    rows: int
    size: int


@dataclass(frozen=True, slots=True)
class Staging:
    """The staged files of a round, those of failed tasks included.

    Args:
        directory: name of the folder.
        prefix: of the files' names; empty for all rounds.
    """

    location: Location
    directory: str
    prefix: str = ""

    def write(self, batches: Iterable[pa.RecordBatch]) -> list[Staged]:
        """Write rows into files of about `FILE_BYTES`; no file if there are none.

        Raises:
            LakeError: a file cannot be written.
        """
        filled = (batch for batch in batches if batch.num_rows)
        files = self.files()
        written: list[Staged] = []
        try:
            for batch in filled:
                name = f"{self.prefix}{uuid4().hex}.arrow"
                written.append(_write_file(files, name, itertools.chain([batch], filled)))
        except STORE_ERRORS as error:
            raise self._failed("written", error) from error
        return written

    def read(self, name: str) -> Iterator[pa.RecordBatch]:
        """Rows of a staged file.

        Raises:
            LakeError: the file cannot be read.
        """
        try:
            with self.files().open_input_stream(name) as stream, pa.ipc.open_stream(stream) as reader:
                yield from reader
        except STORE_ERRORS as error:
            raise self._failed("read", error) from error

    def remove(self) -> None:
        """Remove all files of the round; its tasks have ended.

        Raises:
            LakeError: they cannot be removed.
        """
        folder = Folder(self.location, self.directory)
        for name in folder.names(".arrow"):
            if name.startswith(self.prefix):
                folder.remove(name)

    def files(self) -> fs.FileSystem:
        """File system rooted at the folder."""
        return self.location.filesystem(self.directory)

    def _failed(self, what: str, error: Exception) -> LakeError | LakeFullError | LakeAwayError:
        return trouble(
            f"A staged file in {self.location.uri(self.directory)} cannot be {what}", error, "check lake.path"
        )


def _write_file(files: fs.FileSystem, name: str, batches: Iterator[pa.RecordBatch]) -> Staged:
    """Write one file with the next rows."""
    first = next(batches)
    rows, size = first.num_rows, first.nbytes
    with (
        open_in_pieces(files, name) as stream,
        pa.ipc.new_stream(stream, first.schema) as writer,
    ):
        writer.write_batch(first)
        while size < FILE_BYTES and (batch := next(batches, None)) is not None:
            writer.write_batch(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
    return Staged(name, rows, size)


@dataclass(frozen=True, slots=True)
class StageTask:
    """A span to read."""

    statement: Statement
    staging: Staging
    bulk: BulkSource


def stage(task: StageTask) -> list[Staged]:
    """Read a span and stage its rows unchanged.

    Raises:
        CdcError: the server or the lake failed; if the error is retryable, the task may be repeated.
    """
    return task.staging.write(task.bulk.read(*task.statement))


@dataclass(frozen=True, slots=True)
class BuildTask:
    """Staged files whose rows become events.

    Args:
        files: staged files with their numbers in the round.
        staging: folder of the files.
        window_id: number of the commit.
        position: position of the events.
        server_time: the server's clock when the round began.
        plan: event plan of the rows.
        directory: directory of the topic table.
        attempt: id of the attempt, part of the file names.
        identity: indexes of the columns that identify a row.
        changed: staged files with those columns of changed rows; if some may omit values, in order, with those of `OMITS`.
        unique: whether those columns tell each row from all others.
    """

    files: tuple[tuple[int, Staged], ...]
    staging: Staging
    window_id: int
    position: Lsn
    server_time: datetime
    plan: EventPlan
    directory: str
    attempt: str
    identity: tuple[int, ...]
    changed: tuple[Staged, ...]
    unique: bool = True


def build(task: BuildTask) -> tuple[DataFile, ...] | None:
    """Write READ events of the rows that have not changed; None if that is not known of all of them, or a value in no event.

    Raises:
        InvalidValueError: a value does not fit its event type.
        LakeError: the lake cannot be read or written.
    """
    images = _images(task)
    changed = _Changed(task, images) if images is not None else None
    if changed is not None and changed.is_any_useless:
        return None
    location, schema = task.staging.location, task.plan.topic_schema
    with TopicWriter(location, task.directory, schema, task.window_id, task.attempt) as writer:
        for number, file in task.files:
            rows: Iterator[pa.RecordBatch] = task.staging.read(file.name)
            if changed is not None:
                rows = itertools.chain.from_iterable(map(changed.at_position, rows))
            context = ReadContext(task.window_id, task.position, task.server_time, number, snapshot="incremental")
            writer.write(build_reads(task.plan, rows, context))
    return tuple(writer.files)


def _images(task: BuildTask) -> pa.Table | None:
    """The images of changes of the rows that the task has, in order, since any number of others may have changed; None if none has."""
    if not task.changed:
        return None
    width = range(len(task.identity))
    rows = (batch.select(task.identity) for _, file in task.files for batch in task.staging.read(file.name))
    read = Rows(pa.Table.from_batches(batch.take(pa.array(range(batch.num_rows))) for batch in rows).columns)
    images = (batch for file in task.changed for batch in task.staging.read(file.name))
    found = pa.Table.from_batches(batch.filter(read.find(batch, width).is_valid()) for batch in images)
    return found if found.num_rows else None


class _Changed:
    """Rows that have changed.

    Args:
        task: the task that builds events of the others.
        images: the images of their changes, in order.

    Attributes:
        is_any_useless: whether of any row neither is known that it has not changed, nor that events hold its values.
    """

    def __init__(self, task: BuildTask, images: pa.Table) -> None:
        self._task, width = task, len(task.identity)
        self._rows = Rows(images.columns[:width])
        self.is_any_useless = not task.unique
        self._omitting: Rows | None = None
        self._values = images.slice(0, 0)
        if task.unique and OMITS in images.column_names:
            number = pa.array(range(images.num_rows), pa.int64())
            known = pa.table({"row": self._rows.find(images, range(width)), "number": number, HOLDS: images[HOLDS]})
            of_rows = known.group_by("row").aggregate([("number", "max"), (HOLDS, "any")])
            newest, holds = images.take(of_rows["number_max"]), of_rows[f"{HOLDS}_any"]
            self.is_any_useless = pc.any(pc.and_(newest[OMITS], holds)).as_py()
            self._values = newest.filter(pc.and_not(newest[OMITS], holds))
            self._omitting = Rows(self._values.columns[:width]) if self._values.num_rows else None

    def at_position(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows that have not changed, and those of which each change omits the large values, as they are at the position."""
        identity = self._task.identity
        yield self._rows.without(batch, identity)
        if self._omitting is None:
            return
        found = self._omitting.find(batch, identity)
        read, newest = batch.filter(found.is_valid()), self._values.take(found.drop_null())
        if not read.num_rows:
            return
        columns = dict(zip(batch.schema.names, read.columns, strict=True))
        for index, column in enumerate(self._task.plan.columns):
            if (name := VALUE.format(index)) in newest.column_names:
                columns[column.name] = pa.concat_arrays(newest[name].chunks)
            elif column.mapped.column.computed:  # as in the update's event; what was read may be out of date
                columns[column.name] = pa.nulls(read.num_rows, read.column(index).type)
        yield pa.RecordBatch.from_pydict(columns)


class Rows:
    """A set of rows for lookups: values are compared exactly, NULL equals NULL.

    Each column's values are numbered. The number of a row comes from the pair (number of the previous columns, number
    of the next column), numbered again, so that numbers stay below the number of rows however many columns there are.

    Args:
        columns: columns of the rows, at least one.
    """

    def __init__(self, columns: Sequence[pa.ChunkedArray]) -> None:
        self._values: list[pa.Array] = []
        self._pairs: list[pa.Array] = []
        codes: pa.Array | None = None
        for column in columns:
            values = column.unique()
            self._values.append(values)
            code = pc.index_in(column, value_set=values)
            if codes is not None:
                paired = _paired(codes, code, values)
                self._pairs.append(paired.unique())
                code = pc.index_in(paired, value_set=self._pairs[-1])
            codes = code

    def without(self, batch: pa.RecordBatch, indexes: Sequence[int]) -> pa.RecordBatch:
        """The rows of a batch that are not in the set.

        Args:
            indexes: indexes in the batch of the set's columns, in their order.
        """
        return batch.filter(self.find(batch, indexes).is_null())

    def find(self, batch: pa.RecordBatch | pa.Table, indexes: Sequence[int]) -> pa.Array:
        """The number in the set of each row of a batch, by first appearance; null for one that is not in it."""
        codes: pa.Array | None = None
        for number, index in enumerate(indexes):
            values = self._values[number]
            code = pc.index_in(batch.column(index), value_set=values.cast(batch.column(index).type))
            if codes is not None:
                code = pc.index_in(_paired(codes, code, values), value_set=self._pairs[number - 1], skip_nulls=True)
            codes = code
        return codes


def _paired(left: pa.Array, right: pa.Array, values: pa.Array) -> pa.Array:
    """One number for each pair; null if either is null."""
    return pc.add(pc.multiply(left.cast(pa.int64()), len(values)), right.cast(pa.int64()))
