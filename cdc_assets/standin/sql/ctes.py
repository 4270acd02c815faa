"""WITH: common table expressions, those that refer to themselves among them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from cdc_assets.standin.catalog import fold
from cdc_assets.standin.contract import Relation, SessionContext
from cdc_assets.standin.errors import SqlError
from cdc_assets.standin.sql.columns import named
from cdc_assets.standin.sql.combining import Combining, unequal_lists
from cdc_assets.standin.sql.expressions import identifier
from cdc_assets.standin.sql.runtime import Kernel, builder, call, specification
from cdc_assets.standin.sql.scope import Scope


class CommonTables(Combining):
    """Compiles common table expressions."""

    def bind(self, with_: Any, scope: Scope) -> None:
        """Make the common table expressions of a WITH known in a scope; 239 for a name given twice."""
        names: set[str] = set()
        for cte in with_.expressions:
            name = identifier(cte.args["alias"].this)
            if fold(name) in names:
                raise SqlError(239, f"Duplicate common table expression name '{name}' was specified.")
            names.add(fold(name))
            labels = [identifier(column) for column in cte.args["alias"].args.get("columns") or ()]
            if _mentions(cte.this, name) and isinstance(cte.this, exp.Union):
                relation = self._recursive(cte.this, name, labels, scope)
            else:
                block = self.query(cte.this, scope)
                relation = Relation(f"({block.sql})", named(block.columns, labels, name))
            scope.ctes[fold(name)] = relation

    def _recursive(self, union: Any, name: str, labels: list[str], scope: Scope) -> Relation:
        if union.args.get("distinct"):
            raise SqlError(
                252, f"Recursive common table expression '{name}' does not contain a top-level UNION ALL operator."
            )
        anchor = self.query(union.this, scope)
        columns = named(anchor.columns, labels, name)
        table = scope.used.name("r")
        scope.used.recursive.append(table)
        inner = scope.inner()
        inner.ctes[fold(name)] = Relation(table, columns)
        step = self.query(union.expression, inner)
        if len(step.columns) != len(columns):
            raise unequal_lists()
        for column, target in zip(step.columns, columns, strict=True):
            if str(column.type) != str(target.type):
                raise SqlError(
                    240,
                    f'Types don\'t match between the anchor and the recursive part in column "{target.name}" of recursive query "{name}".',
                )
        keys = ", ".join(column.sql for column in columns)
        return Relation(
            f"(WITH RECURSIVE {table}({keys}, depth) AS (SELECT *, 0 FROM ({anchor.sql}) UNION ALL {step.sql}) "
            f"SELECT {keys} FROM {table})",
            tuple(replace(column, nullable=True) for column in columns),
        )

    @staticmethod
    def depth(scope: Scope) -> list[str]:
        """In the recursive part of a common table expression, how deep a row is."""
        for source in scope.sources:
            if source.relation.sql in scope.used.recursive:
                depth = f"{source.qualifier}.depth"
                most = scope.used.most_recursions
                return [call(specification("depth", str(most)), [depth]) if most else f"{depth} + 1"]
        return []


def _mentions(node: Any, name: str) -> bool:
    return any(fold(table.name) == fold(name) and not table.args.get("db") for table in node.find_all(exp.Table))


def recursion_limit(tree: Any) -> int:
    """Of OPTION (MAXRECURSION n); the vendor page of WITH says 100 without it."""
    options = tree.args.get("options")
    return int(options[-1].this) if options else 100


@builder("depth")
def _build_depth(arguments: Sequence[str]) -> Kernel:
    most = int(arguments[0])

    def run(_: SessionContext, depth: int) -> int:
        if depth < most:
            return depth + 1
        raise SqlError(
            530,
            f"The statement terminated. The maximum recursion {most} has been exhausted before statement completion.",
        )

    return run
