"""Comparison: two typed operands to a SQLite condition.

Columns stay bare wherever the stored forms allow it, so that SQLite can use indexes: constants and variables take the
column's representation, not the other way round.
"""

from collections.abc import Sequence

from mssql_standin.contract import Typed
from mssql_standin.errors import SqlError
from mssql_standin.sql import numbers
from mssql_standin.sql.coercion import Collated, as_decimal, collation_of, common, is_null
from mssql_standin.sql.collation import sqlite_collation
from mssql_standin.sql.convert import cast, family, implicit
from mssql_standin.sql.literals import Constant, constant
from mssql_standin.sql.runtime import Kernel, apply, builder, specification, strict
from mssql_standin.sqltypes import DECIMAL, LEGACY_LOB, MONEY, SqlType, decimal_to_stored


def compare(sign: str, left: Typed, right: Typed, database_collation: str) -> str:
    """SQLite condition `left sign right`.

    Raises:
        SqlError: 206 or 468 when the operands do not meet, 305 for xml.
    """
    if is_null(left) or is_null(right):
        return f"{left.sql} {sign} {right.sql}"
    variants = _zero_variants(left, right) or _zero_variants(right, left)
    if variants and sign in ("=", "<>"):
        return f"{variants[0]}{' NOT' if sign == '<>' else ''} IN ({', '.join(variants[1])})"
    left, right = aligned(left, right)
    if family(left.type) == "text":
        return f"{left.sql} {sign} {right.sql} COLLATE {collated_name([left, right], database_collation)}"
    return f"{left.sql} {sign} {right.sql}"


def collated_name(operands: Sequence[Typed], database_collation: str) -> str:
    """The SQLite collation under which texts meet."""
    return sqlite_collation(collation_of(operands) or database_collation)


def comparable(typed: Typed) -> str:
    """Text that orders and equals as the value does: of a datetimeoffset only the instant counts."""
    return f"substr({typed.sql}, 1, 8)" if typed.type.name == "datetimeoffset" else typed.sql


def check_sortable(sql_type: SqlType) -> None:
    """Refuse types without an order: 305 for xml, 306 for text, ntext and image."""
    if sql_type.name == "xml":
        raise SqlError(305, "The XML data type cannot be compared or sorted, except when using the IS NULL operator.")
    if sql_type.name in LEGACY_LOB:
        raise SqlError(
            306,
            "The text, ntext, and image data types cannot be compared or sorted, except when using IS NULL or LIKE operator.",
        )


def aligned(left: Typed, right: Typed) -> tuple[Typed, Typed]:
    """Both operands in one representation that SQLite compares rightly."""
    groups = {family(left.type), family(right.type)}
    for operand in (left, right):
        if operand.type.name in LEGACY_LOB:
            raise SqlError(
                402,
                f"The data types {left.type.name} and {right.type.name} are incompatible in the comparison operator.",
            )
        check_sortable(operand.type)
    if groups == {"text"} or groups == {"integer"} or groups == {"guid"}:
        return left, right
    if groups == {"binary"}:
        return _align_binary(left, right)
    if groups <= {"integer", "exact"}:
        return _align_exact(left, right)
    target = common([left, right])
    if target.name in DECIMAL and groups != {"exact"}:
        target = left.type if family(left.type) == "exact" else right.type
    left, right = implicit(left, target), implicit(right, target)
    if target.name == "datetimeoffset":
        instant = SqlType("datetimeoffset", scale=7)
        return Typed(comparable(left), instant, left.nullable), Typed(comparable(right), instant, right.nullable)
    return left, right


# Trailing zero bytes do not count when SQL Server compares binary values. Beside a fixed-length binary the other side is
# padded to that length, so the column stays bare; otherwise both sides lose their trailing zeros.


def _fixed_length(sql_type: SqlType) -> int:
    return 8 if sql_type.name == "rowversion" else sql_type.length if sql_type.name == "binary" else 0


def _align_binary(left: Typed, right: Typed) -> tuple[Typed, Typed]:
    first, second = _fixed_length(left.type), _fixed_length(right.type)
    if first or second:
        width = max(first, second)
        return _padded(left, first, width), _padded(right, second, width)
    return stripped(left), stripped(right)


def _padded(typed: Typed, length: int, width: int) -> Typed:
    if length == width:
        return typed
    return apply(specification("pad", str(width)), [typed], typed.type, typed.nullable)


def stripped(typed: Typed) -> Typed:
    """A variable-length binary without its trailing zeros."""
    return apply(specification("strip"), [typed], typed.type, typed.nullable)


@builder("pad")
def _build_pad(arguments: Sequence[str]) -> Kernel:
    width = int(arguments[0])

    def pad(value: bytes) -> bytes:
        return value if any(value[width:]) else value[:width].ljust(width, b"\0")

    return strict(pad)


@builder("strip")
def _build_strip(_: Sequence[str]) -> Kernel:
    return strict(lambda value: value.rstrip(b"\0"))


def _zero_variants(column: Typed, value: Typed) -> tuple[str, list[str]] | None:
    """For a short varbinary beside a constant: the column's text and every stored form of an equal value."""
    known = value.value if isinstance(value, Constant) else None
    if column.type.name != "varbinary" or not 0 < column.type.length <= 32 or not isinstance(known, bytes):
        return None
    core = known.rstrip(b"\0")
    forms = (core + bytes(count) for count in range(max(column.type.length - len(core), 0) + 1))
    return column.sql, [f"x'{form.hex()}'" for form in forms]


def _align_exact(left: Typed, right: Typed) -> tuple[Typed, Typed]:
    a, b = as_decimal(left.type), as_decimal(right.type)
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Constant):
            same = _in_form_of(one, other.type)
            if same is not None:
                return (same, right) if one is left else (left, same)
    scale = max(a.scale, b.scale)
    whole = max(a.precision - a.scale, b.precision - b.scale)
    if whole + scale <= 18 or (
        a.scale == b.scale == 0 and not left.type.is_wide_decimal and not right.type.is_wide_decimal
    ):
        return _times(left, scale - a.scale), _times(right, scale - b.scale)
    target = SqlType("decimal", precision=38, scale=min(scale, 38 - min(whole, 38)))
    return cast(left, target), cast(right, target)


def _times(typed: Typed, power: int) -> Typed:
    return typed if power == 0 else Typed(f"({typed.sql} * {10**power})", typed.type, typed.nullable)


def _in_form_of(number: Constant, other: SqlType) -> Typed | None:
    """The constant in the stored form of another exact type, if that loses nothing."""
    if number.value is None:
        return None
    scaled, at = numbers.scaled_of(number.value, number.type)
    scale = 4 if other.name in MONEY else other.scale if other.name in DECIMAL else 0
    moved = numbers.rescale(scaled, at, scale)
    if numbers.rescale(moved, scale, max(at, scale)) != numbers.rescale(scaled, at, max(at, scale)):
        return None
    if other.is_wide_decimal:
        return constant(decimal_to_stored(moved, other), other) if abs(moved) < 10**38 else None
    return constant(moved, SqlType("bigint")) if abs(moved) < 2**63 else None


def collate(operand: Typed, name: str) -> Typed:
    """`operand COLLATE name`.

    Raises:
        SqlError: 448 for an unknown collation, 447 when it is no text.
    """
    sqlite_collation(name)
    if family(operand.type) != "text":
        raise SqlError(447, f"Expression type {operand.type.name} is invalid for COLLATE clause.")
    return Collated(operand.sql, operand.type.with_collation(name), operand.nullable)
