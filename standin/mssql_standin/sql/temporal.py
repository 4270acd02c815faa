"""Points in time between types: stored forms to local ticks and back, and text both ways.

Every temporal value passes through a *moment*: local 100 ns ticks since 0001-01-01 and the
offset in minutes, None when the type has none. A `time` lies on 1900-01-01, as SQL Server
places it when a date is needed.
"""

import re
from datetime import date
from typing import Any, Final

from mssql_standin.errors import SqlError, unsupported
from mssql_standin.sqltypes import SqlType, Value, offset_from_stored, offset_to_stored

SECOND: Final = 10_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
BASE_DAY: Final = date(1900, 1, 1).toordinal() - 1
BASE: Final = BASE_DAY * DAY
END: Final = date.max.toordinal() * DAY
"""First tick after year 9999."""
_DATETIME_FIRST: Final = (date(1753, 1, 1).toordinal() - 1) * DAY
_SMALL_LAST: Final = (date(2079, 6, 6).toordinal() - BASE_DAY) * 1440 - 1

Moment = tuple[int, int | None]
MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
FULL_MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
)  # fmt: skip


def out_of_range(source: SqlType, target: SqlType) -> SqlError:
    """242."""
    return SqlError(
        242,
        f"The conversion of a {source.name} data type to a {target.name} data type resulted in an out-of-range value.",
        state=3,
    )


def bad_text() -> SqlError:
    """241."""
    return SqlError(241, "Conversion failed when converting date and/or time from character string.")


def round_to_scale(ticks: int, scale: int) -> int:
    """Round 100 ns ticks half up to a number of fractional digits."""
    unit = int(10 ** (7 - scale))
    return ticks if unit == 1 else (ticks + unit // 2) // unit * unit


def to_moment(value: Any, source: SqlType) -> Moment:
    """A stored temporal value as a moment."""
    if source.name == "datetimeoffset":
        utc, offset = offset_from_stored(value)
        return utc + offset * MINUTE, offset
    match source.name:
        case "date":
            return value * DAY, None
        case "time":
            return BASE + value, None
        case "datetime2":
            return value, None
        case "datetime":
            return BASE + (value * 100_000 + 1) // 3, None
        case _:
            return BASE + value * MINUTE, None


def from_moment(moment: Moment, target: SqlType, source: SqlType) -> Value:
    """A moment as the stored form of a temporal type, rounded as SQL Server rounds.

    Raises:
        SqlError: 242 outside the target's range, 8115 for datetimeoffset.
    """
    local, offset = moment
    match target.name:
        case "date":
            return local // DAY
        case "time":
            return round_to_scale(local % DAY, target.scale) % DAY
        case "datetime2":
            rounded = round_to_scale(local, target.scale)
            return rounded if rounded < END else local // int(10 ** (7 - target.scale)) * int(10 ** (7 - target.scale))
        case "datetimeoffset":
            return _to_offset(local, offset or 0, target, source)
    if local < _DATETIME_FIRST:
        raise out_of_range(source, target)
    ticks = ((local - BASE) * 3 + 50_000) // 100_000
    if target.name == "datetime":
        if ticks * 100_000 >= (END - BASE) * 3:
            raise out_of_range(source, target)
        return ticks
    minutes = (ticks + 9_000) // 18_000
    if not 0 <= minutes <= _SMALL_LAST:
        raise out_of_range(source, target)
    return minutes


def _to_offset(local: int, offset: int, target: SqlType, source: SqlType) -> bytes:
    utc = local - offset * MINUTE
    rounded = round_to_scale(utc, target.scale)
    if not 0 <= rounded < END:
        rounded = utc
    if not (0 <= rounded < END and 0 <= local < END):
        raise SqlError(8115, f"Arithmetic overflow error converting {source.name} to data type datetimeoffset.")
    return offset_to_stored(rounded, offset)


def calendar(local: int) -> date:
    """The calendar day of local ticks."""
    return date.fromordinal(local // DAY + 1)


# ---- text to moment ------------------------------------------------------------------------------------------

_TIME: Final = (
    r"(?P<h>\d{1,2})(?::(?P<mi>\d{1,2})(?::(?P<s>\d{1,2})(?P<dot>[.:])?(?P<f>(?<=[.:])\d+)?)?)?\s*(?P<ap>[AaPp][Mm])?"
)
_OFFSET: Final = r"(?:\s*(?P<o>[+-]\d{1,2}:\d{2}|Z))?"
_DAY_FORMS: Final = (
    r"(?P<y>\d{4})[-/.](?P<m>\d{1,2})[-/.](?P<d>\d{1,2})",
    r"(?P<y>\d{4})(?P<m>\d{2})(?P<d>\d{2})(?!\d)",
    r"(?P<y>\d{2})(?P<m>\d{2})(?P<d>\d{2})(?!\d)",
    r"(?P<a>\d{1,2})[-/.](?P<b>\d{1,2})[-/.](?P<y>\d{4}|\d{2})(?!\d)",
    r"(?P<mon>[A-Za-z]{3,9})\.?\s+(?P<d>\d{1,2})(?:\s*,\s*|\s+)(?P<y>\d{4}|\d{2})(?!\d)",
    r"(?P<d>\d{1,2})[\s-]+(?P<mon>[A-Za-z]{3,9})\.?,?[\s-]+(?P<y>\d{4}|\d{2})(?!\d)",
    r"(?P<y>\d{4})\s+(?P<mon>[A-Za-z]{3,9})\s+(?P<d>\d{1,2})",
    r"(?P<y>\d{4})(?!\d)",
)
_DAYS: Final = [re.compile(rf"\s*{form}(?:(?P<T>[Tt])|\s+|(?=\s*\Z)|(?=[+-Z]))", re.ASCII) for form in _DAY_FORMS]
_CLOCK: Final = re.compile(rf"\s*(?:{_TIME})?{_OFFSET}\s*\Z", re.ASCII)
_BLANKS: Final = re.compile(r"\s+")
_DAY_FIRST: Final = frozenset({3, 4, 5, 6, 13, 103, 104, 105, 106, 113, 130, 131})
_YEAR_FIRST: Final = frozenset({2, 11, 12, 20, 21, 102, 111, 112, 120, 121})
_LEGACY: Final = frozenset({"datetime", "smalldatetime"})


def parse_moment(text: str, target: SqlType, style: int | None = None) -> Moment:
    """Read a date and time as SQL Server does under us_english.

    Raises:
        SqlError: 241 when it is none, 242 for legacy types when a part is out of range.
    """
    text = _BLANKS.sub(" ", text.strip())  # many blanks would take the patterns for ever
    if not text:
        return BASE, None
    for pattern in _DAYS:
        found = pattern.match(text)
        if found:
            clock = _CLOCK.match(text, found.end())
            if clock:
                day = _day_ticks(found, target, style)
                return _with_clock(day, clock, target)
    clock = _CLOCK.match(text)
    if not clock or clock["h"] is None or (clock["mi"] is None and clock["ap"] is None):
        raise bad_text()
    return _with_clock(BASE, clock, target)


def _day_ticks(found: re.Match[str], target: SqlType, style: int | None) -> int:
    parts = found.groupdict()
    if parts.get("a"):
        first, second, year = int(parts["a"]), int(parts["b"]), parts["y"]
        if style in _YEAR_FIRST and len(year) == 2:
            return _ordinal(_year(parts["a"]), second, int(year), target)
        month, day = (second, first) if style in _DAY_FIRST else (first, second)
        return _ordinal(_year(year), month, day, target)
    month_name = parts.get("mon")
    if month_name:
        return _ordinal(_year(parts["y"]), _month(month_name), int(parts["d"]), target)
    return _ordinal(_year(parts["y"]), int(parts.get("m") or 1), int(parts.get("d") or 1), target)


def _year(text: str) -> int:
    year = int(text)
    return year if len(text) == 4 else year + (2000 if year < 50 else 1900)


def _month(name: str) -> int:
    wanted = name.lower()
    for number, full in enumerate(FULL_MONTHS, start=1):
        if full.lower() == wanted or full[:3].lower() == wanted:
            return number
    raise bad_text()


def _ordinal(year: int, month: int, day: int, target: SqlType) -> int:
    try:
        return (date(year, month, day).toordinal() - 1) * DAY
    except ValueError as error:
        raise (out_of_range(SqlType("varchar"), target) if target.name in _LEGACY else bad_text()) from error


def _with_clock(day: int, clock: re.Match[str], target: SqlType) -> Moment:
    if clock["h"] is None:
        return day, _offset(clock["o"], target)
    hour, minute, second = int(clock["h"]), int(clock["mi"] or 0), int(clock["s"] or 0)
    if clock["ap"]:
        if not 1 <= hour <= 12:
            raise bad_text()
        hour = hour % 12 + (12 if clock["ap"].lower() == "pm" else 0)
    if hour > 23 or minute > 59 or second > 59:
        raise out_of_range(SqlType("varchar"), target) if target.name in _LEGACY else bad_text()
    digits = clock["f"] or ""
    if len(digits) > (3 if target.name in _LEGACY else 7):
        raise bad_text()
    fraction = int(digits) * 10_000 if clock["dot"] == ":" and digits else int(digits.ljust(7, "0"))
    return day + hour * HOUR + minute * MINUTE + second * SECOND + fraction, _offset(clock["o"], target)


def _offset(text: str | None, target: SqlType) -> int | None:
    if text is None:
        return None
    if target.name in _LEGACY and text != "Z":
        raise bad_text()
    return 0 if text == "Z" else parse_offset(text)


def parse_offset(text: str) -> int:
    """`±hh:mm` in minutes.

    Raises:
        SqlError: 9812 when it is none or beyond 14 hours.
    """
    found = re.fullmatch(r"([+-])(\d{1,2}):(\d{2})", text.strip())
    minutes = int(found[2]) * 60 + int(found[3]) if found else 9999
    if not found or minutes > 840 or int(found[3]) > 59:
        raise SqlError(9812, "The timezone provided to builtin function is invalid.")
    return -minutes if found[1] == "-" else minutes


def offset_text(minutes: int) -> str:
    """Minutes as `±hh:mm`."""
    hours, rest = divmod(abs(minutes), 60)
    return f"{'-' if minutes < 0 else '+'}{hours:02}:{rest:02}"


# ---- moment to text ------------------------------------------------------------------------------------------


def _month_text(day: date) -> str:
    return MONTHS[day.month - 1]


# style: (date form or None, separator, time form or None)
_ODBC, _ISO, _DEFAULT = ("-", " ", "hms"), ("-", "T", "iso"), (" ", " ", "ap")
_STYLES: Final[dict[int, tuple[str | None, str, str | None]]] = {
    0: _DEFAULT, 100: _DEFAULT, 8: (None, "", "hms"), 108: (None, "", "hms"), 20: _ODBC, 120: _ODBC, 23: ("-", "", None),
    112: ("", "", None), **dict.fromkeys((21, 25, 121), ("-", " ", "hms.f")), 126: _ISO, 127: _ISO,
}  # fmt: skip


def format_moment(moment: Moment, source: SqlType, style: int | None) -> str:
    """Write a moment in a CONVERT style; without style as CAST writes that type.

    Raises:
        SqlError: 40510 for a style that is not done, 281 for one that does not fit the type.
    """
    if style is None:
        style = 0 if source.name in ("datetime", "smalldatetime") else 121
    form = _STYLES.get(style)
    if form is None:
        raise unsupported(f"style {style} of CONVERT from {source.name}")
    date_form, separator, time_form = form
    if source.name == "date":
        time_form = None
    if source.name == "time":
        date_form = None
    if date_form is None and time_form is None:
        raise _bad_style(style, source)
    local, offset = moment
    if style == 127 and offset:
        local, offset = local - offset * MINUTE, 0
    day = _date_text(calendar(local), date_form) if date_form is not None else ""
    clock = _time_text(local % DAY, source, time_form) if time_form else ""
    text = f"{day}{separator}{clock}" if day and clock else day or clock
    if source.name == "datetimeoffset" and time_form and offset is not None:
        text += "Z" if style == 127 else ("" if style == 126 else " ") + offset_text(offset)
    return text


def _bad_style(style: int, source: SqlType) -> SqlError:
    return SqlError(
        281, f"{style} is not a valid style number when converting from {source.name} to a character string."
    )


def _date_text(day: date, form: str) -> str:
    if form == " ":
        return f"{_month_text(day)} {day.day:2} {day.year:04}"
    return f"{day.year:04}{form}{day.month:02}{form}{day.day:02}"


def _time_text(ticks: int, source: SqlType, form: str) -> str:
    legacy = source.name in ("datetime", "smalldatetime")
    if legacy:  # shown in milliseconds: .003 and .007 stand for the thirds
        ticks = (ticks + 5_000) // 10_000 * 10_000
    seconds, fraction = divmod(ticks, SECOND)
    hour, minute, second = seconds // 3600, seconds // 60 % 60, seconds % 60
    digits = f"{fraction:07}"[: 3 if legacy else source.scale]
    half = "AM" if hour < 12 else "PM"
    short = f"{(hour + 11) % 12 + 1:2}:{minute:02}"
    full = f"{hour:02}:{minute:02}:{second:02}"
    if form == "ap":
        return f"{short}{half}"
    if form == "hms" or not digits or (form == "iso" and not fraction):
        return full
    return f"{full}.{digits}"
