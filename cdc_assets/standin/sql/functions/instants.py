"""Dates from parts, the present moment, ISDATE."""

from collections.abc import Callable, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, Final

from cdc_assets.standin.contract import SessionContext, Typed
from cdc_assets.standin.errors import SqlError
from cdc_assets.standin.sql import temporal
from cdc_assets.standin.sql.convert import convert_value, implicit
from cdc_assets.standin.sql.forms import form
from cdc_assets.standin.sql.literals import Constant
from cdc_assets.standin.sql.registry import Call, define
from cdc_assets.standin.sql.runtime import Kernel, apply, builder, read_type, specification, strict
from cdc_assets.standin.sql.temporal import DAY, HOUR, MINUTE, SECOND
from cdc_assets.standin.sqltypes import DATE, DATETIME, INT, SqlType, Value

if TYPE_CHECKING:
    from cdc_assets.standin.sql.expressions import Compiler
    from cdc_assets.standin.sql.scope import Scope

_DATETIME2: Final = SqlType("datetime2", scale=7)
_OFFSET7: Final = SqlType("datetimeoffset", scale=7)


def _cannot_construct(sql_type: SqlType) -> SqlError:
    return SqlError(
        289, f"Cannot construct data type {sql_type.name}, some of the arguments have values which are not valid."
    )


def _ticks(sql_type: SqlType, day: Sequence[int], clock: Sequence[int], fraction: int) -> int:
    try:
        days = date(*day).toordinal() - 1
    except ValueError as error:
        raise _cannot_construct(sql_type) from error
    hour, minute, second = clock
    if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60 and 0 <= fraction < SECOND):
        raise _cannot_construct(sql_type)
    return days * DAY + hour * HOUR + minute * MINUTE + second * SECOND + fraction


def _define_parts(name: str, sql_type: SqlType, count: int, make: Callable[..., temporal.Moment]) -> None:
    def implementation(_: Call, *values: int) -> Value:
        return temporal.from_moment(make(*values), sql_type, sql_type)

    define(name, sql_type, count, count, implementation, arguments=(INT,))


_define_parts("DATEFROMPARTS", DATE, 3, lambda y, m, d: (_ticks(DATE, (y, m, d), (0, 0, 0), 0), None))
_define_parts(
    "DATETIMEFROMPARTS", DATETIME, 7,
    lambda y, m, d, h, mi, s, ms: (_ticks(DATETIME, (y, m, d), (h, mi, s), ms * 10_000), None),
)  # fmt: skip
_define_parts(
    "SMALLDATETIMEFROMPARTS", SqlType("smalldatetime"), 5,
    lambda y, m, d, h, mi: (_ticks(SqlType("smalldatetime"), (y, m, d), (h, mi, 0), 0), None),
)  # fmt: skip


def _scaled_form(name: str, type_name: str, count: int) -> None:
    """…FROMPARTS whose last argument is the precision of the result and must be a constant."""

    @form(name, count)
    def compiled(compiler: "Compiler", arguments: Sequence[Any], scope: "Scope") -> Typed:
        precision = compiler.scalar(arguments[-1], scope)
        if not isinstance(precision, Constant) or not isinstance(precision.value, int) or not 0 <= precision.value <= 7:
            raise SqlError(1002, "Line 1: Specified scale is invalid.", 15)
        result = SqlType(type_name, scale=precision.value)
        values = [implicit(compiler.scalar(node, scope), INT) for node in arguments[:-1]]
        return apply(specification("fromparts", result), values, result)


_scaled_form("DATETIME2FROMPARTS", "datetime2", 8)
_scaled_form("TIMEFROMPARTS", "time", 5)
_scaled_form("DATETIMEOFFSETFROMPARTS", "datetimeoffset", 10)


@builder("fromparts")
def _build_fromparts(arguments: Sequence[str]) -> Kernel:
    result = read_type(arguments[0])
    unit = int(10 ** (7 - result.scale))

    def run(*values: int) -> Value:
        offset = None
        if result.name == "time":
            values = (1900, 1, 1, *values)
        if result.name == "datetimeoffset":
            hours, minutes = values[7:9]
            if abs(hours) > 14 or abs(minutes) > 59 or hours * minutes < 0:
                raise _cannot_construct(result)
            offset = hours * 60 + minutes
        ticks = _ticks(result, values[:3], values[3:6], values[6] * unit)
        return temporal.from_moment((ticks, offset), result, result)

    return strict(run)


# ---- now -------------------------------------------------------------------------------------------------------


def _now(context: SessionContext) -> temporal.Moment:
    offset = context.clock.offset_minutes
    return context.clock.utc_ticks() + offset * MINUTE, offset


def _define_now(name: str, sql_type: SqlType, utc: bool) -> None:
    def implementation(context: SessionContext, call: Call) -> Value:
        local, offset = _now(context)
        moment = (local - offset * MINUTE, 0) if utc and offset is not None else (local, offset)
        return temporal.from_moment(moment, call.returns, call.returns)

    define(name, sql_type, 0, 0, implementation, True, nullable=False)


_define_now("GETDATE", DATETIME, False)
_define_now("CURRENT_TIMESTAMP", DATETIME, False)
_define_now("GETUTCDATE", DATETIME, True)
_define_now("SYSDATETIME", _DATETIME2, False)
_define_now("SYSUTCDATETIME", _DATETIME2, True)
_define_now("SYSDATETIMEOFFSET", _OFFSET7, False)


def _is_date(_: Call, text: str | None) -> Value:
    if text is None or not text.strip():
        return 0
    try:
        convert_value(text, SqlType("varchar", 8000), DATETIME)
    except SqlError:
        return 0
    return 1


define("ISDATE", INT, 1, 1, _is_date, strict=False, nullable=False, arguments=(SqlType("varchar", 8000),))
