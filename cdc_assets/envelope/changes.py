"""Converts change rows to events (spec debezium-sqlserver §3.7 to §3.9).

Rows arrive in position order. A pair of operations 3 and 4 may straddle two batches: a lone 3 at the end is carried
over. A pair never straddles a slice, because slices end at commits, or after all rows of one command and change LSN. So
a 3 at the end of a slice, or a 4 without its 3, contradicts the log and stops the table.

`event_serial_no` counts the change rows that share a position (commit LSN, change LSN): 1 for an insert or delete, 2
for an update; it continues if the next row has the same position, as in an update of the primary key. Rows of skipped
operations do not count, unchanged updates do (measured). The count is kept across batches; where a slice begins inside
a transaction, its context gives the number of earlier rows that share the last position.

Except for the processing time, the result depends only on the input: a repetition after a crash builds the same events.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.core.identifiers import quote
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.task_counters import UNCHANGED, count
from cdc_assets.envelope.constants import constant, printed
from cdc_assets.envelope.events import Clock, Parts, event_batch, now_ns
from cdc_assets.envelope.headers import key_change_headers
from cdc_assets.envelope.layout import AFTER, BEFORE, Layout, check_pairs, lay_out
from cdc_assets.envelope.plan import EventPlan
from cdc_assets.envelope.rows import event_values, images, keys, portions
from cdc_assets.errors import InvariantError
from cdc_assets.kernels import Numbers, as_type, differ, fixed_bytes, numbers

START_LSN, COMMAND_ID, SEQVAL, OPERATION, UPDATE_MASK, COMMIT_TIME = range(6)
LEADING = 6
"""Metadata columns before the data columns."""


def change_columns(alias: str, commit_time: str, *, command_id: bool = True) -> tuple[tuple[str, str], ...]:
    """Names and T-SQL of the metadata columns that lead each batch of change rows.

    Args:
        alias: alias of the change table.
        commit_time: expression of the commit's datetime, such as `[ltm].[tran_end_time]`.
        command_id: whether the rows have `__$command_id`; the change function does not return it.
    """
    table = quote(alias)
    return (
        ("__$start_lsn", f"{table}.[__$start_lsn]"),
        ("__$command_id", f"{table}.[__$command_id]" if command_id else "CAST(0 AS int)"),
        ("__$seqval", f"{table}.[__$seqval]"),
        ("__$operation", f"{table}.[__$operation]"),
        ("__$update_mask", f"{table}.[__$update_mask]"),
        ("tran_end_time", commit_time),
    )


def change_select_list(plan: EventPlan, alias: str, commit_time: str, *, command_id: bool = True) -> str:
    """The whole select list of a change query: metadata columns, then data columns."""
    leading = change_columns(alias, commit_time, command_id=command_id)
    return ", ".join([*(f"{text} AS {quote(name)}" for name, text in leading), plan.select_list(alias)])


@dataclass(frozen=True)
class ChangeContext:
    """Facts that the rows do not contain.

    Args:
        window_id: number of the window that is read.
        utc_offset_minutes: the server's current offset; commit times are its local time.
        processed: processing time in nanoseconds, read once per batch.
        preceding: commit and change LSN of the row before the first one, and the number of rows up to it that share
            them; None if there is no earlier row of the same transaction.
    """

    window_id: int
    utc_offset_minutes: int = 0
    processed: Clock = field(default=now_ns)
    preceding: tuple[Lsn, Lsn, int] | None = None


def build_changes(
    plan: EventPlan, batches: Iterator[pa.RecordBatch], context: ChangeContext
) -> Iterator[pa.RecordBatch]:
    """Events of change rows, in their order.

    Args:
        plan: event plan of the rows' structure.
        batches: batches with the columns of `change_select_list`, ordered by commit LSN, command id, change LSN,
            operation.
        context: facts that the rows do not contain.

    Raises:
        InvariantError: an update's row 3 is not followed by its row 4, or a 4 has no 3.
        InvalidValueError: a value does not fit its event type.
    """
    carried: pa.RecordBatch | None = None
    serials = _Serials()
    if context.preceding is not None:
        commit, change, count = context.preceding
        serials = _Serials(commit.raw + change.raw, count)
    for batch in portions(batches):
        wanted = _without_skipped(batch, plan)
        rows = wanted if carried is None else pa.concat_batches([carried, wanted])
        carried = None
        if rows.num_rows and _operations(rows)[-1] == BEFORE:
            rows, carried = rows.slice(0, rows.num_rows - 1), rows.slice(rows.num_rows - 1)
        if rows.num_rows:
            built = _build(plan, rows, serials, context)
            if built is not None:
                yield built
    if carried is not None:
        raise _broken_pair(plan, carried, 0)


def _operations(rows: pa.RecordBatch) -> Numbers:
    return numbers(as_type(rows.column(OPERATION), pa.int32()), np.int32)


def _broken_pair(plan: EventPlan, rows: pa.RecordBatch, row: int) -> InvariantError:
    commit = Lsn(rows.column(START_LSN)[row].as_py())
    return InvariantError(
        f"Change row {commit}/{Lsn(rows.column(SEQVAL)[row].as_py())} of {plan.table} has operation "
        f"{rows.column(OPERATION)[row].as_py()} where the log must have an update's row 3 followed by its row 4. "
        f"Next: check the change table of that commit, and re-read the table by its snapshot asset."
    )


@dataclass
class _Serials:
    """Serial numbers that continue across batches."""

    position: bytes = b""
    serial: int = 0

    def of(self, commit: Numbers, change: Numbers) -> Numbers:
        """Serial number of each change row: the number of rows with its position so far, itself included."""
        starts = differ(commit) | differ(change)
        starts[0] = commit[0].tobytes() + change[0].tobytes() != self.position
        counted = np.arange(1, len(starts) + 1)
        base = np.maximum.accumulate(np.where(starts, counted - 1, -self.serial))
        serial = counted - base
        self.position, self.serial = commit[-1].tobytes() + change[-1].tobytes(), int(serial[-1])
        return serial


def _build(plan: EventPlan, rows: pa.RecordBatch, serials: _Serials, context: ChangeContext) -> pa.RecordBatch | None:
    operations = _operations(rows)
    wrong = check_pairs(operations)
    if wrong is not None:
        raise _broken_pair(plan, rows, wrong)
    commit, change = fixed_bytes(rows.column(START_LSN), 10), fixed_bytes(rows.column(SEQVAL), 10)
    serial = serials.of(commit, change)
    arrived = rows.columns[LEADING : LEADING + len(plan.columns)]
    values = event_values(plan, arrived)
    shown, key = images(plan, arrived, values, operations, rows.column(UPDATE_MASK)), keys(plan, values)
    last = _kept(plan, shown, operations)
    if not last.size:
        return None
    changed = _changed_keys(key, operations, last)
    layout = lay_out(operations, last, changed, tombstones=plan.settings.tombstones_on_delete)
    parts = _parts(plan, rows, layout, (commit, change, serial), (shown, key), context)
    return event_batch(plan, parts, context.window_id, context.processed())


def _without_skipped(batch: pa.RecordBatch, plan: EventPlan) -> pa.RecordBatch:
    """The rows whose operation is not skipped; the connector does not read the others, so they are not counted."""
    skipped = [code for letter in plan.settings.skipped_operations for code in _OPERATIONS.get(letter, ())]
    return batch.filter(pa.array(~np.isin(_operations(batch), skipped))) if skipped else batch


_OPERATIONS = {"c": (2,), "u": (BEFORE, AFTER), "d": (1,)}


def _kept(plan: EventPlan, shown: pa.Array, operations: Numbers) -> Numbers:
    """Last change rows of the events, without updates that change nothing if the settings skip those."""
    last = np.flatnonzero(operations != BEFORE)
    if not plan.settings.skip_unchanged:
        return last
    keep = np.ones(len(last), dtype=bool)
    updates = operations[last] == AFTER
    keep[updates] = _updates_differ(shown, last[updates])
    count(UNCHANGED, len(keep) - int(keep.sum()))
    return last[keep]


def _updates_differ(array: pa.Array, after: Numbers) -> Numbers:
    """Mask of the updates, given by their row 4, that differ from their row 3."""
    return unequal(array.take(pa.array(after - 1)), array.take(pa.array(after)))


def _changed_keys(key: pa.Array | None, operations: Numbers, last: Numbers) -> Numbers:
    """Mask of the events that are updates whose key differs between both rows."""
    updates = operations[last] == AFTER
    changed = np.zeros(len(last), dtype=bool)
    if key is not None and bool(updates.any()):
        changed[updates] = _updates_differ(key, last[updates])
    return changed


def unequal(before: pa.Array, after: pa.Array) -> Numbers:
    """Where two arrays differ; two nulls are equal."""
    if pa.types.is_struct(before.type):
        parts = [unequal(left, right) for left, right in zip(before.flatten(), after.flatten(), strict=True)]
        result: Numbers = np.logical_or.reduce(parts)
        return result
    if pa.types.is_floating(before.type):  # 0.0 and -0.0 are two values for the connector, and two texts
        bits = pa.int64() if pa.types.is_float64(before.type) else pa.int32()
        before, after = before.view(bits), after.view(bits)
    different = pc.not_equal(before, after).fill_null(False).to_numpy(zero_copy_only=False)
    one_null = before.is_null().to_numpy(zero_copy_only=False) != after.is_null().to_numpy(zero_copy_only=False)
    either: Numbers = different | one_null
    return either


def _parts(
    plan: EventPlan,
    rows: pa.RecordBatch,
    layout: Layout,
    positions: tuple[Numbers, Numbers, Numbers],
    structs: tuple[pa.Array, pa.Array | None],
    context: ChangeContext,
) -> Parts:
    commit, change, serial = positions
    shown, key = structs
    row = layout.row
    commands = numbers(pc.fill_null(as_type(rows.column(COMMAND_ID), pa.int64()), 0), np.int64)  # old rows have no key
    operations, places = _operations(rows), spaced(row)
    texts = printed(commit[places], commands[places], change[places], operations[places], layout.tombstone)
    return Parts(
        position=texts.position(),
        key=None if key is None else picked(key, row),
        before=picked(shown, layout.before),
        after=picked(shown, layout.after),
        operation=_letters(layout.letter),
        times=_utc(rows.column(COMMIT_TIME), context.utc_offset_minutes).take(pa.array(row)),
        snapshot=constant("false", len(row)),
        commit_lsn=texts.commit(),
        change_lsn=texts.change(),
        serial=pa.array(serial[layout.last]),
        tombstone=layout.tombstone if layout.tombstone.any() else None,
        headers=None if key is None else key_change_headers(plan, key, layout),
    )


def picked(array: pa.Array, rows: Numbers) -> pa.Array:
    """The rows with these numbers; null for -1."""
    if len(rows) == len(array) and bool(np.array_equal(rows, np.arange(len(array)))):
        return array
    none = rows < 0
    if bool(none.all()):
        return pa.nulls(len(rows), array.type)
    return array.take(pa.array(rows, mask=none if bool(none.any()) else None))


def spaced(rows: Numbers) -> Numbers | slice:
    """Row numbers at equal distances, as those of updates alone, as a slice, which copies nothing; others as they are."""
    steps = np.diff(rows)
    if not steps.size or steps[0] < 1 or bool((steps != steps[0]).any()):
        return rows
    return slice(int(rows[0]), int(rows[-1]) + 1, int(steps[0]))


def _letters(codes: Numbers) -> pa.Array:
    if codes.size and bool((codes == codes[0]).all()):
        return constant(chr(codes[0]), len(codes))
    offsets = np.arange(len(codes) + 1, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), len(codes), [None, pa.py_buffer(offsets), pa.py_buffer(codes)])


def _utc(times: pa.Array, offset_minutes: int) -> pa.Array:
    """Microseconds since 1970 UTC of server local times."""
    micros = as_type(times, pa.timestamp("us")).cast(pa.int64())
    return pc.subtract(micros, offset_minutes * 60_000_000)
