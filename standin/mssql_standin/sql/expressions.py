"""Expressions and conditions: syntax trees to typed SQLite text.

One walk does everything: names are resolved against the scope, every node gets its T-SQL type,
conversions are inserted by precedence and the SQLite text is put together. Nodes that are not in the
tables below are refused by name.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from sqlglot import exp

from mssql_standin.catalog import fold
from mssql_standin.contract import Names, Typed
from mssql_standin.errors import SqlError, syntax_error, unsupported
from mssql_standin.sql import comparison, constants, convert, operators, registry
from mssql_standin.sql.coercion import Collated, common, is_null
from mssql_standin.sql.conditions import COMPARISONS, CONDITIONS, Conditions, one_column
from mssql_standin.sql.forms import FORMS, check_count
from mssql_standin.sql.literals import Constant, Invariant, constant, is_fixed
from mssql_standin.sql.runtime import apply, call, specification
from mssql_standin.sql.scope import Scope
from mssql_standin.sqltypes import DEFAULT_COLLATION, INT, SqlType, parse_type

if TYPE_CHECKING:
    from mssql_standin.sql.block import Block

__all__ = ["Compiler", "Scope", "compile_condition", "compile_scalar"]

_ARITHMETIC: Final = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}


_METHODS: Final = frozenset(
    {"value", "query", "exist", "nodes", "modify", "tostring", "getlevel", "stastext", "starea"}
)
"""Of xml and the CLR types."""


class Compiler(Conditions):
    """Compiles the expressions of one statement.

    Args:
        names: what names mean at this statement.
    """

    def __init__(self, names: Names) -> None:
        self.names = names

    # ---- values -------------------------------------------------------------------------------------------------

    def scalar(self, node: Any, scope: Scope) -> Typed:
        """Compile an expression that has a value."""
        if scope.groups and not scope.in_aggregate and not isinstance(node, exp.Column):
            found = self._grouped_value(node, scope)
            if found is not None:
                return found
        method = _SCALARS.get(type(node))
        if method is None:
            if type(node) in CONDITIONS or type(node) in COMPARISONS:
                raise syntax_error(COMPARISONS.get(type(node), type(node).__name__.upper()))
            raise unsupported(f"{type(node).__name__} in an expression")
        return method(self, node, scope)

    def _grouped_value(self, node: Any, scope: Scope) -> Typed | None:
        """The expression of GROUP BY that a node repeats, if it does: by its tree, or by what its names mean."""
        alike = [(tree, typed) for tree, typed in scope.groups or () if type(tree) is type(node)]
        for tree, typed in alike:
            if tree == node:
                return typed
        if not alike or any(isinstance(one, (exp.Anonymous, exp.Query, exp.Window)) for one in node.walk()):
            return None
        scope.in_aggregate = True  # columns need not be grouped
        try:
            meant = self.scalar(node, scope)
        finally:
            scope.in_aggregate = False
        return next((typed for _, typed in alike if typed.sql == meant.sql), None)

    def scalars(self, nodes: Sequence[Any], scope: Scope) -> list[Typed]:
        """Compile several expressions."""
        return [self.scalar(node, scope) for node in nodes]

    def converted(self, node: Any, target: SqlType, scope: Scope) -> Typed:
        """Compile an expression and convert it implicitly."""
        return convert.implicit(self.scalar(node, scope), target)

    def unified(self, operands: Sequence[Typed]) -> tuple[list[Typed], SqlType]:
        """Operands converted to their common type."""
        target = common(operands)
        return [convert.implicit(operand, target) for operand in operands], target

    def type_of(self, text: str) -> SqlType:
        """A type as written in CAST or CONVERT, alias types included."""
        try:
            return parse_type(text, default_length=30)
        except SqlError as error:
            parts = tuple(part.strip("[]") for part in text.split("."))
            found = self.names.user_type(parts) if error.number in (243, 102) else None
            if found is None:
                raise
            return found

    def collation(self, operands: Sequence[Typed]) -> str:
        """SQLite collation under which texts meet."""
        return comparison.collated_name(operands, self.names.collation)

    def sortable(self, typed: Typed) -> str:
        """Text for GROUP BY, DISTINCT, ORDER BY, IN and the like: with its collation.

        Raises:
            SqlError: 306 and 305 for types without an order.
        """
        comparison.check_sortable(typed.type)
        if convert.family(typed.type) == "text":
            return f"{typed.sql} COLLATE {self.collation([typed])}"
        return typed.sql

    def ordering(self, typed: Typed) -> str:
        """Text for GROUP BY, PARTITION BY and ORDER BY: only what counts in comparisons."""
        if typed.type.name == "datetimeoffset":
            return comparison.comparable(typed)
        if typed.type.name == "varbinary":
            return comparison.stripped(typed).sql
        return self.sortable(typed)

    def query(self, node: Any, scope: Scope) -> "Block":
        """Compile a query inside an expression."""
        from mssql_standin.sql.query import Queries

        return Queries(self.names).query(node, scope)

    def _paren(self, node: Any, scope: Scope) -> Typed:
        typed = self.scalar(node.this, scope)
        if isinstance(typed, Constant) or (typed.sql.startswith("(") and typed.sql.count("(") == 1):
            return typed
        if isinstance(typed, Collated):
            return Collated(f"({typed.sql})", typed.type, typed.nullable)
        return Typed(f"({typed.sql})", typed.type, typed.nullable)

    def _literal(self, node: Any, _: Scope) -> Typed:
        return constants.constant_of(node)

    def _null(self, _: Any, __: Scope) -> Typed:
        return constant(None, INT, untyped=True)

    def _column(self, node: Any, scope: Scope) -> Typed:
        name, qualifier = column_name(node)
        if not qualifier and not node.this.args.get("quoted") and name.startswith("$"):
            raise unsupported(f"the pseudo column {name}")
        owner, typed = scope.column(name, qualifier)
        if owner.groups is not None and not owner.in_aggregate:
            if any(typed.sql == group.sql for _, group in owner.groups):
                return typed
            shown = ".".join((*qualifier, name))
            raise SqlError(
                8120,
                f"Column '{shown}' is invalid in the {owner.clause} because it is not contained in either "
                "an aggregate function or the GROUP BY clause.",
            )
        return typed

    def _parameter(self, node: Any, scope: Scope) -> Typed:
        if isinstance(node.this, exp.Parameter):
            return self.function(f"@@{node.this.name}", [], scope)
        name = fold(node.name)
        sql_type = self.names.variable(f"@{node.name}")
        if not name.replace("_", "a").isalnum():
            raise unsupported(f"the variable name @{node.name}")
        return Typed(scope.used.variable(name), sql_type)

    def _arithmetic(self, node: Any, scope: Scope) -> Typed:
        left, right = self.scalar(node.this, scope), self.scalar(node.expression, scope)
        return operators.arithmetic(_ARITHMETIC[type(node)], left, right)

    def _negate(self, node: Any, scope: Scope) -> Typed:
        return operators.negate(self.scalar(node.this, scope))

    def _collate(self, node: Any, scope: Scope) -> Typed:
        name = node.expression.name
        default = name.upper() in ("DATABASE_DEFAULT", "CATALOG_DEFAULT")
        return comparison.collate(self.scalar(node.this, scope), self.names.collation if default else name)

    def _convert(self, node: Any, scope: Scope) -> Typed:
        target = self.type_of(node.this.name)
        style_node = node.args.get("style")
        style = None
        if style_node is not None:
            typed = self.scalar(style_node, scope)
            if not isinstance(typed, Constant):
                raise unsupported("a CONVERT style that is no constant")
            if typed.value is None:
                return constant(None, target)
            style = int(typed.value)
        value = self.scalar(node.expression, scope)
        return convert.cast(value, target, style, bool(node.args.get("safe")))

    def _case(self, node: Any, scope: Scope) -> Typed:
        subject = node.args.get("this")
        conditions = []
        results = []
        for branch in node.args["ifs"]:
            if subject is None:
                conditions.append(self.condition(branch.this, scope))
            else:
                conditions.append(self.comparison("=", subject, branch.this, scope))
            results.append(self.scalar(branch.args["true"], scope))
        default = node.args.get("default")
        results.append(self.scalar(default, scope) if default is not None else constant(None, INT, untyped=True))
        return self.choose(conditions, results)

    def choose(self, conditions: Sequence[str], results: Sequence[Typed]) -> Typed:
        """CASE over conditions; the last result is the default."""
        if all(map(is_null, results)):
            raise SqlError(
                8133,
                "At least one of the result expressions in a CASE specification must be an expression other than the NULL constant.",
            )
        values, target = self.unified(results)
        branches = " ".join(
            f"WHEN {condition} THEN {value.sql}" for condition, value in zip(conditions, values, strict=False)
        )
        nullable = any(value.nullable for value in values)
        return Typed(f"(CASE {branches} ELSE {values[-1].sql} END)", target, nullable)

    def _subquery(self, node: Any, scope: Scope) -> Typed:
        block = self.query(node, scope)
        if len(block.columns) != 1:
            raise one_column()
        column = block.columns[0]
        if block.single_row:
            return Typed(f"({block.sql})", column.type)
        return Typed(f"(SELECT tsql_single({column.sql}) FROM ({block.sql}))", column.type)

    def _anonymous(self, node: Any, scope: Scope) -> Typed:
        return self.function(_function_name(node), node.expressions, scope)

    def _dot(self, node: Any, scope: Scope) -> Typed:
        parts = dotted(node)
        last = parts[-1]
        if not isinstance(last, exp.Anonymous):
            raise unsupported(f"the expression {'.'.join(str(getattr(part, 'name', part)) for part in parts)}")
        prefix = [part.name for part in parts[:-1]]
        if _function_name(last).lower() in _METHODS:
            raise unsupported(f"the method .{_function_name(last)}()")
        name = ".".join((prefix[-1], _function_name(last)))
        return self.function(name, last.expressions, scope, ".".join(prefix[:-1]))

    def _window(self, node: Any, scope: Scope) -> Typed:
        from mssql_standin.sql.windows import window

        return window(self, node, scope)

    def function(self, name: str, arguments: Sequence[Any], scope: Scope, database: str = "") -> Typed:
        """Compile a function call.

        Raises:
            SqlError: 195 for an unknown built-in, 4121 for an unknown dotted name, 174 or 189 for the number of arguments.
        """
        from mssql_standin.sql.functions.aggregates import AGGREGATES, aggregate
        from mssql_standin.sql.windows import ONLY_WINDOWED

        if name.upper() in AGGREGATES:
            return aggregate(self, name.upper(), arguments, scope)
        special = FORMS.get(name.upper())
        if special is not None:
            return special(self, arguments, scope)
        found = registry.find(name)
        if found is None:
            if name.startswith("@@"):
                raise unsupported(name)
            if name.upper() in ONLY_WINDOWED:
                raise SqlError(10753, f"The function '{name}' must have an OVER clause.", 15)
            if "." in name:
                schema = name.split(".")[0]
                raise SqlError(
                    4121,
                    f'Cannot find either column "{schema}" or the user-defined function or aggregate "{name}", or the name is ambiguous.',
                )
            raise SqlError(195, f"'{name}' is not a recognized built-in function name.", 15)
        check_count(name, len(arguments), found.minimum, found.maximum)
        values = [
            self._argument(self.scalar(node, scope), found.arguments, place) for place, node in enumerate(arguments)
        ]
        for place, value in enumerate(values):
            if not is_null(value):
                found.check(place, value.type)
        values = list(map(self.in_database, values))
        returns = found.result([value.type for value in values])
        spec = specification("f", fold(found.name), database, returns, *(value.type for value in values))
        nullable = found.nullable or (found.strict and any(value.nullable for value in values))
        if found.deterministic and not found.needs_context:
            return apply(spec, values, returns, nullable)
        text = call(spec, [value.sql for value in values], not found.deterministic)
        if not found.deterministic and not found.per_row and all(map(is_fixed, values)):
            return Invariant(f"(SELECT {text})", returns, nullable)
        return Typed(text, returns, nullable)

    def in_database(self, value: Typed) -> Typed:
        """A text with its collation named, when the database has another one than functions take for granted."""
        if value.type.collation or self.names.collation == DEFAULT_COLLATION or convert.family(value.type) != "text":
            return value
        return replace(value, type=value.type.with_collation(self.names.collation))

    def _argument(self, value: Typed, types: Sequence[SqlType | None], place: int) -> Typed:
        wanted = types[min(place, len(types) - 1)] if types else None
        if wanted is None:
            return value
        if convert.family(wanted) == "text" and convert.family(value.type) == "text":
            return value
        return convert.implicit(value, wanted)


def column_name(node: Any) -> tuple[str, tuple[str, ...]]:
    """Name and qualifiers of a column reference, qualifiers from the outermost."""
    parts = (node.args.get("catalog"), node.args.get("db"), node.args.get("table"))
    return node.name, tuple(identifier(part) for part in parts if part is not None)


def identifier(node: Any) -> str:
    """The name an identifier node stands for, with the `#` of temporary tables."""
    prefix = "##" if node.args.get("global_") else "#" if node.args.get("temporary") else ""
    return prefix + str(node.name)


def dotted(node: Any) -> list[Any]:
    """The parts of nested Dot nodes, in order."""
    if isinstance(node, exp.Dot):
        return [*dotted(node.this), node.expression]
    if isinstance(node, exp.Column):
        return [
            part for part in (node.args.get("catalog"), node.args.get("db"), node.args.get("table"), node.this) if part
        ]
    return [node]


def _function_name(node: Any) -> str:
    return node.this if isinstance(node.this, str) else str(node.this.name)


_SCALARS: Final[dict[type, Callable[[Compiler, Any, Scope], Typed]]] = {
    exp.Paren: Compiler._paren,
    exp.Literal: Compiler._literal,
    exp.National: Compiler._literal,
    exp.HexString: Compiler._literal,
    exp.Null: Compiler._null,
    exp.Column: Compiler._column,
    exp.Parameter: Compiler._parameter,
    exp.Neg: Compiler._negate,
    exp.Collate: Compiler._collate,
    exp.Convert: Compiler._convert,
    exp.Case: Compiler._case,
    exp.Subquery: Compiler._subquery,
    exp.Select: Compiler._subquery,
    exp.Anonymous: Compiler._anonymous,
    exp.Dot: Compiler._dot,
    exp.Window: Compiler._window,
    **dict.fromkeys(_ARITHMETIC, Compiler._arithmetic),
}


def compile_scalar(tree: Any, names: Names, scope: Scope) -> Typed:
    """Compile an expression tree of `parse.parse_expression_tree`.

    What it uses (variables, relations of subqueries) is noted in `scope.used`.

    Raises:
        SqlError: for names, types and constructs that SQL Server or the stand-in refuses.
    """
    return Compiler(names).scalar(tree, scope)


def compile_condition(tree: Any, names: Names, scope: Scope) -> str:
    """Compile a condition tree to SQLite text that is true, false or NULL.

    Raises:
        SqlError: as `compile_scalar`, and 4145 for a value instead of a condition.
    """
    return Compiler(names).condition(tree, scope)
