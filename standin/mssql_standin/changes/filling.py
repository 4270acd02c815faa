"""What an inserted row holds beside the values that it is given: defaults, identity values, row versions."""

from collections.abc import Sequence

from mssql_standin.catalog import Column, Table, fold
from mssql_standin.changes.ports import ChangeSession
from mssql_standin.errors import SqlError
from mssql_standin.queries.frame import Frame
from mssql_standin.queries.names import SessionNames
from mssql_standin.queries.targets import column_of, full_name, specified_twice
from mssql_standin.sql.convert import assign
from mssql_standin.sql.expressions import compile_scalar
from mssql_standin.sql.literals import text_literal
from mssql_standin.sql.parse import parse_expression_tree
from mssql_standin.sql.scope import Scope
from mssql_standin.store import identity
from mssql_standin.store.temporary import is_temporary


class Filler:
    """Fills in the columns of a table that get no value.

    Args:
        columns: those that get values, by name; None for all that may.
    """

    def __init__(self, session: ChangeSession, frame: Frame, table: Table, columns: Sequence[str] | None) -> None:
        self.names, self.table, self.scope = SessionNames(session, frame), table, Scope()
        self.listed = _listed(table, columns)
        """The columns that get values, in the order of the values."""

    def written(self) -> list[Column]:
        """All columns that the SQLite statement sets: everything stored, in table order."""
        return [column for column in self.table.columns if column.computed is None]

    def filled(self, values: dict[str, str]) -> list[str]:
        """SQLite text for every written column."""
        return [
            values[fold(column.name)] if fold(column.name) in values else self.default(column)
            for column in self.written()
        ]

    def default(self, column: Column) -> str:
        """What a column gets that has no value."""
        if column.identity is not None:
            seed, increment = column.identity
            counter = f"'{identity.counter(self.table)}', {int(is_temporary(self.table))}"
            return f"engine_identity({counter}, {seed}, {increment}, {identity.limit(column.type)})"
        if column.type.name == "rowversion":
            return f"engine_rowversion({text_literal(self.table.database)})"
        if column.default is None:
            return "NULL"
        typed = compile_scalar(parse_expression_tree(column.default), self.names, self.scope)
        return assign(typed, column.type, column.name, full_name(self.table)).sql


def _listed(table: Table, names: Sequence[str] | None) -> list[Column]:
    if names is not None:
        columns = [column_of(table, name) for name in names]
        _check_listed(table, columns)
        return columns
    return [
        column
        for column in table.columns
        if column.computed is None and column.identity is None and column.type.name != "rowversion"
    ]


def _check_listed(table: Table, columns: list[Column]) -> None:
    seen: set[int] = set()
    for column in columns:
        if column.column_id in seen:
            raise specified_twice(column)
        seen.add(column.column_id)
        if column.computed is not None:
            raise SqlError(
                271,
                f'The column "{column.name}" cannot be modified because it is either a computed column or is the result of a UNION '
                "operator.",
            )
        if column.identity is not None:
            raise SqlError(
                544,
                f"Cannot insert explicit value for identity column in table '{table.name}' when IDENTITY_INSERT is set to OFF.",
            )
        if column.type.name == "rowversion":
            raise SqlError(
                273,
                "Cannot insert an explicit value into a timestamp column. Use INSERT with a column list to exclude the timestamp "
                "column, or insert a DEFAULT into the timestamp column.",
            )
