"""Kernels that convert dates and times from canonical forms to numbers and ISO text.

Canonical forms are those of `wire`: date32, nanoseconds of the day, ticks of 100 ns since 1970 and (UTC ticks, offset
minutes). Conversion to coarser units floors and never rounds (spec debezium-sqlserver §5.4): a value before 1970 with a
fraction becomes the earlier unit, as with Java's floorDiv.
"""

import numpy as np
import pyarrow as pa

from cdc_assets.kernels import Numbers, digits, literal, null_mask, numbers, texts, with_nulls
from cdc_assets.typemap.wire import TICKS_PER_DAY

_NANOS_PER_TICK = 100
_NANO_LIMIT = (2**63 - 1) // _NANOS_PER_TICK
"""Ticks that still fit 64 bits as nanoseconds: 1677-09-21 to 2262-04-11."""


class OutOfRangeError(ValueError):
    """Some values do not fit their event type; `valid` says which rows do.

    Args:
        converted: the array with these values replaced by null.
        count: number of values that do not fit.
        example: one of them.
    """

    def __init__(self, converted: pa.Array, count: int, example: str) -> None:
        super().__init__(f"{count} values outside 1677-09-21 to 2262-04-11, such as {example}")
        self.converted, self.count, self.example = converted, count, example


def floor_divide(array: pa.Array, divisor: int, *, target: pa.DataType) -> pa.Array:
    """Whole units, rounded down."""
    return with_nulls(numbers(array, np.int64) // divisor, null_mask(array), target)


def multiply(array: pa.Array, factor: int) -> pa.Array:
    """Smaller units that cannot overflow."""
    return with_nulls(numbers(array, np.int64) * factor, null_mask(array), pa.int64())


def nano_timestamp(array: pa.Array) -> pa.Array:
    """Nanoseconds since 1970.

    Raises:
        OutOfRangeError: a value is outside what 64 bits hold.
    """
    ticks, nulls = numbers(array, np.int64), null_mask(array)
    outside = (ticks > _NANO_LIMIT) | (ticks < -_NANO_LIMIT)
    if nulls is not None:
        outside &= ~nulls
    if not bool(outside.any()):
        return with_nulls(ticks * _NANOS_PER_TICK, nulls, pa.int64())
    hidden = outside if nulls is None else outside | nulls
    first = array.slice(int(np.argmax(outside)), 1)
    raise OutOfRangeError(
        with_nulls(ticks * _NANOS_PER_TICK, hidden, pa.int64()), int(outside.sum()), iso_timestamp(first)[0].as_py()
    )


def days(array: pa.Array) -> pa.Array:
    """Days since 1970 as int32."""
    return array.cast(pa.int32())


def connect_timestamp(array: pa.Array) -> pa.Array:
    """Connect's Timestamp: milliseconds, held as `timestamp[us]` without zone."""
    millis = numbers(array, np.int64) // 10_000
    return with_nulls(millis * 1000, null_mask(array), pa.int64()).cast(pa.timestamp("us"))


def split_days(ticks: Numbers) -> tuple[Numbers, Numbers]:
    """Days since 1970 and nanoseconds of the day."""
    whole, rest = np.divmod(ticks, TICKS_PER_DAY)
    return whole, rest * _NANOS_PER_TICK


def civil(whole_days: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Year, month and day of days since 1970, proleptic Gregorian."""
    dates = whole_days.astype("datetime64[D]")
    months = dates.astype("datetime64[M]")
    day = (dates - months).astype(np.int64) + 1
    count = months.astype(np.int64)
    return count // 12 + 1970, count % 12 + 1, day


def clock(nanos: Numbers) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Hour, minute, second and nanoseconds of nanoseconds of the day."""
    seconds, fraction = np.divmod(nanos, 1_000_000_000)
    return seconds // 3600, seconds // 60 % 60, seconds % 60, fraction


def _date_parts(whole_days: Numbers) -> list[Numbers]:
    year, month, day = civil(whole_days)
    dash = literal("-", len(year))
    return [digits(year, 4), dash, digits(month, 2), dash, digits(day, 2)]


def _clock_parts(nanos: Numbers) -> tuple[list[Numbers], Numbers]:
    """`hh:mm:ss.nnnnnnnnn` and the mask of its 18 characters without trailing zeros."""
    hour, minute, second, fraction = clock(nanos)
    colon, fractions = literal(":", len(nanos)), digits(fraction, 9)
    needed = np.logical_or.accumulate((fractions != ord("0"))[:, ::-1], axis=1)[:, ::-1]
    keep = np.ones((len(nanos), 18), dtype=bool)
    keep[:, 8], keep[:, 9:] = needed[:, 0], needed
    parts = [digits(hour, 2), colon, digits(minute, 2), colon, digits(second, 2), literal(".", len(nanos)), fractions]
    return parts, keep


def iso_date(array: pa.Array) -> pa.Array:
    """`2018-07-13Z`."""
    whole = numbers(array, np.int32).astype(np.int64)
    nulls = null_mask(array)
    whole = whole if nulls is None else np.where(nulls, 0, whole)
    return texts([*_date_parts(whole), literal("Z", len(array))], nulls)


def iso_time(array: pa.Array) -> pa.Array:
    """`10:23:45.68Z`."""
    nulls = null_mask(array)
    parts, keep = _clock_parts(zero_nulls(numbers(array, np.int64), nulls))
    return texts([*parts, literal("Z", len(array))], nulls, _framed(keep, 0, 1))


def iso_timestamp(array: pa.Array) -> pa.Array:
    """`2018-07-13T11:23:45.34Z`."""
    nulls = null_mask(array)
    whole, nanos = split_days(zero_nulls(numbers(array, np.int64), nulls))
    parts, keep = _clock_parts(nanos)
    rows = len(array)
    return texts([*_date_parts(whole), literal("T", rows), *parts, literal("Z", rows)], nulls, _framed(keep, 11, 1))


def zoned_timestamp(array: pa.Array) -> pa.Array:
    """`2018-07-13T12:23:45.456+11:00`: local time and its offset; a zero offset prints `Z`."""
    nulls = null_mask(array)
    ticks, minutes = local(array, nulls)
    whole, nanos = split_days(ticks)
    clock_parts, keep = _clock_parts(nanos)
    rows, size = len(array), np.abs(minutes)
    sign = np.where(minutes == 0, ord("Z"), np.where(minutes < 0, ord("-"), ord("+"))).astype(np.uint8)[:, None]
    zone = [sign, digits(size // 60, 2), literal(":", rows), digits(size % 60, 2)]
    shown = np.repeat((minutes != 0)[:, None], 5, axis=1)
    keep = np.hstack([_framed(keep, 11, 1), shown])
    return texts([*_date_parts(whole), literal("T", rows), *clock_parts, *zone], nulls, keep)


def local(array: pa.Array, nulls: Numbers | None) -> tuple[Numbers, Numbers]:
    """Local ticks and offset minutes of a datetimeoffset."""
    ticks = zero_nulls(numbers(array.field("ticks"), np.int64), nulls)
    minutes = zero_nulls(numbers(array.field("minutes"), np.int32).astype(np.int64), nulls)
    return ticks + minutes * 600_000_000, minutes


def zero_nulls(values: Numbers, nulls: Numbers | None) -> Numbers:
    """The values with zero in null slots, so that arithmetic on them stays in range."""
    return values if nulls is None else np.where(nulls, 0, values)


def _framed(keep: Numbers, before: int, after: int) -> Numbers:
    rows = len(keep)
    return np.hstack([np.ones((rows, before), dtype=bool), keep, np.ones((rows, after), dtype=bool)])
