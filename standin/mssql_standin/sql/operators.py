"""Arithmetic and signs: typed operands to typed SQLite text."""

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

from mssql_standin.contract import Typed
from mssql_standin.errors import SqlError, unsupported
from mssql_standin.sql import numbers, textforms
from mssql_standin.sql.coercion import (
    as_decimal,
    collation_of,
    decimal_result,
    is_null,
)
from mssql_standin.sql.convert import family, implicit
from mssql_standin.sql.literals import Constant, constant
from mssql_standin.sql.runtime import Kernel, apply, builder, read_type, specification, strict
from mssql_standin.sqltypes import (
    APPROXIMATE,
    DECIMAL,
    FLOAT,
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
        raise unsupported(f"{left.type.name} {sign} {right.type.name}; use DATEADD or DATEDIFF")
    if groups == ("text", "text") or groups == ("binary", "binary") or "guid" in groups:
        raise _invalid(left.type, sign)
    left, right = _numbers(left, right)
    if family(left.type) not in _NUMERIC:
        raise incompatible(left.type, right.type, _WORDS[sign])
    result = _numeric_type(sign, left, right)
    return apply(
        specification("op", sign, left.type, right.type, result), [left, right], result, left.nullable or right.nullable
    )


def incompatible(left: SqlType, right: SqlType, operation: str) -> SqlError:
    """402."""
    return SqlError(402, f"The data types {left.name} and {right.name} are incompatible in the {operation} operator.")


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
            raise incompatible(left.type, right.type, _WORDS[sign])
        return FLOAT if high.name == "float" else REAL
    if high.name in DECIMAL:
        return decimal_result(sign, as_decimal(left.type, left), as_decimal(right.type, right))
    return high


def _concatenate(left: Typed, right: Typed) -> Typed:
    if left.type.name in LEGACY_LOB or right.type.name in LEGACY_LOB:
        raise incompatible(left.type, right.type, "add")
    nullable = left.nullable or right.nullable
    if family(left.type) == "binary":
        length = _sum_length(left.type, right.type, 8000)
        result = SqlType("varbinary", length)
        return apply(specification("concat", result), [left, right], result, nullable)
    unicode = left.type.name in UNICODE or right.type.name in UNICODE
    limit = 4000 if unicode else 8000
    length = _sum_length(left.type, right.type, limit)
    fixed = left.type.name in ("char", "nchar") and right.type.name in ("char", "nchar")
    result = SqlType(
        ("n" if unicode else "") + ("char" if fixed else "varchar"), length, collation=collation_of([left, right])
    )
    joined = Typed(f"({left.sql} || {right.sql})", result, nullable)
    if isinstance(left, Constant) and isinstance(right, Constant):
        known = isinstance(left.value, str) and isinstance(right.value, str)
        joined = constant(str(left.value) + str(right.value) if known else None, result)
    return fitted(joined, left.type.length + right.type.length)


def fitted(text: Typed, length: int) -> Typed:
    """A text of up to so many characters, cut where its type ends."""
    if text.type.length == MAX or length <= text.type.length:
        return text
    return apply(specification("cut", text.type), [text], text.type, text.nullable)


@builder("cut")
def _build_cut(arguments: Sequence[str]) -> Kernel:
    length = read_type(arguments[0]).length
    return strict(lambda value: textforms.cut(value, length))


def _sum_length(left: SqlType, right: SqlType, limit: int) -> int:
    if left.length <= 0 or right.length <= 0:
        return MAX
    return min(left.length + right.length, limit)


# ---- kernels ---------------------------------------------------------------------------------------------------


@builder("concat")
def _build_concat(arguments: Sequence[str]) -> Kernel:
    length = read_type(arguments[0]).length
    return strict(lambda left, right: left + right if length == MAX else (left + right)[:length])


@builder("op")
def _build_operator(arguments: Sequence[str]) -> Kernel:
    sign = arguments[0]
    left, right, result = map(read_type, arguments[1:])
    if result.name in APPROXIMATE:
        return strict(_float_kernel(sign, left, right, result))
    if result.name in DECIMAL or result.name in MONEY:
        return strict(_exact_kernel(sign, left, right, result))
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


# ---- signs ------------------------------------------------------------------------------------------------------


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

    def negated(value: int) -> int:
        low, high = numbers.RANGES[result.name]
        if low <= -value <= high:
            return -value
        raise numbers.overflow("expression", result)

    return strict(negated)
