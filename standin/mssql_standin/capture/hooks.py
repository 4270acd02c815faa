"""What the engine tells change data capture, and when.

| hook | when |
|---|---|
| `opened`, `closed` | a session's connection was opened, is about to be closed |
| `before_commit` | under the write lock, inside the SQLite transaction that is about to commit |
| `after_commit`, `rolled_back` | behind it |
| `before_table_change` | before a definition statement changes a table: refuses what capture forbids |
| `table_changed` | after the catalogue copy and the SQLite table were changed |
| `table_dropped` | before the SQLite table goes |
"""

from typing import cast

from mssql_standin.capture import ddl
from mssql_standin.capture.agent import Agent
from mssql_standin.capture.messages import error
from mssql_standin.catalog import Table, fold
from mssql_standin.contract import ProcedureContext, SessionContext
from mssql_standin.errors import SqlError


def agent(context: SessionContext) -> Agent:
    """The server's Agent."""
    return cast(Agent, context.agent)


def opened(context: SessionContext) -> None:
    """Register what capture triggers call on the session's new connection."""
    agent(context).opened(context)


def closed(context: SessionContext) -> None:
    """Forget the session."""
    agent(context).closed(context)


def before_commit(context: SessionContext) -> None:
    """Give a transaction with captured changes its LSNs and capture it or log it.

    Raises:
        SqlError: the failure of an earlier scan, told once; the transaction must then be rolled back.
    """
    state = agent(context).state(context)
    if state.touched:
        agent(context).commit(context.connection, state, context.change_number)


def after_commit(context: SessionContext) -> None:
    """Forget the transaction and wake the Agent if it left something to capture."""
    state = agent(context).state(context)
    if state.number:
        context.change_number = 0
        state.reset()
    if state.logged:
        state.logged = False
        agent(context).wake()


def rolled_back(context: SessionContext) -> None:
    """Forget the transaction: its staged rows are gone with it."""
    state = agent(context).state(context)
    state.reset()
    state.logged = False
    context.change_number = 0


def before_table_change(context: SessionContext, table: Table, change: str, column: str | None = None) -> None:
    """Refuse a definition statement that a captured table does not allow, and lift its triggers for the others.

    Args:
        context: the session.
        table: the table about to change.
        change: `truncate`, `rename_column`, `drop_index`, `drop_constraint`, or anything else (`alter`, `drop`, …).
        column: the column, index or constraint it is about.

    Raises:
        SqlError: 4711 TRUNCATE, 4928 rename of a captured column, 22983 / 22979 an index that net changes need.
    """
    found = ddl.instances_of(context, table)
    if not found:
        return
    kind = fold(change).replace(" ", "_")
    if kind == "truncate":
        raise error(4711, table.name)
    if kind == "rename_column" and column and ddl.captures(context, table, column):
        raise SqlError(4928, f"Cannot alter column '{column}' because it is 'REPLICATED'.")
    needed = any(fold(instance.index_name or "") == fold(column or "") != "" for instance in found)
    if kind in ("drop_index", "drop_constraint", "alter_index") and needed:
        raise error(22983 if "index" in kind else 22979, column, table.name)
    ddl.lift(context, table)


def table_changed(context: SessionContext, table: Table, ddl_text: str) -> None:
    """Wire the capture triggers of a changed table anew, follow type changes and record the statement."""
    ddl.follow(context, table, ddl_text)


def table_dropped(context: SessionContext, table: Table) -> None:
    """Drop the capture instances of a table that is being dropped."""
    ddl.drop_instances(cast(ProcedureContext, context), table)
