"""DATEADD, DATEDIFF and DATEPART."""

from collections.abc import Callable, Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, Final

from sqlglot import exp

from mssql_standin.contract import Typed
from mssql_standin.errors import SqlError, unsupported
from mssql_standin.sql import temporal
from mssql_standin.sql.convert import family, implicit
from mssql_standin.sql.forms import form
from mssql_standin.sql.runtime import Kernel, apply, builder, read_type, specification, strict
from mssql_standin.sql.temporal import DAY, HOUR, MINUTE, SECOND
from mssql_standin.sqltypes import DATETIME, INT, SqlType, Value

if TYPE_CHECKING:
    from mssql_standin.sql.expressions import Compiler
    from mssql_standin.sql.scope import Scope

_NAMES: Final = {
    "year": "yyyy yy", "quarter": "qq q", "month": "mm m", "dayofyear": "dy y", "day": "dd d", "week": "wk ww",
    "weekday": "dw w", "hour": "hh", "minute": "mi n", "second": "ss s", "millisecond": "ms", "microsecond": "mcs",
    "nanosecond": "ns", "tzoffset": "tz", "iso_week": "isowk isoww",
}  # fmt: skip
_PARTS: Final = {short: part for part, shorts in _NAMES.items() for short in (part, *shorts.split())}
_UNITS: Final = {
    "hour": HOUR, "minute": MINUTE, "second": SECOND, "millisecond": 10_000, "microsecond": 10, "day": DAY,
    "dayofyear": DAY, "weekday": DAY, "week": 7 * DAY,
}  # fmt: skip
_CLOCK_PARTS: Final = frozenset({"hour", "minute", "second", "millisecond", "microsecond", "nanosecond", "tzoffset"})
_MONTHS: Final = {"month": 1, "quarter": 3, "year": 12}
_DATETIME2: Final = SqlType("datetime2", scale=7)
_OFFSET7: Final = SqlType("datetimeoffset", scale=7)


def part_of(node: Any, function: str) -> str:
    """The date part a word means.

    Raises:
        SqlError: 155 for an unknown word, 1023 when it is no word.
    """
    if not isinstance(node, exp.Column):
        raise SqlError(1023, f"Invalid parameter 1 specified for {function}.", 15)
    part = _PARTS.get(node.name.lower())
    if part is None:
        raise SqlError(155, f"'{node.name}' is not a recognized {function} option.", 15)
    return part


def temporal_argument(typed: Typed, text_type: SqlType) -> Typed:
    """A date argument: text and numbers become dates."""
    group = family(typed.type)
    if group == "temporal":
        return typed
    return implicit(typed, text_type if group == "text" else DATETIME)


def _check_part(part: str, sql_type: SqlType, function: str) -> None:
    wrong = (
        (sql_type.name == "date" and part in _CLOCK_PARTS)
        or (sql_type.name == "time" and part not in _CLOCK_PARTS)
        or (
            sql_type.name in ("datetime", "smalldatetime")
            and function == "dateadd"
            and part in ("microsecond", "nanosecond")
        )
    )
    if wrong:
        raise SqlError(
            9810, f"The datepart {part} is not supported by date function {function} for data type {sql_type.name}."
        )


# ---- DATEADD, DATEDIFF, DATEPART ---------------------------------------------------------------------------------


@form("DATEADD", 3)
def _dateadd(compiler: "Compiler", arguments: Sequence[Any], scope: "Scope") -> Typed:
    part = part_of(arguments[0], "dateadd")
    number = implicit(compiler.scalar(arguments[1], scope), INT)
    value = temporal_argument(compiler.scalar(arguments[2], scope), DATETIME)
    _check_part(part, value.type, "dateadd")
    if part in ("tzoffset", "iso_week"):
        raise SqlError(
            9810, f"The datepart {part} is not supported by date function dateadd for data type {value.type.name}."
        )
    return apply(
        specification("dateadd", part, value.type), [number, value], value.type, number.nullable or value.nullable
    )


@builder("dateadd")
def _build_dateadd(arguments: Sequence[str]) -> Kernel:
    part, sql_type = arguments[0], read_type(arguments[1])

    def run(number: int, value: Value) -> Value:
        local, offset = temporal.to_moment(value, sql_type)
        moved = add(part, number, local)
        if sql_type.name == "time":
            moved = temporal.BASE + moved % DAY
        if not 0 <= moved < temporal.END:
            raise _overflow(sql_type)
        try:
            return temporal.from_moment((moved, offset), sql_type, sql_type)
        except SqlError as error:
            raise _overflow(sql_type) from error

    return strict(run)


def _overflow(sql_type: SqlType) -> SqlError:
    return SqlError(517, f"Adding a value to a '{sql_type.name}' column caused an overflow.")


def add(part: str, number: int, local: int) -> int:
    """Local ticks moved by a number of date parts; a day that the month lacks becomes its last."""
    if part == "nanosecond":
        return local + (abs(number) + 50) // 100 * (1 if number >= 0 else -1)
    if part in _UNITS:
        return local + number * _UNITS[part]
    day = temporal.calendar(local)
    month = day.year * 12 + day.month - 1 + number * _MONTHS[part]
    year, index = divmod(month, 12)
    if not 1 <= year <= 9999:
        return -1
    moved = date(year, index + 1, min(day.day, _month_days(year, index + 1)))
    return (moved.toordinal() - 1) * DAY + local % DAY


def _month_days(year: int, month: int) -> int:
    return 31 if month == 12 else (date(year, month + 1, 1) - timedelta(days=1)).day


@form("DATEDIFF", 3)
def _datediff(compiler: "Compiler", arguments: Sequence[Any], scope: "Scope") -> Typed:
    part = part_of(arguments[0], "datediff")
    start, end = (temporal_argument(compiler.scalar(node, scope), _OFFSET7) for node in arguments[1:])
    for value in (start, end):
        if part in ("tzoffset", "iso_week"):
            _refuse(part, "datediff", value.type)
    spec = specification("datediff", part, start.type, end.type)
    return apply(spec, [start, end], INT, start.nullable or end.nullable)


def _refuse(part: str, function: str, sql_type: SqlType) -> None:
    raise SqlError(
        9810, f"The datepart {part} is not supported by date function {function} for data type {sql_type.name}."
    )


@builder("datediff")
def _build_datediff(arguments: Sequence[str]) -> Kernel:
    part = arguments[0]
    first, second = map(read_type, arguments[1:])

    def run(start: Value, end: Value) -> int:
        count = boundaries(part, utc_ticks(end, second)) - boundaries(part, utc_ticks(start, first))
        if -(2**31) <= count < 2**31:
            return count
        raise SqlError(
            535,
            "The datediff function resulted in an overflow. The number of dateparts separating two date/time instances is "
            "too large. Try to use datediff with a less precise datepart.",
        )

    return strict(run)


def utc_ticks(value: Value, sql_type: SqlType) -> int:
    """Ticks of a stored value, of a datetimeoffset in UTC."""
    local, offset = temporal.to_moment(value, sql_type)
    return local - (offset or 0) * MINUTE


def boundaries(part: str, ticks: int) -> int:
    """How many boundaries of a part lie before a moment; differences of these are DATEDIFF."""
    if part in _MONTHS:
        day = temporal.calendar(ticks)
        return (day.year * 12 + day.month - 1) // _MONTHS[part]
    if part == "week":  # weeks begin on Sunday, whatever DATEFIRST is
        return (ticks // DAY + 1) // 7
    if part == "nanosecond":
        return ticks * 100
    return ticks // _UNITS[part]


@form("DATEPART", 2)
def _datepart(compiler: "Compiler", arguments: Sequence[Any], scope: "Scope") -> Typed:
    part = part_of(arguments[0], "datepart")
    if part not in _CALENDAR_PARTS and part not in _CLOCK_PARTS:
        raise unsupported(f"the datepart {part} of DATEPART")
    value = temporal_argument(compiler.scalar(arguments[1], scope), _OFFSET7 if part == "tzoffset" else _DATETIME2)
    _check_part(part, value.type, "datepart")
    return apply(specification("datepart", part, value.type), [value], INT, value.nullable)


@builder("datepart")
def _build_datepart(arguments: Sequence[str]) -> Kernel:
    part, sql_type = arguments[0], read_type(arguments[1])

    return strict(lambda value: date_part(part, temporal.to_moment(value, sql_type), sql_type))


_CALENDAR_PARTS: Final[dict[str, Callable[[date], int]]] = {
    "year": lambda d: d.year,
    "quarter": lambda d: (d.month + 2) // 3,
    "month": lambda d: d.month,
    "dayofyear": lambda d: d.timetuple().tm_yday,
    "day": lambda d: d.day,
}


def date_part(part: str, moment: temporal.Moment, sql_type: SqlType) -> int:
    """A part of a moment as a number."""
    local, offset = moment
    if part in _CALENDAR_PARTS:
        return _CALENDAR_PARTS[part](temporal.calendar(local))
    if part == "tzoffset":
        return offset or 0
    ticks = local % DAY
    fraction = ticks % SECOND
    if sql_type.name in ("datetime", "smalldatetime"):
        fraction = (fraction + 5_000) // 10_000 * 10_000
    return {
        "hour": ticks // HOUR,
        "minute": ticks // MINUTE % 60,
        "second": ticks // SECOND % 60,
        "millisecond": fraction // 10_000,
        "microsecond": fraction // 10,
        "nanosecond": fraction * 100,
    }[part]
