"""A system view: its columns, and the function that computes its rows.

Views have no storage. Before each execution of a statement that names one, its rows are
computed from the catalogue (or the Agent, or the session) into a temporary SQLite table of
the session's connection, so that every query works on them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from mssql_standin.catalog import Database, fold
from mssql_standin.contract import SessionContext
from mssql_standin.sqltypes import SqlType, Value, parse_type

Rows = Iterable[Sequence[Value]]
Source = Callable[[SessionContext, Database], Rows]


@dataclass(frozen=True, slots=True)
class View:
    """A system view.

    Args:
        name: `schema.name` in documented letter case.
        columns: (name, type, nullable) in documented order.
        rows: computes the rows for a database.
    """

    name: str
    columns: tuple[tuple[str, SqlType, bool], ...]
    rows: Source


VIEWS: Final[dict[str, View]] = {}
"""By folded `schema.name`."""


def view(name: str, columns: str) -> Callable[[Source], Source]:
    """Decorator: the function computes the rows of this view.

    Args:
        name: `schema.name`.
        columns: `name type` pairs separated by commas, `!` behind a type that is never NULL; `sysname` and types with
            arguments as in declarations, a comma inside parentheses does not separate.
    """

    def register(rows: Source) -> Source:
        VIEWS[fold(name)] = View(name, tuple(_column(item) for item in _split(columns)), rows)
        return rows

    return register


def _split(columns: str) -> list[str]:
    items, depth, item = [], 0, ""
    for char in columns:
        depth += (char == "(") - (char == ")")
        if char == "," and not depth:
            items.append(item)
            item = ""
        else:
            item += char
    return [*items, item]


def _column(item: str) -> tuple[str, SqlType, bool]:
    name, _, declared = item.strip().partition(" ")
    return name, parse_type(declared.rstrip("!")), not declared.endswith("!")
