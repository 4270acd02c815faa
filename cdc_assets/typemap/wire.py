"""The form in which the server sends a column, and its exact conversion.

The bulk reader gives Arrow straight from the driver's structures. It is exact for everything but two types:
`datetime2(7)`, cut to microseconds, and `datetimeoffset`, which loses its offset. For those the query requests the
server's own binary form, which numpy decodes. One rule per type:

| SQL Server | asked for as | arrives as | canonical form |
|---|---|---|---|
| bit | column | bool | bool |
| tinyint, smallint, int, bigint | column | uint8, int16, int32, int64 | int16, int16, int32, int64 |
| real, float | column | float, double | same |
| decimal, numeric, money, smallmoney | column | decimal128 | decimal128(p, s) |
| date | column | date32 | date32 |
| time | column | time64[ns] | int64, nanoseconds of the day |
| smalldatetime, datetime, datetime2(0–6) | column | timestamp[us] | int64, ticks of 100 ns since 1970 |
| datetime2(7) | `CAST(c AS binary(9))` | 07, 5 bytes ticks of the day, 3 bytes day | as above |
| datetimeoffset | `CAST(CAST(c AS datetimeoffset(7)) AS binary(11))` | 07, 5 bytes, 3 bytes (UTC), 2 bytes minutes | struct of ticks (UTC) and minutes |
| char, varchar, nchar, nvarchar, text, ntext, xml | column | string | string |
| uniqueidentifier | column | string, upper case | string |
| binary, varbinary, image, rowversion | column | binary | binary |
| hierarchyid | `CAST(c AS varbinary(892))` | binary | binary |

`datetime` counts 1/300 s; the driver rounds to .000, .003, .007 as the server's
own text does, so microseconds are exact. Half a surrogate pair, which nvarchar may
hold and UTF-8 may not, arrives as U+FFFD (measured). In the binary forms all integers are
little-endian, days count from 0001-01-01.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from cdc_assets.core.identifiers import quote
from cdc_assets.core.schema import Column
from cdc_assets.kernels import Numbers, as_type, fixed_bytes, null_mask, numbers, with_nulls

TICKS_PER_DAY = 864_000_000_000
_EPOCH_DAY = 719_162
"""Days from 0001-01-01 to 1970-01-01."""

OFFSET_STRUCT = pa.struct([pa.field("ticks", pa.int64()), pa.field("minutes", pa.int32())])
"""Canonical form of a datetimeoffset: UTC ticks and the offset's minutes."""


@dataclass(frozen=True)
class Wire:
    """Query expression and reader of a column.

    Args:
        template: T-SQL with `{}` for the quoted column.
        read: function from the received form to the canonical form.
    """

    template: str
    read: Callable[[pa.Array], pa.Array]

    def expression(self, column: str, alias: str) -> str:
        """The T-SQL expression of a column of the table with that alias; an empty alias means none."""
        name = f"{quote(alias)}.{quote(column)}" if alias else quote(column)
        return self.template.format(name)


def read_time(array: pa.Array) -> pa.Array:
    """Nanoseconds of the day."""
    return as_type(array, pa.time64("ns")).cast(pa.int64())


def read_microseconds(array: pa.Array) -> pa.Array:
    """Ticks from a timestamp in microseconds."""
    micros = numbers(as_type(array, pa.timestamp("us")), np.int64)
    return with_nulls(micros * 10, null_mask(array), pa.int64())


def read_datetime2(array: pa.Array) -> pa.Array:
    """Ticks from the binary form of datetime2(7)."""
    nulls = null_mask(array)
    if nulls is None:
        return pa.array(_ticks(fixed_bytes(array, 9)))
    ticks = np.zeros(len(array), np.int64)
    ticks[~nulls] = _ticks(fixed_bytes(array.drop_null(), 9))
    return with_nulls(ticks, nulls, pa.int64())


def read_datetimeoffset(array: pa.Array) -> pa.Array:
    """Ticks in UTC and offset from the binary form of datetimeoffset(7)."""
    raw = fixed_bytes(array, 11)
    nulls = null_mask(array)
    minutes = np.ascontiguousarray(raw[:, 9:11]).view("<i2").reshape(-1).astype(np.int32)
    children = [pa.array(_ticks(raw)), pa.array(minutes)]
    mask = None if nulls is None else pa.array(nulls)
    return pa.StructArray.from_arrays(children, fields=list(OFFSET_STRUCT), mask=mask)


def _ticks(raw: Numbers) -> Numbers:
    """Ticks since 1970 from rows without gaps between them."""
    rows, width = raw.shape
    if not rows:
        return np.zeros(0, np.int64)
    words: Numbers = np.ndarray((rows,), "<i8", raw.data, 1, (width,))  # 40 bits of ticks of the day, 24 of the day
    return ((words >> 40) - _EPOCH_DAY) * TICKS_PER_DAY + (words & 0xFF_FFFF_FFFF)


def _typed(target: pa.DataType) -> Wire:
    return Wire("{}", partial(as_type, target=target))


_BY_NAME = {
    "bit": _typed(pa.bool_()),
    "tinyint": _typed(pa.int16()),
    "smallint": _typed(pa.int16()),
    "int": _typed(pa.int32()),
    "bigint": _typed(pa.int64()),
    "real": _typed(pa.float32()),
    "float": _typed(pa.float64()),
    "money": _typed(pa.decimal128(19, 4)),
    "smallmoney": _typed(pa.decimal128(10, 4)),
    "date": _typed(pa.date32()),
    "time": Wire("{}", read_time),
    "smalldatetime": Wire("{}", read_microseconds),
    "datetime": Wire("{}", read_microseconds),
    "datetimeoffset": Wire("CAST(CAST({} AS datetimeoffset(7)) AS binary(11))", read_datetimeoffset),
    "hierarchyid": Wire("CAST({} AS varbinary(892))", partial(as_type, target=pa.binary())),
    **dict.fromkeys(
        ("char", "varchar", "nchar", "nvarchar", "text", "ntext", "xml", "uniqueidentifier", "sysname"),
        _typed(pa.string()),
    ),
    **dict.fromkeys(("binary", "varbinary", "image", "rowversion", "timestamp"), _typed(pa.binary())),
}


def wire_of(column: Column) -> Wire | None:
    """The wire form of a column, or None if its type cannot be captured."""
    if column.type_name in ("decimal", "numeric"):
        precision = 18 if column.precision is None else column.precision
        return _typed(pa.decimal128(precision, column.scale or 0))
    if column.type_name == "datetime2":
        fraction = 7 if column.scale is None else column.scale
        return Wire("CAST({} AS binary(9))", read_datetime2) if fraction == 7 else Wire("{}", read_microseconds)
    if column.type_name == "float" and column.precision is not None and column.precision <= 24:
        return _BY_NAME["real"]
    return _BY_NAME.get(column.type_name)
