"""SELECT … INTO: a definition and an insert in one statement."""

from cdc_assets.standin.batches.ports import BatchInterpreter
from cdc_assets.standin.certain import certain
from cdc_assets.standin.changes.effects import finish
from cdc_assets.standin.changes.runner import counted
from cdc_assets.standin.definitions.tables import table_like
from cdc_assets.standin.queries import selects


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
