"""Conversions between all types as Python functions on stored values.

`converter` makes one function per (source, target, style). Which pairs convert implicitly, explicitly or not at all follows the table of the vendor page
"Data type conversion (Database Engine)".
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from mssql_standin.errors import SqlError, unsupported
from mssql_standin.sql import numbers, temporal, textforms
from mssql_standin.sql.xmltext import normalized
from mssql_standin.sqltypes import (
    APPROXIMATE,
    BINARY,
    CHARACTER,
    DECIMAL,
    INTEGER,
    MAX,
    MONEY,
    TEMPORAL,
    SqlType,
    Value,
    guid_from_stored,
    guid_to_stored,
)

Convert = Callable[[Any], Value]

_LEGACY: Final = frozenset({"datetime", "smalldatetime"})
VALUE_ERRORS: Final = frozenset({220, 232, 234, 235, 241, 242, 244, 245, 248, 293, 8114, 8115, 8169, 8170, 9400, 9812})


def family(sql_type: SqlType) -> str:
    """The group of types that convert alike."""
    name = sql_type.name
    for group, members in _FAMILIES:
        if name in members:
            return group
    return name


_FAMILIES: Final = (
    ("text", CHARACTER),
    ("integer", INTEGER),
    ("exact", DECIMAL | MONEY),
    ("float", APPROXIMATE),
    ("temporal", TEMPORAL),
    ("binary", BINARY),
    ("guid", frozenset({"uniqueidentifier"})),
)
_BYTES_ONLY: Final = frozenset({"sql_variant", "hierarchyid", "geometry", "geography"})


# ---- kernels by family ----------------------------------------------------------------------------------------


def _from_integer(source: SqlType, target: SqlType, style: int | None) -> Convert:
    group = family(target)
    if group == "integer":
        return lambda v: numbers.to_integer(v, target, source)
    if group == "exact":
        return _exact_target(lambda v: (v, 0), target, source)
    if group == "float":
        return float if target.name == "float" else lambda v: numbers.single(float(v))
    if group == "text":
        return _short_number(str, source, target)
    if group == "temporal" and target.name in _LEGACY:
        raise _no_days(source, target)
    raise not_allowed(source, target)


def _exact_target(read: Callable[[Any], tuple[int, int]], target: SqlType, source: SqlType) -> Convert:
    if target.name in MONEY:

        def to_money(value: Any) -> Value:
            scaled, scale = read(value)
            return numbers.to_integer(numbers.rescale(scaled, scale, 4), target, source)

        return to_money

    def to_decimal(value: Any) -> Value:
        scaled, scale = read(value)
        return numbers.to_decimal(scaled, scale, target, source)

    return to_decimal


def _short_number(write: Callable[[Any], str], source: SqlType, target: SqlType) -> Convert:
    """Number to text; a value that does not fit is `*` for integers up to int in varchar, else an error."""
    fit = _text_target(target)
    if target.length == MAX or target.name in ("text", "ntext"):
        return lambda v: fit(write(v))

    def run(value: Any) -> Value:
        text = write(value)
        if len(text) <= target.length:
            return fit(text)
        if source.name in ("tinyint", "smallint", "int") and target.name in ("char", "varchar"):
            return fit("*")
        if source.name in MONEY:
            raise SqlError(234, f"There is insufficient result space to convert a money value to {target.name}.")
        if source.name in APPROXIMATE:
            raise SqlError(232, f"Arithmetic overflow error for type {target.name}, value = {value:.6f}.")
        raise SqlError(
            8115, f"Arithmetic overflow error converting {numbers.source_name(source)} to data type {target.name}."
        )

    return run


def _from_exact(source: SqlType, target: SqlType, style: int | None) -> Convert:
    group = family(target)
    if group == "integer":
        if target.name == "bit":
            return lambda v: int(numbers.scaled_of(v, source)[0] != 0)
        if source.name in MONEY:  # money rounds, decimal truncates
            return lambda v: numbers.to_integer(numbers.rescale(v, 4, 0), target, source)
        return lambda v: numbers.to_integer(numbers.truncate(*numbers.scaled_of(v, source)), target, source)
    if group == "exact":
        return _exact_target(lambda v: numbers.scaled_of(v, source), target, source)
    if group == "float":
        return _float_target(lambda v: numbers.to_float(*numbers.scaled_of(v, source)), target)
    if group == "text":
        if source.name in MONEY:
            return _short_number(lambda v: numbers.money_text(v, style), source, target)
        return _short_number(lambda v: numbers.exact_text(*numbers.scaled_of(v, source)), source, target)
    if group == "temporal" and target.name in _LEGACY:
        raise _no_days(source, target)
    raise not_allowed(source, target)


def _float_target(read: Callable[[Any], float], target: SqlType) -> Convert:
    return read if target.name == "float" else lambda v: numbers.single(read(v))


def _from_float(source: SqlType, target: SqlType, style: int | None) -> Convert:
    group = family(target)
    if group == "integer":

        def to_integer(value: float) -> Value:
            if target.name == "bit":
                return int(value != 0)
            number = int(value) if abs(value) < 2**70 else 2**70
            low, high = numbers.RANGES[target.name]
            if not low <= number <= high:
                raise SqlError(232, f"Arithmetic overflow error for type {target.name}, value = {value:.6f}.")
            return number

        return to_integer
    if group == "exact":
        scale = 4 if target.name in MONEY else target.scale
        return _exact_target(lambda v: (numbers.float_to_scaled(v, scale, target), scale), target, source)
    if group == "float":
        return _float_target(float, target)
    if group == "text":
        return _short_number(lambda v: numbers.float_text(v, style, source), source, target)
    if group == "temporal" and target.name in _LEGACY:
        raise _no_days(source, target)
    raise not_allowed(source, target)


def _from_temporal(source: SqlType, target: SqlType, style: int | None) -> Convert:
    group = family(target)
    if group == "temporal":
        if {source.name, target.name} == {"date", "time"}:
            raise not_allowed(source, target)
        return lambda v: temporal.from_moment(temporal.to_moment(v, source), target, source)
    if group == "text":
        fit = _text_target(target)
        return lambda v: fit(temporal.format_moment(temporal.to_moment(v, source), source, style))
    if source.name in _LEGACY and group in ("integer", "exact", "float"):
        raise _no_days(source, target)
    raise not_allowed(source, target)


def _from_text(source: SqlType, target: SqlType, style: int | None) -> Convert:
    group = family(target)
    if group == "text":
        return _text_target(target)
    if group == "integer":
        return lambda v: numbers.parse_integer(v, target, source)
    if group == "exact":
        if target.name in MONEY:
            return _exact_target(lambda v: numbers.parse_money(v, target), target, source)
        return _exact_target(lambda v: numbers.parse_exact(v, source), target, source)
    if group == "float":
        return _float_target(lambda v: numbers.parse_float(v, source, target), target)
    if group == "temporal":
        return lambda v: temporal.from_moment(temporal.parse_moment(v, target, style), target, source)
    if group == "guid":
        return _parse_guid
    fit = _binary_target(target)
    if style in (1, 2):
        return lambda v: fit(_parse_hex(v, style == 1))
    return lambda v: fit(textforms.text_bytes(v, source))


def _parse_guid(text: str) -> bytes:
    body = text.strip()
    if body.startswith("{"):
        body = body[1:].split("}")[0]
    digits = body[:36].replace("-", "")
    try:
        if len(digits) != 32 or [i for i, c in enumerate(body[:36]) if c == "-"] != [8, 13, 18, 23]:
            raise ValueError
        raw = bytes.fromhex(digits)
    except ValueError as error:
        raise SqlError(
            8169, "Conversion failed when converting from a character string to uniqueidentifier.", state=2
        ) from error
    return guid_to_stored(raw[3::-1] + raw[5:3:-1] + raw[7:5:-1] + raw[8:])


def guid_text(stored: bytes) -> str:
    """A stored uniqueidentifier in its 36 characters."""
    wire = guid_from_stored(stored)
    parts = (wire[3::-1], wire[5:3:-1], wire[7:5:-1], wire[8:10], wire[10:])
    return "-".join(part.hex().upper() for part in parts)


def _parse_hex(text: str, prefixed: bool) -> bytes:
    body = text.rstrip(" ")
    try:
        if prefixed:
            if body[:2].lower() != "0x":
                raise ValueError
            body = body[2:]
        return bytes.fromhex(body) if " " not in body else bytes.fromhex("?")
    except ValueError as error:
        raise SqlError(8114, "Error converting data type varchar to varbinary.") from error


def _from_binary(source: SqlType, target: SqlType, style: int | None) -> Convert:
    group = family(target)
    if group == "binary":
        return _binary_target(target)
    if group == "float" or source.name in _BYTES_ONLY or (source.name == "image" and group == "text"):
        raise not_allowed(source, target)
    if group == "text":
        fit = _text_target(target)
        if style in (1, 2):
            prefix = "0x" if style == 1 else ""
            return lambda v: fit(prefix + v.hex().upper())
        if target.name == "xml":
            return _refusing(source, target)
        return lambda v: fit(textforms.bytes_text(v, target))
    return lambda v: textforms.from_binary(v, target)


def _from_guid(source: SqlType, target: SqlType, style: int | None) -> Convert:
    group = family(target)
    if group == "guid":
        return bytes
    if group == "text":
        if target.length != MAX and target.length < 36 and target.name not in ("text", "ntext"):
            raise SqlError(8170, "Insufficient result space to convert uniqueidentifier value to char.")
        fit = _text_target(target)
        return lambda v: fit(guid_text(v))
    raise not_allowed(source, target)


_MAKERS: Final = {
    "integer": _from_integer, "exact": _from_exact, "float": _from_float, "temporal": _from_temporal,
    "text": _from_text, "binary": _from_binary, "guid": _from_guid,
}  # fmt: skip


def _text_target(target: SqlType) -> Callable[[str], str]:
    if target.name == "xml":
        return normalized
    if target.name in ("text", "ntext") or target.length == MAX:
        return lambda v: textforms.to_page(v, target)
    length = target.length
    if target.name in ("char", "nchar"):

        def pad(value: str) -> str:
            text = textforms.cut(textforms.to_page(value, target), length)
            return text + " " * (length - textforms.units(text))

        return pad
    return lambda v: textforms.cut(textforms.to_page(v, target), length)


def _binary_target(target: SqlType) -> Callable[[bytes], bytes]:
    if target.name == "binary":
        return lambda v: v[: target.length].ljust(target.length, b"\0")
    if target.name == "rowversion":
        return lambda v: v[:8].ljust(8, b"\0")
    if target.name == "varbinary" and target.length != MAX:
        return lambda v: v[: target.length]
    return bytes


def _number_binary(source: SqlType, target: SqlType) -> Convert:
    """Numbers are right-aligned in binary: the low bytes stay, zeros fill the front."""
    length = 8 if target.name == "rowversion" else target.length
    if target.name == "varbinary" and length == MAX:
        return lambda v: textforms.to_binary(v, source)
    if source.name not in numbers.INT_BYTES:
        fit = _binary_target(target)
        return lambda v: fit(textforms.to_binary(v, source))
    width = length if target.name in ("binary", "rowversion") else 0
    return lambda v: textforms.to_binary(v, source)[-length:].rjust(width, b"\0")


def not_allowed(source: SqlType, target: SqlType) -> SqlError:
    """529."""
    return SqlError(529, f"Explicit conversion from data type {source.name} to {target.name} is not allowed.")


def _no_days(source: SqlType, target: SqlType) -> SqlError:
    """Dates as numbers of days."""
    return unsupported(f"converting {source.name} to {target.name}")


def _refusing(source: SqlType, target: SqlType) -> Convert:
    """Types that only hold bytes or NULL: whatever else comes is refused when it comes."""

    def refuse(_: Any) -> Value:
        raise unsupported(f"converting {source.name} to {target.name}")

    return refuse


@lru_cache(maxsize=4096)
def converter(source: SqlType, target: SqlType, style: int | None = None) -> Convert:
    """The function that converts stored values of one type (never NULL) into those of another.

    Raises:
        SqlError: 529 when the types do not convert, 8170; the function itself raises value errors.
    """
    if "xml" in (source.name, target.name) and not {family(source), family(target)} <= {"text", "binary"}:
        raise not_allowed(source, target)
    if target.name in _BYTES_ONLY and family(source) != "binary":
        return _refusing(source, target)
    if family(target) == "binary" and family(source) not in ("text", "binary"):
        if target.name in ("image", "rowversion") and family(source) != "integer":
            raise not_allowed(source, target)
        return _number_binary(source, target)
    return _MAKERS[family(source)](source, target, style)


def convert_value(value: Value, source: SqlType, target: SqlType, style: int | None = None) -> Value:
    """Convert a stored value explicitly.

    Args:
        value: in the stored form of `source`.
        style: of CONVERT; None as CAST does.

    Raises:
        SqlError: 529 when the types do not convert; value errors such as 241, 245, 8114, 8115.
    """
    return None if value is None else converter(source, target, style)(value)
