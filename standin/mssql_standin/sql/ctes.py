"""WITH: common table expressions."""

from typing import Any

from sqlglot import exp

from mssql_standin.catalog import fold
from mssql_standin.contract import Relation
from mssql_standin.errors import SqlError, unsupported
from mssql_standin.sql.columns import named
from mssql_standin.sql.combining import Combining
from mssql_standin.sql.expressions import identifier
from mssql_standin.sql.scope import Scope


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
            if isinstance(cte.this, exp.Union) and _mentions(cte.this, name):
                raise unsupported(f"recursion in the common table expression {name}")
            labels = [identifier(column) for column in cte.args["alias"].args.get("columns") or ()]
            block = self.query(cte.this, scope)
            scope.ctes[fold(name)] = Relation(f"({block.sql})", named(block.columns, labels, name))


def _mentions(node: Any, name: str) -> bool:
    return any(fold(table.name) == fold(name) and not table.args.get("db") for table in node.find_all(exp.Table))
