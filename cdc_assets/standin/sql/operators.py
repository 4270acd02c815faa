"""Arithmetic and comparison: typed operands to typed SQLite text.

Comparisons keep columns bare wherever the stored forms allow it, so that SQLite can use
indexes: constants and variables take the column's representation, not the other way round.
"""

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

from cdc_assets.standin.contract import Typed
from cdc_assets.standin.errors import SqlError
from cdc_assets.standin.sql import numbers, temporal
from cdc_assets.standin.sql.coercion import (
    Collated,
    as_decimal,
    collation_of,
    common,
    decimal_result,
    is_null,
)
from cdc_assets.standin.sql.collation import sqlite_collation
from cdc_assets.standin.sql.convert import cast, clash, family, implicit
from cdc_assets.standin.sql.literals import Constant, constant
from cdc_assets.standin.sql.runtime import Kernel, apply, builder, read_type, specification, strict
from cdc_assets.standin.sqltypes import (
    APPROXIMATE,
    DECIMAL,
    FLOAT,
    INT,
    LEGACY_LOB,
    MAX,
    MONEY,
    REAL,
    UNICODE,
    SqlType,
    Value,
    decimal_to_stored,
)

_WORDS: Final = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide", "%": "modulo"}
_LEGACY: Final = ("datetime", "smalldatetime")
_NUMERIC: Final = frozenset({"integer", "exact", "float"})


def arithmetic(sign: str, left: Typed, right: Typed) -> Typed:
    """`left sign right` for + - * / %.

    Raises:
        SqlError: 8117, 206, 402 for types without such an operator; the text raises 8115 and 8134.
    """
    if is_null(left) or is_null(right):
        other = right.type if is_null(left) else left.type
        return constant(None, other)
    groups = (family(left.type), family(right.type))
    if sign == "+" and groups in (("text", "text"), ("binary", "binary")):
        return _concatenate(left, right)
    if "temporal" in groups:
        return _temporal_arithmetic(sign, left, right)
    if groups == ("text", "text") or groups == ("binary", "binary") or "guid" in groups:
        raise _invalid(left.type, sign)
    left, right = _numbers(left, right)
    if family(left.type) not in _NUMERIC:
        raise SqlError(
            402,
            f"The data types {left.type.name} and {right.type.name} are incompatible in the {_WORDS[sign]} operator.",
        )
    result = _numeric_type(sign, left, right)
    return apply(
        specification("op", sign, left.type, right.type, result), [left, right], result, left.nullable or right.nullable
    )


def _invalid(sql_type: SqlType, sign: str) -> SqlError:
    return SqlError(8117, f"Operand data type {sql_type.name} is invalid for {_WORDS.get(sign, sign)} operator.")


def _numbers(left: Typed, right: Typed) -> tuple[Typed, Typed]:
    """Texts and bytes become numbers of the other side's type."""
    if family(left.type) in ("text", "binary"):
        left = implicit(left, right.type)
    elif family(right.type) in ("text", "binary"):
        right = implicit(right, left.type)
    return left, right


def _numeric_type(sign: str, left: Typed, right: Typed) -> SqlType:
    high = left.type if left.type.precedence >= right.type.precedence else right.type
    if high.name == "bit":
        raise _invalid(high, sign)
    if high.name in APPROXIMATE:
        if sign == "%":
            raise _invalid(high, sign)
        return FLOAT if high.name == "float" else REAL
    if high.name in DECIMAL:
        return decimal_result(sign, as_decimal(left.type, left), as_decimal(right.type, right))
    return high


def _concatenate(left: Typed, right: Typed) -> Typed:
    if left.type.name in LEGACY_LOB or right.type.name in LEGACY_LOB:
        raise SqlError(
            402, f"The data types {left.type.name} and {right.type.name} are incompatible in the add operator."
        )
    nullable = left.nullable or right.nullable
    if family(left.type) == "binary":
        length = _sum_length(left.type, right.type, 8000)
        return apply(specification("concat"), [left, right], SqlType("varbinary", length), nullable)
    unicode = left.type.name in UNICODE or right.type.name in UNICODE
    limit = 4000 if unicode else 8000
    length = _sum_length(left.type, right.type, limit)
    fixed = left.type.name in ("char", "nchar") and right.type.name in ("char", "nchar")
    result = SqlType(
        ("n" if unicode else "") + ("char" if fixed else "varchar"), length, collation=collation_of([left, right])
    )
    if isinstance(left, Constant) and isinstance(right, Constant):
        known = isinstance(left.value, str) and isinstance(right.value, str)
        return constant(str(left.value) + str(right.value) if known else None, result)
    sql = f"({left.sql} || {right.sql})"
    overlong = length != MAX and left.type.length + right.type.length > limit
    return Typed(f"substr({sql}, 1, {limit})" if overlong else sql, result, nullable)


def _sum_length(left: SqlType, right: SqlType, limit: int) -> int:
    if left.length <= 0 or right.length <= 0:
        return MAX
    return min(left.length + right.length, limit)


def _temporal_arithmetic(sign: str, left: Typed, right: Typed) -> Typed:
    """Only datetime and smalldatetime have + and -: days since 1900 are added."""
    types = (left.type, right.type)
    for one, other in (types, types[::-1]):
        if one.name not in _LEGACY and family(one) == "temporal":
            raise clash(other, one) if family(other) in ("integer", "exact", "float") else _invalid(one, sign)
    if sign not in "+-":
        raise _invalid(left.type if left.type.name in _LEGACY else right.type, sign)
    high = left.type if left.type.precedence >= right.type.precedence else right.type
    left, right = implicit(left, high), implicit(right, high)
    return apply(specification("op", sign, high, high, high), [left, right], high, left.nullable or right.nullable)


# ---- kernels ---------------------------------------------------------------------------------------------------


@builder("concat")
def _build_concat(_: Sequence[str]) -> Kernel:
    return strict(lambda left, right: left + right)


@builder("op")
def _build_operator(arguments: Sequence[str]) -> Kernel:
    sign = arguments[0]
    left, right, result = map(read_type, arguments[1:])
    if result.name in APPROXIMATE:
        return strict(_float_kernel(sign, left, right, result))
    if result.name in DECIMAL or result.name in MONEY:
        return strict(_exact_kernel(sign, left, right, result))
    if result.name in _LEGACY:
        return strict(_date_kernel(sign, result))
    return strict(_integer_kernel(sign, result))


def divide_by_zero() -> SqlError:
    """8134."""
    return SqlError(8134, "Divide by zero error encountered.")


def _quotient(left: int, right: int) -> int:
    """Integer division toward zero."""
    if right == 0:
        raise divide_by_zero()
    quotient = abs(left) // abs(right)
    return -quotient if (left < 0) != (right < 0) else quotient


_BASIC: Final[dict[str, Callable[[Any, Any], Any]]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def _remainder(left: int, right: int) -> int:
    """Has the sign of the dividend."""
    return left - right * _quotient(left, right)


_INTEGERS: Final[dict[str, Callable[[int, int], int]]] = {**_BASIC, "/": _quotient, "%": _remainder}


def _integer_kernel(sign: str, result: SqlType) -> Callable[[int, int], int]:
    compute = _INTEGERS[sign]
    low, high = numbers.RANGES[result.name]

    def run(left: int, right: int) -> int:
        value: int = compute(left, right)
        if low <= value <= high:
            return value
        raise numbers.overflow("expression", result)

    return run


def _float_kernel(sign: str, left: SqlType, right: SqlType, result: SqlType) -> Callable[[Any, Any], float]:
    def number(sql_type: SqlType) -> Callable[[Any], float]:
        def read(value: Any) -> float:
            if isinstance(value, float):
                return value
            return numbers.to_float(*numbers.scaled_of(value, sql_type))

        return read

    read_left, read_right = number(left), number(right)

    def run(first: Any, second: Any) -> float:
        a, b = read_left(first), read_right(second)
        if sign == "/":
            if b == 0:
                raise divide_by_zero()
            value = a / b
        else:
            value = _BASIC[sign](a, b)
        if not math.isfinite(value):
            raise numbers.overflow("expression", result)
        return numbers.single(value) if result.name == "real" else value

    return run


def _exact_kernel(sign: str, left: SqlType, right: SqlType, result: SqlType) -> Callable[[Any, Any], Value]:
    scale = 4 if result.name in MONEY else result.scale

    def run(first: Any, second: Any) -> Value:
        a, s1 = numbers.scaled_of(first, left)
        b, s2 = numbers.scaled_of(second, right)
        if sign == "*":
            return fit(a * b, s1 + s2)
        if sign == "/":
            shift = scale + s2 - s1
            return fit(_quotient(a * 10 ** max(shift, 0), b * 10 ** max(-shift, 0)), scale)
        joint = max(s1, s2)
        a, b = numbers.rescale(a, s1, joint), numbers.rescale(b, s2, joint)
        return fit(a - b * _quotient(a, b) if sign == "%" else _BASIC[sign](a, b), joint)

    def fit(scaled: int, at: int) -> Value:
        if result.name in MONEY:
            return numbers.to_integer(numbers.rescale(scaled, at, 4), result, result)
        value = numbers.rescale(scaled, at, scale)
        if abs(value) >= 10**result.precision:
            raise numbers.overflow("numeric", result)
        return decimal_to_stored(value, result)

    return run


def _date_kernel(sign: str, result: SqlType) -> Callable[[int, int], Value]:
    def run(left: int, right: int) -> Value:
        value: int = _BASIC[sign](left, right)
        moment = temporal.to_moment(value, result)
        if not 0 <= moment[0] < temporal.END:
            raise SqlError(517, f"Adding a value to a '{result.name}' column caused an overflow.")
        return temporal.from_moment(moment, result, result)

    return run


# ---- bits and signs --------------------------------------------------------------------------------------------


def bitwise(sign: str, left: Typed, right: Typed) -> Typed:
    """& | ^ on integers; one side may be binary."""
    if family(left.type) == "binary":
        left = implicit(left, right.type)
    elif family(right.type) == "binary":
        right = implicit(right, left.type)
    for operand in (left, right):
        if family(operand.type) != "integer" and not is_null(operand):
            raise SqlError(
                402,
                f"The data types {left.type.name} and {right.type.name} are incompatible in the '{sign}' operator.",
            )
    result = left.type if left.type.precedence >= right.type.precedence else right.type
    if sign == "^":
        sql = f"(({left.sql} | {right.sql}) - ({left.sql} & {right.sql}))"
    else:
        sql = f"({left.sql} {sign} {right.sql})"
    return Typed(sql, result, left.nullable or right.nullable)


def complement(operand: Typed) -> Typed:
    """~ on integers."""
    if family(operand.type) != "integer":
        raise _invalid(operand.type, "'~'")
    mask = {"bit": "1 - {}", "tinyint": "255 - {}"}.get(operand.type.name, "~{}")
    return Typed("(" + mask.format(operand.sql) + ")", operand.type, operand.nullable)


def negate(operand: Typed) -> Typed:
    """Unary minus."""
    if isinstance(operand, Constant) and operand.value is None:
        return operand
    if family(operand.type) not in ("integer", "exact", "float") or operand.type.name == "bit":
        raise _invalid(operand.type, "minus")
    result = SqlType("smallint") if operand.type.name == "tinyint" else operand.type
    return apply(specification("negate", operand.type, result), [operand], result, operand.nullable)


@builder("negate")
def _build_negate(arguments: Sequence[str]) -> Kernel:
    source, result = map(read_type, arguments)
    if source.name in APPROXIMATE:
        return strict(lambda value: -value)
    if source.name in DECIMAL:
        return strict(lambda value: decimal_to_stored(-numbers.scaled_of(value, source)[0], result))
    return strict(lambda value: numbers.to_integer(-value, result, INT))


# ---- comparison ------------------------------------------------------------------------------------------------


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
