"""Columns of queries: names given by column lists, places meant by ORDER BY, origins of bare references."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from mssql_standin.catalog import fold
from mssql_standin.contract import RelationColumn, Typed
from mssql_standin.errors import SqlError
from mssql_standin.sql.expressions import column_name
from mssql_standin.sql.literals import Constant
from mssql_standin.sql.scope import Scope


def named(columns: Sequence[RelationColumn], labels: Sequence[str], alias: str) -> tuple[RelationColumn, ...]:
    """Columns of a derived table under the names of its column list.

    Raises:
        SqlError: 8155 without a name, 8158 and 8159 for a list of another length, 8156 for a name given twice.
    """
    if labels:
        if len(labels) < len(columns):
            raise SqlError(8158, f"'{alias}' has more columns than were specified in the column list.")
        if len(labels) > len(columns):
            raise SqlError(8159, f"'{alias}' has fewer columns than were specified in the column list.")
        columns = [replace(column, name=label) for column, label in zip(columns, labels, strict=True)]
    seen: set[str] = set()
    for place, column in enumerate(columns, start=1):
        if not column.name:
            raise SqlError(8155, f"No column name was specified for column {place} of '{alias}'.")
        if fold(column.name) in seen:
            raise SqlError(8156, f"The column '{column.name}' was specified multiple times for '{alias}'.")
        seen.add(fold(column.name))
    return tuple(columns)


def position(node: Any, names: Sequence[str], explicit: Sequence[bool]) -> int | None:
    """The place in the select list that an ORDER BY item means, or None when it is an expression.

    Raises:
        SqlError: 108 for a position out of range, 209 for an ambiguous name.
    """
    if isinstance(node, exp.Literal) and not node.is_string:
        place = int(node.this) if str(node.this).isdigit() else 0
        if not 1 <= place <= len(names):
            raise SqlError(
                108,
                f"The ORDER BY position number {node.this} is out of range of the number of items in the select list.",
                15,
            )
        return place - 1
    if not isinstance(node, exp.Column) or column_name(node)[1]:
        return None
    wanted = fold(node.name)
    found = [place for place, name in enumerate(names) if name and fold(name) == wanted]
    if len(found) > 1 and any(explicit[place] for place in found):
        raise SqlError(209, f"Ambiguous column name '{node.name}'.")
    return found[0] if found else None


def check_varies(typed: Typed, number: int) -> None:
    """Refuse a constant or a bare variable in ORDER BY; SQLite would take a number for a position.

    Raises:
        SqlError: 408 and 1008.
    """
    if isinstance(typed, Constant):
        raise SqlError(408, f"A constant expression was encountered in the ORDER BY list, position {number}.", 15)
    if typed.sql.startswith(":"):
        raise SqlError(
            1008,
            f"The SELECT item identified by the ORDER BY number {number} contains a variable as part of the expression "
            "identifying a column position. Variables are only allowed when ordering by an expression referencing a column name.",
            15,
        )


def origin(entry: Any, scope: Scope) -> RelationColumn | None:
    """The column that a bare column reference of a select list names."""
    name, qualifier = column_name(entry)
    for source in scope.matching(qualifier):
        for column in source.relation.columns:
            if fold(column.name) == fold(name):
                return column
    return None
