"""ISNULL, COALESCE, NULLIF, IIF, PARSE, CONCAT, CHECKSUM."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from mssql_standin.contract import Typed
from mssql_standin.errors import SqlError, unsupported
from mssql_standin.sql import convert
from mssql_standin.sql.coercion import collation_of, is_null
from mssql_standin.sql.forms import form
from mssql_standin.sql.literals import Constant, constant
from mssql_standin.sql.numbers import DIGITS
from mssql_standin.sql.operators import fitted
from mssql_standin.sql.runtime import apply, specification
from mssql_standin.sqltypes import INT, MAX, UNICODE, SqlType

if TYPE_CHECKING:
    from mssql_standin.sql.expressions import Compiler
    from mssql_standin.sql.scope import Scope


@form("ISNULL", 2)
def _isnull(compiler: "Compiler", arguments: Sequence[Any], scope: "Scope") -> Typed:
    """The type is that of the first argument."""
    value, replacement = compiler.scalars(arguments, scope)
    if is_null(value):
        return replacement
    other = convert.implicit(replacement, value.type)
    if isinstance(value, Constant):
        return other if value.value is None else value
    return Typed(f"ifnull({value.sql}, {other.sql})", value.type, value.nullable and other.nullable)


@form("COALESCE", 1, -1)
def _coalesce(compiler: "Compiler", arguments: Sequence[Any], scope: "Scope") -> Typed:
    operands = compiler.scalars(arguments, scope)
    if all(map(is_null, operands)):
        raise SqlError(
            4127, "At least one of the arguments to COALESCE must be an expression that is not the NULL constant."
        )
    values, target = compiler.unified(operands)
    if len(values) == 1:
        return values[0]
    text = ", ".join(value.sql for value in values)
    return Typed(f"coalesce({text})", target, all(value.nullable for value in values))


@form("PARSE", 2, 3)
def _parse(compiler: "Compiler", arguments: Sequence[Any], scope: "Scope") -> Typed:
    """PARSE reads text under a culture; only English ones are known."""
    target = compiler.type_of(arguments[1].name)
    if len(arguments) > 2:
        culture = compiler.scalar(arguments[2], scope)
        if not isinstance(culture, Constant) or str(culture.value).lower() not in ("en-us", "en", "en-gb"):
            raise unsupported("PARSE with a culture other than en-US")
    if convert.family(target) not in ("integer", "exact", "float", "temporal"):
        raise SqlError(10761, f"Invalid data type {target.name} in function PARSE.")
    value = convert.implicit(compiler.scalar(arguments[0], scope), SqlType("nvarchar", 4000))
    return apply(specification("parse", target), [value], target)


def _as_text(value: Typed) -> Typed:
    """An argument of CONCAT as text; NULL counts as empty."""
    if is_null(value):
        return constant("", SqlType("varchar", 1))
    text = value if convert.family(value.type) == "text" else convert.cast(value, _text_length(value.type))
    return Typed(f"ifnull({text.sql}, '')", text.type, False) if text.nullable else text


def _text_length(source: SqlType) -> SqlType:
    name = source.name
    if name in DIGITS:
        return SqlType("varchar", DIGITS[name] + 2)
    if name in ("decimal", "numeric"):
        return SqlType("varchar", source.precision + 3)
    return SqlType("varchar", 8000 if convert.family(source) == "binary" else 48)


def _joined(values: Sequence[Typed], length: int) -> SqlType:
    """The type of texts put together that have so many characters at the most."""
    unicode = any(value.type.name in UNICODE for value in values)
    if any(value.type.length <= 0 for value in values):
        length = MAX
    longest = 4000 if unicode else 8000
    return SqlType("nvarchar" if unicode else "varchar", min(max(length, 1), longest), collation=collation_of(values))


@form("CONCAT", 2, 254)
def _concat(compiler: "Compiler", arguments: Sequence[Any], scope: "Scope") -> Typed:
    values = [_as_text(value) for value in compiler.scalars(arguments, scope)]
    length = sum(value.type.length for value in values)
    return fitted(Typed(f"({' || '.join(value.sql for value in values)})", _joined(values, length), False), length)


@form("CHECKSUM", 1, -1)
def _checksum(compiler: "Compiler", arguments: Sequence[Any], scope: "Scope") -> Typed:
    values: list[Typed] = []
    for argument in arguments:
        if isinstance(argument, exp.Star):
            values.extend(source.typed(column) for source in scope.sources for column in source.relation.columns)
        else:
            values.append(compiler.scalar(argument, scope))
    return apply(specification("checksum", *(value.type for value in values)), values, INT, False)
