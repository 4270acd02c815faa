"""Conversions in SQLite text: explicit (`cast`), implicit in expressions (`implicit`) and when storing (`assign`).

A conversion is left out where the stored form does not change, and computed at once for constants.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

from mssql_standin.contract import SessionContext, Typed
from mssql_standin.errors import SqlError
from mssql_standin.sql import numbers, textforms
from mssql_standin.sql.kernels import VALUE_ERRORS, convert_value, converter, family
from mssql_standin.sql.literals import Constant, constant
from mssql_standin.sql.runtime import Kernel, apply, builder, read_type, specification
from mssql_standin.sqltypes import DECIMAL, INTEGER, MAX, SqlType, Value

__all__ = [
    "assign",
    "cast",
    "check_implicit",
    "clash",
    "convert_argument",
    "convert_value",
    "converter",
    "family",
    "implicit",
    "unchanged",
]


@builder("cast")
def _build_cast(arguments: Sequence[str]) -> Kernel:
    source, target, style, mode = arguments
    convert = converter(read_type(source), read_type(target), int(style) if style else None)
    if mode == "try":

        def attempt(_: SessionContext, value: Value) -> Value:
            try:
                return None if value is None else convert(value)
            except SqlError as error:
                if error.number in VALUE_ERRORS:
                    return None
                raise

        return attempt
    return lambda _, value: None if value is None else convert(value)


@builder("assign")
def _build_assign(arguments: Sequence[str]) -> Kernel:
    source_text, target_text, column, table = arguments
    source, target = read_type(source_text), read_type(target_text)
    convert = converter(source, target)
    check = _truncation_check(source, target, column, table)
    if check is None:
        return lambda _, value: None if value is None else convert(value)

    def run(_: SessionContext, value: Any) -> Value:
        if value is None:
            return None
        check(value)
        return convert(value)

    return run


def _truncation_check(source: SqlType, target: SqlType, column: str, table: str) -> Callable[[Any], None] | None:
    if target.length <= 0 or family(source) != family(target):
        return None

    def fail(shown: str) -> None:
        raise SqlError(
            2628,
            f"String or binary data would be truncated in table '{table}', column '{column}'. Truncated value: '{shown}'.",
        )

    def check_text(value: str) -> None:
        if textforms.units(value) > target.length and textforms.units(value.rstrip(" ")) > target.length:
            fail(textforms.cut(value, target.length))

    def check_binary(value: bytes) -> None:
        if len(value) > target.length:
            fail("")

    return check_text if family(target) == "text" else check_binary if family(target) == "binary" else None


def unchanged(source: SqlType, target: SqlType) -> bool:
    """Whether every stored value of `source` is, as it is, the stored value of `target`."""
    if source == target:
        return True
    name, other = source.name, target.name
    if family(source) == "text" and family(target) == "text":
        return _text_unchanged(source, target)
    if name == other and name in ("decimal", "numeric", "time", "datetime2", "datetimeoffset"):
        return _scaled_unchanged(source, target)
    if name in DECIMAL and other in DECIMAL:
        return _scaled_unchanged(source, target)
    if name in INTEGER and other in INTEGER and other != "bit":
        return numbers.DIGITS[name] < numbers.DIGITS[other]
    if name in INTEGER and other in DECIMAL:
        return not target.is_wide_decimal and target.scale == 0 and target.precision >= numbers.DIGITS[name]
    if (name, other) in (
        ("real", "float"),
        ("smallmoney", "money"),
        ("rowversion", "binary"),
        ("rowversion", "varbinary"),
    ):
        return target.length == 0 or target.length == MAX or target.length == 8 or other == "varbinary"
    if name in ("binary", "varbinary", "image") and other in ("varbinary", "image"):
        return other == "image" or target.length == MAX or 0 < source.length <= target.length
    return False


def _text_unchanged(source: SqlType, target: SqlType) -> bool:
    from_unicode = source.max_length == -1 or source.name.startswith("n") or source.name == "xml"
    if target.name == "xml" and source.name != "xml":
        return False
    if from_unicode and target.name in ("char", "varchar", "text") and source.name not in ("varchar", "char", "text"):
        return False
    if target.name in ("char", "nchar"):
        return source.name in ("char", "nchar") and source.length == target.length
    if target.is_max or target.name in ("text", "ntext"):
        return True
    return 0 < source.length <= target.length


def _scaled_unchanged(source: SqlType, target: SqlType) -> bool:
    if source.name in DECIMAL:
        return (
            source.scale == target.scale
            and source.precision <= target.precision
            and source.is_wide_decimal == target.is_wide_decimal
        )
    return source.scale <= target.scale


def cast(typed: Typed, target: SqlType, style: int | None = None, try_: bool = False) -> Typed:
    """Convert explicitly, as CAST and CONVERT (TRY_ forms with `try_`) do.

    Raises:
        SqlError: 529 when the types do not convert.
    """
    if isinstance(typed, Constant) and typed.value is None:
        return constant(None, target)
    if family(target) == "text" and not target.collation and typed.type.collation:
        target = target.with_collation(typed.type.collation)
    if unchanged(typed.type, target):
        if isinstance(typed, Constant):
            return constant(typed.value, target)
        return Typed(typed.sql, target, typed.nullable)
    converter(typed.type, target, style)
    mode = "try" if try_ else ""
    spec = specification("cast", typed.type, target, "" if style is None else str(style), mode)
    return apply(spec, [typed], target, typed.nullable or try_)


_LEGACY: Final = frozenset({"datetime", "smalldatetime"})
_IMPLICIT_REFUSED: Final = {
    ("text", "binary"), ("temporal", "integer"), ("temporal", "exact"), ("temporal", "float"), ("float", "binary"),
    ("temporal", "binary"),
}  # fmt: skip


def implicit(typed: Typed, target: SqlType) -> Typed:
    """Convert as SQL Server does by itself.

    Raises:
        SqlError: 257 when only CONVERT may do it, 206 when nothing may.
    """
    check_implicit(typed, target)
    return cast(typed, target)


def check_implicit(typed: Typed, target: SqlType) -> None:
    """Refuse what SQL Server does not convert by itself: 257 or 206."""
    source = typed.type
    if isinstance(typed, Constant) and typed.value is None and typed.literal:
        return
    pair = (family(source), family(target))
    refused = pair in _IMPLICIT_REFUSED and (pair[0] != "temporal" or pair[1] == "binary" or source.name in _LEGACY)
    if refused or (source.name == "xml" and target.name != "xml"):
        raise SqlError(
            257,
            f"Implicit conversion from data type {source.name} to {target.name} is not allowed. "
            "Use the CONVERT function to run this query.",
        )
    try:
        converter(source, target)
    except SqlError as error:
        if error.number != 529:
            raise
        raise clash(source, target) from error


def convert_argument(value: Value, source: SqlType, target: SqlType) -> Value:
    """A value as a parameter of a type takes it: cut, padded, rounded as an assignment does.

    Args:
        value: in the stored form of `source`.
        source: type of the value that was handed over.
        target: declared type of the parameter.

    Raises:
        SqlError: 8114 when the value does not convert, whatever the reason; 257 and 206 as `implicit`.
    """
    return value if value is None or source == target else _taking(source, target)(value)


@lru_cache(maxsize=4096)
def _taking(source: SqlType, target: SqlType) -> Callable[[Any], Value]:
    check_implicit(Typed("", source), target)
    convert = converter(source, target)

    def take(value: Any) -> Value:
        try:
            return convert(value)
        except SqlError as error:
            if error.number not in VALUE_ERRORS or target.name == "xml":
                raise
            raise SqlError(8114, f"Error converting data type {source.name} to {target.name}.", state=5) from error

    return take


def clash(source: SqlType, target: SqlType) -> SqlError:
    """206."""
    return SqlError(206, f"Operand type clash: {source.name} is incompatible with {target.name}")


def assign(typed: Typed, target: SqlType, column: str, table: str) -> Typed:
    """Convert implicitly for storing into a column.

    Args:
        column: name for messages.
        table: `database.schema.table` for messages.

    Raises:
        SqlError: 257 or 206 when the types do not convert; the text itself raises 2628, 8115, 220 … at run time.
    """
    if isinstance(typed, Constant) and typed.value is None:
        return constant(None, target)
    if unchanged(typed.type, target):
        return (
            Typed(typed.sql, target, typed.nullable)
            if not isinstance(typed, Constant)
            else constant(typed.value, target)
        )
    check_implicit(typed, target)
    clean = (part.replace("|", "¦") for part in (column, table))
    return apply(specification("assign", typed.type, target, *clean), [typed], target, typed.nullable)
