"""How many rows: TOP, OFFSET and FETCH."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlglot import exp

from mssql_standin.contract import SessionContext, Typed
from mssql_standin.errors import SqlError, syntax_error, unsupported
from mssql_standin.sql import convert
from mssql_standin.sql.coercion import is_null
from mssql_standin.sql.expressions import Compiler
from mssql_standin.sql.runtime import Kernel, apply, builder, specification
from mssql_standin.sql.scope import Scope
from mssql_standin.sqltypes import BIGINT


@dataclass(frozen=True, slots=True)
class SortKey:
    """An item of ORDER BY."""

    sql: str
    descending: bool = False

    def __str__(self) -> str:
        return f"{self.sql} DESC" if self.descending else self.sql


class Limits(Compiler):
    """Compiles row limits of queries."""

    def limited(self, node: Any, text: str, order: Sequence[SortKey], scope: Scope) -> str:
        """A query's text with its ORDER BY, TOP, OFFSET and FETCH."""
        limit, offset = node.args.get("limit"), node.args.get("offset")
        around = scope.inner()
        plain = text + (f" ORDER BY {', '.join(map(str, order))}" if order else "")
        if limit is None and offset is None:
            return plain
        if offset is not None or isinstance(limit, exp.Fetch):
            if not order:
                raise syntax_error("OFFSET")
            count = limit and limit.args.get("count")
            rows = self.row_count(count, around, "FETCH") if count is not None else "-1"
            skip = self.row_count(offset.expression, around, "OFFSET") if offset is not None else "0"
        else:
            rows, skip = self._top(limit, around), "0"
        if around.correlated:
            raise unsupported("a row limit that depends on a query around")
        return f"{plain} LIMIT {rows}" + (f" OFFSET {skip}" if skip != "0" else "")

    def _top(self, limit: Any, around: Scope) -> str:
        options = limit.args.get("limit_options")
        for option in ("percent", "with_ties"):
            if options and options.args.get(option):
                raise unsupported(f"TOP … {option.upper().replace('_', ' ')}")
        return self.row_count(limit.expression, around)

    def row_count(self, node: Any, scope: Scope, clause: str = "TOP") -> str:
        """A number of rows as SQLite text.

        Args:
            clause: TOP, OFFSET or FETCH.

        Raises:
            SqlError: 1060 or 10743 when it is no integer, 4115 for a column; the text raises 1014, 127, 10742 and 10744.
        """
        typed = self._outside(node, scope)
        if convert.family(typed.type) != "integer" or is_null(typed):
            raise _no_integer(clause)
        return apply(specification("rows", clause), [convert.implicit(typed, BIGINT)], BIGINT).sql

    def _outside(self, node: Any, scope: Scope) -> Typed:
        """A value that may use columns of queries around, not those of the query itself."""
        typed = self.scalar(node, scope)
        if scope.outer is not None and scope.outer.referred(typed.sql):
            raise SqlError(
                4115,
                f'The reference to column "{node.name}" is not allowed in an argument to a TOP, OFFSET, or FETCH clause. Only '
                "references to columns at an outer scope or standalone expressions and subqueries are allowed here.",
                15,
            )
        return typed


def _no_integer(clause: str) -> SqlError:
    if clause == "OFFSET":
        return SqlError(10743, "The number of rows provided for a OFFSET clause must be an integer.", 15)
    return SqlError(
        1060, "The number of rows provided for a TOP or FETCH clauses row count parameter must be an integer.", 15
    )


_TOO_LOW: Final = {
    "TOP": (127, "A TOP N or FETCH rowcount value may not be negative."),
    "FETCH": (10744, "The number of rows provided for a FETCH clause must be greater then zero."),
    "OFFSET": (10742, "The offset specified in a OFFSET clause may not be negative."),
}


def _invalid_count() -> SqlError:
    return SqlError(1014, "A TOP or FETCH clause contains an invalid value.", 15)


@builder("rows")
def _build_rows(arguments: Sequence[str]) -> Kernel:
    clause = arguments[0]
    least = 1 if clause == "FETCH" else 0

    def run(_: SessionContext, count: Any) -> int:
        if count is None:
            raise _invalid_count()
        if count < least:
            raise SqlError(*_TOO_LOW[clause], 15)
        return int(count)

    return run
