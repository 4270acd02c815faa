"""FORMAT: .NET patterns for dates and numbers, en-US only."""

import re
from typing import Any, Final

from cdc_assets.standin.errors import SqlError, unsupported
from cdc_assets.standin.sql import numbers, temporal
from cdc_assets.standin.sql.convert import family
from cdc_assets.standin.sql.functions.dates import WEEKDAYS
from cdc_assets.standin.sql.registry import Call, define
from cdc_assets.standin.sql.temporal import DAY, HOUR, MINUTE, SECOND
from cdc_assets.standin.sqltypes import SqlType

_PIECES: Final = re.compile(
    r"yyyy|yy|MMMM|MMM|MM|M|dddd|ddd|dd|d|HH|H|hh|h|mm|m|ss|s|f{1,7}|tt|zzz|'[^']*'|\\.|.", re.DOTALL
)
_STANDARD: Final = {
    "d": "M/d/yyyy",
    "s": "yyyy-MM-dd'T'HH:mm:ss",
    "o": "yyyy-MM-dd'T'HH:mm:ss.fffffff",
    "O": "yyyy-MM-dd'T'HH:mm:ss.fffffff",
}


def format_date(moment: temporal.Moment, pattern: str) -> str:
    """A moment under a .NET custom date pattern (en-US)."""
    pattern = _STANDARD.get(pattern, pattern)
    if len(pattern) == 1:
        raise unsupported(f"FORMAT with the standard pattern '{pattern}'")
    return "".join(_format_piece(piece, moment) for piece in _PIECES.findall(pattern))


def _format_piece(piece: str, moment: temporal.Moment) -> str:
    local, offset = moment
    day, ticks = temporal.calendar(local), local % DAY
    hour, minute, second = ticks // HOUR, ticks // MINUTE % 60, ticks // SECOND % 60
    if piece[0] == "f":
        return f"{ticks % SECOND:07}"[: len(piece)]
    if piece[0] in "'\\":
        return piece.strip("'") if piece[0] == "'" else piece[1]
    if piece == "zzz":
        return temporal.offset_text(offset or 0)
    table = {
        "yyyy": f"{day.year:04}", "yy": f"{day.year % 100:02}", "MMMM": temporal.FULL_MONTHS[day.month - 1],
        "MMM": temporal.MONTHS[day.month - 1], "MM": f"{day.month:02}", "M": str(day.month), "dddd": WEEKDAYS[day.weekday()],
        "ddd": WEEKDAYS[day.weekday()][:3], "dd": f"{day.day:02}", "d": str(day.day), "HH": f"{hour:02}", "H": str(hour),
        "hh": f"{(hour + 11) % 12 + 1:02}", "h": str((hour + 11) % 12 + 1), "mm": f"{minute:02}", "m": str(minute),
        "ss": f"{second:02}", "s": str(second), "tt": "AM" if hour < 12 else "PM",
    }  # fmt: skip
    return table.get(piece, piece)


def _format(call: Call, value: Any, pattern: str, culture: str | None = None) -> str:
    if culture is not None and culture.lower() not in ("en-us", "en"):
        raise unsupported(f"FORMAT with the culture {culture}")
    source = call.types[0]
    group = family(source)
    if group == "temporal":
        return format_date(temporal.to_moment(value, source), pattern)
    if group == "float":
        scaled, scale = numbers.float_to_scaled(value, 15, SqlType("decimal", precision=38)), 15
    elif group in ("integer", "exact"):
        scaled, scale = numbers.scaled_of(value, source)
    else:
        raise SqlError(8116, f"Argument data type {source.name} is invalid for argument 1 of format function.")
    return _format_number(scaled, scale, pattern)


def _format_number(scaled: int, scale: int, pattern: str) -> str:
    found = re.fullmatch(r"([NnFfDd])(\d{0,2})", pattern)
    if found:
        kind = found[1].upper()
        digits = int(found[2]) if found[2] else (0 if kind == "D" else 2)
        if kind == "D":
            whole = numbers.rescale(scaled, scale, 0)
            return f"{'-' if whole < 0 else ''}{abs(whole):0{digits}}"
        text = numbers.exact_text(numbers.rescale(scaled, scale, digits), digits)
        return _grouped(text) if kind == "N" else text
    found = re.fullmatch(r"(#,##)?(0+|#)(?:\.(0*)(#*))?", pattern)
    if not found:
        raise unsupported(f"FORMAT with the pattern '{pattern}'")
    least, most = len(found[3] or ""), len(found[3] or "") + len(found[4] or "")
    text = numbers.exact_text(numbers.rescale(scaled, scale, most), most)
    whole_text, _, fraction = text.partition(".")
    sign, whole_text = ("-", whole_text[1:]) if whole_text.startswith("-") else ("", whole_text)
    if found[2] != "#":
        whole_text = whole_text.rjust(len(found[2]), "0")
    while len(fraction) > least and fraction.endswith("0"):
        fraction = fraction[:-1]
    text = sign + whole_text + (f".{fraction}" if fraction else "")
    return _grouped(text) if found[1] else text


def _grouped(text: str) -> str:
    whole, point, fraction = text.partition(".")
    return f"{int(whole):,}{point}{fraction}" if whole not in ("-0",) else text


_TEXT: Final = SqlType("nvarchar", 4000)

define("FORMAT", SqlType("nvarchar", 4000), 2, 3, _format, arguments=(None, _TEXT, _TEXT))
