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

from cdc_assets.standin.contract import SessionContext, Typed
from cdc_assets.standin.errors import BUGS, SqlError, internal, unsupported
from cdc_assets.standin.sql import numbers, textforms
from cdc_assets.standin.sql.coercion import is_null
from cdc_assets.standin.sql.collation import sort_key
from cdc_assets.standin.sql.convert import cast, family, implicit
from cdc_assets.standin.sql.forms import check_count
from cdc_assets.standin.sql.literals import text_literal
from cdc_assets.standin.sql.runtime import Kernel, builder, call, read_type, specification
from cdc_assets.standin.sqltypes import (
    BIGINT,
    DECIMAL,
    FLOAT,
    INT,
    MAX,
    MONEY,
    MONEY_TYPE,
    UNICODE,
    SqlType,
    Value,
    decimal_to_stored,
)

if TYPE_CHECKING:
    from cdc_assets.standin.sql.expressions import Compiler
    from cdc_assets.standin.sql.scope import Scope

AGGREGATES: Final = frozenset(
    {"COUNT", "COUNT_BIG", "SUM", "AVG", "MIN", "MAX", "STDEV", "STDEVP", "VAR", "VARP", "STRING_AGG", "CHECKSUM_AGG", "APPROX_COUNT_DISTINCT"}
)  # fmt: skip
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
    """Whether an expression holds an aggregate of its own query: no window, no subquery."""
    if is_aggregate(node):
        return True
    if isinstance(node, exp.Query):
        return False
    children = node.iter_expressions()
    if isinstance(node, exp.Window):
        inner = node.this.this if isinstance(node.this, exp.WithinGroup) else node.this
        children = [*inner.iter_expressions(), *(child for child in node.iter_expressions() if child is not node.this)]
    return any(contains_aggregate(child) for child in children)


_MOST_BYTES: Final = 8000
"""Of STRING_AGG over other than (max) types."""

Wrap = Callable[[str], str]
"""Adds ` OVER (…)` to an aggregate call; gives it back unchanged outside windows."""


def _plain(text: str) -> str:
    return text


def aggregate(compiler: "Compiler", name: str, arguments: Sequence[Any], scope: "Scope", wrap: Wrap = _plain) -> Typed:
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
    check_count(name, len(arguments), 2 if name == "STRING_AGG" else 1, 2 if name == "STRING_AGG" else 1)
    distinct = isinstance(arguments[0], exp.Distinct)
    subject = arguments[0].expressions[0] if distinct else arguments[0]
    if isinstance(subject, exp.Star):
        if name not in ("COUNT", "COUNT_BIG"):
            raise SqlError(102, "Incorrect syntax near '*'.", 15)
        return Typed(wrap("count(*)"), BIGINT if name == "COUNT_BIG" else INT, nullable=False)
    scope.in_aggregate = wrap is _plain  # a windowed aggregate computes on the groups' results
    try:
        value = compiler.scalar(subject, scope)
        if is_null(value):
            raise SqlError(8117, f"Operand data type NULL is invalid for {name.lower()} operator.")
        rest = compiler.scalars(arguments[1:], scope)
    finally:
        scope.in_aggregate = False
    return _compile(compiler, name, value, rest, distinct, wrap)


def _compile(compiler: "Compiler", name: str, value: Typed, rest: Sequence[Typed], distinct: bool, wrap: Wrap) -> Typed:
    mark = "DISTINCT " if distinct else ""
    if name in ("COUNT", "COUNT_BIG", "APPROX_COUNT_DISTINCT"):
        mark = "DISTINCT " if name.startswith("APPROX") else mark
        subject = compiler.ordering(value) if mark else value.sql
        return Typed(wrap(f"count({mark}{subject})"), INT if name == "COUNT" else BIGINT, nullable=False)
    if name in ("MIN", "MAX"):
        if value.type.name == "bit":
            raise SqlError(8117, f"Operand data type bit is invalid for {name.lower()} operator.")
        return Typed(wrap(f"{name.lower()}({compiler.sortable(value)})"), value.type)
    if name == "STRING_AGG":
        return _string_agg(value, rest, [], wrap)
    if name in ("SUM", "AVG"):
        return _sum(name, value, mark, wrap)
    if name == "CHECKSUM_AGG":
        return Typed(wrap(_python("xor", [implicit(value, INT)], distinct)), INT)
    return Typed(wrap(_python(name.lower(), [implicit(value, FLOAT)], distinct)), FLOAT)


def _python(kind: str, values: Sequence[Typed], distinct: bool) -> str:
    spec = specification("agg", kind, "distinct" if distinct else "", *(value.type for value in values))
    return f"tsql_aggregate({text_literal(spec)}, {', '.join(value.sql for value in values)})"


def _sum(name: str, value: Typed, mark: str, wrap: Wrap) -> Typed:
    group = family(value.type)
    if group not in ("integer", "exact", "float") or value.type.name == "bit":
        raise SqlError(8117, f"Operand data type {value.type.name} is invalid for {name.lower()} operator.")
    result = _sum_type(name, value.type)
    if group == "float":
        text = wrap(f"{'sum' if name == 'SUM' else 'avg'}({mark}{value.sql})")
        return Typed(call(specification("finite"), [text]), FLOAT)
    if value.type.is_wide_decimal or mark:
        return Typed(wrap(_python(name.lower(), [value], bool(mark))), result)
    high, low = wrap(f"sum({value.sql} / {_SPLIT})"), wrap(f"sum({value.sql} % {_SPLIT})")
    arguments = [high, low] if name == "SUM" else [high, low, wrap(f"count({value.sql})")]
    return Typed(call(specification("total", value.type, result), arguments), result)


def _sum_type(name: str, source: SqlType) -> SqlType:
    if source.name in DECIMAL:
        return SqlType(source.name, precision=38, scale=source.scale if name == "SUM" else max(source.scale, 6))
    if source.name in MONEY:
        return MONEY_TYPE
    return BIGINT if source.name == "bigint" else INT


def _finished(scaled: int, count: int | None, source: SqlType, result: SqlType) -> Value:
    """A sum, or with a count an average, as the stored form of the result."""
    scale = source.scale if source.name in DECIMAL else 4 if source.name in MONEY else 0
    if result.name not in DECIMAL:
        value = scaled if count is None else _toward_zero(scaled, count)
        return numbers.to_integer(value, result, result)
    moved = numbers.rescale(scaled, scale, result.scale)
    value = moved if count is None else _toward_zero(moved, count)
    if abs(value) >= 10**38:
        raise numbers.overflow("expression", result)
    return decimal_to_stored(value, result)


def _toward_zero(total: int, count: int) -> int:
    return -(-total // count) if total < 0 else total // count


@builder("total")
def _build_total(arguments: Sequence[str]) -> Kernel:
    source, result = map(read_type, arguments)

    def run(_: SessionContext, high: Any, low: Any, count: Any = None) -> Value:
        return None if high is None else _finished(high * _SPLIT + low, count, source, result)

    return run


@builder("finite")
def _build_finite(_: Sequence[str]) -> Kernel:
    def run(_: SessionContext, value: float | None) -> Value:
        if value is None or math.isfinite(value):
            return value
        raise numbers.overflow("expression", FLOAT)

    return run


def _string_agg(value: Typed, rest: Sequence[Typed], keys: Sequence[tuple[Typed, bool]], wrap: Wrap) -> Typed:
    if any(family(one.type) != "text" for one in rest):
        raise SqlError(8733, "Separator parameter for STRING_AGG must be a string literal or variable.")
    text = value if family(value.type) == "text" else cast(value, SqlType("nvarchar", 4000))
    unicode = text.type.name in UNICODE
    length = MAX if text.type.is_max else (4000 if unicode else 8000)
    result = SqlType("nvarchar" if unicode else "varchar", length, collation=text.type.collation)
    values = [text, *rest, *(key for key, _ in keys)]
    directions = "".join("-" if descending else "+" for _, descending in keys)
    spec = specification("agg", "string", directions, *(one.type for one in values))
    return Typed(wrap(f"tsql_aggregate({text_literal(spec)}, {', '.join(one.sql for one in values)})"), result)


def ordered_aggregate(compiler: "Compiler", node: Any, scope: "Scope", wrap: Wrap = _plain) -> Typed:
    """`STRING_AGG(…) WITHIN GROUP (ORDER BY …)`."""
    if function_name(node.this) != "STRING_AGG":
        raise unsupported(f"{function_name(node.this)} WITHIN GROUP")
    scope.in_aggregate = True
    try:
        value, *rest = compiler.scalars(node.this.expressions, scope)
        keys = [
            (compiler.in_database(compiler.scalar(ordered.this, scope)), bool(ordered.args.get("desc")))
            for ordered in node.expression.expressions
        ]
    finally:
        scope.in_aggregate = False
    return _string_agg(value, rest, keys, wrap)


# ---- Python aggregates -----------------------------------------------------------------------------------------


def _statistics(kind: str, numbers_: list[float]) -> float | None:
    sample = kind in ("stdev", "var")
    count = len(numbers_)
    if count < (2 if sample else 1):
        return None
    try:
        mean = math.fsum(numbers_) / count
        variance = math.fsum((number - mean) ** 2 for number in numbers_) / (count - 1 if sample else count)
    except OverflowError as error:
        raise numbers.overflow("expression", FLOAT) from error
    return math.sqrt(variance) if kind.startswith("stdev") else variance


def _finish_values(kind: str, source: SqlType, values: list[Any]) -> Value:
    if kind in ("sum", "avg"):
        total = sum(numbers.scaled_of(value, source)[0] for value in values)
        result = _sum_type(kind.upper(), source)
        return _finished(total, len(values) if kind == "avg" else None, source, result) if values else None
    if kind == "xor":
        result_bits = 0
        for value in values:
            result_bits ^= value
        return result_bits if values else None
    return _statistics(kind, values)


def _join_texts(rows: list[tuple[Any, ...]], directions: str, types: Sequence[SqlType]) -> str | None:
    if not rows:
        return None
    for place in reversed(range(len(directions))):
        key_type = types[2 + place]
        key = sort_key(key_type.collation) if family(key_type) == "text" else (lambda value: value)

        def order(row: tuple[Any, ...], at: int = 2 + place, key: Callable[[Any], Any] = key) -> tuple[bool, Any]:
            return row[at] is not None, 0 if row[at] is None else key(row[at])

        rows.sort(key=order, reverse=directions[place] == "-")
    joined = (rows[0][1] or "").join(row[0] for row in rows)
    if types[0].length != MAX and textforms.units(joined) * (2 if types[0].name in UNICODE else 1) > _MOST_BYTES:
        raise SqlError(
            9829,
            "STRING_AGG aggregation result exceeded the limit of 8000 bytes. Use LOB types to avoid result truncation.",
        )
    return joined


class PythonAggregate:
    """Any aggregate that SQLite cannot do exactly; also as a window function."""

    def __init__(self) -> None:
        self.spec: tuple[str, str, tuple[SqlType, ...]] | None = None
        self.rows: list[tuple[Any, ...]] = []

    def step(self, spec: str, *values: Value) -> None:
        """Add a row; NULL values do not count."""
        if self.spec is None:
            _, kind, option, *types = spec.split("|")
            self.spec = kind, option, tuple(map(read_type, types))
        if values[0] is not None:
            self.rows.append(values)

    def inverse(self, _: str, *values: Value) -> None:
        """Take a row away."""
        if values[0] is not None:
            self.rows.remove(values)

    def value(self) -> Value:
        """The result so far."""
        if self.spec is None:
            return None
        kind, option, types = self.spec
        if kind == "string":
            return _join_texts(list(self.rows), option, types)
        values = [row[0] for row in self.rows]
        return _finish_values(kind, types[0], list(dict.fromkeys(values)) if option else values)

    def finalize(self) -> Value:
        """The final result."""
        return self.value()


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

    methods = [name for name in ("step", "inverse", "value", "finalize") if hasattr(kind, name)]
    return type(kind.__name__, (kind,), {name: parked(name) for name in methods})


def register_aggregates(connection: sqlite3.Connection, context: SessionContext) -> None:
    """Make the Python aggregates known on a connection."""
    from cdc_assets.standin.sql.sources import RowsAggregate

    connection.create_window_function("tsql_aggregate", -1, _parking(PythonAggregate, context))
    connection.create_aggregate("tsql_single", 1, _parking(SingleAggregate, context))
    connection.create_aggregate("tsql_rows", -1, _parking(RowsAggregate, context))
