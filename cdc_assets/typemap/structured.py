"""Dates and times as structs: `time.precision.mode=structured`, which exists after Debezium 3.6."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from cdc_assets.kernels import Numbers, null_mask, numbers
from cdc_assets.typemap.connect import ConnectType, struct
from cdc_assets.typemap.moments import civil, clock, local, split_days, zero_nulls

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
    """The canonical value as a struct; `specialValue` and `zoneId` never occur in SQL Server."""
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
    whole = zero_nulls(numbers(array, np.int32).astype(np.int64), nulls)
    return dict(zip(("year", "month", "day"), civil(whole), strict=True))


def _time_fields(array: pa.Array, nulls: Numbers | None) -> Parts:
    nanos = zero_nulls(numbers(array, np.int64), nulls)
    return dict(zip(("hour", "minute", "second", "nanos"), clock(nanos), strict=True))


def _timestamp_fields(array: pa.Array, nulls: Numbers | None) -> Parts:
    return _moment_fields(zero_nulls(numbers(array, np.int64), nulls))


def _zoned_fields(array: pa.Array, nulls: Numbers | None) -> Parts:
    ticks, minutes = local(array, nulls)
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
