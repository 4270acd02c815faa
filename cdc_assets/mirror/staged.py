"""The first job of a step: events of a topic, parted by leaves in staged files (`tasks`).

A batch of a staged file holds events of one leaf, in the order in which they came. A task reads a share of a topic's files,
of large files some of their row groups. It holds 32,768 events at a time, and up to eight times as many where there are many leaves.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from cdc_assets.errors import CdcError, LakeConflictError
from cdc_assets.kernels import Numbers
from cdc_assets.lake.events import EventFile, EventRange, TopicReader
from cdc_assets.lake.keys import bound_key, ranges_of
from cdc_assets.lake.location import STORE_ERRORS, Location, plain, trouble
from cdc_assets.lake.pieces import Piece, parted, portions, release_memory, staged_batches, staged_file
from cdc_assets.lake.row_shape import OPERATION, POSITION
from cdc_assets.mirror.shape import Shape
from cdc_assets.mirror.texts import TEXTS, in_form, repeats

_STAGED_ROWS, _STAGED_OF_LEAF = 32 * 1024, 256
"""Events that a task of the first job holds at once, and of one leaf, if they are spread evenly over all."""


@dataclass(frozen=True)
class PartTask:
    """Files of a topic whose events are to be parted by leaves.

    Args:
        bounds: of all leaves, in order.
        staging: folder of the staged files.
    """

    reader: TopicReader
    files: tuple[EventFile, ...]
    wanted: EventRange
    bounds: tuple[bytes, ...]
    staging: str


def part(task: PartTask) -> list[Piece]:
    """Read events, and stage them leaf by leaf.

    Raises:
        LakeError: the lake cannot be read or written.
    """
    min_rows = min(max(_STAGED_ROWS, _STAGED_OF_LEAF * len(task.bounds)), 8 * _STAGED_ROWS)
    try:
        return stage(task, portions(task.reader.read(task.files, task.wanted), min_rows))
    finally:
        release_memory()


def stage(task: PartTask, tables: Iterable[pa.Table]) -> list[Piece]:
    """Stage events leaf by leaf.

    Raises:
        LakeError: the lake cannot be read or written.
    """
    shape, bounds = task.reader.shape, [bound_key(bound, task.reader.shape.key_type) for bound in task.bounds[1:]]
    numbered = ((events, ranges_of(shape.keys(events), bounds)) for events in tables)
    return stage_numbered(task.reader.location, task.staging, numbered)


def stage_numbered(location: Location, staging: str, tables: Iterable[tuple[pa.Table, Numbers]]) -> list[Piece]:
    """Stage events by numbers.

    Raises:
        LakeConflictError: another process has removed the folder.
        LakeError: the lake cannot be read or written.
    """
    try:
        with staged_file(location, staging) as file:
            for events, numbers in tables:
                for number, batches in parted(events, numbers):
                    file.add(number, batches)
    except STORE_ERRORS as error:
        raise _trouble(
            f"Events cannot be staged in {location.uri(staging)}", error, "check the path and its rights"
        ) from error
    return file.pieces


def staged(location: Location, staging: str, pieces: Sequence[Piece], shape: Shape) -> Iterator[pa.Table]:
    """The events of some pieces.

    Raises:
        LakeConflictError: another process has removed them.
        LakeError: the lake cannot be read.
    """
    forms = list[pa.DataType]()
    try:
        for batch in staged_batches(location, staging, pieces):
            events = pa.Table.from_batches([batch], shape.events)
            forms = forms or _forms_of(events, shape)
            columns = [in_form(column, form) for column, form in zip(events.columns, forms, strict=True)]
            yield pa.Table.from_arrays(columns, names=events.column_names)
    except STORE_ERRORS as error:
        raise _trouble(
            f"Staged events in {location.uri(staging)} cannot be read", error, "run the mirror again"
        ) from error


def _forms_of(first: pa.Table, shape: Shape) -> list[pa.DataType]:
    """Types in which the events of a leaf are held: texts that repeat once, so that more events fit into memory."""
    single = {OPERATION, POSITION, *(part.name for part in shape.key)} if shape.keyed else set(first.column_names)
    return [TEXTS if field.name not in single and repeats(first[field.name]) else field.type for field in first.schema]


def _trouble(what: str, error: Exception, hint: str) -> CdcError:
    """The error of the store; if a file or folder is gone, another process that has made the same step may have removed it."""
    if isinstance(error, FileNotFoundError):
        return LakeConflictError(
            f"{what}: {plain(error)}. Another process that follows the same mirror may have removed them. Next: nothing, the step is "
            "repeated; if that does not end, check that each worker can read and write lake.path."
        )
    return trouble(what, error, hint)
