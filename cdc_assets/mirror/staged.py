"""The first job of a step: events of a topic, parted by leaves in staged files (`tasks`).

A batch of a staged file holds events of one leaf, in the order in which they came. A task reads a share of a topic's files,
of large files some of their row groups, and holds a few ten thousand events at a time.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.lake.location import STORE_ERRORS, Location, trouble
from cdc_assets.mirror.events import EventFile, EventRange, TopicReader
from cdc_assets.mirror.keys import bound_key
from cdc_assets.mirror.leaves import places_of
from cdc_assets.mirror.shape import OPERATION, POSITION, Shape
from cdc_assets.mirror.texts import TEXTS, in_form, repeats
from cdc_assets.typemap.kernels import Numbers

_STAGED_ROWS, _STAGED_OF_LEAF = 32 * 1024, 256
"""Events that a task of the first job holds at once, and of one leaf, if they are spread evenly over all."""


def tidy() -> None:
    """Have Arrow give back what it holds for later: each thread keeps what it once had, several times what is in use."""
    pa.default_memory_pool().release_unused()


@dataclass(frozen=True, slots=True)
class Piece:
    """Events of one leaf in a staged file.

    Args:
        leaf: index of the leaf.
        batch: index of the batch in the file.
    """

    name: str
    leaf: int
    batch: int
    rows: int


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
    least = min(max(_STAGED_ROWS, _STAGED_OF_LEAF * len(task.bounds)), 8 * _STAGED_ROWS)
    try:
        return stage(task, _portions(task.reader.read(task.files, task.wanted), least))
    finally:
        tidy()


def stage(task: PartTask, portions: Iterable[pa.Table]) -> list[Piece]:
    """Stage events leaf by leaf.

    Raises:
        LakeError: the lake cannot be read or written.
    """
    files, name, pieces = task.reader.location.filesystem(task.staging), f"{uuid4().hex}.arrow", list[Piece]()
    schema = task.reader.shape.events
    try:
        with files.open_output_stream(name) as stream, pa.ipc.new_file(stream, schema, options=_IPC) as writer:
            for events in portions:
                for leaf, batch in _parted(task, events):
                    pieces.append(Piece(name, leaf, len(pieces), batch.num_rows))
                    writer.write_batch(batch)
    except STORE_ERRORS as error:
        place = task.reader.location.uri(task.staging)
        raise trouble(f"Events cannot be staged in {place}", error, "check the path and its rights") from error
    return pieces


def _portions(tables: Iterator[pa.Table], least: int) -> Iterator[pa.Table]:
    """Tables joined until they have about so many rows."""
    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        if sum(one.num_rows for one in waiting) >= least:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)


def _parted(task: PartTask, events: pa.Table) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Events of each leaf, in the order in which they came."""
    shape = task.reader.shape
    leaves = leaves_of(shape.keys(events), [bound_key(bound, shape.key_type) for bound in task.bounds[1:]])
    order = np.argsort(leaves, kind="stable")
    found, starts = np.unique(leaves[order], return_index=True)
    events = events.combine_chunks().take(pa.array(order))
    for leaf, start, end in zip(found, starts, [*starts[1:], len(leaves)], strict=True):
        yield from ((int(leaf), batch) for batch in events.slice(start, end - start).to_batches())


def leaves_of(keys: pa.Array, bounds: Sequence[object]) -> Numbers:
    """The leaf of each key, given the least keys of all but the first one."""
    if not bounds:
        return np.zeros(len(keys), dtype=np.int32)
    if pa.types.is_integer(keys.type):
        found: Numbers = np.searchsorted(np.array(bounds, dtype=np.int64), keys.to_numpy(), "right")
        return found.astype(np.int32)
    order = pc.array_sort_indices(keys).to_numpy()
    leaves = np.empty(len(keys), dtype=np.int32)
    leaves[order] = np.repeat(np.arange(len(bounds) + 1), np.diff(places_of(keys.take(order), [None, *bounds])))
    return leaves


_IPC = pa.ipc.IpcWriteOptions(compression="lz4")


def staged(location: Location, staging: str, pieces: Sequence[Piece], shape: Shape) -> Iterator[pa.Table]:
    """The events of some pieces.

    Raises:
        LakeError: the lake cannot be read.
    """
    files, forms = location.existing(staging), list[pa.DataType]()
    for name in dict.fromkeys(piece.name for piece in pieces):
        try:
            with files.open_input_file(name) as stream, pa.ipc.open_file(stream) as reader:
                for piece in pieces:
                    if piece.name == name:
                        events = pa.Table.from_batches([reader.get_batch(piece.batch)], shape.events)
                        forms = forms or _forms_of(events, shape)
                        columns = [in_form(column, form) for column, form in zip(events.columns, forms, strict=True)]
                        yield pa.Table.from_arrays(columns, names=events.column_names)
        except STORE_ERRORS as error:
            raise trouble(
                f"Staged events in {location.uri(staging)} cannot be read", error, "run the mirror again"
            ) from error


def _forms_of(first: pa.Table, shape: Shape) -> list[pa.DataType]:
    """Types in which the events of a leaf are held: texts that repeat once, so that more events fit into memory."""
    single = {OPERATION, POSITION, *(part.name for part in shape.key)} if shape.keyed else set(first.column_names)
    return [TEXTS if field.name not in single and repeats(first[field.name]) else field.type for field in first.schema]
