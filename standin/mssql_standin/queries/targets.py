"""The table that an INSERT, UPDATE, DELETE or MERGE changes, and reading its clauses."""

from dataclasses import dataclass

from mssql_standin.catalog import Column, Table
from mssql_standin.errors import SqlError, invalid_column
from mssql_standin.queries.frame import Frame
from mssql_standin.queries.names import SessionNames
from mssql_standin.queries.ports import QuerySession
from mssql_standin.store.locks import Mode
from mssql_standin.store.temporary import is_temporary


@dataclass(slots=True)
class Target:
    """A table to change."""

    table: Table
    hints: frozenset[str] = frozenset()

    @property
    def stored(self) -> bool:
        """A table of a database: neither temporary nor a variable."""
        return not is_temporary(self.table)

    @property
    def variable(self) -> bool:
        """A table variable: outside transactions and seen by nobody else."""
        return self.table.name.startswith("@")

    def lock(self, session: QuerySession) -> None:
        """Take the table lock of a change."""
        if self.stored:
            mode = Mode.X if "TABLOCKX" in self.hints else Mode.SIX if "TABLOCK" in self.hints else Mode.IX
            session.transaction.lock(self.table, mode)


def resolve(session: QuerySession, frame: Frame, parts: tuple[str, ...], *actions: str) -> Table:
    """The table to change, with what is done to it.

    Raises:
        SqlError: 229 for what is not permitted, 208 for an unknown name, 259 for a system view, 1087 for an undeclared table variable.
    """
    names = SessionNames(session, frame)
    table = names.table(parts)
    if table is not None:
        for action in actions:
            names.permit(action, table)
        return table
    names.relation(parts)
    raise SqlError(259, "Ad hoc updates to system catalogs are not allowed.")


def resolve_object(session: QuerySession, frame: Frame, parts: tuple[str, ...], unknown: int) -> Table:
    """The table whose definition or whole content is changed.

    Args:
        unknown: the error's number for an unknown name, which is another one for each statement.

    Raises:
        SqlError: that; and what `resolve` raises, but for 208.
    """
    try:
        return resolve(session, frame, parts)
    except SqlError as error:
        if error.number != 208:
            raise
        name = ".".join(parts)
        text = f'Cannot find the object "{name}" because it does not exist or you do not have permissions.'
        raise SqlError(unknown, text) from error


def column_of(table: Table, name: str) -> Column:
    """A column by name.

    Raises:
        SqlError: 207.
    """
    found = table.column(name)
    if found is None:
        raise invalid_column(name)
    return found


def specified_twice(column: Column) -> SqlError:
    """264."""
    return SqlError(
        264,
        f"The column name '{column.name}' is specified more than once in the SET clause or column list of an INSERT. A column cannot "
        "be assigned more than one value in the same clause. Modify the clause to make sure that a column is updated only once.",
    )


def full_name(table: Table) -> str:
    """`database.schema.table` for messages."""
    return str(table) if table.database else f"tempdb.dbo.{table.name}"
