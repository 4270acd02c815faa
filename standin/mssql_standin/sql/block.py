"""A compiled query inside a statement."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mssql_standin.contract import Relation, RelationColumn, Typed
from mssql_standin.sql.literals import constant


@dataclass(frozen=True, slots=True)
class Block:
    """A compiled query inside a statement; `columns[i].sql` is its SQLite name k<i+1>."""

    sql: str
    columns: tuple[RelationColumn, ...]
    single_row: bool = False
    """Certainly at most one row."""
    nulls: frozenset[int] = frozenset()
    """Places of columns that are the literal NULL, which takes any type in a set operation."""

    place_of: Callable[[Any], int | None] = field(default=lambda _: None, compare=False)
    """The place in the select list of a column of its sources, for ORDER BY behind a set operation."""

    def typed(self, place: int) -> Typed:
        """A column as an operand."""
        column = self.columns[place]
        if place in self.nulls:
            return constant(None, column.type, untyped=True)
        return Typed(column.sql, column.type, column.nullable)

    def relation(self) -> Relation:
        """The query as something that can stand in FROM."""
        return Relation(f"({self.sql})", self.columns)
