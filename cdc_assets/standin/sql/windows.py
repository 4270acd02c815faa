"""Window functions: `f(…) OVER (PARTITION BY … ORDER BY … ROWS …)`."""

from typing import TYPE_CHECKING, Any, Final

from sqlglot import exp

from cdc_assets.standin.contract import Typed
from cdc_assets.standin.errors import SqlError, syntax_error, unsupported
from cdc_assets.standin.sql.convert import implicit
from cdc_assets.standin.sql.forms import check_count
from cdc_assets.standin.sql.functions.aggregates import AGGREGATES, aggregate, function_name
from cdc_assets.standin.sql.literals import constant
from cdc_assets.standin.sqltypes import BIGINT, FLOAT, INT

if TYPE_CHECKING:
    from cdc_assets.standin.sql.expressions import Compiler
    from cdc_assets.standin.sql.scope import Scope

_RANKING: Final = {"ROW_NUMBER": "row_number", "RANK": "rank", "DENSE_RANK": "dense_rank"}
_SHARES: Final = {"PERCENT_RANK": "percent_rank", "CUME_DIST": "cume_dist"}
_VALUES: Final = {"FIRST_VALUE": "first_value", "LAST_VALUE": "last_value"}
_OFFSETS: Final = {"LAG": "lag", "LEAD": "lead"}


def window(compiler: "Compiler", node: Any, scope: "Scope") -> Typed:
    """Compile a windowed call.

    Raises:
        SqlError: 4108 outside the select list and ORDER BY, 4112 without the ORDER BY a function needs.
    """
    if not scope.windows_allowed:
        raise SqlError(4108, "Windowed functions can only appear in the SELECT or ORDER BY clauses.", 15)
    name = function_name(node.this)
    over = _over(compiler, node, scope)
    if name in AGGREGATES:
        return aggregate(compiler, name, node.this.expressions, scope, lambda text: f"{text} OVER ({over})")
    needs_order = name in _RANKING or name in _SHARES or name in _VALUES or name in _OFFSETS or name == "NTILE"
    if not needs_order:
        raise unsupported(f"{name or type(node.this).__name__} OVER")
    if not node.args.get("order"):
        raise SqlError(4112, f"The function '{name}' must have an OVER clause with ORDER BY.", 15)
    arguments = node.this.expressions
    if name in _RANKING:
        check_count(name, len(arguments), 0, 0)
        return Typed(f"{_RANKING[name]}() OVER ({over})", BIGINT, nullable=False)
    if name in _SHARES:
        check_count(name, len(arguments), 0, 0)
        return Typed(f"{_SHARES[name]}() OVER ({over})", FLOAT, nullable=False)
    if name == "NTILE":
        check_count(name, len(arguments), 1, 1)
        tiles = implicit(compiler.scalar(arguments[0], scope), BIGINT)
        return Typed(f"ntile({tiles.sql}) OVER ({over})", BIGINT, nullable=False)
    if name in _VALUES:
        check_count(name, len(arguments), 1, 1)
        value = compiler.scalar(arguments[0], scope)
        return Typed(f"{_VALUES[name]}({value.sql}) OVER ({over})", value.type)
    return _offset(compiler, name, arguments, scope, over)


def _offset(compiler: "Compiler", name: str, arguments: Any, scope: "Scope", over: str) -> Typed:
    check_count(name, len(arguments), 1, 3)
    value = compiler.scalar(arguments[0], scope)
    distance = compiler.scalar(arguments[1], scope) if len(arguments) > 1 else constant(1, INT)
    default = implicit(compiler.scalar(arguments[2], scope), value.type) if len(arguments) > 2 else None
    inside = f"{value.sql}, {implicit(distance, BIGINT).sql}" + (f", {default.sql}" if default else "")
    return Typed(f"{_OFFSETS[name]}({inside}) OVER ({over})", value.type)


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
        keys = (
            compiler.ordering(compiler.scalar(ordered.this, scope)) + (" DESC" if ordered.args.get("desc") else "")
            for ordered in order.expressions
        )
        parts.append(f"ORDER BY {', '.join(keys)}")
    spec = node.args.get("spec")
    if spec is not None:
        parts.append(_frame(spec))
    return " ".join(parts)


def _frame(spec: Any) -> str:
    def bound(value: Any, side: str | None) -> str:
        if isinstance(value, exp.Expression):
            if not isinstance(value, exp.Literal) or value.is_string:
                raise syntax_error("ROWS")
            value = value.this
        return f"{value} {side}" if side else str(value)

    start = bound(spec.args["start"], spec.args.get("start_side"))
    end = spec.args.get("end")
    if end is None:
        return f"{spec.args['kind']} {start}"
    return f"{spec.args['kind']} BETWEEN {start} AND {bound(end, spec.args.get('end_side'))}"
