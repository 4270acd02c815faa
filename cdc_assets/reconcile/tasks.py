"""What runs in a task of a comparison: reading the server, comparing with the mirror, looking up versions.

Rows of the server become READ events by the code of the snapshots, and these become rows in natural types by the code of the
mirrors. So what is compared is what a READ would write, with masks, modes and types, and nothing is converted twice in
two ways. The rows are staged by the leaves of the mirror; then each leaf is compared by itself. Memory is bounded by a
batch, or a leaf and its rows, however large the table is. Nothing here is committed: a task may be repeated or given up.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.core.lsn import Lsn
from cdc_assets.core.ports import BulkSource
from cdc_assets.envelope.plan import EventPlan
from cdc_assets.envelope.reads import ReadContext, build_reads
from cdc_assets.lake.events import TopicGeneration, TopicReader
from cdc_assets.lake.keys import KeyPart, bound_key, encode, places_of
from cdc_assets.lake.location import STORE_ERRORS, Location, trouble
from cdc_assets.lake.pieces import Piece, portions, staged_batches, staged_file
from cdc_assets.mirror.files import read_rows
from cdc_assets.mirror.shape import FROM_LSN, LSN, TO_LSN, Shape
from cdc_assets.reconcile.compare import Found, Side, compare_keyed, compare_multiset, pack
from cdc_assets.shared.statements import Statement

_PORTION_ROWS = 128 * 1024
"""Rows that are parted by leaves at once."""
TEXT = "__text_{}"
"""Column of staged rows: the server's own text of the n-th key column."""
CODE = "__code"
"""Column of versions: what identifies rows."""


@dataclass(frozen=True)
class Compared:
    """A mirror and what of it is compared; picklable.

    Args:
        names: columns that are compared.
        texts: number of key columns whose text is read.
        current: directory of `current`.
    """

    location: Location
    shape: Shape
    names: tuple[str, ...]
    texts: int
    current: str
    history: str
    staging: str

    @property
    def staged(self) -> pa.Schema:
        """Columns of staged rows."""
        texts = [pa.field(TEXT.format(number), pa.string()) for number in range(self.texts)]
        return pa.schema([*self.shape.events, *texts])

    def codes(self, rows: pa.Table) -> pa.Array:
        """What identifies rows: the key, or without one all values that are compared."""
        if self.shape.keyed:
            return self.shape.keys(rows)
        return encode(rows, [KeyPart(name) for name in self.names], pa.binary())


@dataclass(frozen=True)
class ReadTask:
    """Rows of the server to be staged.

    Args:
        plan: event plan of the rows.
        generation: how events of the plan become rows.
        low: LSN that the events carry; it plays no role.
        bounds: of all leaves, in order.
    """

    compared: Compared
    statement: Statement
    plan: EventPlan
    reader: TopicReader
    generation: TopicGeneration
    low: Lsn
    server_time: datetime
    bounds: tuple[bytes, ...]
    bulk: BulkSource


def read(task: ReadTask) -> list[Piece]:
    """Read rows, and stage them leaf by leaf.

    Raises:
        CdcError: the server or the lake failed.
    """
    try:
        with staged_file(task.compared.location, task.compared.staging) as file:
            for rows in portions(_rows(task), _PORTION_ROWS):
                for leaf, part in _parted(task, rows):
                    file.add(leaf, part.to_batches())
    except STORE_ERRORS as error:
        place = task.compared.location.uri(task.compared.staging)
        raise trouble(f"Rows cannot be staged in {place}", error, "check the path and its rights") from error
    return file.pieces


def _rows(task: ReadTask) -> Iterator[pa.Table]:
    """Rows in natural types, with the texts of their keys."""
    context = ReadContext(0, task.low, task.server_time)
    width = len(task.plan.columns)
    for batch in task.bulk.read(*task.statement):
        if not batch.num_rows:
            continue
        made = [
            task.reader.flat(task.generation, pa.Table.from_batches([events]))
            for events in build_reads(task.plan, iter([batch]), context)
        ]
        rows = pa.concat_tables(made)
        for number in range(task.compared.texts):
            rows = rows.append_column(TEXT.format(number), batch.column(width + number).cast(pa.string()))
        yield rows


def _parted(task: ReadTask, rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    shape = task.compared.shape
    keys = shape.keys(rows)
    order = pc.array_sort_indices(keys)
    bounds = [bound_key(bound, shape.key_type) if bound else None for bound in task.bounds]
    places = places_of(keys.take(order), bounds) if len(bounds) > 1 else [0, len(keys)]
    for leaf, (start, end) in enumerate(pairwise(places)):
        if end > start:
            yield leaf, rows.take(order.slice(start, end - start)).combine_chunks()


@dataclass(frozen=True)
class CompareTask:
    """A leaf and the rows that the server has of it.

    Args:
        paths: files of the leaf.
        pieces: its staged rows.
        column: the key column by which the table was cut; None if all of it is compared.
        spans: intervals of that column, half-open; None is an open end.
    """

    compared: Compared
    paths: tuple[str, ...]
    pieces: tuple[Piece, ...]
    column: str | None
    spans: tuple[tuple[object, object], ...]


def compare(task: CompareTask) -> Found:
    """Compare a leaf with the server.

    Raises:
        LakeError: the lake cannot be read.
    """
    about = task.compared
    rows = read_rows(about.location, about.current, task.paths, about.shape.rows).combine_chunks()
    if task.column is not None:
        rows = rows.filter(_within(rows[task.column], task.spans))
    try:
        batches = list(staged_batches(about.location, about.staging, task.pieces))
    except STORE_ERRORS as error:
        place = about.location.uri(about.staging)
        raise trouble(f"Staged rows in {place} cannot be read", error, "run it again") from error
    staged = pa.Table.from_batches(batches, about.staged).combine_chunks()
    made = compare_keyed if about.shape.keyed else compare_multiset
    server, mirror = (Side(side, about.codes(side)) for side in (staged, rows))
    return made(server, mirror, about.names, unique=about.shape.own_key)


def _within(column: pa.ChunkedArray, spans: Sequence[tuple[object, object]]) -> pa.Array:
    inside = np.zeros(len(column), dtype=bool)
    for low, high in spans:
        one = np.ones(len(column), dtype=bool)
        if low is not None:
            one &= np.asarray(pc.fill_null(pc.greater_equal(column, pa.scalar(low, column.type)), False))
        if high is not None:  # a NULL sorts before every value
            one &= np.asarray(pc.fill_null(pc.less(column, pa.scalar(high, column.type)), low is None))
        inside |= one
    return pa.array(inside)


@dataclass(frozen=True)
class VersionsTask:
    """A file of a mirror in which versions of some rows are looked up.

    Args:
        path: of a file of `current` or `history`.
        ended: whether it is one of `history`.
        codes: what identifies the wanted rows.
        after: LSN; versions that ended up to it are left out.
    """

    compared: Compared
    path: str
    ended: bool
    codes: tuple[object, ...]
    after: str


def versions(task: VersionsTask) -> bytes:
    """Versions of rows as an Arrow IPC stream; those that are valid now have no end.

    Raises:
        LakeError: the lake cannot be read.
    """
    about = task.compared
    schema = about.shape.versions if task.ended else about.shape.rows
    rows = read_rows(about.location, about.history if task.ended else about.current, [task.path], schema)
    rows = rows.combine_chunks()
    codes = about.codes(rows)
    chosen = pc.is_in(codes, value_set=pa.array(task.codes, codes.type))
    if task.ended:
        chosen = pc.and_(chosen, pc.greater(rows[TO_LSN].combine_chunks(), task.after))
    ends = rows[TO_LSN] if task.ended else pa.nulls(rows.num_rows, pa.string())
    columns = [rows[name] for name in about.names] + [rows[FROM_LSN if task.ended else LSN], ends, codes]
    found = pa.Table.from_arrays(columns, names=[*about.names, FROM_LSN, TO_LSN, CODE])
    return pack(found.filter(chosen))
