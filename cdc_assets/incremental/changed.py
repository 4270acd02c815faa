"""Finds rows that changed during a round of an incremental snapshot, from their images in the change table.

The images are staged for the tasks that drop these rows. Operations that the settings skip are not queried: they have
no event that a READ could overtake. With `skip.messages.without.change` the same is true of updates whose event shows
no difference, so these are left out too; otherwise the row would have neither a READ nor an event. If the table has large
columns, the images are staged in order, with the other columns: a newest one that omits large values is the row, together with
these (`staging`). The clean-up job
may remove rows during the read without an error, so the low-water mark is checked afterwards. That is asked over another
connection, perhaps of a replica on which the clean-up has not come yet; so the rows are counted there too, over the same
connection, and as many must have arrived.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.core.lsn import Lsn
from cdc_assets.envelope.changes import unequal
from cdc_assets.envelope.layout import AFTER, BEFORE
from cdc_assets.envelope.rows import event_values, images, omitted_values
from cdc_assets.errors import IncompleteReadError, QueryError
from cdc_assets.incremental.chunked_table import ChunkedTable
from cdc_assets.incremental.chunks import changed_query
from cdc_assets.incremental.staging import HOLDS, OMITS, VALUE, Staged, Staging
from cdc_assets.shared.server import Server
from cdc_assets.shared.statements import skipped_numbers


class StaleError(Exception):
    """The changed rows can no longer be found; holds the reason."""


def changed_rows(server: Server, chunked: ChunkedTable, staging: Staging, after: Lsn, until: Lsn) -> tuple[Staged, ...]:
    """Stage the identity columns of all images with commit LSN in (after, until]; no file if there are none.

    If the table has large columns, they are in order, each with whether it is an update that omits a large value, and may have
    given the row another one; and those that omit one with the columns that are not large.

    Raises:
        StaleError: the change table is gone, rows of it were removed, or not all of them have arrived.
        CdcError: the server or the lake failed; IncompleteReadError if it is not known how many there are.
    """
    database, name = chunked.plan.table.database, chunked.instance.name
    skipped = skipped_numbers(chunked.plan.settings.skipped_operations)
    visible_only = chunked.plan.settings.skip_unchanged
    chosen = [chunked.plan.columns[index] for index in _chosen(chunked)]
    omittable = chunked.omittable
    in_order = visible_only or bool(omittable)
    statement = changed_query(chunked.plan, name, chosen, omittable, after, until, in_order=in_order)
    try:
        arrived = _Counted(server.reaching(database, until).read(*statement))
        whole = _whole_pairs(arrived) if in_order else arrived
        staged = tuple(staging.write(_staged(chunked, batch) for batch in whole))
    except QueryError as error:
        if server.source.low_water_marks(database).get(name) is None:
            raise StaleError(f"capture instance {name} is gone") from error
        raise
    server.source.active_instances(database, {name: after}, until)  # from here up to the low-water marks
    counts = server.source.rows_per_commit(database, {name: after}, until, skipped)
    mark = server.source.low_water_marks(database).get(name)
    if mark is None or mark > after.next():
        raise StaleError(f"the clean-up job has removed changes after {after}")
    if name not in counts:
        raise IncompleteReadError(
            f"The change rows of {name} cannot be counted, since somebody locks its change table or has dropped it. They are read again"
        )
    if arrived.rows != (wanted := sum(rows for _, rows in counts[name])):
        raise StaleError(f"{arrived.rows} of {wanted} change rows arrived: a replica differs from another one")
    return staged


class _Counted:
    """Batches, and the number of their rows as far as they were iterated."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches, self.rows = batches, 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.rows += batch.num_rows
            yield batch


def _whole_pairs(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches in which no pair of images is split."""
    held: pa.RecordBatch | None = None
    for batch in batches:
        whole = batch if held is None else _joined(held, batch)
        end = whole.num_rows
        cut = end - 1 if end and whole.column(0)[end - 1].as_py() == BEFORE else end
        held = whole.slice(cut) if cut < end else None
        yield whole.slice(0, cut)


def _joined(first: pa.RecordBatch, second: pa.RecordBatch) -> pa.RecordBatch:
    return pa.Table.from_batches([first, second]).combine_chunks().to_batches()[0]


def _chosen(chunked: ChunkedTable) -> Sequence[int]:
    """Indexes of the columns that are queried."""
    columns = chunked.plan.columns
    if chunked.plan.settings.skip_unchanged:
        return range(len(columns))
    return (
        [index for index, column in enumerate(columns) if not column.mapped.large]
        if chunked.omittable
        else chunked.identity
    )


def _staged(chunked: ChunkedTable, batch: pa.RecordBatch) -> pa.RecordBatch:
    """What is staged of the images that count."""
    chosen = _chosen(chunked)
    arrived, others = dict(zip(chosen, batch.columns[1:], strict=False)), batch.columns[1 + len(chosen) :]
    columns = {f"k{index}": arrived[index] for index in chunked.identity}
    if chunked.omittable:
        columns[OMITS], holds = omitted_values(chunked.omittable, batch.column(0), *others)
        if not chunked.own or {"c", "d"} & set(chunked.plan.settings.skipped_operations):
            holds = pa.array(
                [True] * batch.num_rows, pa.bool_()
            )  # between images, the identity may have been another row's
        columns[HOLDS] = pc.or_(holds, moved(batch.column(0), [arrived[index] for index in chunked.identity]))
        for index, values in arrived.items():
            if not chunked.plan.columns[index].mapped.large:
                columns[VALUE.format(index)] = pc.if_else(columns[OMITS], values, pa.scalar(None, values.type))
    found = pa.RecordBatch.from_pydict(columns)
    visible_only = chunked.plan.settings.skip_unchanged
    return (
        found.filter(_has_event(chunked, batch.column(0), list(arrived.values()), others[0])) if visible_only else found
    )


def moved(operations: pa.Array, identity: Sequence[pa.Array]) -> pa.Array:
    """Which images are of an update that gave its row another identity."""
    after = np.flatnonzero(operations.to_numpy(zero_copy_only=False) == AFTER)
    moved = np.zeros(len(operations), dtype=bool)
    for column in identity:
        differs = unequal(column.take(pa.array(after - 1)), column.take(pa.array(after)))
        moved[after] |= differs
        moved[after - 1] |= differs
    return pa.array(moved)


def _has_event(chunked: ChunkedTable, of: pa.Array, arrived: Sequence[pa.Array], masks: pa.Array) -> pa.Array:
    """Which images, of these operations, are of changes that have an event."""
    operations = of.to_numpy(zero_copy_only=False)
    after = np.flatnonzero(operations == AFTER)
    keep = np.ones(len(operations), dtype=bool)
    if len(after):
        shown = images(chunked.plan, arrived, event_values(chunked.plan, arrived), operations, masks)
        differ = unequal(shown.take(pa.array(after - 1)), shown.take(pa.array(after)))
        keep[after], keep[after - 1] = differ, differ
    return pa.array(keep)
