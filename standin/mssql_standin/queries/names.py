"""What names mean to a session at a statement: implements `contract.Names`."""

from collections.abc import Sequence

from mssql_standin.capture import functions as capture_functions
from mssql_standin.catalog import Database, Table, fold
from mssql_standin.certain import certain
from mssql_standin.contract import Relation, RelationColumn, Typed
from mssql_standin.errors import SqlError, invalid_object, undeclared_variable, unsupported
from mssql_standin.queries.frame import Frame
from mssql_standin.queries.ports import QuerySession
from mssql_standin.sql.expressions import compile_scalar
from mssql_standin.sql.parse import parse_expression_tree
from mssql_standin.sql.scope import Scope
from mssql_standin.sqltypes import BIGINT, DEFAULT_COLLATION, SqlType
from mssql_standin.system import views

ROWID = "%%rowid%%"
"""Hidden column of the table that an UPDATE, DELETE or MERGE changes: SQLite's rowid."""


class SessionNames:
    """Names over a session and the frame (batch) that runs.

    Args:
        target: the table whose rows get a `ROWID` column, for UPDATE, DELETE and MERGE.
        database: instead of the session's current one, for the query of a view: who may read the view need not be
            permitted to read what it reads.
    """

    def __init__(self, session: QuerySession, frame: Frame, target: Table | None = None, database: str = "") -> None:
        self._session, self._frame, self._target, self._database = session, frame, target, database

    def permit(self, action: str, shape: Table) -> None:
        """Refuse what the login may not do with a table, view or procedure.

        Raises:
            SqlError: 229, 916.
        """
        rights = None if self._database or not shape.database else self._session.rights
        if rights is not None:
            rights.require(action, certain(self._session.catalog.database(shape.database), shape.database), shape)

    @property
    def database(self) -> str:
        """Current database."""
        return self._database or self._session.database

    @property
    def collation(self) -> str:
        """Collation of the current database."""
        found = self._session.catalog.database(self.database)
        return found.collation if found else DEFAULT_COLLATION

    def variable(self, name: str) -> SqlType:
        """Type of `@name`; error 137 if it is not declared."""
        found = self._frame.variables.get(fold(name.removeprefix("@")))
        if found is None:
            raise undeclared_variable(name if name.startswith("@") else f"@{name}")
        return found.type

    def user_type(self, parts: tuple[str, ...]) -> SqlType | None:
        """Base type of an alias type, or None."""
        database = self._session.catalog.database(parts[-3] if len(parts) > 2 and parts[-3] else self.database)
        schema = fold(parts[-2]) if len(parts) > 1 and parts[-2] else "dbo"
        for alias in database.alias_types if database else ():
            if fold(alias.name) == fold(parts[-1]) and fold(alias.schema) == schema:
                return alias.base
        return None

    def table(self, parts: tuple[str, ...]) -> Table | None:
        """The stored table, temporary table or table variable of that name, or None."""
        name = parts[-1]
        if name.startswith("@"):
            found = self._frame.tables.get(fold(name))
            if found is None:
                raise SqlError(1087, f'Must declare the table variable "{name}".', 15)
            return found
        if name.startswith("#"):
            if name.startswith("##"):
                raise unsupported("global temporary tables")
            return self._session.temporary.get(fold(name))
        database, schema = self.place(parts)
        home = self._session.catalog.database(database)
        if home is None:
            return None
        if home.state != "ONLINE":
            check_online(home)
        return home.table(schema, name)

    def place(self, parts: tuple[str, ...]) -> tuple[str, str]:
        """Database and schema that a name means."""
        if len(parts) > 4 or (len(parts) == 4 and parts[0] and fold(parts[0]) != fold(self._session.server_name)):
            raise unsupported("linked servers")
        database = parts[-3] if len(parts) > 2 and parts[-3] else self.database
        return database, parts[-2] if len(parts) > 1 and parts[-2] else "dbo"

    def relation(self, parts: tuple[str, ...]) -> Relation:
        """See `contract.Names.relation`."""
        table = self.table(parts)
        if table is not None:
            self.permit("SELECT", table)
            return self.of_table(table)
        database, schema = self.place(parts)
        if not parts[-1].startswith(("#", "@")):
            if len(parts) > 2 and parts[-3] and self._session.catalog.database(database) is None:
                raise invalid_object(".".join(parts))
            found = views.view_relation(self._session, database, schema, parts[-1])
            if found is not None:
                return found
        raise invalid_object(".".join(parts))

    def of_table(self, table: Table) -> Relation:
        """A stored table as a relation; computed columns are computed by a query around it."""
        columns = tuple(
            RelationColumn(c.name, c.sqlite, c.type, c.nullable, c.identity is not None, bool(c.computed))
            for c in table.columns
        )
        if table is self._target:
            columns = (*columns, RelationColumn(ROWID, "rowid", BIGINT, False))
        if not any(column.computed for column in table.columns):
            return Relation(table.sqlite, columns, table)
        return Relation(f"({self._computing(table)})", columns, table)

    def _computing(self, table: Table) -> str:
        columns = self.of_row(table, "").columns
        items = ["rowid", *(f"{c.sql} AS {own.sqlite}" for c, own in zip(columns, table.columns, strict=True))]
        return f"SELECT {', '.join(items)} FROM {table.sqlite}"

    def of_row(self, table: Table, row: str) -> Relation:
        """The columns of one row of a stored table, computed ones too, as complete SQLite text.

        Args:
            row: what stands for the row in SQLite: an alias, `NEW`, or empty.
        """
        prefix = f"{row}." if row else ""
        stored = Relation(
            table.sqlite,
            tuple(
                RelationColumn(c.name, prefix + c.sqlite, c.type, c.nullable)
                for c in table.columns
                if c.computed is None
            ),
        )
        scope = Scope.of(stored, table.name, "")
        columns = []
        for column in table.columns:
            sql = prefix + column.sqlite
            if column.computed:
                sql = f"({compile_scalar(parse_expression_tree(column.computed), self, scope).sql})"
            columns.append(
                RelationColumn(column.name, sql, column.type, column.nullable, computed=bool(column.computed))
            )
        return Relation(table.sqlite, tuple(columns), table)

    def function_relation(self, parts: tuple[str, ...], arguments: Sequence[Typed]) -> Relation:
        """See `contract.Names.function_relation`."""
        database, _ = self.place(parts)
        found = capture_functions.function_relation(self._session, database, parts, arguments)
        if found is None:
            raise invalid_object(".".join(parts))
        return found


def check_online(database: Database) -> None:
    """Refuse what needs a database that is offline.

    Raises:
        SqlError: 942.
    """
    if database.state == "OFFLINE":
        raise SqlError(942, f"Database '{database.name}' cannot be opened because it is offline.", 14)
