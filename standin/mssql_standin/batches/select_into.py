"""SELECT … INTO: a definition and an insert in one statement."""

from mssql_standin.batches.ports import BatchInterpreter
from mssql_standin.certain import certain
from mssql_standin.changes.effects import finish
from mssql_standin.changes.runner import counted
from mssql_standin.definitions.tables import table_like
from mssql_standin.queries import selects


def select_into(interpreter: BatchInterpreter, plan: selects.SelectPlan) -> None:
    """Create a table from a query's columns and fill it."""
    session = interpreter.session
    parts = certain(plan.query.into, "the target of SELECT INTO")
    plan.reads.prepare(session)

    def work() -> int:
        table = table_like(interpreter, parts, plan.query.columns)
        session.command_id += 1
        columns = ", ".join(column.sqlite for column in table.columns)
        cursor = session.connection.execute(
            f"INSERT INTO {table.sqlite} ({columns}) SELECT * FROM ({plan.query.sql})",
            interpreter.frame.values(plan.query.variables),
        )
        return counted(session.connection, cursor)

    finish(interpreter, None, (), session.editing(work))
