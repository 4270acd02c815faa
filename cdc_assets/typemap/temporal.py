"""Dates and times: canonical forms to event values, by `time.precision.mode`.

Canonical forms are those of `wire`: date32, nanoseconds of the day, ticks of
100 ns since 1970 and (UTC ticks, offset minutes). Narrowing goes toward the
floor, never rounds (spec debezium-sqlserver §5.4): a value before 1970 with a
fraction becomes the earlier unit, as Java's floorDiv gives it.

| SQL type | adaptive | adaptive_time_microseconds | connect | microseconds | nanoseconds | isostring | structured |
|---|---|---|---|---|---|---|---|
| date | Date | Date | C Date | Date | Date | IsoDate | StructuredDate |
| time(0–3) | Time ms | MicroTime | C Time | MicroTime | NanoTime | IsoTime | StructuredTime |
| time(4–6) | MicroTime | MicroTime | C Time | MicroTime | NanoTime | IsoTime | StructuredTime |
| time(7) | NanoTime | MicroTime | C Time | MicroTime | NanoTime | IsoTime | StructuredTime |
| smalldatetime, datetime, datetime2(0–3) | Timestamp ms | same | C Timestamp | MicroTimestamp | NanoTimestamp | IsoTimestamp | StructuredTimestamp |
| datetime2(4–6) | MicroTimestamp | same | C Timestamp | MicroTimestamp | NanoTimestamp | IsoTimestamp | StructuredTimestamp |
| datetime2(7) | NanoTimestamp | same | C Timestamp | MicroTimestamp | NanoTimestamp | IsoTimestamp | StructuredTimestamp |
| datetimeoffset | ZonedTimestamp | = | = | = | = | = | StructuredZonedTimestamp |
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa

from cdc_assets.config.settings import TimeMode
from cdc_assets.typemap.connect import ConnectType, semantic, struct
from cdc_assets.typemap.kernels import Numbers, digits, literal, null_mask, numbers, texts, with_nulls
from cdc_assets.typemap.wire import TICKS_PER_DAY

Convert = Callable[[pa.Array], pa.Array]

DATETIMES = ("smalldatetime", "datetime", "datetime2")
TEMPORAL = ("date", "time", *DATETIMES, "datetimeoffset")

_NANOS_PER_TICK = 100
_NANO_LIMIT = (2**63 - 1) // _NANOS_PER_TICK
"""Ticks that still fit 64 bits as nanoseconds: 1677-09-21 to 2262-04-11."""


class OutOfRangeError(ValueError):
    """Some values do not fit their event type; `valid` says which rows do.

    Args:
        converted: the array with those values null.
        count: how many do not fit.
        example: one of them.
    """

    def __init__(self, converted: pa.Array, count: int, example: str) -> None:
        super().__init__(f"{count} values outside 1677-09-21 to 2262-04-11, such as {example}")
        self.converted, self.count, self.example = converted, count, example


def floor_divide(array: pa.Array, divisor: int, *, target: pa.DataType) -> pa.Array:
    """Whole units, toward the floor."""
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
    """`hh:mm:ss.nnnnnnnnn` and which of its 18 characters stay without trailing zeros."""
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
    parts, keep = _clock_parts(_calm(numbers(array, np.int64), nulls))
    return texts([*parts, literal("Z", len(array))], nulls, _framed(keep, 0, 1))


def iso_timestamp(array: pa.Array) -> pa.Array:
    """`2018-07-13T11:23:45.34Z`."""
    nulls = null_mask(array)
    whole, nanos = split_days(_calm(numbers(array, np.int64), nulls))
    parts, keep = _clock_parts(nanos)
    rows = len(array)
    return texts([*_date_parts(whole), literal("T", rows), *parts, literal("Z", rows)], nulls, _framed(keep, 11, 1))


def zoned_timestamp(array: pa.Array) -> pa.Array:
    """`2018-07-13T12:23:45.456+11:00`: local time and its offset; a zero offset prints `Z`."""
    nulls = null_mask(array)
    ticks, minutes = _local(array, nulls)
    whole, nanos = split_days(ticks)
    clock_parts, keep = _clock_parts(nanos)
    rows, size = len(array), np.abs(minutes)
    sign = np.where(minutes == 0, ord("Z"), np.where(minutes < 0, ord("-"), ord("+"))).astype(np.uint8)[:, None]
    zone = [sign, digits(size // 60, 2), literal(":", rows), digits(size % 60, 2)]
    shown = np.repeat((minutes != 0)[:, None], 5, axis=1)
    keep = np.hstack([_framed(keep, 11, 1), shown])
    return texts([*_date_parts(whole), literal("T", rows), *clock_parts, *zone], nulls, keep)


def _local(array: pa.Array, nulls: Numbers | None) -> tuple[Numbers, Numbers]:
    """Local ticks and offset minutes of a datetimeoffset."""
    ticks = _calm(numbers(array.field("ticks"), np.int64), nulls)
    minutes = _calm(numbers(array.field("minutes"), np.int32).astype(np.int64), nulls)
    return ticks + minutes * 600_000_000, minutes


def _calm(values: Numbers, nulls: Numbers | None) -> Numbers:
    """Zero where null, so that arithmetic on those slots stays in range."""
    return values if nulls is None else np.where(nulls, 0, values)


def _framed(keep: Numbers, before: int, after: int) -> Numbers:
    rows = len(keep)
    return np.hstack([np.ones((rows, before), dtype=bool), keep, np.ones((rows, after), dtype=bool)])


_DATE_FIELDS = (("year", "int32"), ("month", "int8"), ("day", "int8"))
_CLOCK_FIELDS = (("hour", "int8"), ("minute", "int8"), ("second", "int8"), ("nanos", "int32"))
_SPECIAL = (("specialValue", "string"),)
_PRECISION = (("precision", "int32"),)

_STRUCTURED = {
    "StructuredDate": (*_DATE_FIELDS, *_SPECIAL),
    "StructuredTime": (*_CLOCK_FIELDS, *_PRECISION),
    "StructuredTimestamp": (*_DATE_FIELDS, *_CLOCK_FIELDS, *_SPECIAL, *_PRECISION),
    "StructuredZonedTimestamp": (
        *_DATE_FIELDS,
        *_CLOCK_FIELDS,
        ("offsetSeconds", "int32"),
        ("zoneId", "string"),
        *_SPECIAL,
        *_PRECISION,
    ),
}


def structured_type(name: str) -> ConnectType:
    """Connect struct `io.debezium.time.<name>`."""
    fields = [ConnectType(kind).to_field(field) for field, kind in _STRUCTURED[name]]
    return struct(f"io.debezium.time.{name}", fields, version=1)


def structured(array: pa.Array, *, name: str, precision: int) -> pa.Array:
    """The canonical value taken apart; `specialValue` and `zoneId` never occur in SQL Server."""
    nulls, rows = null_mask(array), len(array)
    known = _PARTS[name](array, nulls) | {"precision": np.full(rows, precision)}
    fields = structured_type(name).fields
    children = [
        pa.array(known[field.name], type=field.type) if field.name in known else pa.nulls(rows, field.type)
        for field in fields
    ]
    mask = None if nulls is None else pa.array(nulls)
    return pa.StructArray.from_arrays(children, fields=list(fields), mask=mask)


Parts = dict[str, Numbers]


def _date_fields(array: pa.Array, nulls: Numbers | None) -> Parts:
    whole = _calm(numbers(array, np.int32).astype(np.int64), nulls)
    return dict(zip(("year", "month", "day"), civil(whole), strict=True))


def _time_fields(array: pa.Array, nulls: Numbers | None) -> Parts:
    nanos = _calm(numbers(array, np.int64), nulls)
    return dict(zip(("hour", "minute", "second", "nanos"), clock(nanos), strict=True))


def _timestamp_fields(array: pa.Array, nulls: Numbers | None) -> Parts:
    return _moment_fields(_calm(numbers(array, np.int64), nulls))


def _zoned_fields(array: pa.Array, nulls: Numbers | None) -> Parts:
    ticks, minutes = _local(array, nulls)
    return _moment_fields(ticks) | {"offsetSeconds": minutes * 60}


def _moment_fields(ticks: Numbers) -> Parts:
    whole, nanos = split_days(ticks)
    names = ("year", "month", "day", "hour", "minute", "second", "nanos")
    return dict(zip(names, (*civil(whole), *clock(nanos)), strict=True))


_PARTS: dict[str, Callable[[pa.Array, Numbers | None], Parts]] = {
    "StructuredDate": _date_fields,
    "StructuredTime": _time_fields,
    "StructuredTimestamp": _timestamp_fields,
    "StructuredZonedTimestamp": _zoned_fields,
}


_DEBEZIUM = "io.debezium.time."
_CONNECT = "org.apache.kafka.connect.data."

DATE = (semantic("int32", _DEBEZIUM + "Date"), days)
TIME: dict[int, tuple[ConnectType, Convert]] = {
    3: (semantic("int32", _DEBEZIUM + "Time"), partial(floor_divide, divisor=1_000_000, target=pa.int32())),
    6: (semantic("int64", _DEBEZIUM + "MicroTime"), partial(floor_divide, divisor=1000, target=pa.int64())),
    7: (semantic("int64", _DEBEZIUM + "NanoTime"), partial(multiply, factor=1)),
}
TIMESTAMP: dict[int, tuple[ConnectType, Convert]] = {
    3: (semantic("int64", _DEBEZIUM + "Timestamp"), partial(floor_divide, divisor=10_000, target=pa.int64())),
    6: (semantic("int64", _DEBEZIUM + "MicroTimestamp"), partial(floor_divide, divisor=10, target=pa.int64())),
    7: (semantic("int64", _DEBEZIUM + "NanoTimestamp"), nano_timestamp),
}
ZONED = (semantic("string", _DEBEZIUM + "ZonedTimestamp"), zoned_timestamp)

_CONNECT_FORMS: dict[str, tuple[ConnectType, Convert]] = {
    "date": (
        ConnectType("int32", _CONNECT + "Date", 1, arrow=pa.date32()),
        partial(pa.Array.cast, target_type=pa.date32()),
    ),
    "time": (ConnectType("int32", _CONNECT + "Time", 1), TIME[3][1]),
    "timestamp": (ConnectType("int64", _CONNECT + "Timestamp", 1, arrow=pa.timestamp("us")), connect_timestamp),
}
_ISO_FORMS: dict[str, tuple[ConnectType, Convert]] = {
    "date": (semantic("string", _DEBEZIUM + "IsoDate"), iso_date),
    "time": (semantic("string", _DEBEZIUM + "IsoTime"), iso_time),
    "timestamp": (semantic("string", _DEBEZIUM + "IsoTimestamp"), iso_timestamp),
}
_FIXED_STEP = {"microseconds": 6, "nanoseconds": 7}


def temporal_form(type_name: str, fraction: int, mode: TimeMode) -> tuple[ConnectType, Convert]:
    """Event type of a date or time column and the kernel that fills it.

    Args:
        type_name: one of `TEMPORAL`.
        fraction: digits of fractional seconds the column stores.
        mode: `time.precision.mode`.
    """
    kind = "timestamp" if type_name in DATETIMES else type_name
    if mode == "structured":
        return _structured_form(kind, fraction)
    if kind == "datetimeoffset":
        return ZONED
    if mode == "connect":
        return _CONNECT_FORMS[kind]
    if mode == "isostring":
        return _ISO_FORMS[kind]
    if kind == "date":
        return DATE
    step = _FIXED_STEP.get(mode, 3 if fraction <= 3 else 6 if fraction <= 6 else 7)
    if kind == "time":
        return TIME[6 if mode == "adaptive_time_microseconds" else step]
    return TIMESTAMP[step]


def _structured_form(kind: str, fraction: int) -> tuple[ConnectType, Convert]:
    name = {
        "date": "StructuredDate",
        "time": "StructuredTime",
        "timestamp": "StructuredTimestamp",
        "datetimeoffset": "StructuredZonedTimestamp",
    }[kind]
    return structured_type(name), partial(structured, name=name, precision=fraction)
