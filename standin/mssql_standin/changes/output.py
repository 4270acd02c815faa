"""INSERT … OUTPUT, over SQLite's RETURNING: only `inserted` is known."""

from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from mssql_standin.catalog import Table, fold
from mssql_standin.contract import ResultColumn, Typed
from mssql_standin.errors import SqlError
from mssql_standin.queries.names import SessionNames
from mssql_standin.sql.expressions import compile_scalar
from mssql_standin.sql.parse import parse_select
from mssql_standin.sql.scope import Scope


@dataclass(slots=True)
class OutputPlan:
    """A compiled OUTPUT clause."""

    sql: str
    """Select list."""
    columns: list[ResultColumn]


def compile_output(names: SessionNames, table: Table, items: list[str], outer: Scope) -> OutputPlan:
    """Compile the items over an inserted row.

    Args:
        outer: scope whose `used` notes variables.
    """
    scope = Scope(used=outer.used).add(names.of_row(table, ""), "inserted", "")
    columns: list[ResultColumn] = []
    texts: list[str] = []
    for item in parse_select("SELECT " + ", ".join(items)).expressions:
        for name, typed in _expanded(item, scope, names):
            columns.append(ResultColumn(name, typed.type, typed.nullable))
            texts.append(typed.sql)
    return OutputPlan(", ".join(texts), columns)


def _expanded(item: Any, scope: Scope, names: SessionNames) -> list[tuple[str, Typed]]:
    if isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
        source = next((s for s in scope.sources if fold(s.alias) == fold(item.table)), None)
        if source is None:
            raise SqlError(
                107,
                f"The column prefix '{item.table}' does not match with a table name or alias name used in the query.",
                15,
            )
        return [(column.name, source.typed(column)) for column in source.relation.columns]
    if isinstance(item, exp.Star):
        raise SqlError(102, "Incorrect syntax near '*'.", 15)
    body = item.this if isinstance(item, exp.Alias) else item
    return [(item.alias_or_name, compile_scalar(body, names, scope))]
