"""Which type comes out when types meet (vendor pages: data type precedence; precision, scale and length)."""

from collections.abc import Sequence
from dataclasses import dataclass

from mssql_standin.contract import Typed
from mssql_standin.errors import SqlError
from mssql_standin.sql.convert import clash, family
from mssql_standin.sql.literals import Constant
from mssql_standin.sql.numbers import DIGITS
from mssql_standin.sqltypes import (
    DECIMAL,
    LEGACY_LOB,
    MAX,
    MONEY,
    SCALED_TIME,
    UNICODE,
    SqlType,
)


@dataclass(frozen=True, slots=True)
class Collated(Typed):
    """A text with an explicit COLLATE, which wins over implicit collations."""


def is_null(typed: Typed) -> bool:
    """Whether it is the literal NULL, which has no type of its own."""
    return isinstance(typed, Constant) and typed.value is None and typed.literal


def as_decimal(sql_type: SqlType, typed: Typed | None = None) -> SqlType:
    """The decimal type as which an exact number takes part in decimal arithmetic; integer literals count their digits."""
    if sql_type.name in DECIMAL:
        return sql_type
    if sql_type.name in MONEY:
        return SqlType("numeric", precision=DIGITS[sql_type.name], scale=4)
    if isinstance(typed, Constant) and isinstance(typed.value, int):
        return SqlType("numeric", precision=len(str(abs(typed.value))), scale=0)
    return SqlType("numeric", precision=DIGITS[sql_type.name], scale=0)


def common(operands: Sequence[Typed]) -> SqlType:
    """The type of CASE, COALESCE, VALUES and UNION columns, and of compared operands.

    Raises:
        SqlError: 206 for types that never meet, 468 for two collations.
    """
    known = [operand for operand in operands if not is_null(operand)]
    if not known:
        return operands[0].type
    result = known[0].type
    for operand in known[1:]:
        result = _meet(result, operand.type)
    collation = collation_of(known)
    return result.with_collation(collation) if family(result) == "text" else result


def _meet(left: SqlType, right: SqlType) -> SqlType:
    if left == right:
        return left
    first, second = family(left), family(right)
    high, low = (left, right) if left.precedence >= right.precedence else (right, left)
    if first == second == "text":
        return _meet_text(left, right)
    if first == second == "binary":
        return _meet_binary(left, right)
    if high.name in DECIMAL and family(low) in ("integer", "exact"):
        return unite_decimals(as_decimal(left), as_decimal(right))
    if first == second == "temporal":
        return _meet_temporal(high, low)
    if "guid" in (first, second) and {first, second} & {"integer", "exact", "float", "temporal"}:
        raise clash(low, high)
    if {first, second} == {"temporal", "integer"} and high.name in ("date", "time", "datetime2", "datetimeoffset"):
        raise clash(low, high)
    return high


def _exact_name(left: SqlType, right: SqlType) -> str:
    """Literals and integers take part as numeric."""
    return "decimal" if "decimal" in (left.name, right.name) else "numeric"


def unite_decimals(left: SqlType, right: SqlType) -> SqlType:
    """A decimal type for the values of both; digits before the point win over those behind."""
    whole = max(left.precision - left.scale, right.precision - right.scale)
    scale = min(max(left.scale, right.scale), 38 - whole)
    return SqlType(_exact_name(left, right), precision=whole + scale, scale=scale)


def _meet_text(left: SqlType, right: SqlType) -> SqlType:
    if "xml" in (left.name, right.name):
        return SqlType("xml")
    unicode = left.name in UNICODE or right.name in UNICODE
    fixed = left.name in ("char", "nchar") and right.name in ("char", "nchar")
    name = ("n" if unicode else "") + ("char" if fixed else "varchar")
    if left.is_max or right.is_max or {left.name, right.name} & LEGACY_LOB:
        return SqlType(name, MAX)
    return SqlType(name, min(max(left.length, right.length), 4000 if unicode else 8000))


def _meet_binary(left: SqlType, right: SqlType) -> SqlType:
    high, low = (left, right) if left.precedence >= right.precedence else (right, left)
    if high.name not in ("binary", "varbinary"):
        return SqlType("varbinary", 8) if high.name == "rowversion" and low.name != "rowversion" else high
    if left.is_max or right.is_max:
        return SqlType("varbinary", MAX)
    return SqlType(high.name, max(left.length, right.length))


def _meet_temporal(high: SqlType, low: SqlType) -> SqlType:
    if {high.name, low.name} == {"date", "time"}:
        raise clash(low, high)
    if high.name not in SCALED_TIME:
        return high
    scale = {"datetime": 3, "smalldatetime": 0, "date": 0}.get(low.name, low.scale)
    return SqlType(high.name, scale=max(high.scale, scale))


def collation_of(operands: Sequence[Typed]) -> str:
    """The collation under which texts meet; empty means the database's.

    Raises:
        SqlError: 468.
    """
    explicit = [operand.type.collation for operand in operands if isinstance(operand, Collated)]
    names = explicit or [operand.type.collation for operand in operands if operand.type.collation]
    if len({name.casefold() for name in names}) > 1:
        raise SqlError(
            468,
            f'Cannot resolve the collation conflict between "{names[0]}" and "{names[1]}" in the operation.',
        )
    return names[0] if names else ""


def decimal_result(operator: str, left: SqlType, right: SqlType) -> SqlType:
    """Precision and scale of decimal arithmetic."""
    name = _exact_name(left, right)
    p1, s1, p2, s2 = left.precision, left.scale, right.precision, right.scale
    if operator in "+-":
        scale = max(s1, s2)
        whole = max(p1 - s1, p2 - s2)
        precision = whole + scale + 1
        if precision > 38:
            return SqlType(name, precision=38, scale=max(min(scale, 38 - whole), 0))
        return SqlType(name, precision=precision, scale=scale)
    if operator == "*":
        scale, precision = s1 + s2, p1 + p2 + 1
    elif operator == "/":
        scale = max(6, s1 + p2 + 1)
        precision = p1 - s1 + s2 + scale
    else:
        scale = max(s1, s2)
        precision = min(p1 - s1, p2 - s2) + scale
    if precision > 38:
        whole = precision - scale
        scale = min(scale, 38 - whole) if whole < 32 else min(scale, 6)
        precision = 38
    return SqlType(name, precision=max(precision, 1), scale=scale)
