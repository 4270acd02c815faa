"""Window functions: `f(…) OVER (PARTITION BY … ORDER BY … ROWS …)`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from sqlglot import exp

from cdc_assets.standin.contract import SessionContext, Typed
from cdc_assets.standin.errors import SqlError, syntax_error, unsupported
from cdc_assets.standin.sql.convert import family, implicit
from cdc_assets.standin.sql.functions.aggregates import AGGREGATES, aggregate, function_name
from cdc_assets.standin.sql.literals import Constant, constant
from cdc_assets.standin.sql.runtime import Kernel, apply, builder, specification
from cdc_assets.standin.sqltypes import BIGINT, FLOAT, INT

if TYPE_CHECKING:
    from cdc_assets.standin.sql.expressions import Compiler
    from cdc_assets.standin.sql.scope import Scope

_RANKING: Final = {"ROW_NUMBER": "row_number", "RANK": "rank", "DENSE_RANK": "dense_rank"}
_SHARES: Final = {"PERCENT_RANK": "percent_rank", "CUME_DIST": "cume_dist"}
_VALUES: Final = {"FIRST_VALUE": "first_value", "LAST_VALUE": "last_value"}
_OFFSETS: Final = {"LAG": "lag", "LEAD": "lead"}
_ARGUMENTS: Final = {"LAG": (1, 3), "LEAD": (1, 3)}
_NOT_WINDOWED: Final = frozenset({"STRING_AGG", "APPROX_COUNT_DISTINCT"})


ONLY_WINDOWED: Final = frozenset({*_RANKING, *_SHARES, *_VALUES, *_OFFSETS, "NTILE"})


def window(compiler: "Compiler", node: Any, scope: "Scope") -> Typed:
    """Compile a windowed call.

    Raises:
        SqlError: 4108 outside the select list and ORDER BY, 4109 inside another one, 4112 without the ORDER BY a function needs.
    """
    if scope.in_window or scope.in_aggregate:
        raise SqlError(
            4109, "Windowed functions cannot be used in the context of another windowed function or aggregate.", 15
        )
    if not scope.windows_allowed:
        raise SqlError(4108, "Windowed functions can only appear in the SELECT or ORDER BY clauses.", 15)
    scope.in_window = True
    try:
        return _windowed(compiler, node, scope)
    finally:
        scope.in_window = False


def _windowed(compiler: "Compiler", node: Any, scope: "Scope") -> Typed:
    name = function_name(node.this)
    over = _over(compiler, node, scope)
    if name in _NOT_WINDOWED:
        raise SqlError(
            4113, f"The function '{name}' is not a valid windowing function, and cannot be used with the OVER clause."
        )
    if name in AGGREGATES:
        if isinstance(node.this.expressions[0] if node.this.expressions else None, exp.Distinct):
            raise SqlError(10759, "Use of DISTINCT is not allowed with the OVER clause.", 15)
        return aggregate(compiler, name, node.this.expressions, scope, lambda text: f"{text} OVER ({over})")
    if name not in ONLY_WINDOWED:
        raise unsupported(f"{name or type(node.this).__name__} OVER")
    least, most = _ARGUMENTS.get(name, (0, 0) if name in (*_RANKING, *_SHARES) else (1, 1))
    if not least <= len(node.this.expressions) <= most:
        if least != most:
            raise SqlError(10755, f"The function '{name}' takes between {least} and {most} arguments.", 15)
        raise SqlError(4114, f"The function '{name}' takes exactly {least} argument(s).", 15)
    if not node.args.get("order"):
        raise SqlError(4112, f"The function '{name}' must have an OVER clause with ORDER BY.", 15)
    arguments = node.this.expressions
    if name in _RANKING:
        return Typed(f"{_RANKING[name]}() OVER ({over})", BIGINT, nullable=False)
    if name in _SHARES:
        return Typed(f"{_SHARES[name]}() OVER ({over})", FLOAT, nullable=False)
    if name == "NTILE":
        return Typed(f"ntile({_tiles(compiler, arguments[0], scope)}) OVER ({over})", BIGINT, nullable=False)
    if name in _VALUES:
        value = compiler.scalar(arguments[0], scope)
        return Typed(f"{_VALUES[name]}({value.sql}) OVER ({over})", value.type)
    return _offset(compiler, name, arguments, scope, over)


def _offset(compiler: "Compiler", name: str, arguments: Any, scope: "Scope", over: str) -> Typed:
    value = compiler.scalar(arguments[0], scope)
    distance = compiler.scalar(arguments[1], scope) if len(arguments) > 1 else constant(1, INT)
    default = implicit(compiler.scalar(arguments[2], scope), value.type) if len(arguments) > 2 else None
    rows = apply(specification("distance"), [implicit(distance, BIGINT)], BIGINT)
    inside = f"{value.sql}, {rows.sql}" + (f", {default.sql}" if default else "")
    return Typed(f"{_OFFSETS[name]}({inside}) OVER ({over})", value.type)


@builder("distance")
def _build_distance(_: Sequence[str]) -> Kernel:
    def run(_: SessionContext, rows: Any) -> int:
        if rows is None or rows < 0:
            raise SqlError(8730, "Offset parameter for Lag and Lead functions cannot be a negative value.")
        return int(rows)

    return run


def _tiles(compiler: "Compiler", argument: Any, scope: "Scope") -> str:
    typed = compiler.scalar(argument, scope)
    if family(typed.type) != "integer":
        raise _bad_tiles()
    return apply(specification("tiles"), [implicit(typed, BIGINT)], BIGINT).sql


def _bad_tiles() -> SqlError:
    return SqlError(4116, "The function 'ntile' takes only a positive int or bigint expression as its input.")


@builder("tiles")
def _build_tiles(_: Sequence[str]) -> Kernel:
    def run(_: SessionContext, count: Any) -> int:
        if count is None or count < 1:
            raise _bad_tiles()
        return int(count)

    return run


def _over(compiler: "Compiler", node: Any, scope: "Scope") -> str:
    if node.args.get("alias") is not None:
        raise unsupported("named windows")
    parts = []
    partition = node.args.get("partition_by")
    if partition:
        keys = (compiler.ordering(typed) for typed in compiler.scalars(partition, scope))
        parts.append(f"PARTITION BY {', '.join(keys)}")
    order = node.args.get("order")
    if order is not None:
        keys = (_sort_key(compiler, ordered, scope) for ordered in order.expressions)
        parts.append(f"ORDER BY {', '.join(keys)}")
    spec = node.args.get("spec")
    if spec is not None:
        if order is None:
            raise SqlError(10756, "Window frame with ROWS or RANGE must have an ORDER BY clause.", 15)
        parts.append(_frame(spec))
    return " ".join(parts)


def _sort_key(compiler: "Compiler", ordered: Any, scope: "Scope") -> str:
    typed = compiler.scalar(ordered.this, scope)
    if isinstance(typed, Constant):
        kind = "constants" if typed.literal or not isinstance(typed.value, int) else "integer indices"
        raise SqlError(
            5308 if kind == "integer indices" else 5309,
            f"Windowed functions, aggregates and NEXT VALUE FOR functions do not support {kind} as ORDER BY clause expressions.",
        )
    return compiler.ordering(typed) + (" DESC" if ordered.args.get("desc") else "")


def _frame(spec: Any) -> str:
    def bound(value: Any, side: str | None) -> str:
        if isinstance(value, exp.Expression):
            if not isinstance(value, exp.Literal) or value.is_string:
                raise syntax_error("ROWS")
            if spec.args["kind"] == "RANGE":
                raise SqlError(
                    4194, "RANGE is only supported with UNBOUNDED and CURRENT ROW window frame delimiters.", 15
                )
            value = value.this
        return f"{value} {side}" if side else str(value)

    start = bound(spec.args["start"], spec.args.get("start_side"))
    end = spec.args.get("end")
    if end is None:
        return f"{spec.args['kind']} {start}"
    return f"{spec.args['kind']} BETWEEN {start} AND {bound(end, spec.args.get('end_side'))}"
