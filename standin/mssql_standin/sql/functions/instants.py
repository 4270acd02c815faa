"""The present moment, and a moment with an offset."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from mssql_standin.contract import SessionContext, Typed
from mssql_standin.errors import SqlError
from mssql_standin.sql import temporal
from mssql_standin.sql.convert import family, implicit
from mssql_standin.sql.forms import form
from mssql_standin.sql.functions.dates import temporal_argument
from mssql_standin.sql.registry import Call, define
from mssql_standin.sql.runtime import Kernel, apply, builder, read_type, specification, strict
from mssql_standin.sql.temporal import MINUTE
from mssql_standin.sqltypes import DATETIME, INT, SqlType, Value

if TYPE_CHECKING:
    from mssql_standin.sql.expressions import Compiler
    from mssql_standin.sql.scope import Scope

_DATETIME2: Final = SqlType("datetime2", scale=7)
_OFFSET7: Final = SqlType("datetimeoffset", scale=7)


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


@form("TODATETIMEOFFSET", 2)
def _todatetimeoffset(compiler: "Compiler", arguments: Sequence[Any], scope: "Scope") -> Typed:
    value, offset = compiler.scalars(arguments, scope)
    value = temporal_argument(value, _DATETIME2)
    scale = {"datetime": 3, "smalldatetime": 0, "date": 0}.get(value.type.name, value.type.scale)
    result = SqlType("datetimeoffset", scale=scale)
    if family(offset.type) != "text":
        offset = implicit(offset, INT)
    spec = specification("todatetimeoffset", value.type, result)
    return apply(spec, [value, offset], result, value.nullable or offset.nullable)


def _minutes(offset: int | str) -> int:
    minutes = temporal.parse_offset(offset) if isinstance(offset, str) else offset
    if abs(minutes) > 840:
        raise SqlError(9812, "The timezone provided to builtin function is invalid.")
    return minutes


@builder("todatetimeoffset")
def _build_todatetimeoffset(arguments: Sequence[str]) -> Kernel:
    source, result = map(read_type, arguments)

    def run(value: Value, offset: Any) -> Value:
        return temporal.from_moment((temporal.to_moment(value, source)[0], _minutes(offset)), result, source)

    return strict(run)
