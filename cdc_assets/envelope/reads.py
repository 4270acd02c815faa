"""Converts rows of a table to READ events (spec debezium-sqlserver §2.5).

A READ sorts after every change of the commit at its snapshot LSN and before the next commit, because its row contains
them all: its position has the commit LSN, the greatest command id, and in place of the change LSN the numbers of
window, slice and row, which make it unique.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pyarrow as pa

from cdc_assets.core.lsn import Lsn
from cdc_assets.core.repeated import repeated_number
from cdc_assets.envelope.amend import mark
from cdc_assets.envelope.constants import LAST_COMMAND, constant
from cdc_assets.envelope.events import Clock, Parts, event_batch, now_ns
from cdc_assets.envelope.number_texts import number_texts
from cdc_assets.envelope.plan import EventPlan
from cdc_assets.envelope.rows import event_values, images, keys, portions
from cdc_assets.errors import InvalidValueError

__all__ = ["ReadContext", "build_reads", "first_read", "mark"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SLICES = 1 << 16


@dataclass(frozen=True)
class ReadContext:
    """Facts that the rows do not contain.

    Args:
        window_id: number of the snapshot or window that writes them.
        commit_lsn: LSN by which READ events sort: low watermark of a snapshot, position of a chunk.
        server_time: time of the server, with time zone, when the table (or chunk) was started.
        slice_number: number unique among the slices of the window, below 65,536.
        snapshot: marker of all rows: `true` or `incremental`; `mark` changes single rows.
        processed: processing time in nanoseconds, read once per batch.

    Raises:
        InvalidValueError: the slice number is out of range.
    """

    window_id: int
    commit_lsn: Lsn
    server_time: datetime
    slice_number: int = 0
    snapshot: str = "true"
    processed: Clock = field(default=now_ns)

    def __post_init__(self) -> None:
        if not 0 <= self.slice_number < _SLICES:
            raise InvalidValueError(
                "slice number", self.slice_number, f"0 to {_SLICES - 1}", "cut the table into fewer slices"
            )


def build_reads(plan: EventPlan, batches: Iterator[pa.RecordBatch], context: ReadContext) -> Iterator[pa.RecordBatch]:
    """READ events of table rows, in their order.

    Args:
        plan: event plan of the rows' structure.
        batches: batches with the columns of `plan.select_list`; further columns are ignored.
        context: facts that the rows do not contain.

    Raises:
        InvalidValueError: a value does not fit its event type.
    """
    first = 0
    for batch in portions(batches):
        if batch.num_rows:
            yield _build(plan, batch, context, first)
            first += batch.num_rows


def _build(plan: EventPlan, batch: pa.RecordBatch, context: ReadContext, first: int) -> pa.RecordBatch:
    rows = batch.num_rows
    arrived = batch.columns[: len(plan.columns)]
    values = event_values(plan, arrived)
    micros = (context.server_time - _EPOCH) // _MICROSECOND
    parts = Parts(
        position=_positions(context, first, rows),
        key=keys(plan, values),
        before=None,
        after=images(plan, arrived, values),
        operation=constant("r", rows),
        times=repeated_number(micros, rows),
        snapshot=constant(context.snapshot, rows),
        commit_lsn=constant(str(context.commit_lsn), rows),
    )
    return event_batch(plan, parts, context.window_id, context.processed())


_MICROSECOND = datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC) - _EPOCH


def first_read(commit_lsn: str, after: int | None) -> str:
    """A position before all READs of an LSN that windows after a number have written, and behind everything else of it; without a number
    before those of any window."""
    return _head(commit_lsn, 0 if after is None else after + 1)


def _head(commit_lsn: object, window: int) -> str:
    return f"{commit_lsn}/{LAST_COMMAND:08x}/{window & 0xFFFFFFFF:08x}"


def _positions(context: ReadContext, first: int, rows: int) -> pa.Array:
    head = f"{_head(context.commit_lsn, context.window_id)}:{context.slice_number:04x}"
    return number_texts(head, first, rows, "/0")
