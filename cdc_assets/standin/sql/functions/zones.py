"""Offsets and time zones: TODATETIMEOFFSET, SWITCHOFFSET, AT TIME ZONE."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from cdc_assets.standin.contract import Typed
from cdc_assets.standin.errors import SqlError
from cdc_assets.standin.sql import temporal
from cdc_assets.standin.sql.coercion import is_null
from cdc_assets.standin.sql.convert import family, implicit
from cdc_assets.standin.sql.forms import form
from cdc_assets.standin.sql.functions.dates import temporal_argument, utc_ticks
from cdc_assets.standin.sql.runtime import Kernel, apply, builder, read_type, specification, strict
from cdc_assets.standin.sql.temporal import MINUTE
from cdc_assets.standin.sqltypes import INT, SqlType, Value

if TYPE_CHECKING:
    from cdc_assets.standin.sql.expressions import Compiler
    from cdc_assets.standin.sql.scope import Scope

_DATETIME2: Final = SqlType("datetime2", scale=7)
_OFFSET7: Final = SqlType("datetimeoffset", scale=7)


def _scale(sql_type: SqlType) -> int:
    return {"datetime": 3, "smalldatetime": 0, "date": 0}.get(sql_type.name, sql_type.scale)


def _with_offset(compiler: "Compiler", arguments: Sequence[Any], scope: "Scope", kind: str) -> Typed:
    value, offset = compiler.scalars(arguments, scope)
    value = temporal_argument(value, _DATETIME2 if kind == "todatetimeoffset" else _OFFSET7)
    result = SqlType("datetimeoffset", scale=_scale(value.type))
    if kind == "switchoffset":
        value = implicit(value, result)
    if family(offset.type) != "text":
        offset = implicit(offset, INT)
    return apply(specification(kind, value.type, result), [value, offset], result, value.nullable or offset.nullable)


@form("TODATETIMEOFFSET", 2)
def _todatetimeoffset(compiler: "Compiler", arguments: Sequence[Any], scope: "Scope") -> Typed:
    return _with_offset(compiler, arguments, scope, "todatetimeoffset")


@form("SWITCHOFFSET", 2)
def _switchoffset(compiler: "Compiler", arguments: Sequence[Any], scope: "Scope") -> Typed:
    return _with_offset(compiler, arguments, scope, "switchoffset")


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


@builder("switchoffset")
def _build_switchoffset(arguments: Sequence[str]) -> Kernel:
    source, result = map(read_type, arguments)

    def run(value: Value, offset: Any) -> Value:
        minutes = _minutes(offset)
        return temporal.from_moment((utc_ticks(value, source) + minutes * MINUTE, minutes), result, source)

    return strict(run)


_WINDOWS_ZONES: Final = {
    "utc": "UTC", "gmt standard time": "Europe/London", "w. europe standard time": "Europe/Berlin",
    "central europe standard time": "Europe/Budapest", "central european standard time": "Europe/Warsaw",
    "romance standard time": "Europe/Paris", "fle standard time": "Europe/Kiev", "e. europe standard time": "Europe/Chisinau",
    "gtb standard time": "Europe/Bucharest", "russian standard time": "Europe/Moscow", "turkey standard time": "Europe/Istanbul",
    "eastern standard time": "America/New_York", "central standard time": "America/Chicago",
    "mountain standard time": "America/Denver", "us mountain standard time": "America/Phoenix",
    "pacific standard time": "America/Los_Angeles", "alaskan standard time": "America/Anchorage",
    "hawaiian standard time": "Pacific/Honolulu", "e. south america standard time": "America/Sao_Paulo",
    "india standard time": "Asia/Kolkata", "china standard time": "Asia/Shanghai", "tokyo standard time": "Asia/Tokyo",
    "korea standard time": "Asia/Seoul", "singapore standard time": "Asia/Singapore", "arabian standard time": "Asia/Dubai",
    "israel standard time": "Asia/Jerusalem", "aus eastern standard time": "Australia/Sydney",
    "new zealand standard time": "Pacific/Auckland",
}  # fmt: skip


@lru_cache(maxsize=64)
def _zone(name: str) -> ZoneInfo:
    """A time zone by Windows or IANA name."""
    try:
        return ZoneInfo(_WINDOWS_ZONES.get(name.strip().lower(), name.strip()))
    except (KeyError, ValueError, OSError) as error:
        raise SqlError(9820, f"The time zone parameter '{name}' provided to AT TIME ZONE clause is invalid.") from error


@form("AT TIME ZONE", 2)
def _at_time_zone(compiler: "Compiler", arguments: Sequence[Any], scope: "Scope") -> Typed:
    value, zone = compiler.scalars(arguments, scope)
    if family(zone.type) != "text" and not is_null(zone):
        raise SqlError(8116, f"Argument data type {zone.type.name} is invalid for argument 2 of AT TIME ZONE function.")
    value = temporal_argument(value, _DATETIME2)
    if value.type.name in ("date", "time"):
        raise SqlError(
            8116, f"Argument data type {value.type.name} is invalid for argument 1 of AT TIME ZONE function."
        )
    result = SqlType("datetimeoffset", scale=_scale(value.type))
    return apply(specification("zone", value.type, result), [value, zone], result, value.nullable or zone.nullable)


@builder("zone")
def _build_zone(arguments: Sequence[str]) -> Kernel:
    source, result = map(read_type, arguments)

    def run(value: Value, name: str) -> Value:
        zone = _zone(name)
        local, offset = temporal.to_moment(value, source)
        if offset is not None:
            utc = local - offset * MINUTE
            minutes = _zone_offset(zone, utc, known_utc=True)
            return temporal.from_moment((utc + minutes * MINUTE, minutes), result, source)
        return temporal.from_moment((local, _zone_offset(zone, local, known_utc=False)), result, source)

    return strict(run)


def _zone_offset(zone: ZoneInfo, ticks: int, known_utc: bool) -> int:
    instant = datetime.min + timedelta(microseconds=ticks // 10)
    if known_utc:
        shift = instant.replace(tzinfo=ZoneInfo("UTC")).astimezone(zone).utcoffset()
    else:
        shift = instant.replace(tzinfo=zone).utcoffset()
    return round((shift or timedelta()).total_seconds() / 60)
