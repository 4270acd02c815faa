"""Queries: SELECT to SQLite text (set operations and VALUES: `combining`, WITH: `ctes`).

Every output column is called k1, k2, … inside SQLite, every source s1, s2, …; so no T-SQL name can
collide with a word of SQLite or with another scope, and references to scopes around stay unambiguous.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlglot import exp

from mssql_standin.contract import (
    Names,
    Query,
    RelationColumn,
    ResultColumn,
    Typed,
)
from mssql_standin.errors import SqlError, syntax_error, unsupported
from mssql_standin.sql.block import Block
from mssql_standin.sql.coercion import is_null
from mssql_standin.sql.columns import check_varies, origin, position
from mssql_standin.sql.ctes import CommonTables
from mssql_standin.sql.expressions import column_name, identifier
from mssql_standin.sql.functions.aggregates import contains_aggregate, is_aggregate
from mssql_standin.sql.limits import SortKey
from mssql_standin.sql.scope import Scope, Source, Used
from mssql_standin.sql.sources import Sources


@dataclass(slots=True)
class _Item:
    """An entry of a select list after expansion of stars."""

    typed: Typed
    name: str
    source: RelationColumn | None = None
    explicit: bool = False
    """It was named by an alias."""


@dataclass(slots=True)
class _Selected:
    items: list[_Item]

    def columns(self) -> tuple[RelationColumn, ...]:
        return tuple(
            RelationColumn(
                item.name, f"k{place}", item.typed.type, item.typed.nullable,
                bool(item.source and item.source.identity), bool(item.source and item.source.computed),
            )
            for place, item in enumerate(self.items, start=1)
        )  # fmt: skip


_CLAUSES: Final = frozenset(
    {
        "with_", "expressions", "distinct", "limit", "into", "from_", "joins", "where", "group", "having", "order", "offset",
        "options",
    }
)  # fmt: skip
"""What `_select` knows of a SELECT; a grammar that reads more must not have it ignored."""


class Queries(CommonTables):
    """Compiles queries."""

    def __init__(self, names: Names) -> None:
        super().__init__(names)
        self.sources = Sources(self)

    def query(self, node: Any, scope: Scope, top: bool = False) -> Block:
        """Compile any query; `scope` is the scope around it."""
        if isinstance(node, exp.Subquery):
            return self._parenthesised(node, scope, top)
        if isinstance(node, exp.Values):
            return self.values(node, scope)
        with_ = node.args.get("with_")
        if with_ is not None:
            scope = scope.inner() if not top else scope
            self.bind(with_, scope)
        if isinstance(node, exp.Select):
            return self._select(node, scope, top)
        if isinstance(node, exp.SetOperation):
            return self.set_operation(node, scope, top)
        raise unsupported(f"{type(node).__name__} as a query")

    def _parenthesised(self, node: Any, scope: Scope, top: bool) -> Block:
        extra = [key for key in ("order", "limit", "offset", "where", "joins") if node.args.get(key)]
        if extra:
            raise unsupported(f"{extra[0].upper()} after a parenthesised query")
        return self.query(node.this, scope, top)

    # ---- SELECT -------------------------------------------------------------------------------------------------

    def _select(self, node: Any, outer: Scope, top: bool) -> Block:
        unknown = next((clause for clause, value in node.args.items() if value and clause not in _CLAUSES), None)
        if unknown:
            raise unsupported(f"{unknown.strip('_').upper()} in a query")
        scope = outer.inner()
        text = self.sources.compile(node.args.get("from_"), node.args.get("joins") or (), scope)
        where = node.args.get("where")
        if where is not None:
            scope.clause = "WHERE clause"
            text += f" WHERE {self.condition(where.this, scope)}"
        grouping = self._group(node, scope)
        scope.aggregates_allowed = scope.windows_allowed = True
        selected = self._list(node, scope)
        having = self._having(node, scope)
        text += grouping + having
        distinct = node.args.get("distinct")
        columns = selected.columns()
        keys = [
            f"{self.sortable(item.typed) if distinct else item.typed.sql} AS {column.sql}"
            for item, column in zip(selected.items, columns, strict=True)
        ]
        if having and not grouping:  # SQLite takes HAVING only where the select list has an aggregate
            keys[0] = f"(CASE WHEN count(*) >= 0 THEN {selected.items[0].typed.sql} END) AS k1"
        order = self._order(node, scope, selected, bool(distinct))
        head = f"SELECT {'DISTINCT ' if distinct else ''}{', '.join(keys)}"
        if distinct and any(self.needs_grouping(column.type) for column in columns):
            head, text = self.distinct_rows(f"SELECT {', '.join(keys)}{text}", columns)
        if order and not top and not node.args.get("limit") and not node.args.get("offset"):
            raise SqlError(
                1033,
                "The ORDER BY clause is invalid in views, inline functions, derived tables, subqueries, and common table "
                "expressions, unless TOP, OFFSET or FOR XML is also specified.",
            )
        nulls = frozenset(place for place, item in enumerate(selected.items) if is_null(item.typed))
        single = (not node.args.get("group") and bool(scope.groups == [])) or _is_one(node.args.get("limit"))
        limited = self.limited(node, head + text, order, scope)
        return Block(limited, columns, single, nulls, lambda column: self._listed(column, scope, selected))

    def _listed(self, column: Any, scope: Scope, selected: _Selected) -> int | None:
        """The place of a column of the sources in the select list, or None."""
        try:
            typed = self.scalar(column, scope)
        except SqlError:
            return None
        return next((place for place, item in enumerate(selected.items) if item.typed.sql == typed.sql), None)

    def _group(self, node: Any, scope: Scope) -> str:
        group = node.args.get("group")
        if group is None:
            parts = (*node.expressions, node.args.get("having"), node.args.get("order"))
            if any(part is not None and contains_aggregate(part) for part in parts):
                scope.groups = []
            return ""
        for unknown in ("rollup", "cube", "grouping_sets", "all", "totals"):
            if group.args.get(unknown):
                raise unsupported(f"GROUP BY {unknown.upper().replace('_', ' ')}")
        trees = [tree for tree in group.expressions if not isinstance(tree, exp.Tuple) or tree.expressions]
        typed = [self._group_key(tree, scope) for tree in trees]
        scope.groups = list(zip(trees, typed, strict=True))
        return f" GROUP BY {', '.join(map(self.ordering, typed))}" if typed else ""

    def _group_key(self, tree: Any, scope: Scope) -> Typed:
        """An expression of GROUP BY; SQLite would take a bare number for a position."""
        if any(isinstance(node, exp.Query) or is_aggregate(node) for node in tree.walk()):
            raise SqlError(
                144,
                "Cannot use an aggregate or a subquery in an expression used for the group by list of a GROUP BY clause.",
                15,
            )
        typed = self.scalar(tree, scope)
        if not scope.referred(typed.sql):
            raise SqlError(
                164, "Each GROUP BY expression must contain at least one column that is not an outer reference.", 15
            )
        return typed

    def _having(self, node: Any, scope: Scope) -> str:
        having = node.args.get("having")
        if having is None:
            return ""
        if scope.groups is None:
            scope.groups = []
        scope.clause = "HAVING clause"
        condition = self.condition(having.this, scope)
        return f" HAVING {condition}"

    def _list(self, node: Any, scope: Scope) -> _Selected:
        scope.clause = "select list"
        selected = _Selected([])
        for entry in node.expressions:
            if isinstance(entry, exp.EQ) and isinstance(entry.this, exp.Parameter):
                raise unsupported("SELECT @variable = …; use SET @variable = (SELECT …)")
            if isinstance(entry, exp.Star):
                self._star((), scope, selected)
            elif isinstance(entry, exp.Column) and isinstance(entry.this, exp.Star):
                self._star(column_name(entry)[1], scope, selected)
            else:
                selected.items.append(self._item(entry, scope))
        if not selected.items:
            raise syntax_error("FROM")
        return selected

    def _star(self, qualifier: Sequence[str], scope: Scope, selected: _Selected) -> None:
        sources = list(scope.matching(qualifier))
        if not sources:
            if qualifier:
                raise SqlError(
                    107,
                    f"The column prefix '{'.'.join(qualifier)}' does not match with a table name or alias name used in the query.",
                    15,
                )
            raise SqlError(263, "Must specify table to select from.")
        for source in sources:
            for column in source.relation.columns:
                _, typed = (
                    (scope, source.typed(column))
                    if scope.groups is None
                    else self._grouped_column(column, source, scope)
                )
                selected.items.append(_Item(typed, column.name, column))

    def _grouped_column(self, column: RelationColumn, source: Source, scope: Scope) -> tuple[Scope, Typed]:
        typed = source.typed(column)
        if not any(typed.sql == group.sql for _, group in scope.groups or ()):
            raise SqlError(
                8120,
                f"Column '{source.alias}.{column.name}' is invalid in the select list because it is not contained in either "
                "an aggregate function or the GROUP BY clause.",
            )
        return scope, typed

    def _item(self, entry: Any, scope: Scope) -> _Item:
        if isinstance(entry, exp.Alias):
            item = self._item(entry.this, scope)
            return _Item(item.typed, identifier(entry.args["alias"]), item.source, True)
        typed = self.scalar(entry, scope)
        if isinstance(entry, exp.Column):
            return _Item(typed, entry.name, origin(entry, scope))
        return _Item(typed, "")

    def _order(self, node: Any, scope: Scope, selected: _Selected, distinct: bool) -> list[SortKey]:
        order = node.args.get("order")
        if order is None:
            return []
        scope.clause = "ORDER BY clause"
        return [
            self._sort_key(number, ordered, scope, selected, distinct)
            for number, ordered in enumerate(order.expressions, start=1)
        ]

    def _sort_key(self, number: int, ordered: Any, scope: Scope, selected: _Selected, distinct: bool) -> SortKey:
        node, descending, items = ordered.this, bool(ordered.args.get("desc")), selected.items
        place = position(node, [item.name for item in items], [item.explicit for item in items])
        if place is not None:
            return self._listed_key(place, items[place].typed, descending, distinct)
        typed = self.scalar(node, scope)
        for place, item in enumerate(items):
            if item.typed.sql == typed.sql:
                return self._listed_key(place, item.typed, descending, distinct)
        check_varies(typed, number)
        if distinct:
            raise SqlError(145, "ORDER BY items must appear in the select list if SELECT DISTINCT is specified.", 15)
        return SortKey(self.ordering(typed), descending)

    def _listed_key(self, place: int, typed: Typed, descending: bool, distinct: bool) -> SortKey:
        """A column of the select list. Inside an expression SQLite would look for its name among the sources first."""
        if not distinct and self.needs_grouping(typed.type):
            return SortKey(self.ordering(typed), descending)
        return SortKey(self.ordering(Typed(f"k{place + 1}", typed.type)), descending)


def _is_one(limit: Any) -> bool:
    count = limit.expression if isinstance(limit, exp.Limit) else None
    return isinstance(count, exp.Literal) and count.this == "1" and not limit.args.get("limit_options")


def compile_query(tree: Any, names: Names, scope: Scope | None = None) -> Query:
    """Compile a query tree of `parse.parse_select`.

    Args:
        tree: left unchanged.
        names: what names mean.
        scope: a scope whose CTEs and sources the query may use; for DML.

    Raises:
        SqlError: SQL Server's numbers for wrong names, types and forms; 40510 for what is not supported.
    """
    scope = scope or Scope(used=Used())
    queries = Queries(names)
    block = queries.query(tree, scope, top=True)
    into = _into(tree)
    if into and any(not column.name for column in block.columns):
        place = next(i for i, column in enumerate(block.columns, start=1) if not column.name)
        raise SqlError(
            1038,
            f"An object or column name is missing or empty. For SELECT INTO statements, verify each column has a name (column {place}).",
        )
    return Query(
        block.sql,
        [
            ResultColumn(column.name, column.type, column.nullable, column.identity, column.computed)
            for column in block.columns
        ],
        scope.used.relations, scope.used.variables, scope.used.hints, into,
    )  # fmt: skip


def _into(tree: Any) -> tuple[str, ...] | None:
    while isinstance(tree, exp.SetOperation):
        tree = tree.this
    into = tree.args.get("into")
    if into is None:
        return None
    table = into.this
    parts = (table.args.get("catalog"), table.args.get("db"), table.this)
    return tuple(identifier(part) for part in parts if part is not None)
