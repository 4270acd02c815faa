"""How many rows: TOP, PERCENT, WITH TIES, OFFSET and FETCH."""

from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from cdc_assets.standin.contract import RelationColumn
from cdc_assets.standin.errors import SqlError, syntax_error
from cdc_assets.standin.sql import convert
from cdc_assets.standin.sql.expressions import Compiler
from cdc_assets.standin.sql.literals import Constant
from cdc_assets.standin.sql.scope import Scope
from cdc_assets.standin.sqltypes import BIGINT, FLOAT


class Limits(Compiler):
    """Compiles row limits of queries."""

    def limited(self, node: Any, head: str, order: str, columns: Sequence[RelationColumn], scope: Scope) -> str:
        """Apply TOP, WITH TIES, PERCENT, OFFSET and FETCH."""
        limit, offset = node.args.get("limit"), node.args.get("offset")
        outside = scope.inner()
        if limit is None and offset is None:
            return head + order
        count = limit.args.get("count") if isinstance(limit, exp.Fetch) else limit and limit.expression
        if offset is not None or isinstance(limit, exp.Fetch):
            if not order:
                raise syntax_error("OFFSET")
            rows = self.row_count(count, outside) if count is not None else "-1"
            skip = self.row_count(offset.expression, outside) if offset is not None else "0"
            return f"{head}{order} LIMIT {rows} OFFSET {skip}"
        options = limit.args.get("limit_options")
        percent, ties = (bool(options and options.args.get(key)) for key in ("percent", "with_ties"))
        rows = self._share(count, head, outside) if percent else self.row_count(count, outside)
        if not ties:
            return f"{head}{order} LIMIT {rows}"
        if not order:
            raise SqlError(
                1062, "The TOP N WITH TIES clause is not allowed without a corresponding ORDER BY clause.", 15
            )
        names = ", ".join(column.sql for column in columns)
        rank = f"SELECT {names}, rank() OVER ({order.strip()}) AS tie FROM ({head})"
        return f"SELECT {names} FROM ({rank}) WHERE tie <= {rows} ORDER BY tie"

    def row_count(self, node: Any, scope: Scope) -> str:
        """A number of rows as SQLite text; 1060 when a constant is none."""
        typed = convert.implicit(self.scalar(node, scope), BIGINT)
        if isinstance(typed, Constant):
            if not isinstance(typed.value, int) or typed.value < 0:
                raise SqlError(
                    1060,
                    "The number of rows provided for a TOP or FETCH clauses row count parameter must be an integer.",
                    15,
                )
            return typed.sql
        return f"max(0, {typed.sql})"

    def _share(self, node: Any, head: str, scope: Scope) -> str:
        typed = convert.implicit(self.scalar(node, scope), FLOAT)
        return f"(SELECT ceil(count(*) * {typed.sql} / 100.0) FROM ({head}))"
