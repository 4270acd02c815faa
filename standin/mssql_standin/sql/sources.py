"""FROM: tables, derived tables, joins, table-valued functions, hints."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from sqlglot import exp

from mssql_standin.catalog import fold
from mssql_standin.contract import Relation
from mssql_standin.errors import SqlError, syntax_error, unsupported
from mssql_standin.sql.columns import named
from mssql_standin.sql.expressions import dotted, identifier
from mssql_standin.sql.functions.tables import TABLE_FUNCTIONS
from mssql_standin.sql.scope import Scope, Source

if TYPE_CHECKING:
    from mssql_standin.sql.query import Queries

HINTS: Final = frozenset(
    {
        "NOLOCK", "READUNCOMMITTED", "UPDLOCK", "REPEATABLEREAD", "SERIALIZABLE", "READCOMMITTED", "READCOMMITTEDLOCK", "TABLOCK",
        "TABLOCKX", "PAGLOCK", "ROWLOCK", "NOWAIT", "READPAST", "XLOCK", "SNAPSHOT", "NOEXPAND", "HOLDLOCK", "FORCESEEK", "FORCESCAN",
        "INDEX", "KEEPIDENTITY", "KEEPDEFAULTS", "IGNORE_CONSTRAINTS", "IGNORE_TRIGGERS",
    }
)  # fmt: skip


class Sources:
    """Compiles FROM clauses for a query compiler."""

    def __init__(self, queries: "Queries") -> None:
        self.queries = queries

    def compile(self, from_: Any, joins: Sequence[Any], scope: Scope) -> str:
        """SQLite text from ` FROM` on; sources are added to the scope. Empty without FROM."""
        if from_ is None:
            return ""
        text = self._source(from_.this, scope)
        for join in joins:
            text += self._join(join, scope)
        return f" FROM {text}"

    def _join(self, join: Any, scope: Scope) -> str:
        if isinstance(join.this, exp.Lateral):
            raise unsupported("APPLY")
        side, kind = (join.args.get("side") or "").upper(), (join.args.get("kind") or "").upper()
        if kind not in ("", "INNER", "OUTER", "CROSS") or join.args.get("using") or join.args.get("method"):
            raise syntax_error(kind or "USING")
        before = len(scope.sources)
        table = self._source(join.this, scope)
        on = join.args.get("on")
        if on is None:
            if side or kind == "INNER":
                raise syntax_error("JOIN")
            return f" CROSS JOIN {table}" if kind == "CROSS" else f", {table}"
        condition = self.queries.condition(on, scope)
        if side in ("LEFT", "FULL"):
            scope.sources[before:] = [replace(source, outer=True) for source in scope.sources[before:]]
        if side in ("RIGHT", "FULL"):
            scope.sources[:before] = [replace(source, outer=True) for source in scope.sources[:before]]
        return f" {side + ' ' if side else ''}JOIN {table} ON {condition}"

    def _source(self, node: Any, scope: Scope) -> str:
        if isinstance(node, exp.Table):
            return self._table(node, scope)
        if isinstance(node, exp.Subquery):
            return self._derived(node, scope)
        if isinstance(node, exp.Values):
            return self._place(self._values(node, scope), node, scope)
        raise unsupported(f"{type(node).__name__} in FROM")

    def _derived(self, node: Any, scope: Scope) -> str:
        inner = node.this
        if isinstance(inner, exp.Table):  # (a JOIN b ON …)
            text = self._source(inner, scope)
            for join in node.args.get("joins") or ():
                text += self._join(join, scope)
            return f"({text})"
        for unknown in ("pivots", "sample"):
            if node.args.get(unknown):
                raise unsupported(unknown.upper().rstrip("S"))
        return self._place(self._subquery(node, scope), node, scope)

    def _subquery(self, node: Any, scope: Scope) -> Relation:
        """A derived table; it sees the scopes around the query, not its neighbours."""
        around = scope.outer or scope
        around = replace(around, ctes=scope.ctes)
        alias, labels = _alias(node)
        if not alias:
            raise syntax_error(")")
        inner = node.this
        block = (
            self.queries.values(inner, around) if isinstance(inner, exp.Values) else self.queries.query(inner, around)
        )
        return Relation(f"({block.sql})", named(block.columns, labels, alias))

    def _values(self, node: Any, scope: Scope) -> Relation:
        alias, labels = _alias(node)
        block = self.queries.values(node, scope.outer or scope)
        return Relation(f"({block.sql})", named(block.columns, labels, alias))

    def _table(self, node: Any, scope: Scope) -> str:
        for unknown in ("pivots", "sample", "version", "partition", "ordinality"):
            if node.args.get(unknown):
                raise unsupported(
                    {"pivots": "PIVOT", "sample": "TABLESAMPLE", "version": "FOR SYSTEM_TIME"}.get(unknown, unknown)
                )
        relation = self.relation(node, scope)
        text = self._place(relation, node, scope)
        joins = node.args.get("joins")
        if joins:
            for join in joins:
                text += self._join(join, scope)
            return f"({text})"
        return text

    def relation(self, node: Any, scope: Scope) -> Relation:
        """What a table node stands for: table, view, table variable, CTE or function call; notes it and its hints."""
        if isinstance(node.this, exp.Anonymous):
            return self._function(table_parts(node), node.this.expressions, scope)
        parts = table_parts(node)
        cte = scope.cte(parts[0]) if len(parts) == 1 else None
        if cte is not None:
            return cte
        relation = self.queries.names.relation(parts)
        scope.used.relation(relation)
        hints = hint_names(node)
        if hints:
            scope.used.hints.append((relation, hints))
        return relation

    def _function(self, parts: tuple[str, ...], arguments: Sequence[Any], scope: Scope) -> Relation:
        around = scope.outer or scope
        values = self.queries.scalars(arguments, around)
        own = TABLE_FUNCTIONS.get(parts[-1].upper()) if len(parts) == 1 else None
        if own is not None:
            return own(values)
        relation = self.queries.names.function_relation(parts, values)
        scope.used.relation(relation)
        return relation

    def _place(self, relation: Relation, node: Any, scope: Scope) -> str:
        """Add a relation to the scope under its alias; returns its SQLite text."""
        alias, labels = _alias(node)
        parts: tuple[str, ...] = ()
        if isinstance(node, exp.Table):
            parts = table_parts(node)
            if labels:
                relation = _relabelled(relation, labels, alias)
            if not alias:
                alias = parts[-1]
        name = scope.used.name("s")
        known = relation.table
        if known is not None:
            parts = (known.database, known.schema, known.name)
        self._add(scope, Source(alias, relation, name, () if _alias(node)[0] else tuple(map(fold, parts))))
        return f"{relation.sql} AS {name}"

    def _add(self, scope: Scope, source: Source) -> None:
        if any(fold(source.alias) == fold(known.alias) and source.parts == known.parts for known in scope.sources):
            raise SqlError(1011, f"The correlation name '{source.alias}' is specified multiple times in a FROM clause.")
        scope.sources.append(source)


def _relabelled(relation: Relation, labels: Sequence[str], alias: str) -> Relation:
    return replace(relation, columns=named(relation.columns, labels, alias))


def _alias(node: Any) -> tuple[str, list[str]]:
    alias = node.args.get("alias")
    if alias is None:
        return "", []
    if not isinstance(alias, exp.TableAlias):
        return identifier(alias), []
    name = identifier(alias.this) if alias.this is not None else ""
    return name, [identifier(column) for column in alias.args.get("columns") or ()]


def table_parts(node: Any) -> tuple[str, ...]:
    """The parts of a table's name as written: `#t` and `@t` with their marks; empty for a default schema."""
    this = node.this
    if isinstance(this, exp.Parameter):
        return (f"@{this.name}",)
    if isinstance(this, exp.Anonymous):
        last = this.this if isinstance(this.this, str) else this.this.name
    elif isinstance(this, exp.Dot):
        return tuple(
            identifier(part) for part in (*(node.args.get(k) for k in ("catalog", "db")), *dotted(this)) if part
        )
    else:
        last = identifier(this)
    catalog, schema = (node.args.get(key) for key in ("catalog", "db"))
    if not catalog and not schema:
        return (last,)
    middle = identifier(schema) if schema else ""
    return (identifier(catalog), middle, last) if catalog else (middle, last)


def hint_names(node: Any) -> frozenset[str]:
    """Table hints in upper case.

    Raises:
        SqlError: 321 for a word that is no hint.
    """
    names: set[str] = set()
    for hint in node.args.get("hints") or ():
        for word in getattr(hint, "expressions", None) or [hint]:
            names.add(str(word.name).upper())
    unknown = names - HINTS
    if unknown:
        raise SqlError(321, f'"{sorted(unknown)[0]}" is not a recognized table hints option.', 15)
    return frozenset(names)
