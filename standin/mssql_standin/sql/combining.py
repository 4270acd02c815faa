"""Set operations and VALUES: several queries, or rows, as one.

A chain of one operation becomes one flat text, since SQLite's parser does not nest deeply; where the operands differ in type, all are
converted to the type that they have in common.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from sqlglot import exp

from mssql_standin.contract import RelationColumn, Typed
from mssql_standin.errors import SqlError, syntax_error
from mssql_standin.sql import convert
from mssql_standin.sql.block import Block
from mssql_standin.sql.coercion import common
from mssql_standin.sql.columns import position
from mssql_standin.sql.expressions import column_name
from mssql_standin.sql.limits import Limits
from mssql_standin.sql.literals import Constant
from mssql_standin.sql.scope import Scope
from mssql_standin.sqltypes import SqlType

_MOST_OPERANDS: Final = 400
"""Of one compound SELECT; SQLite allows 500."""
_OPERATIONS: Final = {exp.Union: "UNION", exp.Except: "EXCEPT", exp.Intersect: "INTERSECT"}


class Combining(Limits):
    """Compiles set operations and VALUES."""

    def set_operation(self, node: Any, scope: Scope, top: bool) -> Block:
        """A chain of one and the same operation becomes one flat text: SQLite's parser does not nest deeply."""
        blocks = [self.query(operand, scope) for operand in _operands(node)]
        first = blocks[0]
        if any(len(block.columns) != len(first.columns) for block in blocks):
            raise unequal_lists()
        operation = _OPERATIONS[type(node)]
        if not node.args.get("distinct"):
            if operation != "UNION":
                raise syntax_error("ALL")
            operation += " ALL"
        columns: list[RelationColumn] = []
        keys: list[list[str]] = [[] for _ in blocks]
        for place, column in enumerate(first.columns):
            values, target = self.unified([block.typed(place) for block in blocks])
            nullable = any(block.columns[place].nullable for block in blocks)
            columns.append(RelationColumn(column.name, f"k{place + 1}", target, nullable))
            for listed, value in zip(keys, values, strict=True):
                text = value.sql if operation == "UNION ALL" else self.sortable(Typed(value.sql, target))
                listed.append(f"{text} AS k{place + 1}")
        grouped = operation == "UNION" and any(self.needs_grouping(column.type) for column in columns)
        operation = "UNION ALL" if grouped else operation
        sql = _joined([_projected(*operand) for operand in zip(blocks, keys, strict=True)], operation)
        sql = "".join(self.distinct_rows(sql, columns)) if grouped else sql
        return Block(
            self._set_order(node, sql, replace(first, columns=tuple(columns)), scope, top),
            tuple(columns),
            place_of=first.place_of,
        )

    @staticmethod
    def needs_grouping(sql_type: SqlType) -> bool:
        """Whether values can be equal though their stored forms differ: SQLite's DISTINCT and ORDER BY compare those."""
        return sql_type.name in ("datetimeoffset", "varbinary")

    def distinct_rows(self, sql: str, columns: Sequence[RelationColumn]) -> tuple[str, str]:
        """The select list and the rest of a query for the distinct rows of a query with these columns."""
        keys = ", ".join(self.ordering(Typed(column.sql, column.type)) for column in columns)
        return f"SELECT {', '.join(column.sql for column in columns)}", f" FROM ({sql}) GROUP BY {keys}"

    def _set_order(self, node: Any, sql: str, combined: Block, scope: Scope, top: bool) -> str:
        """The text with its ORDER BY, whose items are columns of the first query: their names, places, or what they are
        called among its sources, with a qualifier."""
        columns = combined.columns
        order, limit, offset = (node.args.get(key) for key in ("order", "limit", "offset"))
        if order is None:
            return sql
        parts = []
        for ordered in order.expressions:
            place = position(ordered.this, [column.name for column in columns], [True] * len(columns))
            if place is None and isinstance(ordered.this, exp.Column) and column_name(ordered.this)[1]:
                place = combined.place_of(ordered.this)
            if place is None:
                raise SqlError(
                    104,
                    "ORDER BY items must appear in the select list if the statement contains a UNION, INTERSECT or EXCEPT operator.",
                    15,
                )
            text = self.ordering(Typed(columns[place].sql, columns[place].type))
            parts.append(f"{text} DESC" if ordered.args.get("desc") else text)
        names = ", ".join(column.sql for column in columns)
        text = f"SELECT {names} FROM ({sql}) ORDER BY {', '.join(parts)}"
        if offset is None and limit is None:
            if not top:
                raise SqlError(
                    1033,
                    "The ORDER BY clause is invalid in views, inline functions, derived tables, subqueries, and common table expressions, unless TOP, OFFSET or FOR XML is also specified.",
                )
            return text
        count = limit.args.get("count") if isinstance(limit, exp.Fetch) else None
        rows = self.row_count(count, scope.inner(), "FETCH") if count is not None else "-1"
        skip = self.row_count(offset.expression, scope.inner(), "OFFSET") if offset is not None else "0"
        return f"{text} LIMIT {rows} OFFSET {skip}"

    def values(self, node: Any, scope: Scope) -> Block:
        """VALUES (…), (…) as a query."""
        rows = [self.scalars(getattr(row, "expressions", None) or [row], scope) for row in node.expressions]
        width = len(rows[0])
        if any(len(row) != width for row in rows):
            raise SqlError(
                10709, "The number of columns for each row in a table value constructor must be the same.", 15
            )
        types = [common([row[place] for row in rows]) for place in range(width)]
        converted = [
            [convert.implicit(value, target).sql for value, target in zip(row, types, strict=True)] for row in rows
        ]
        columns = tuple(
            RelationColumn("", f"k{place}", target, any(row[place - 1].nullable for row in rows))
            for place, target in enumerate(types, start=1)
        )
        return Block(
            _rows_text(converted, all(isinstance(v, Constant) for row in rows for v in row)), columns, len(rows) == 1
        )


def _operands(node: Any) -> list[Any]:
    """The operands of a chain `a UNION b UNION c …` of one operation, in order; the tree nests to the left."""
    found = [node.expression]
    left = node.this
    while type(left) is type(node) and _same_chain(left, node):
        found.append(left.expression)
        left = left.this
    found.append(left)
    return found[::-1]


def _same_chain(left: Any, node: Any) -> bool:
    plain = not any(left.args.get(key) for key in ("with_", "order", "limit", "offset"))
    return plain and bool(left.args.get("distinct")) == bool(node.args.get("distinct"))


def _joined(selects: list[str], operation: str) -> str:
    """A chain as text; SQLite takes 500 operands, a longer chain becomes one of chains (not of EXCEPT, where order counts)."""
    if len(selects) > _MOST_OPERANDS and operation.startswith("UNION"):
        parts = [selects[place : place + _MOST_OPERANDS] for place in range(0, len(selects), _MOST_OPERANDS)]
        selects = [f"SELECT * FROM ({_joined(part, operation)})" for part in parts]
        return _joined(selects, operation)
    return f" {operation} ".join(selects)


def _rows_text(rows: Sequence[Sequence[str]], constants: bool) -> str:
    """Rows as a query. VALUES has no limit on rows, but SQLite loses its columns when it refers to queries around."""
    if constants:
        keys = ", ".join(f"column{place} AS k{place}" for place in range(1, len(rows[0]) + 1))
        tuples = ", ".join("(" + ", ".join(row) + ")" for row in rows)
        return f"SELECT {keys} FROM (VALUES {tuples})"
    selects = ("SELECT " + ", ".join(f"{text} AS k{place}" for place, text in enumerate(row, start=1)) for row in rows)
    return _joined(list(selects), "UNION ALL")


def _projected(block: Block, keys: Sequence[str]) -> str:
    names = [f"{column.sql} AS {column.sql}" for column in block.columns]
    if (
        list(keys) == names
        and " ORDER BY " not in block.sql
        and " LIMIT " not in block.sql
        and not _compound(block.sql)
    ):
        return block.sql
    return f"SELECT {', '.join(keys)} FROM ({block.sql})"


def _compound(sql: str) -> bool:
    return any(word in sql for word in (" UNION ", " EXCEPT ", " INTERSECT "))


def unequal_lists() -> SqlError:
    return SqlError(
        205,
        "All queries combined using a UNION, INTERSECT or EXCEPT operator must have an equal number of expressions in their target lists.",
    )
