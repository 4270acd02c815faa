"""Default expressions of the catalogue as values (spec debezium-sqlserver §4.7).

Only literals count; a function call is reported as not a default. Literals are read as the server stores them, which
differs from Debezium 3.6.3 in cases where the connector splits at parentheses and quotes wrongly: `('a(b)c')` is
`a(b)c` and not `b`, `('it''s')` is `it's`, and a bit default that is neither `((0))` nor `((1))` is ignored rather than
false. As measured, uniqueidentifier and alias types have no default.

| type | accepted | value |
|---|---|---|
| tinyint … bigint | `((1))`, `(-1)`, `((3147483648.))` | integer |
| bit | `((0))`, `((1))` | boolean |
| decimal, numeric, money, smallmoney | `((1.5))`, `((1e3))` | padded to the column's scale, but not as text |
| float, real | `((1.5e+003))` | number |
| char types | `('x')`, `(N'x')` | text, quotes undoubled |
| binary types | `(0x0102)` | bytes |
| dates and times | ISO text, `T` or blank between, digits alone for the date | rounded to the column's precision |
"""

import re
from collections.abc import Callable
from datetime import date, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation

import pyarrow as pa

from cdc_assets.core.schema import Column
from cdc_assets.typemap.decimals import DECIMALS, precision_and_scale
from cdc_assets.typemap.mapping import BINARIES, fraction_digits
from cdc_assets.typemap.wire import OFFSET_STRUCT, TICKS_PER_DAY

_INTEGERS = {"tinyint": pa.int16(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64()}
_FLOATS = {"real": pa.float32(), "float": pa.float64()}
_CHARACTERS = frozenset({"char", "varchar", "nchar", "nvarchar", "text", "ntext"})
_BYTES = frozenset({"binary", "varbinary", "image"})
_BITS = {"0": False, "1": True}
_DATETIMES = frozenset({"datetime", "smalldatetime", "datetime2"})

_DATE = r"(?P<year>\d{4})(?P<dash>-?)(?P<month>\d\d)(?P=dash)(?P<day>\d\d)"
_TIME = r"(?P<hour>\d\d?):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:\.(?P<fraction>\d{1,7}))?)?"
_ZONE = r"\s*(?P<zone>Z|[+-]\d\d:\d\d)"
_DATE_TEXT = re.compile(_DATE)
_TIME_TEXT = re.compile(_TIME)
_DATETIME_TEXT = re.compile(rf"{_DATE}(?:[T ]\s*{_TIME})?")
_ZONED_TEXT = re.compile(rf"{_DATE}(?:[T ]\s*{_TIME}(?:{_ZONE})?)?")
_STRING = re.compile(r"N?'((?:[^']|'')*)'", re.DOTALL)
_EPOCH = date(1970, 1, 1)
_SECOND = 10_000_000
"""Ticks of 100 ns."""
_WIDE = Context(prec=80)


class NotALiteralError(ValueError):
    """A default expression is not a literal of its column's type."""


def default_value(column: Column) -> pa.Array | None:
    """The default of a column in canonical form, one row, or None if there is none or it is NULL.

    Raises:
        NotALiteralError: the expression is not a literal that can be read.
    """
    if column.default is None:
        return None
    text = _unwrapped(column.default)
    if text.upper() == "NULL":
        return None
    if column.alias is not None or column.identity:
        raise NotALiteralError("the type has no literals")
    try:
        return _parsed(column, text)
    except (ValueError, KeyError, InvalidOperation, OverflowError, pa.ArrowInvalid) as error:
        raise NotALiteralError(str(error)) from error


def _unwrapped(expression: str) -> str:
    """The expression without enclosing parentheses."""
    text = expression.strip()
    while text.startswith("(") and text.endswith(")") and _closes_at_end(text):
        text = text[1:-1].strip()
    return text


def _closes_at_end(text: str) -> bool:
    """Whether the first parenthesis is closed by the last character; quoted text does not count."""
    depth = 0
    bare = re.sub(r"'(?:[^']|'')*'", lambda found: "x" * len(found.group()), text)
    for index, character in enumerate(bare):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return index == len(text) - 1
    return False


def _parsed(column: Column, text: str) -> pa.Array:
    name = column.type_name
    if name in _INTEGERS:
        return pa.array([int(text.removesuffix("."))], _INTEGERS[name])
    if name == "bit":
        return pa.array([_BITS[text]], pa.bool_())
    if name in DECIMALS:
        return _decimal(column, text)
    if name in _FLOATS:
        return pa.array([float(text)], _FLOATS[name])
    if name in _CHARACTERS:
        return pa.array([_string(text)], pa.string())
    if name in _BYTES:
        return pa.array([_bytes(text)], pa.binary())
    return _TEMPORAL.get(name, _no_mapper)(column, _string(text))


def _bytes(text: str) -> bytes:
    if not text.lower().startswith("0x"):
        raise NotALiteralError(f"{text} is not a binary literal")
    return bytes.fromhex(text[2:])


def _no_mapper(column: Column, text: str) -> pa.Array:
    raise NotALiteralError(f"defaults of type {column.type_name} are not read")


def _string(text: str) -> str:
    found = _STRING.fullmatch(text)
    if found is None:
        raise NotALiteralError(f"{text} is not a quoted text")
    return found.group(1).replace("''", "'")


def _decimal(column: Column, text: str) -> pa.Array:
    """The value with the literal's digits: as text it is not padded to the column's scale (measured)."""
    precision, scale = precision_and_scale(column)
    given = Decimal(text)
    digits = min(scale, max(0, -int(given.as_tuple().exponent)))
    value = given.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP, _WIDE)
    room = max(1, precision - scale + digits)  # of `decimal(4, 4)` no digit is left for the literal 0
    return pa.array([value], pa.decimal128(room, digits))


def _match(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    found = pattern.fullmatch(text.strip())
    if found is None:
        raise NotALiteralError(f"{text!r} is not in ISO form")
    return found


def _days(found: re.Match[str]) -> int:
    return (date(int(found["year"]), int(found["month"]), int(found["day"])) - _EPOCH) // timedelta(days=1)


def _ticks(found: re.Match[str]) -> int:
    """Ticks of the day; none if the text has no time."""
    if not found["hour"]:
        return 0
    hour, minute, second = int(found["hour"]), int(found["minute"]), int(found["second"] or 0)
    if hour > 23 or minute > 59 or second > 59:
        raise NotALiteralError("the time of day is out of range")
    fraction = int((found["fraction"] or "").ljust(7, "0"))
    return (hour * 3600 + minute * 60 + second) * _SECOND + fraction


def _rounded(ticks: int, column: Column) -> int:
    """The ticks rounded as the server stores them: to the column's digits, for datetime to 1/300 s printed as
    milliseconds."""
    if column.type_name == "datetime":
        thirds = (ticks * 300 + _SECOND // 2) // _SECOND
        return (thirds * 10 + 1) // 3 * 10_000
    step = 60 * _SECOND if column.type_name == "smalldatetime" else 10 ** (7 - fraction_digits(column))
    return (ticks + step // 2) // step * step


def _date(column: Column, text: str) -> pa.Array:
    return pa.array([_days(_match(_DATE_TEXT, text))], pa.int32()).cast(pa.date32())


def _time(column: Column, text: str) -> pa.Array:
    ticks = _rounded(_ticks(_match(_TIME_TEXT, text)), column)
    return pa.array([min(ticks, TICKS_PER_DAY - 1) * 100], pa.int64())


def _datetime(column: Column, text: str) -> pa.Array:
    found = _match(_DATETIME_TEXT, text)
    return pa.array([_days(found) * TICKS_PER_DAY + _rounded(_ticks(found), column)], pa.int64())


def _datetimeoffset(column: Column, text: str) -> pa.Array:
    found = _match(_ZONED_TEXT, text)
    zone = found["zone"] or "Z"
    minutes = 0 if zone == "Z" else int(zone[1:3]) * 60 + int(zone[4:6])
    minutes = -minutes if zone.startswith("-") else minutes
    local = _days(found) * TICKS_PER_DAY + _rounded(_ticks(found), column)
    return pa.array([{"ticks": local - minutes * 60 * _SECOND, "minutes": minutes}], OFFSET_STRUCT)


_TEMPORAL: dict[str, Callable[[Column, str], pa.Array]] = {
    "date": _date,
    "time": _time,
    **dict.fromkeys(_DATETIMES, _datetime),
    "datetimeoffset": _datetimeoffset,
}


def fallback_value(column: Column) -> pa.Array:
    """Value in place of a NULL in a NOT NULL column: zero, empty or 1970; one row in canonical form."""
    name = column.type_name
    if name in _INTEGERS or name in _FLOATS or name == "bit":
        return pa.array([0], pa.int8()).cast(_INTEGERS.get(name) or _FLOATS.get(name) or pa.bool_())
    if name in DECIMALS:
        return pa.array([Decimal(0)], pa.decimal128(*precision_and_scale(column)))
    if name == "date":
        return pa.array([0], pa.int32()).cast(pa.date32())
    if name in _DATETIMES or name == "time":
        return pa.array([0], pa.int64())
    if name == "datetimeoffset":
        return pa.array([{"ticks": 0, "minutes": 0}], OFFSET_STRUCT)
    return pa.array([""], pa.string()).cast(pa.binary() if name in BINARIES else pa.string())
