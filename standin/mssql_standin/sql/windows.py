"""Ranks of rows: `ROW_NUMBER() OVER (PARTITION BY … ORDER BY …)` and its kin; other windowed functions are refused."""

from typing import TYPE_CHECKING, Any, Final

from mssql_standin.contract import Typed
from mssql_standin.errors import SqlError, unsupported
from mssql_standin.sql.functions.aggregates import function_name
from mssql_standin.sql.literals import Constant
from mssql_standin.sqltypes import BIGINT

if TYPE_CHECKING:
    from mssql_standin.sql.expressions import Compiler
    from mssql_standin.sql.scope import Scope

_RANKING: Final = {"ROW_NUMBER": "row_number", "RANK": "rank", "DENSE_RANK": "dense_rank"}
ONLY_WINDOWED: Final = frozenset(_RANKING)


def window(compiler: "Compiler", node: Any, scope: "Scope") -> Typed:
    """Compile a windowed call.

    Raises:
        SqlError: 4108 outside the select list and ORDER BY, 4109 inside another one, 4112 without ORDER BY.
    """
    if scope.in_window or scope.in_aggregate:
        raise SqlError(
            4109, "Windowed functions cannot be used in the context of another windowed function or aggregate.", 15
        )
    if not scope.windows_allowed:
        raise SqlError(4108, "Windowed functions can only appear in the SELECT or ORDER BY clauses.", 15)
    name = function_name(node.this)
    if name not in _RANKING:
        raise unsupported(f"{name or type(node.this).__name__} OVER")
    if node.args.get("spec") is not None:
        raise unsupported("ROWS or RANGE in an OVER clause")
    if node.this.expressions:
        raise SqlError(4114, f"The function '{name}' takes exactly 0 argument(s).", 15)
    if not node.args.get("order"):
        raise SqlError(4112, f"The function '{name}' must have an OVER clause with ORDER BY.", 15)
    scope.in_window = True
    try:
        return Typed(f"{_RANKING[name]}() OVER ({_over(compiler, node, scope)})", BIGINT, nullable=False)
    finally:
        scope.in_window = False


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
