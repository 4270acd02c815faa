"""Converts received rows to event values, column by column.

Values that the log does not contain (spec debezium-sqlserver §3.9): SQL Server logs a large value only when it was
changed, so a null there may mean "not logged". The update mask, whose last byte is for the lowest columns, decides
whether it becomes `unavailable.value.placeholder`:

| column | delete | insert | update, before | update, after |
|---|---|---|---|---|
| `(max)`, xml | – | – | null and bit 0 | null and bit 0 |
| text, ntext, image | null | – | null | null and bit 0 |

This deliberately differs from Debezium 3.6.3. The connector (measured) does so for xml only. It takes the bits from the mask's
first byte (wrong from the ninth column on), and leaves the old value of text, ntext and image null: a null in our
events is a NULL in the table. The only exception are computed columns, whose types have no placeholder: they are null
in changes, and optional in the schema.

The placeholder is not masked or hashed, because a consumer must be able to recognise it; it reveals nothing of the
value.
"""

import logging
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.core.schema import NEVER_IN_BEFORE_IMAGE
from cdc_assets.core.task_counters import NULLED, UNAVAILABLE, count
from cdc_assets.envelope.columns import EventColumn
from cdc_assets.envelope.layout import AFTER, BEFORE
from cdc_assets.envelope.plan import EventPlan
from cdc_assets.envelope.rules import MASKED
from cdc_assets.errors import InvalidValueError, InvariantError
from cdc_assets.kernels import Numbers, as_type, numbers, numbers_of_offsets
from cdc_assets.typemap.exact import exact_setting
from cdc_assets.typemap.moments import OutOfRangeError

log = logging.getLogger(__name__)

PORTION_BYTES = 16 * 1024 * 1024
"""Bytes of rows that are built at once: an event holds each value up to twice, and building takes them several times over.
Values of the lake's types end at 2 GB per column and batch, too."""


def portions(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches of bounded size; large values make a batch of many rows too large for one step."""
    for batch in batches:
        if batch.nbytes <= PORTION_BYTES:
            yield batch
            continue
        rows = max(1, batch.num_rows * PORTION_BYTES // batch.nbytes)
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


def event_values(plan: EventPlan, arrived: Sequence[pa.Array]) -> list[pa.Array]:
    """Converted values of each of the plan's columns, without masks and placeholders, as keys hold them.

    Args:
        plan: event plan of the rows' structure.
        arrived: columns in the plan's order, as the bulk reader returned them.

    Raises:
        InvalidValueError: a value does not fit its event type, and is one of a key, or
            `event.converting.failure.handling.mode` is `fail`.
        InvariantError: a column was received in a form that its type does not have.
    """
    return [_converted(plan, column, array) for column, array in zip(plan.columns, arrived, strict=True)]


def _converted(plan: EventPlan, column: EventColumn, array: pa.Array) -> pa.Array:
    try:
        return column.mapped.convert(column.mapped.wire.read(array))
    except OutOfRangeError as error:
        if column.name in plan.key:  # with a null in its place, different rows would have one key
            raise InvalidValueError(
                f"value of key column {plan.table}.{column.name}",
                error.example if column.in_value else MASKED,
                "a time between 1677-09-21 and 2262-04-11, which nanoseconds in 64 bits hold",
                f"set {exact_setting(column.mapped.column)}: a key is never written as null",
            ) from error
        if plan.settings.conversion_failure == "fail":
            raise InvalidValueError(
                f"value of {plan.table}.{column.name}",
                error.example,
                "a time between 1677-09-21 and 2262-04-11, which nanoseconds in 64 bits hold",
                "set time.precision.mode to isostring or microseconds, or event.converting.failure.handling.mode=warn",
            ) from error
        if plan.settings.conversion_failure == "warn":
            log.warning("%s.%s: %s; null was written.", plan.table, column.name, error)
        count(NULLED, error.converted.null_count - array.null_count)
        return error.converted
    except (ValueError, pa.ArrowException) as error:
        raise InvariantError(
            f"Values of {plan.table}.{column.name} were received as {array.type}, which cannot be read as "
            f"{column.mapped.column.type_name} ({error}). Next: compare the column with the structure that the "
            f"capture instance was made for; if they differ, create a second capture instance."
        ) from error


def images(
    plan: EventPlan,
    arrived: Sequence[pa.Array],
    values: Sequence[pa.Array],
    operations: Numbers | None = None,
    masks: pa.Array | None = None,
) -> pa.Array:
    """Row structs for `before` and `after`.

    Args:
        plan: event plan of the rows' structure.
        arrived: columns in the plan's order, with the server's nulls.
        values: result of `event_values`, null also where a value could not be converted.
        operations: operations of change rows; None for rows of a table, which are complete.
        masks: update masks of the change rows.
    """
    shaped = [
        _shaped(plan.columns[index], arrived[index], values[index], operations, masks) for index in plan.value_columns
    ]
    return pa.StructArray.from_arrays(shaped, fields=[plan.columns[index].field for index in plan.value_columns])


def keys(plan: EventPlan, values: Sequence[pa.Array]) -> pa.Array | None:
    """Key structs, or None for a table without key."""
    if not plan.key:
        return None
    indexes = plan.key_columns
    return pa.StructArray.from_arrays(
        [values[index] for index in indexes], fields=[plan.columns[index].key_field for index in indexes]
    )


def _shaped(
    column: EventColumn,
    arrived: pa.Array,
    value: pa.Array,
    operations: Numbers | None,
    masks: pa.Array | None,
) -> pa.Array:
    shaped = value if column.shape is None else column.shape(value)
    if arrived.null_count == 0:
        return shaped
    null: Numbers = arrived.is_null().to_numpy(zero_copy_only=False)
    if column.placeholder is not None and operations is not None and masks is not None:
        missing = null & _missing(column, operations, masks)
        shaped = _filled(shaped, missing, column.placeholder)
        count(UNAVAILABLE, int(missing.sum()))
        null = null & ~missing
    return shaped if column.required is None else _filled(shaped, null, column.required)


def _filled(array: pa.Array, rows: Numbers, value: pa.Array) -> pa.Array:
    return pc.if_else(pa.array(rows), value[0], array) if bool(rows.any()) else array


def _missing(column: EventColumn, operations: Numbers, masks: pa.Array) -> Numbers:
    """Mask of the rows in which a null means that the log does not contain the value."""
    update = (operations == 3) | (operations == 4)
    missing: Numbers = update & ~mask_bit(masks, column.bit)
    if column.mapped.column.type_name in NEVER_IN_BEFORE_IMAGE:
        missing |= (operations == 1) | (operations == 3)
    return missing


def omitted_values(
    columns: Sequence[EventColumn], operations: pa.Array, masks: pa.Array, *nulls: pa.Array
) -> tuple[pa.Array, pa.Array]:
    """Which change rows are an update's new image in which the log does not contain the value of a column, and which may have
    given their row another value of one: inserts, deletions and updates of such a column.

    Args:
        columns: columns with large values.
        operations: of the change rows.
        masks: their update masks.
        nulls: of each column 1 where it is null.
    """
    of, omitted = numbers(as_type(operations, pa.int32()), np.int32), np.zeros(len(operations), dtype=bool)
    updated = np.zeros(len(operations), dtype=bool)
    for column, null in zip(columns, nulls, strict=True):
        is_set = mask_bit(masks, column.bit)
        omitted |= (null.to_numpy(zero_copy_only=False) == 1) & ~is_set
        updated |= is_set
    is_update = of == AFTER
    return pa.array(omitted & is_update), pa.array(np.where(is_update, updated, of != BEFORE))


def mask_bit(masks: pa.Array, bit: int) -> Numbers:
    """Bit of a captured column in each update mask: byte `bit // 8` from the end."""
    masks = as_type(masks, pa.binary())
    offsets = numbers_of_offsets(masks).astype(np.int64)
    index = offsets[1:] - 1 - bit // 8
    inside = index >= offsets[:-1]
    data = np.frombuffer(masks.buffers()[2] or b"\0", dtype=np.uint8)
    found: Numbers = inside & ((data[np.where(inside, index, 0)] >> (bit % 8)) & 1).astype(bool)
    return found
