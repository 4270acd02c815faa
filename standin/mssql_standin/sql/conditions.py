"""Conditions: what is true, false or unknown. T-SQL keeps them apart from values, and so does the compiler."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from sqlglot import exp

from mssql_standin.contract import Names, Typed
from mssql_standin.errors import SqlError, syntax_error, unsupported
from mssql_standin.sql import comparison, convert
from mssql_standin.sql.coercion import is_null
from mssql_standin.sql.patterns import like
from mssql_standin.sql.scope import Scope

_LONGEST_CHAIN: Final = 50
"""Members of one AND or OR in SQLite's text."""

if TYPE_CHECKING:
    from mssql_standin.sql.block import Block

COMPARISONS: Final = {exp.EQ: "=", exp.NEQ: "<>", exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<="}


class Conditions(ABC):
    """Compiles conditions; values come from the subclass."""

    names: Names

    @abstractmethod
    def scalar(self, node: Any, scope: Scope) -> Typed:
        """Compile an expression that has a value."""

    @abstractmethod
    def scalars(self, nodes: Sequence[Any], scope: Scope) -> list[Typed]:
        """Compile several expressions."""

    @abstractmethod
    def collation(self, operands: Sequence[Typed]) -> str:
        """SQLite collation under which texts meet."""

    @abstractmethod
    def query(self, node: Any, scope: Scope) -> "Block":
        """Compile a query inside an expression."""

    def condition(self, node: Any, scope: Scope) -> str:
        """Compile something that is true, false or unknown.

        Raises:
            SqlError: 4145 for a value where a condition belongs.
        """
        sign = COMPARISONS.get(type(node))
        if sign is not None:
            return self.comparison(sign, node.this, node.expression, scope)
        method = CONDITIONS.get(type(node))
        if method is None:
            raise SqlError(
                4145,
                f"An expression of non-boolean type specified in a context where a condition is expected, near '{_last_word(node)}'.",
                15,
            )
        return method(self, node, scope)

    def comparison(self, sign: str, left: Any, right: Any, scope: Scope) -> str:
        """Compile `left sign right`."""
        if isinstance(right, (exp.All, exp.Any)):
            raise unsupported(f"a comparison with {type(right).__name__.upper()}")
        return comparison.compare(sign, self.scalar(left, scope), self.scalar(right, scope), self.names.collation)

    def _and(self, node: Any, scope: Scope) -> str:
        return _balanced([self.condition(one, scope) for one in _chained(node)], " AND ")

    def _or(self, node: Any, scope: Scope) -> str:
        return f"({_balanced([self.condition(one, scope) for one in _chained(node)], ' OR ')})"

    def _not(self, node: Any, scope: Scope) -> str:
        return f"NOT ({self.condition(node.this, scope)})"

    def _grouped(self, node: Any, scope: Scope) -> str:
        return f"({self.condition(node.this, scope)})"

    def _is(self, node: Any, scope: Scope) -> str:
        if not isinstance(node.expression, exp.Null):
            raise syntax_error("IS")
        return f"{self.scalar(node.this, scope).sql} IS NULL"

    def _distinct_from(self, node: Any, scope: Scope) -> str:
        left, right = self.scalar(node.this, scope), self.scalar(node.expression, scope)
        sign = "IS" if isinstance(node, exp.NullSafeEQ) else "IS NOT"
        return comparison.compare(sign, left, right, self.names.collation)

    def _between(self, node: Any, scope: Scope) -> str:
        low = self.comparison(">=", node.this, node.args["low"], scope)
        high = self.comparison("<=", node.this, node.args["high"], scope)
        return f"({low} AND {high})"

    def _in(self, node: Any, scope: Scope) -> str:
        query = node.args.get("query")
        if query is not None:
            return self._in_query(node.this, query, scope)
        value = self.scalar(node.this, scope)
        options = self.scalars(node.expressions, scope)
        if not options:
            raise syntax_error("IN")
        if is_null(value) or any(map(is_null, options)):
            tests = (comparison.compare("=", value, option, self.names.collation) for option in options)
            return f"({' OR '.join(tests)})"
        pairs = [comparison.aligned(value, option) for option in options]
        left = pairs[0][0]
        if any(one.sql != left.sql for one, _ in pairs):
            tests = (comparison.compare("=", value, option, self.names.collation) for option in options)
            return f"({' OR '.join(tests)})"
        collate = ""
        if convert.family(left.type) == "text":
            collate = f" COLLATE {self.collation([left, *(option for _, option in pairs)])}"
        return f"{left.sql}{collate} IN ({', '.join(option.sql for _, option in pairs)})"

    def _in_query(self, subject: Any, query: Any, scope: Scope) -> str:
        value = self.scalar(subject, scope)
        block = self.query(query, scope)
        if len(block.columns) != 1:
            raise one_column()
        column = block.columns[0]
        left, right = comparison.aligned(value, Typed(column.sql, column.type))
        collate = f" COLLATE {self.collation([left, right])}" if convert.family(left.type) == "text" else ""
        inner = block.sql if right.sql == column.sql else f"SELECT {right.sql} FROM ({block.sql})"
        return f"{left.sql}{collate} IN ({inner})"

    def _exists(self, node: Any, scope: Scope) -> str:
        return f"EXISTS ({self.query(node.this, scope).sql})"

    def _like(self, node: Any, scope: Scope, escape: Any = None) -> str:
        subject, pattern = self.scalar(node.this, scope), self.scalar(node.expression, scope)
        character = self.scalar(escape, scope) if escape is not None else None
        return like(subject, pattern, character, self.names.collation)

    def _escape(self, node: Any, scope: Scope) -> str:
        if not isinstance(node.this, exp.Like):
            raise syntax_error("ESCAPE")
        return self._like(node.this, scope, node.expression)


def _chained(node: Any) -> list[Any]:
    """The members of `a AND b AND c …` or `a OR b OR c …`, in order; the tree nests to the left."""
    kind, found = type(node), []
    while type(node) is kind:
        found.append(node.expression)
        node = node.this
    return [node, *reversed(found)]


def _balanced(members: Sequence[str], word: str) -> str:
    """A chain of conditions; a long one is grouped, since SQLite limits how deep an expression is."""
    if len(members) <= _LONGEST_CHAIN:
        return word.join(members)
    half = len(members) // 2
    return f"({_balanced(members[:half], word)}){word}({_balanced(members[half:], word)})"


def one_column() -> SqlError:
    """116."""
    return SqlError(
        116, "Only one expression can be specified in the select list when the subquery is not introduced with EXISTS."
    )


def _last_word(node: Any) -> str:
    return str(getattr(node, "name", "") or node.key)


CONDITIONS: Final[dict[type, Callable[[Conditions, Any, Scope], str]]] = {
    exp.And: Conditions._and,
    exp.Or: Conditions._or,
    exp.Not: Conditions._not,
    exp.Paren: Conditions._grouped,
    exp.Is: Conditions._is,
    exp.NullSafeEQ: Conditions._distinct_from,
    exp.NullSafeNEQ: Conditions._distinct_from,
    exp.Between: Conditions._between,
    exp.In: Conditions._in,
    exp.Exists: Conditions._exists,
    exp.Like: Conditions._like,
    exp.Escape: Conditions._escape,
}
