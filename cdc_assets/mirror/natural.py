"""Natural types: what a column of SQL Server is to people, and how an event's value becomes it.

| SQL Server | in a mirror | what cannot be held |
|---|---|---|
| bit, tinyint and smallint, int, bigint | boolean, int16, int32, int64 | |
| real, float | float, double | |
| decimal, numeric, money, smallmoney | decimal(p, s) | |
| date | date | |
| datetime, smalldatetime, datetime2 | timestamp without zone, microseconds | the last digit of datetime2(7) |
| datetimeoffset | timestamp of UTC, microseconds | the offset; the last digit of datetimeoffset(7) |
| time | text `hh:mm:ss.fffffff` with the column's digits, for Delta has no such type | |
| binary, varbinary, image, rowversion, hierarchyid | binary | |
| char, nvarchar, text, xml, uniqueidentifier, … | text | |

An event's value has another form (`typemap`), which depends on the handling modes at the time it was written. The form
is in the metadata of the field in the topic table, and is fixed for a generation. So a converter is made from the field
of one generation and the column: a topic whose modes changed is read by several converters, with one result.
A form that keeps less than the column holds (`time.precision.mode=connect`, `decimal.handling.mode=double`) gives what
it has kept. A masked or truncated text is no number any more, so such a column stays text.

Every conversion is of whole arrays.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.core.schema import Column
from cdc_assets.kernels import Numbers, digits, literal, null_mask, numbers, texts, with_nulls
from cdc_assets.lake.evolution import meaning
from cdc_assets.typemap.bytesforms import from_base64, from_hexadecimal
from cdc_assets.typemap.decimals import DECIMALS, precision_and_scale
from cdc_assets.typemap.mapping import BINARIES, fraction_digits
from cdc_assets.typemap.temporal import DATETIMES

Convert = Callable[[pa.Array], pa.Array]

_MICROS = pa.timestamp("us")
_UTC = pa.timestamp("us", "UTC")
_SIMPLE = {
    "bit": pa.bool_(),
    "tinyint": pa.int16(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "real": pa.float32(),
    "date": pa.date32(),
    "datetimeoffset": _UTC,
}
_DAY_NS = 86_400_000_000_000
_MICRO_DIGITS = 6
_SEVENTH = r"\.\d{6}(?P<digit>\d)"
_FINER_THAN_MICROS = r"(\.\d{6})\d+"


@dataclass(frozen=True, slots=True)
class Natural:
    """The natural type of a column.

    Args:
        type: Arrow type of the values.
        note: what the type cannot hold, for people; empty if it holds everything.
        digits: digits of fractional seconds that a time of the day shows.
    """

    type: pa.DataType
    note: str = ""
    digits: int = 7


EXACT = Natural(pa.int64(), "moment of the key, in units of 100 ns since 1970")
"""Type of a moment whose last digit a timestamp lacks, where rows are distinguished by it; of those with an offset the instant counts."""


def is_cut(column: Column) -> bool:
    """Whether a timestamp, in microseconds, holds less of a column than the server compares."""
    return column.type_name in ("datetime2", "datetimeoffset") and fraction_digits(column) > _MICRO_DIGITS


def natural_type(column: Column) -> Natural:
    """The natural type of a table's column."""
    name = column.type_name
    if name in _SIMPLE:
        cut = "the offset is not kept" + (", nor the digit of 100 ns" if is_cut(column) else "")
        return Natural(_SIMPLE[name], cut if name == "datetimeoffset" else "")
    if name in DECIMALS:
        return Natural(pa.decimal128(*precision_and_scale(column)))
    if name in DATETIMES:
        return Natural(_MICROS, "the digit of 100 ns is cut" if is_cut(column) else "")
    if name == "float":
        return Natural(pa.float32() if column.precision is not None and column.precision <= 24 else pa.float64())
    if name == "time":
        return Natural(pa.string(), "time of the day as text hh:mm:ss.f", fraction_digits(column))
    return Natural(pa.binary() if name in BINARIES else pa.string())


def target_of(field: pa.Field, column: Column | None) -> Natural:
    """The natural type of an event field's values.

    Args:
        field: of a topic table.
        column: the source's column; None if it is not known, then the event's own meaning decides.
    """
    if column is None:
        return _by_meaning(field)
    wanted = natural_type(column)
    if pa.types.is_string(field.type) and _is_shaped(field):
        return Natural(pa.string(), "masked or truncated")
    return wanted


def _is_shaped(field: pa.Field) -> bool:
    parameters = (field.metadata or {}).get(b"connect.parameters", b"")
    return b'"masked"' in parameters or b'"truncateLength"' in parameters


def _by_meaning(field: pa.Field) -> Natural:
    name = meaning(field).rpartition(".")[2]
    if name in ("Date", "IsoDate", "StructuredDate"):
        return Natural(pa.date32())
    if name in ("Timestamp", "MicroTimestamp", "NanoTimestamp", "IsoTimestamp", "StructuredTimestamp"):
        return Natural(_MICROS)
    if name in ("ZonedTimestamp", "StructuredZonedTimestamp"):
        return Natural(_UTC, "the offset is not kept")
    if name in ("Time", "MicroTime", "NanoTime", "IsoTime", "StructuredTime"):
        return Natural(pa.string(), "time of the day as text hh:mm:ss.f")
    form = (field.metadata or {}).get(b"lake.form", b"")
    return Natural(pa.binary() if form else field.type)


def converter(field: pa.Field, wanted: Natural) -> Convert:
    """The function that turns an event field's values into natural ones.

    Args:
        field: of a topic table, with the metadata that says how its values are written.
    """
    name = meaning(field).rpartition(".")[2]
    if wanted == EXACT:
        return partial(_exact, form=name)
    if name in _TO_NANOS and pa.types.is_string(wanted.type):
        return partial(_time_text, to_nanos=_TO_NANOS[name], shown=wanted.digits)
    form = (field.metadata or {}).get(b"lake.form", b"").decode()
    if form and pa.types.is_binary(wanted.type):
        return _BYTES[form]
    special = _SPECIAL.get(name)
    if special is not None and not pa.types.is_string(field.type):
        return lambda array: cast(special(array), wanted.type)
    if pa.types.is_string(field.type) and not pa.types.is_string(wanted.type):
        return partial(_parsed, target=wanted.type)
    if pa.types.is_floating(field.type) and pa.types.is_decimal(wanted.type):
        return partial(_rounded, target=wanted.type)
    return partial(cast, target=wanted.type)


@dataclass(frozen=True, slots=True)
class Conversion:
    """Turns an event field's values into natural ones; picklable."""

    field: pa.Field
    wanted: Natural

    def __call__(self, array: pa.Array) -> pa.Array:
        """The values of an array."""
        return converter(self.field, self.wanted)(array)


def cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Values in another type; one that does not fit, which only happens after the column's type changed, is null.

    A number is no date, and a date no number, though Arrow takes one for the other. Bytes as text are their digits, as the server shows them.
    """
    if array.type == target:
        return array
    if pa.types.is_binary(array.type) and pa.types.is_string(target):
        return pa.array([None if value is None else f"0x{value.hex().upper()}" for value in array.to_pylist()], target)
    if _is_another_kind(array.type, target):
        return pa.nulls(len(array), target)
    try:
        return pc.cast(array, target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pass
    if pa.types.is_timestamp(array.type) and pa.types.is_date(target):
        return pc.cast(array, target, safe=False)
    return _one_by_one(array, target)


def _is_another_kind(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether one is a number and the other a moment."""
    return bool((_is_number(old) and pa.types.is_temporal(new)) or (pa.types.is_temporal(old) and _is_number(new)))


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or kind == pa.bool_()
    )


def _one_by_one(array: pa.Array, target: pa.DataType) -> pa.Array:
    """As `cast`, when some value does not fit: each different value by itself."""
    encoded = array.dictionary_encode()
    values = pa.concat_arrays([_tried(encoded.dictionary.slice(at, 1), target) for at in range(len(encoded.dictionary))]
                              or [pa.nulls(0, target)])  # fmt: skip
    return values.take(encoded.indices)


def _tried(value: pa.Array, target: pa.DataType) -> pa.Array:
    try:
        return pc.cast(value, target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.nulls(len(value), target)


def _parsed(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Text of a number or a moment as what it says."""
    if pa.types.is_date(target):
        return cast(pc.utf8_slice_codeunits(array, 0, 10), target)
    if pa.types.is_timestamp(target):
        short = pc.replace_substring_regex(array, _FINER_THAN_MICROS, r"\1")
        plain = short if target.tz else pc.utf8_rtrim(short, "Z")
        return cast(plain, target)
    return cast(array, target)


def _rounded(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Doubles of decimals: one that was rounded up to more digits than the type has becomes the one before it."""
    bound = float(np.nextafter(10.0 ** (target.precision - target.scale), 0.0))
    return cast(
        pc.max_element_wise(pc.min_element_wise(array, bound, skip_nulls=False), -bound, skip_nulls=False), target
    )


def _exact(array: pa.Array, form: str) -> pa.Array:
    """Moments in units of 100 ns since 1970, of a form that holds them."""
    nulls = null_mask(array)
    if form == "NanoTimestamp":
        ticks = numbers(array, np.int64) // 100
    elif form.startswith("Structured"):
        ticks = _structured_days(array) * (_DAY_NS // 100) + _structured_nanos(array) // 100
        ticks = ticks - (_part(array, "offsetSeconds") * 10**7 if form == "StructuredZonedTimestamp" else 0)
    elif pa.types.is_string(array.type):
        digit = pc.struct_field(pc.extract_regex(array, _SEVENTH), "digit")
        micros = pc.cast(_parsed(array, _UTC if form == "ZonedTimestamp" else _MICROS), pa.int64())
        return pc.add(pc.multiply(micros, 10), pc.fill_null(pc.cast(digit, pa.int64()), 0))
    elif form in _SPECIAL:
        return pc.multiply(pc.cast(pc.cast(_SPECIAL[form](array), _MICROS), pa.int64()), 10)
    else:
        return pa.nulls(len(array), pa.int64())
    return with_nulls(ticks, nulls, pa.int64())


def _time_text(array: pa.Array, to_nanos: Callable[[pa.Array], Numbers], shown: int) -> pa.Array:
    """`hh:mm:ss.fffffff` with as many digits as the column has."""
    nulls = null_mask(array)
    nanos = to_nanos(array)
    nanos = nanos if nulls is None else np.where(nulls, 0, nanos)
    seconds, fraction = np.divmod(nanos, 1_000_000_000)
    colon = literal(":", len(nanos))
    parts = [digits(seconds // 3600, 2), colon, digits(seconds // 60 % 60, 2), colon, digits(seconds % 60, 2)]
    if shown:
        parts += [literal(".", len(nanos)), digits(fraction, 9)[:, :shown]]
    return texts(parts, nulls)


def _scaled(factor: int) -> Callable[[pa.Array], Numbers]:
    def nanos(array: pa.Array) -> Numbers:
        kind = np.int32 if array.type.bit_width == 32 else np.int64
        return numbers(array, kind).astype(np.int64) * factor

    return nanos


def _iso_nanos(array: pa.Array) -> Numbers:
    """Nanoseconds of the day of `10:23:45.68Z`."""
    whole = pc.utf8_rpad(pc.replace_substring(pc.utf8_rtrim(array, "Z"), ".", ""), 17, "0")
    seconds = 0
    for start, factor in ((0, 3600), (3, 60), (6, 1)):
        seconds = pc.add(
            seconds, pc.multiply(pc.cast(pc.utf8_slice_codeunits(whole, start, start + 2), "int64"), factor)
        )
    nanos = pc.add(pc.multiply(seconds, 1_000_000_000), pc.cast(pc.utf8_slice_codeunits(whole, 8, 17), "int64"))
    found: Numbers = pc.fill_null(nanos, 0).to_numpy(zero_copy_only=False)
    return found


def _part(array: pa.Array, name: str) -> Numbers:
    found: Numbers = pc.fill_null(pc.struct_field(array, name), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _structured_nanos(array: pa.Array) -> Numbers:
    seconds = _part(array, "hour") * 3600 + _part(array, "minute") * 60 + _part(array, "second")
    found: Numbers = seconds * 1_000_000_000 + _part(array, "nanos")
    return found


def _structured_days(array: pa.Array) -> Numbers:
    months = (_part(array, "year") - 1970) * 12 + np.maximum(_part(array, "month"), 1) - 1
    first = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    found: Numbers = first + np.maximum(_part(array, "day"), 1) - 1
    return found


def _structured_date(array: pa.Array) -> pa.Array:
    return with_nulls(_structured_days(array), null_mask(array), pa.int32()).cast(pa.date32())


def _structured_timestamp(array: pa.Array) -> pa.Array:
    micros = _structured_days(array) * (_DAY_NS // 1000) + _structured_nanos(array) // 1000
    return with_nulls(micros, null_mask(array), pa.int64()).cast(_MICROS)


def _structured_zoned(array: pa.Array) -> pa.Array:
    micros = _structured_days(array) * (_DAY_NS // 1000) + _structured_nanos(array) // 1000
    utc = micros - _part(array, "offsetSeconds") * 1_000_000
    return with_nulls(utc, null_mask(array), pa.int64()).cast(_UTC)


def _micros(array: pa.Array, times: int = 1, divisor: int = 1) -> pa.Array:
    counted = numbers(array, np.int64) * times if divisor == 1 else numbers(array, np.int64) // divisor
    return with_nulls(counted, null_mask(array), pa.int64()).cast(_MICROS)


def _days(array: pa.Array) -> pa.Array:
    return array if pa.types.is_date(array.type) else array.cast(pa.int32()).cast(pa.date32())


def _timestamp(array: pa.Array) -> pa.Array:
    """Debezium's Timestamp in milliseconds; Connect's is a timestamp already."""
    return array.cast(_MICROS) if pa.types.is_timestamp(array.type) else _micros(array, 1000)


_TO_NANOS: dict[str, Callable[[pa.Array], Numbers]] = {
    "Time": _scaled(1_000_000),
    "MicroTime": _scaled(1000),
    "NanoTime": _scaled(1),
    "IsoTime": _iso_nanos,
    "StructuredTime": _structured_nanos,
}
_SPECIAL: dict[str, Convert] = {
    "Date": _days,
    "Timestamp": _timestamp,
    "MicroTimestamp": _micros,
    "NanoTimestamp": partial(_micros, divisor=1000),
    "StructuredDate": _structured_date,
    "StructuredTimestamp": _structured_timestamp,
    "StructuredZonedTimestamp": _structured_zoned,
}
_BYTES: dict[str, Convert] = {
    "base64": from_base64,
    "base64-url-safe": partial(from_base64, url_safe=True),
    "hex": from_hexadecimal,
}
