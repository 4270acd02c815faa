"""Aggregates. Plain SQLite ones wherever they are exact, Python ones for the rest.

Sums of narrow exact numbers add high and low parts apart (`sum(x / 10^9)`, `sum(x % 10^9)`): SQLite's integer sum would
overflow where decimal(38) does not, and its float sum would lose digits.
"""

import logging
import math
import sqlite3
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from sqlglot import exp

from mssql_standin.contract import SessionContext, Typed
from mssql_standin.errors import BUGS, SqlError, internal, unsupported
from mssql_standin.sql import numbers
from mssql_standin.sql.coercion import is_null
from mssql_standin.sql.convert import family
from mssql_standin.sql.forms import check_count
from mssql_standin.sql.runtime import Kernel, builder, call, read_type, specification
from mssql_standin.sqltypes import (
    BIGINT,
    DECIMAL,
    FLOAT,
    INT,
    MONEY,
    MONEY_TYPE,
    SqlType,
    Value,
    decimal_to_stored,
)

if TYPE_CHECKING:
    from mssql_standin.sql.expressions import Compiler
    from mssql_standin.sql.scope import Scope

AGGREGATES: Final = frozenset({"COUNT", "COUNT_BIG", "SUM", "MIN", "MAX"})
_SPLIT: Final = 10**9
_LOG = logging.getLogger(__name__)


def function_name(node: Any) -> str:
    """Upper-case name of a call node; empty for others."""
    if not isinstance(node, exp.Anonymous):
        return ""
    return (node.this if isinstance(node.this, str) else str(node.this.name)).upper()


def is_aggregate(node: Any) -> bool:
    """Whether a node is an aggregate call (OVER or not)."""
    return function_name(node) in AGGREGATES


def contains_aggregate(node: Any) -> bool:
    """Whether an expression holds an aggregate of its own query, not of a subquery."""
    if is_aggregate(node):
        return True
    return not isinstance(node, exp.Query) and any(contains_aggregate(child) for child in node.iter_expressions())


def aggregate(compiler: "Compiler", name: str, arguments: Sequence[Any], scope: "Scope") -> Typed:
    """Compile an aggregate call."""
    if scope.in_aggregate:
        raise SqlError(
            130, "Cannot perform an aggregate function on an expression containing an aggregate or a subquery.", 15
        )
    if not scope.aggregates_allowed:
        raise SqlError(
            147,
            "An aggregate may not appear in the WHERE clause unless it is in a subquery contained in a HAVING clause or a select list, and the column being aggregated is an outer reference.",
            15,
        )
    check_count(name, len(arguments), 1, 1)
    distinct = isinstance(arguments[0], exp.Distinct)
    subject = arguments[0].expressions[0] if distinct else arguments[0]
    if isinstance(subject, exp.Star):
        if name not in ("COUNT", "COUNT_BIG"):
            raise SqlError(102, "Incorrect syntax near '*'.", 15)
        return Typed("count(*)", BIGINT if name == "COUNT_BIG" else INT, nullable=False)
    scope.in_aggregate = True
    try:
        value = compiler.scalar(subject, scope)
        if is_null(value):
            raise SqlError(8117, f"Operand data type NULL is invalid for {name.lower()} operator.")
    finally:
        scope.in_aggregate = False
    return _compile(compiler, name, value, distinct)


def _compile(compiler: "Compiler", name: str, value: Typed, distinct: bool) -> Typed:
    if name in ("COUNT", "COUNT_BIG"):
        subject = f"DISTINCT {compiler.ordering(value)}" if distinct else value.sql
        return Typed(f"count({subject})", INT if name == "COUNT" else BIGINT, nullable=False)
    if name in ("MIN", "MAX"):
        if value.type.name == "bit":
            raise SqlError(8117, f"Operand data type bit is invalid for {name.lower()} operator.")
        return Typed(f"{name.lower()}({compiler.sortable(value)})", value.type)
    return _sum(value, distinct)


def _sum(value: Typed, distinct: bool) -> Typed:
    group = family(value.type)
    if group not in ("integer", "exact", "float") or value.type.name == "bit":
        raise SqlError(8117, f"Operand data type {value.type.name} is invalid for sum operator.")
    if distinct or value.type.is_wide_decimal:
        raise unsupported("SUM(DISTINCT …)" if distinct else f"SUM of {value.type}")
    if group == "float":
        return Typed(call(specification("finite"), [f"sum({value.sql})"]), FLOAT)
    result = _sum_type(value.type)
    halves = [f"sum({value.sql} / {_SPLIT})", f"sum({value.sql} % {_SPLIT})"]
    return Typed(call(specification("total", result), halves), result)


def _sum_type(source: SqlType) -> SqlType:
    if source.name in DECIMAL:
        return SqlType(source.name, precision=38, scale=source.scale)
    if source.name in MONEY:
        return MONEY_TYPE
    return BIGINT if source.name == "bigint" else INT


@builder("total")
def _build_total(arguments: Sequence[str]) -> Kernel:
    result = read_type(arguments[0])

    def run(_: SessionContext, high: Any, low: Any) -> Value:
        if high is None:
            return None
        total = high * _SPLIT + low
        if result.name not in DECIMAL:
            return numbers.to_integer(total, result, result)
        if abs(total) >= 10**38:
            raise numbers.overflow("expression", result)
        return decimal_to_stored(total, result)

    return run


@builder("finite")
def _build_finite(_: Sequence[str]) -> Kernel:
    def run(_: SessionContext, value: float | None) -> Value:
        if value is None or math.isfinite(value):
            return value
        raise numbers.overflow("expression", FLOAT)

    return run


class SingleAggregate:
    """The one value of a scalar subquery; a second row is error 512."""

    def __init__(self) -> None:
        self.count = 0
        self.result: Value = None

    def step(self, value: Value) -> None:
        """Take the row."""
        self.count += 1
        if self.count > 1:
            raise SqlError(
                512,
                "Subquery returned more than 1 value. This is not permitted when the subquery follows =, !=, <, <= , >, >= "
                "or when the subquery is used as an expression.",
            )
        self.result = value

    def finalize(self) -> Value:
        """The value, NULL without rows."""
        return self.result


def _parking(kind: type[Any], context: SessionContext) -> type[Any]:
    """The aggregate class with its errors parked in the context."""

    def parked(name: str) -> Callable[..., Any]:
        inner = getattr(kind, name)

        def run(self: Any, *values: Value) -> Any:
            try:
                return inner(self, *values)
            except SqlError as error:
                context.failure = error
                raise
            except BUGS as error:
                _LOG.exception("internal error in %s", kind.__name__)
                context.failure = internal(error, kind.__name__)
                raise

        return run

    return type(kind.__name__, (kind,), {name: parked(name) for name in ("step", "finalize")})


def register_aggregates(connection: sqlite3.Connection, context: SessionContext) -> None:
    """Make the Python aggregates known on a connection."""
    connection.create_aggregate("tsql_single", 1, _parking(SingleAggregate, context))
