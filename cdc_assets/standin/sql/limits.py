"""How many rows: TOP, PERCENT, WITH TIES, OFFSET and FETCH."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlglot import exp

from cdc_assets.standin.contract import Names, RelationColumn, SessionContext, Typed
from cdc_assets.standin.errors import SqlError, syntax_error
from cdc_assets.standin.sql import convert
from cdc_assets.standin.sql.coercion import is_null
from cdc_assets.standin.sql.expressions import Compiler
from cdc_assets.standin.sql.runtime import Kernel, apply, builder, specification
from cdc_assets.standin.sql.scope import Scope
from cdc_assets.standin.sqltypes import BIGINT, FLOAT


@dataclass(frozen=True, slots=True)
class SortKey:
    """An item of ORDER BY."""

    sql: str
    descending: bool = False
    hidden: bool = False
    """It is no column of the select list."""

    def __str__(self) -> str:
        return f"{self.sql} DESC" if self.descending else self.sql


def _ranked(
    parts: tuple[str, str], order: Sequence[SortKey], columns: Sequence[RelationColumn], rank: str, wanted: str
) -> str:
    """The rows whose `place` under a ranking function is wanted; ranked outside, where sort keys are columns.

    SQLite's own LIMIT knows no ties, cannot see columns of queries around, and would need a second run to count the rows.
    """
    names = ", ".join(column.sql for column in columns)
    hidden = "".join(f", {key.sql} AS o{place}" for place, key in enumerate(order) if key.hidden)
    keys = ", ".join(str(replace(key, sql=f"o{place}") if key.hidden else key) for place, key in enumerate(order))
    over = f"ORDER BY {keys}" if order else ""
    places = f"{rank} OVER ({over}) AS place, count(*) OVER () AS total"
    return f"SELECT {names} FROM (SELECT {names}, {places} FROM ({parts[0]}{hidden}{parts[1]})) WHERE {wanted} ORDER BY place"


class Limits(Compiler):
    """Compiles row limits of queries."""

    def limited(
        self,
        node: Any,
        parts: tuple[str, str],
        order: Sequence[SortKey],
        columns: Sequence[RelationColumn],
        scope: Scope,
    ) -> str:
        """Apply ORDER BY, TOP, WITH TIES, PERCENT, OFFSET and FETCH.

        Args:
            parts: the select list and the rest of the query, from FROM on.
        """
        limit, offset = node.args.get("limit"), node.args.get("offset")
        around = scope.inner()
        plain = "".join(parts) + (f" ORDER BY {', '.join(map(str, order))}" if order else "")
        if limit is None and offset is None:
            return plain
        if offset is not None or isinstance(limit, exp.Fetch):
            if not order:
                raise syntax_error("OFFSET")
            count = limit and limit.args.get("count")
            rows = self.row_count(count, around, "FETCH") if count is not None else "-1"
            skip = self.row_count(offset.expression, around, "OFFSET") if offset is not None else "0"
            if not around.correlated:
                return f"{plain} LIMIT {rows} OFFSET {skip}"
            wanted = f"place > {skip}" + (f" AND place <= {skip} + {rows}" if count is not None else "")
            return _ranked(parts, order, columns, "row_number()", wanted)
        return self._top(limit, (parts, plain), order, columns, around)

    def _top(
        self,
        limit: Any,
        texts: tuple[tuple[str, str], str],
        order: Sequence[SortKey],
        columns: Sequence[RelationColumn],
        around: Scope,
    ) -> str:
        options = limit.args.get("limit_options")
        percent, ties = (bool(options and options.args.get(key)) for key in ("percent", "with_ties"))
        if ties and not order:
            raise SqlError(
                1062, "The TOP N WITH TIES clause is not allowed without a corresponding ORDER BY clause.", 15
            )
        rows = self._share(limit.expression, around) if percent else self.row_count(limit.expression, around)
        if not (percent or ties or around.correlated):
            return f"{texts[1]} LIMIT {rows}"
        return _ranked(texts[0], order, columns, "rank()" if ties else "row_number()", f"place <= {rows}")

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

    def _share(self, node: Any, scope: Scope) -> str:
        typed = convert.implicit(self._outside(node, scope), FLOAT)
        return f"ceil(total * {apply(specification('percent'), [typed], FLOAT).sql} / 100.0)"

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


@builder("percent")
def _build_percent(_: Sequence[str]) -> Kernel:
    def run(_: SessionContext, share: Any) -> float:
        if share is None or not 0 <= share <= 100:
            raise _invalid_count() if share is None else SqlError(1031, "Percent values must be between 0 and 100.", 15)
        return float(share)

    return run


def compile_row_count(tree: Any, names: Names, scope: Scope) -> str:
    """The row count of a change's `TOP (n)` as SQLite text; raises as `Limits.row_count`."""
    return Limits(names).row_count(tree, scope)
