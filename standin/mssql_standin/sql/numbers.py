"""Exact and approximate numbers between types and text.

Decimals and money travel as (scaled integer, scale). Rounding is half away from zero, as SQL Server's.
"""

import math
import re
import struct
from typing import Any, Final

from mssql_standin.errors import SqlError
from mssql_standin.sqltypes import DECIMAL, MONEY, SqlType, decimal_from_stored, decimal_to_stored

RANGES: Final = {
    "tinyint": (0, 255),
    "smallint": (-(2**15), 2**15 - 1),
    "int": (-(2**31), 2**31 - 1),
    "bigint": (-(2**63), 2**63 - 1),
    "money": (-(2**63), 2**63 - 1),
    "smallmoney": (-(2**31), 2**31 - 1),
}
DIGITS: Final = {"bit": 1, "tinyint": 3, "smallint": 5, "int": 10, "bigint": 19, "money": 19, "smallmoney": 10}
"""Decimal digits that hold every value of the type."""
INT_BYTES: Final = {"bit": 1, "tinyint": 1, "smallint": 2, "int": 4, "bigint": 8, "money": 8, "smallmoney": 4}


def overflow(source: str, target: SqlType) -> SqlError:
    """8115."""
    name = "numeric" if target.name in DECIMAL else target.name
    return SqlError(8115, f"Arithmetic overflow error converting {source} to data type {name}.", state=2)


def rescale(scaled: int, scale: int, target_scale: int) -> int:
    """Move a scaled integer to another scale, rounding half away from zero."""
    if target_scale >= scale:
        return scaled * int(10 ** (target_scale - scale))
    unit = int(10 ** (scale - target_scale))
    quotient, rest = divmod(abs(scaled), unit)
    if rest * 2 >= unit:
        quotient += 1
    return -quotient if scaled < 0 else quotient


def truncate(scaled: int, scale: int) -> int:
    """The integer part, toward zero."""
    unit = int(10**scale)
    return -(-scaled // unit) if scaled < 0 else scaled // unit


def source_name(source: SqlType) -> str:
    """How messages call a source type."""
    return "numeric" if source.name in DECIMAL else "expression" if source.name in INT_BYTES else source.name


def to_integer(number: int, target: SqlType, source: SqlType) -> int:
    """Check an integer against the range of an integer or money type.

    Raises:
        SqlError: 220 for tinyint and smallint, else 8115.
    """
    if target.name == "bit":
        return int(number != 0)
    low, high = RANGES[target.name]
    if low <= number <= high:
        return number
    if target.name in ("tinyint", "smallint") and source.name in ("smallint", "int", "bigint"):
        raise SqlError(220, f"Arithmetic overflow error for data type {target.name}, value = {number}.")
    raise overflow(source_name(source), target)


def to_decimal(scaled: int, scale: int, target: SqlType, source: SqlType) -> int | bytes:
    """A scaled integer as the stored form of a decimal type.

    Raises:
        SqlError: 8115 when it does not fit.
    """
    result = rescale(scaled, scale, target.scale)
    if abs(result) >= 10**target.precision:
        raise overflow("int" if source.name in INT_BYTES and source.name not in MONEY else source.name, target)
    return decimal_to_stored(result, target)


def scaled_of(value: Any, source: SqlType) -> tuple[int, int]:
    """Any exact number as (scaled integer, scale)."""
    if source.name in DECIMAL:
        return decimal_from_stored(value), source.scale
    return value, 4 if source.name in MONEY else 0


def single(number: float) -> float:
    """Round to single precision.

    Raises:
        SqlError: 8115 beyond its range.
    """
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError as error:
        raise SqlError(8115, "Arithmetic overflow error converting expression to data type real.") from error


def to_float(scaled: int, scale: int) -> float:
    """The nearest float to an exact number."""
    return scaled / int(10**scale)


def float_to_scaled(number: float, scale: int, target: SqlType) -> int:
    """A float as a scaled integer; SQL Server keeps about 17 significant digits.

    Raises:
        SqlError: 8115 when it is not finite.
    """
    if not math.isfinite(number):
        raise overflow("float", target)
    numerator, denominator = number.as_integer_ratio()
    sign = -1 if numerator < 0 else 1
    scaled, rest = divmod(abs(numerator) * int(10**scale), denominator)
    return sign * (scaled + (1 if rest * 2 >= denominator else 0))


# ---- text ----------------------------------------------------------------------------------------------------

# For texts without blanks around; no two parts can match the same characters, or long texts would take for ever to refuse.
_BLANKS: Final = " \t\n\r\f\v"
_INTEGER: Final = re.compile(r"([+-]?)\s*(\d*)\Z", re.ASCII)
_EXACT: Final = re.compile(r"([+-]?)\s*(\d*)(?:\.(\d*))?\Z", re.ASCII)
_MONEY: Final = re.compile(r"([+-]?)\s*(?:[$€£¥]\s*)?([+-]?)([\d,]*)(?:\.(\d*))?\Z", re.ASCII)
_FLOAT: Final = re.compile(r"[+-]?\s*(?:\d+(?:\.\d*)?|\.\d+)(?:[eEdD][+-]?\d+)?\Z", re.ASCII)


_MOST_DIGITS: Final = 60
"""More than any exact type has; Python refuses to read very long numbers."""


def _digits(whole: str, fraction: str) -> tuple[int, int]:
    """Digits before and behind the point as (scaled integer, scale); a number that no type holds stays too large for all."""
    whole, fraction = whole.lstrip("0"), fraction[:_MOST_DIGITS]
    if len(whole) > _MOST_DIGITS:
        whole = "9" * _MOST_DIGITS
    return int(f"0{whole}{fraction}"), len(fraction)


def parse_integer(text: str, target: SqlType, source: SqlType) -> int:
    """Read an integer; a sign alone is 0.

    Raises:
        SqlError: 245 (8114 for bigint) when it is none, 244, 248 or 8115 when it does not fit.
    """
    if target.name == "bit" and text.strip().lower() in ("true", "false"):
        return int(text.strip().lower() == "true")
    found = _INTEGER.match(text.strip(_BLANKS))
    if not found:
        if target.name == "bigint":
            raise SqlError(8114, f"Error converting data type {source.name} to bigint.", state=5)
        raise SqlError(
            245,
            f"Conversion failed when converting the {source.name} value '{text}' to data type {target.name}.",
        )
    number = _digits(found[2], "")[0] * (-1 if found[1] == "-" else 1)
    if target.name == "bit":
        return int(number != 0)
    low, high = RANGES[target.name]
    if low <= number <= high:
        return number
    if target.name == "bigint":
        raise overflow("expression", target)
    if target.name == "int":
        raise SqlError(248, f"The conversion of the {source.name} value '{text}' overflowed an int column.")
    short = {"tinyint": "an INT1", "smallint": "an INT2"}[target.name]
    raise SqlError(
        244,
        f"The conversion of the {source.name} value '{text}' overflowed {short} column. Use a larger integer column.",
    )


def parse_exact(text: str, source: SqlType) -> tuple[int, int]:
    """Read a decimal number as (scaled integer, scale).

    Raises:
        SqlError: 8114.
    """
    found = _EXACT.match(text.strip(_BLANKS))
    if not found or not (found[2] or found[3]):
        raise SqlError(8114, f"Error converting data type {source.name} to numeric.", state=5)
    scaled, scale = _digits(found[2], found[3] or "")
    return (-scaled if found[1] == "-" else scaled), scale


def parse_money(text: str, target: SqlType) -> tuple[int, int]:
    """Read an amount of money as (scaled integer, scale).

    Raises:
        SqlError: 235, for smallmoney 293.
    """
    found = _MONEY.match(text.strip(_BLANKS))
    if not found:
        raise SqlError(
            293 if target.name == "smallmoney" else 235,
            f"Cannot convert a char value to {target.name}. The char value has incorrect syntax.",
            state=0,
        )
    scaled, scale = _digits(found[3].replace(",", ""), found[4] or "")
    return (-scaled if "-" in (found[1], found[2]) else scaled), scale


def parse_float(text: str, source: SqlType, target: SqlType) -> float:
    """Read an approximate number; the exponent may begin with e or d.

    Raises:
        SqlError: 8114 when it is none, 8115 when it does not fit.
    """
    if not text.strip():
        return 0.0
    if not _FLOAT.match(text.strip(_BLANKS)):
        raise SqlError(8114, f"Error converting data type {source.name} to {target.name}.", state=5)
    number = float(text.replace(" ", "").lower().replace("d", "e"))
    if math.isinf(number):
        raise overflow(source.name, target)
    return number


def exact_text(scaled: int, scale: int) -> str:
    """A scaled integer in plain digits."""
    sign, digits = ("-" if scaled < 0 else ""), str(abs(scaled)).rjust(scale + 1, "0")
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else f"{sign}{digits}"


def money_text(scaled: int, style: int | None) -> str:
    """Money: style 0 two digits, 1 with thousands separators, 2 (and 126) four digits."""
    if style in (2, 126):
        return exact_text(scaled, 4)
    text = exact_text(rescale(scaled, 4, 2), 2)
    if style != 1:
        return text
    whole, _, cents = text.lstrip("-").partition(".")
    return f"{'-' if scaled < 0 else ''}{int(whole):,}.{cents}"


_EXPONENT: Final = re.compile(r"e([+-])(\d+)")


def float_text(number: float, style: int | None, source: SqlType) -> str:
    """A float: style 0 six digits, 1 eight and 2 sixteen digits with exponent, 3 as many as needed."""
    if style == 1:
        text = f"{number:.7e}"
    elif style == 2:
        text = f"{number:.15e}"
    elif style in (3, 126):
        text = f"{number:.{9 if source.name == 'real' else 17}g}"
    else:
        text = f"{number:.6g}"
    return _EXPONENT.sub(lambda found: f"e{found[1]}{found[2].rjust(3, '0')}", text)
