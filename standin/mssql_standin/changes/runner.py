"""Runs INSERT, UPDATE and DELETE."""

import sqlite3
from collections.abc import Iterator

from mssql_standin.changes import insert, update
from mssql_standin.changes.effects import Row, changing, finish, judged_at_end, rewriting
from mssql_standin.changes.insert import ChangePlan
from mssql_standin.changes.ports import ChangeInterpreter, ChangeSession
from mssql_standin.errors import SqlError, unsupported
from mssql_standin.queries.plans import planned
from mssql_standin.sql.convert import convert_value
from mssql_standin.sqltypes import Value
from mssql_standin.store import constraints, sqlite_errors
from mssql_standin.text import insert_text, tree, update_text


def run(interpreter: ChangeInterpreter, statement: tree.Change) -> None:
    """Run a change and send what it sends."""
    session, frame = interpreter.session, interpreter.frame
    if session.options.rowcount:
        raise unsupported("a change under SET ROWCOUNT; use TOP")
    text = f"{statement.with_clause} {statement.text}" if statement.with_clause else statement.text
    plan = planned(session, frame, statement.verb, text, lambda: compile_change(interpreter, statement))
    if plan.execute:
        rows: list[Row] | None = list(executed_rows(interpreter, plan))
    else:
        rows = None
    plan.reads.prepare(session)
    private = plan.target.variable
    session.transaction.begin_implicit()
    plan.target.lock(session)  # before the one writer's lock: who waits for a table keeps nobody from writing others
    with changing(interpreter, private):
        count, output_rows = execute(interpreter, plan, rows)
    finish(interpreter, plan.output.columns if plan.output else None, output_rows, count)


def compile_change(interpreter: ChangeInterpreter, statement: tree.Change) -> ChangePlan:
    """The plan of an INSERT, UPDATE or DELETE."""
    session, frame, with_clause = interpreter.session, interpreter.frame, statement.with_clause
    if statement.verb == "INSERT":
        return insert.InsertCompiler(session, frame, insert_text.read(statement.text), with_clause).compile()
    if with_clause:
        raise unsupported(f"WITH … {statement.verb}")
    return update.UpdateCompiler(session, frame, update_text.read(statement.text)).compile()


def execute(interpreter: ChangeInterpreter, plan: ChangePlan, rows: list[Row] | None) -> tuple[int, list[Row]]:
    """Run the plan's statements; the number of rows and what OUTPUT gives."""
    session = interpreter.session
    plan.target.lock(session)
    values = interpreter.frame.values(plan.variables)
    try:
        if rows is not None:
            count, output_rows = _insert_rows(session.connection, plan, rows)
        else:
            count, output_rows = _single(session, plan, values)
    except sqlite3.Error as error:
        raise sqlite_errors.translate(session, error, plan.verb) from error
    if plan.target.table.foreign_keys:
        check_self_references(interpreter, plan)
    return count, output_rows


def _single(session: ChangeSession, plan: ChangePlan, values: dict[str, Value]) -> tuple[int, list[Row]]:
    if plan.output is not None:
        rows = session.connection.execute(plan.sql, values).fetchall()
        return len(rows), rows
    return _changed(session, plan, values), []


def _changed(session: ChangeSession, plan: ChangePlan, values: dict[str, Value]) -> int:
    """Run the plan's statement; the number of rows."""
    connection = session.connection

    def change() -> int:
        return counted(connection, connection.execute(plan.sql, values))

    if not (plan.keys_change or plan.rewrites):
        return change()
    with rewriting(session, plan.rewrites):
        return judged_at_end(session, plan.target.table, change) if plan.keys_change else change()


def counted(connection: sqlite3.Connection, cursor: sqlite3.Cursor) -> int:
    """Rows that a statement changed."""
    if cursor.rowcount >= 0:
        return cursor.rowcount
    count: int = connection.execute("SELECT changes()").fetchone()[0]
    return count


def _insert_rows(connection: sqlite3.Connection, plan: ChangePlan, rows: list[Row]) -> tuple[int, list[Row]]:
    if plan.output is None:
        connection.executemany(plan.sql, rows)
        return len(rows), []
    return len(rows), [row for given in rows for row in connection.execute(plan.sql, given).fetchall()]


def check_self_references(interpreter: ChangeInterpreter, plan: ChangePlan) -> None:
    """Judge foreign keys of a table to itself at the end of the statement."""
    session = interpreter.session
    for key, query in constraints.self_references(plan.target.table):
        if session.connection.execute(query).fetchone():
            raise sqlite_errors.conflict(session, key.object_id, plan.verb, plan.verb == "DELETE")


# ---- INSERT … EXEC -----------------------------------------------------------------------------------------------


def executed_rows(interpreter: ChangeInterpreter, plan: ChangePlan) -> Iterator[Row]:
    """Rows of the EXEC, converted to the columns' types."""
    for columns, rows in interpreter.results_of(plan.execute):
        if len(columns) != len(plan.sources):
            raise SqlError(213, "Column name or number of supplied values does not match table definition.")
        types = [(given.type, column.type) for given, column in zip(columns, plan.sources, strict=True)]
        for row in rows:
            yield tuple(convert_value(value, *pair) for value, pair in zip(row, types, strict=True))
