"""SQLite's errors to SQL Server's."""

import re
import sqlite3
from typing import Final

from mssql_standin.catalog import Index, Table
from mssql_standin.errors import SqlError
from mssql_standin.store.ports import StoreSession

_COLUMNS: Final = re.compile(
    r"(UNIQUE|NOT NULL) constraint failed: (rebuilt|t)(\d+)\.(c\d+)((?:, (?:rebuilt|t)\d+\.c\d+)*)"
)
_INDEX: Final = re.compile(r"UNIQUE constraint failed: index 'i(\d+)_(\d+)(?:_nulls)?'")
_RAISED: Final = re.compile(r"fk:(\d+):(INSERT|UPDATE|DELETE)( REFERENCE)?")

_TOO_COMPLEX: Final = (
    "parser stack overflow",
    "Expression tree is too large",
    "too many",
    "at most 64 tables in a join",
)


def translate(session: StoreSession, error: sqlite3.Error, verb: str = "INSERT") -> SqlError:
    """The error a client shall see; raises Cancelled instead when an attention interrupted the statement."""
    session.raise_cancelled()
    parked, session.failure = session.failure, None
    text = str(error)
    if parked is not None:
        return parked
    found = _COLUMNS.search(text)
    if found:
        table = _table(session, int(found[3]))
        columns = [found[4], *re.findall(r"\.(c\d+)", found[5])]
        if table and found[1] == "NOT NULL":
            return _not_null(table, columns[0], "UPDATE" if found[2] == "rebuilt" else verb)
        if table:
            return _duplicate(table, _index_of(table, columns))
    found = _INDEX.search(text)
    if found:
        table = _table(session, int(found[1]))
        if table:
            return _duplicate(table, next((i for i in table.indexes if i.index_id == int(found[2])), None))
    found = _RAISED.search(text)
    if found:
        return conflict(session, int(found[1]), found[2], bool(found[3]))
    if "integer overflow" in text:
        return SqlError(8115, "Arithmetic overflow error converting expression to data type bigint.")
    if "too big" in text:
        return SqlError(7119, "Attempting to grow LOB beyond maximum allowed size of 2147483647 bytes.")
    if "locked" in text:
        return SqlError(1222, "Lock request time out period exceeded.", 16, 45)
    if any(limit in text for limit in _TOO_COMPLEX):
        return SqlError(
            8623,
            "The query processor ran out of internal resources and could not produce a query plan. This is a rare event and only "
            "expected for extremely complex queries or queries that reference a very large number of tables or partitions. "
            "Please simplify the query.",
        )
    return SqlError(8630, f"Internal error of the stand-in's store: {text}.", 17)


def _table(session: StoreSession, object_id: int) -> Table | None:
    for temporary in [*session.temporary.values(), *session.table_variables()]:
        if temporary.object_id == object_id:
            return temporary
    for database in session.catalog.databases.values():
        found = database.table_by_id(object_id)
        if found:
            return found
    return None


def _index_of(table: Table, columns: list[str]) -> Index | None:
    names = {column.sqlite: column.name for column in table.columns}
    wanted = [names.get(column) for column in columns]
    return next((i for i in table.indexes if i.unique and [table.column(n).name for n, _ in i.keys] == wanted), None)  # type: ignore[union-attr]


def shown(table: Table) -> str:
    """Name of a table in messages: `schema.table`, or the bare name of a temporary one."""
    return f"{table.schema}.{table.name}" if table.database else table.name


def _not_null(table: Table, sqlite_column: str, verb: str) -> SqlError:
    column = next(column.name for column in table.columns if column.sqlite == sqlite_column)
    verb = "INSERT" if verb == "MERGE" else verb
    full = str(table) if table.database else f"tempdb.dbo.{table.name}"
    return SqlError(
        515,
        f"Cannot insert the value NULL into column '{column}', table '{full}'; column does not allow nulls. {verb} fails.",
        16,
        2,
    )


def _duplicate(table: Table, index: Index | None) -> SqlError:
    name = index.name if index else ""
    if index and (index.primary_key or index.unique_constraint):
        kind = "PRIMARY KEY" if index.primary_key else "UNIQUE KEY"
        return SqlError(
            2627,
            f"Violation of {kind} constraint '{name}'. Cannot insert duplicate key in object '{shown(table)}'.",
            14,
        )
    return SqlError(2601, f"Cannot insert duplicate key row in object '{shown(table)}' with unique index '{name}'.", 14)


def conflict(session: StoreSession, object_id: int, verb: str, reference: bool = False) -> SqlError:
    """547."""
    for database in session.catalog.databases.values():
        for table in database.tables.shared():
            for key in table.foreign_keys:
                if key.object_id == object_id:
                    parent = database.table(key.referenced_schema, key.referenced_table) or table
                    what = "REFERENCE" if reference else "FOREIGN KEY SAME TABLE" if parent is table else "FOREIGN KEY"
                    return _conflict(verb, what, key.name, table if reference else parent)
    return SqlError(547, f"The {verb} statement conflicted with a constraint.")


def _conflict(verb: str, kind: str, name: str, table: Table) -> SqlError:
    return SqlError(
        547,
        f'The {verb} statement conflicted with the {kind} constraint "{name}". The conflict occurred in database '
        f'"{table.database}", table "{shown(table)}".',
        state=0,
    )
