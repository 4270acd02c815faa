"""What every data-changing statement has around it."""

import contextlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from mssql_standin.catalog import Table, fold
from mssql_standin.changes.ports import ChangeInterpreter, ChangeSession
from mssql_standin.contract import ResultColumn
from mssql_standin.sqltypes import Value
from mssql_standin.store import physical

Row = Sequence[Value]
T = TypeVar("T")


@contextlib.contextmanager
def changing(interpreter: ChangeInterpreter, private: bool = False) -> Iterator[None]:
    """A data-changing statement: writer lock (unless only a table variable changes), savepoint, command number, attention."""
    session = interpreter.session
    with session.transaction.private_statement() if private else session.transaction.statement():
        session.command_id += 1
        yield
        session.raise_cancelled()
        session.check()


def rewritten(table: Table, names: Iterable[str]) -> int:
    """Object id of the table if an UPDATE that sets columns of these names writes its clustered key, be it with what it is; else 0."""
    key = table.clustered_key
    keys = {fold(name) for name, _ in key.keys} if key is not None else set()
    return table.object_id if any(fold(name) in keys for name in names) else 0


@contextlib.contextmanager
def rewriting(session: ChangeSession, object_id: int) -> Iterator[None]:
    """Tell capture whose clustered key is being written."""
    session.rewritten = object_id
    try:
        yield
    finally:
        session.rewritten = 0


def judged_at_end(session: ChangeSession, table: Table, change: Callable[[], T]) -> T:
    """Run a change whose rows may clash on their way to a state without duplicates.

    SQLite checks unique keys row by row, SQL Server when the statement is done: after a clash the change runs again with the
    unique indexes set aside. Building them tells of true duplicates.

    Raises:
        sqlite3.IntegrityError: duplicates, or another constraint that does not hold.
    """
    connection = session.connection
    connection.execute("SAVEPOINT keys")
    try:
        result = change()
    except sqlite3.IntegrityError as error:
        connection.execute("ROLLBACK TO keys")
        if "UNIQUE" not in str(error):
            connection.execute("RELEASE keys")
            raise
        unique = [index for index in table.indexes if index.unique]
        for index in unique:
            physical.drop_index(session, table, index)
        result = change()
        for index in unique:
            physical.create_index(session, table, index)
    connection.execute("RELEASE keys")
    return result


def finish(
    interpreter: ChangeInterpreter, columns: Sequence[ResultColumn] | None, rows: Iterable[Row], count: int
) -> None:
    """Tell the client."""
    session, sink = interpreter.session, interpreter.sink
    if columns is not None:
        sink.columns(columns)
        sink.rows(rows)
    session.rowcount = count
    sink.done(None if session.options.nocount else count)
