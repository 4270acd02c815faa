"""Rows as they arrive to event values, column by column."""

import logging
from collections.abc import Sequence

import pyarrow as pa

from cdc_assets.envelope.plan import EventColumn, EventPlan
from cdc_assets.errors import InvalidValueError
from cdc_assets.typemap.temporal import OutOfRangeError

log = logging.getLogger(__name__)


def event_values(plan: EventPlan, arrived: Sequence[pa.Array]) -> list[pa.Array]:
    """Event values of each of the plan's columns.

    Args:
        plan: of the rows' structure.
        arrived: columns in the plan's order, as the bulk reader gave them.

    Raises:
        InvalidValueError: a value does not fit its event type and `event.converting.failure.handling.mode` is `fail`.
    """
    return [_converted(plan, column, array) for column, array in zip(plan.columns, arrived, strict=True)]


def _converted(plan: EventPlan, column: EventColumn, array: pa.Array) -> pa.Array:
    canonical = column.mapped.wire.read(array)
    try:
        return column.mapped.convert(canonical)
    except OutOfRangeError as error:
        if plan.settings.conversion_failure == "fail":
            raise InvalidValueError(
                f"value of {plan.table}.{column.name}",
                error.example,
                "a time between 1677-09-21 and 2262-04-11, which nanoseconds in 64 bits hold",
                "set time.precision.mode=microseconds, or event.converting.failure.handling.mode=warn",
            ) from error
        if plan.settings.conversion_failure == "warn":
            log.warning("%s.%s: %s; null was written.", plan.table, column.name, error)
        return error.converted


def struct_of(plan: EventPlan, values: Sequence[pa.Array], places: Sequence[int]) -> pa.Array:
    """A struct of some of the columns' values."""
    return pa.StructArray.from_arrays(
        [values[place] for place in places], fields=[plan.columns[place].field for place in places]
    )
