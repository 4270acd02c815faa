"""DATEADD, DATEDIFF, DATEPART and what else counts in parts of dates (`instants`: dates from parts, and now)."""

from collections.abc import Callable, Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, Final

from sqlglot import exp

from cdc_assets.standin.contract import SessionContext, Typed
from cdc_assets.standin.errors import SqlError
from cdc_assets.standin.sql import temporal
from cdc_assets.standin.sql.convert import family, implicit
from cdc_assets.standin.sql.forms import form
from cdc_assets.standin.sql.runtime import Kernel, apply, builder, call, read_type, specification, strict
from cdc_assets.standin.sql.temporal import DAY, HOUR, MINUTE, SECOND
from cdc_assets.standin.sqltypes import BIGINT, DATE, DATETIME, INT, SqlType, Value

if TYPE_CHECKING:
    from cdc_assets.standin.sql.expressions import Compiler
    from cdc_assets.standin.sql.scope import Scope

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
WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


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


# ---- DATEADD, DATEDIFF, DATEPART, DATENAME, DATETRUNC -----------------------------------------------------------


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


def _difference(compiler: "Compiler", arguments: Sequence[Any], scope: "Scope", big: bool) -> Typed:
    function = "datediff_big" if big else "datediff"
    part = part_of(arguments[0], function)
    start, end = (temporal_argument(compiler.scalar(node, scope), _OFFSET7) for node in arguments[1:])
    for value in (start, end):
        if part in ("tzoffset", "iso_week"):
            _refuse(part, function, value.type)
    spec = specification("datediff", part, "big" if big else "", start.type, end.type)
    return apply(spec, [start, end], BIGINT if big else INT, start.nullable or end.nullable)


def _refuse(part: str, function: str, sql_type: SqlType) -> None:
    raise SqlError(
        9810, f"The datepart {part} is not supported by date function {function} for data type {sql_type.name}."
    )


@form("DATEDIFF", 3)
def _datediff(compiler: "Compiler", arguments: Sequence[Any], scope: "Scope") -> Typed:
    return _difference(compiler, arguments, scope, False)


@form("DATEDIFF_BIG", 3)
def _datediff_big(compiler: "Compiler", arguments: Sequence[Any], scope: "Scope") -> Typed:
    return _difference(compiler, arguments, scope, True)


@builder("datediff")
def _build_datediff(arguments: Sequence[str]) -> Kernel:
    part, big = arguments[:2]
    first, second = map(read_type, arguments[2:])
    low, high = (-(2**63), 2**63 - 1) if big else (-(2**31), 2**31 - 1)
    function = "datediff_big" if big else "datediff"

    def run(start: Value, end: Value) -> int:
        count = boundaries(part, utc_ticks(end, second)) - boundaries(part, utc_ticks(start, first))
        if low <= count <= high:
            return count
        raise SqlError(
            535,
            f"The {function} function resulted in an overflow. The number of dateparts separating two date/time instances is "
            f"too large. Try to use {function} with a less precise datepart.",
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
    return _part(compiler, arguments[0], arguments[1], scope, "datepart", INT)


@form("DATENAME", 2)
def _datename(compiler: "Compiler", arguments: Sequence[Any], scope: "Scope") -> Typed:
    return _part(compiler, arguments[0], arguments[1], scope, "datename", SqlType("nvarchar", 30))


def _part(compiler: "Compiler", word: Any, node: Any, scope: "Scope", function: str, returns: SqlType) -> Typed:
    part = part_of(word, function)
    value = temporal_argument(compiler.scalar(node, scope), _OFFSET7 if part == "tzoffset" else _DATETIME2)
    _check_part(part, value.type, function)
    return _applied(function, part, value, returns)


_SESSION_PARTS: Final = frozenset({"week", "weekday"})
"""What SET DATEFIRST changes: never computed ahead, since other sessions run the same plan."""


def _applied(function: str, part: str, value: Typed, returns: SqlType) -> Typed:
    spec = specification(function, part, value.type)
    if part in _SESSION_PARTS:
        return Typed(call(spec, [value.sql], volatile=True), returns, value.nullable)
    return apply(spec, [value], returns, value.nullable)


def _first_day(context: Any) -> int:
    """SET DATEFIRST of the session: 1 is Monday, 7 Sunday."""
    options = getattr(context, "options", None)
    return int(getattr(options, "date_first", 7))


def _short(name: str, part: str) -> None:
    @form(name, 1)
    def compiled(compiler: "Compiler", arguments: Sequence[Any], scope: "Scope") -> Typed:
        return _part(compiler, exp.column(part), arguments[0], scope, "datepart", INT)


for _name in ("year", "month", "day"):
    _short(_name.upper(), _name)


@builder("datepart")
def _build_datepart(arguments: Sequence[str]) -> Kernel:
    part, sql_type = arguments[0], read_type(arguments[1])

    def run(context: SessionContext, value: Value) -> Value:
        if value is None:
            return None
        return date_part(part, temporal.to_moment(value, sql_type), sql_type, _first_day(context))

    return run


@builder("datename")
def _build_datename(arguments: Sequence[str]) -> Kernel:
    part, sql_type = arguments[0], read_type(arguments[1])

    def run(context: SessionContext, value: Value) -> Value:
        if value is None:
            return None
        moment = temporal.to_moment(value, sql_type)
        if part == "month":
            return temporal.FULL_MONTHS[temporal.calendar(moment[0]).month - 1]
        if part == "weekday":
            return WEEKDAYS[temporal.calendar(moment[0]).weekday()]
        if part == "tzoffset":
            return temporal.offset_text(moment[1] or 0)
        return str(date_part(part, moment, sql_type, _first_day(context)))

    return run


_DAY_PARTS: Final[dict[str, Callable[[date, int], int]]] = {
    "year": lambda d, _: d.year,
    "quarter": lambda d, _: (d.month + 2) // 3,
    "month": lambda d, _: d.month,
    "dayofyear": lambda d, _: d.timetuple().tm_yday,
    "day": lambda d, _: d.day,
    "weekday": lambda d, first: (d.isoweekday() - first) % 7 + 1,
    "iso_week": lambda d, _: d.isocalendar().week,
    "week": lambda d, first: (
        (d.timetuple().tm_yday - 1 + (d.replace(month=1, day=1).isoweekday() - first) % 7) // 7 + 1
    ),
}


def date_part(part: str, moment: temporal.Moment, sql_type: SqlType, first: int = 7) -> int:
    """A part of a moment as a number; weeks begin on day `first`, 1 for Monday to 7 for Sunday."""
    local, offset = moment
    if part in _DAY_PARTS:
        return _DAY_PARTS[part](temporal.calendar(local), first)
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


@form("DATETRUNC", 2)
def _datetrunc(compiler: "Compiler", arguments: Sequence[Any], scope: "Scope") -> Typed:
    part = part_of(arguments[0], "datetrunc")
    value = temporal_argument(compiler.scalar(arguments[1], scope), _DATETIME2)
    _check_part(part, value.type, "datetrunc")
    if part in ("weekday", "tzoffset", "nanosecond"):
        _refuse(part, "datetrunc", value.type)
    return _applied("datetrunc", part, value, value.type)


@builder("datetrunc")
def _build_datetrunc(arguments: Sequence[str]) -> Kernel:
    part, sql_type = arguments[0], read_type(arguments[1])

    def run(context: SessionContext, value: Value) -> Value:
        if value is None:
            return None
        local, offset = temporal.to_moment(value, sql_type)
        truncated = _truncated(part, local, _first_day(context))
        if truncated < 0:
            raise SqlError(
                9837,
                "An invalid date value was encountered: The date value is less than the minimum date value allowed for the data type.",
            )
        return temporal.from_moment((truncated, offset), sql_type, sql_type)

    return run


def _truncated(part: str, local: int, first: int) -> int:
    if part in _MONTHS:
        months = boundaries(part, local) * _MONTHS[part]
        return (date(months // 12, months % 12 + 1, 1).toordinal() - 1) * DAY
    if part in ("week", "iso_week"):
        shift = 8 - first if part == "week" else 0  # day 0 is a Monday
        return ((local // DAY + shift) // 7 * 7 - shift) * DAY
    return local // _UNITS[part] * _UNITS[part]


@form("EOMONTH", 1, 2)
def _eomonth(compiler: "Compiler", arguments: Sequence[Any], scope: "Scope") -> Typed:
    value = implicit(temporal_argument(compiler.scalar(arguments[0], scope), DATE), DATE)
    operands = [value]
    if len(arguments) == 2:
        operands.append(implicit(compiler.scalar(arguments[1], scope), INT))
    return apply(specification("eomonth"), operands, DATE)


@builder("eomonth")
def _build_eomonth(_: Sequence[str]) -> Kernel:
    def run(_: SessionContext, value: Any, months: Any = 0) -> Value:
        if value is None:
            return None
        moved = add("month", months or 0, value * DAY)
        if moved < 0:
            raise _overflow(DATE)
        day = temporal.calendar(moved)
        return day.replace(day=_month_days(day.year, day.month)).toordinal() - 1

    return run
