"""Runs the statements of a batch.

What an error does (vendor page on TRY…CATCH and XACT_ABORT; spec sqlserver-cdc):

| error | statement | batch | transaction |
|---|---|---|---|
| most (2627, 547, 515, 8134 …) | ends | goes on | stays |
| compilation (207, 208 …) | | ends at that statement | stays |
| conversion (241, 245 …), 1205, 3960 | | ends | rolled back |
| any but RAISERROR under XACT_ABORT ON | | ends | rolled back |
"""

import contextlib
import logging
import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from mssql_standin.batches import execute, messages
from mssql_standin.batches.ports import BatchSession
from mssql_standin.batches.select_into import select_into
from mssql_standin.batches.sinks import CollectingSink
from mssql_standin.changes import runner
from mssql_standin.changes.ports import Result
from mssql_standin.contract import Parameter, ResultSink
from mssql_standin.definitions import dispatch
from mssql_standin.definitions.tables import table_variable
from mssql_standin.errors import BUGS, SqlError, internal, unknown_type
from mssql_standin.queries import selects
from mssql_standin.queries.frame import Frame
from mssql_standin.queries.names import SessionNames
from mssql_standin.sqltypes import SqlType, Value, parse_type
from mssql_standin.store import sqlite_errors
from mssql_standin.text import options, tree
from mssql_standin.text.batch import parse_batch

_LOG = logging.getLogger(__name__)

_ROLLS_BACK: Final = frozenset({241, 242, 244, 245, 248, 295, 1205, 3960, 3952, 9402, 9420, 8169})
"""Errors that end the batch and roll the transaction back."""
_ENDS_BATCH: Final = frozenset({
    102, 103, 105, 107, 109, 110, 113, 116, 121, 128, 130, 134, 137, 139, 155, 156, 174, 189, 191, 195, 201, 205, 206, 207, 208,
    209, 213, 229, 243, 252, 257, 264, 305, 306, 313, 319, 321, 402, 421, 448, 468, 529, 911, 1001, 1002, 1087, 1750, 2715, 2717, 2812,
    4104, 4121, 4145, 8120, 8133, 8144, 8145, 8146, 8155, 8156, 8158, 8159, 40510,
})  # fmt: skip
"""Errors of compilation: they end the batch but leave the transaction."""


class BatchEnds(Exception):  # noqa: N818 - control flow
    """Unwinds to the batch after its error was sent."""


class Interpreter:
    """Runs one text in one frame."""

    def __init__(self, session: BatchSession, frame: Frame, sink: ResultSink) -> None:
        self.session, self.frame, self.sink = session, frame, sink

    # ---- texts and blocks ----------------------------------------------------------------------------------------

    def run_text(self, text: str) -> int:
        """Run a batch; returns 1 if it ended with an error. Its errors go to the sink."""
        try:
            return self._run(text)
        except BatchEnds:
            return 1
        except SqlError as error:
            self._report(error)
            return 1

    def _run(self, text: str) -> int:
        block = parse_batch(text)
        self.session.frames.append(self.frame)
        try:
            self.block(block)
        finally:
            self.session.frames.pop()
        return 0

    def block(self, block: tree.Block) -> None:
        """Run statements in order."""
        for statement in block.statements:
            self.statement(statement)

    def statement(self, statement: tree.Statement) -> None:
        """Run one statement and decide what its error does."""
        control = _CONTROL.get(type(statement))
        if control is not None:
            control(self, statement)
            return
        session = self.session
        if (session.options.noexec or session.options.parseonly) and not isinstance(statement, tree.SetOption):
            return
        try:
            _SIMPLE[type(statement)](self, statement)
            session.rowcount = _ROW_COUNTS.get(type(statement), session.rowcount)
            if type(statement) is not tree.RaiseError:
                session.last_error = 0
        except SqlError as error:
            self._failed(error, statement)
        except sqlite3.Error as error:
            self._failed(sqlite_errors.translate(session, error), statement)
        except BUGS as error:
            _LOG.exception("internal error in %s", type(statement).__name__)
            self._failed(internal(error), statement)
        finally:
            session.transaction.end_statement()

    def _failed(self, error: SqlError, statement: tree.Statement) -> None:
        session = self.session
        error.line = statement.line
        error.procedure = error.procedure or self.frame.procedure
        session.last_error, session.rowcount = error.number, 0
        raised = isinstance(statement, tree.RaiseError)
        fatal = error.number in _ROLLS_BACK or (session.options.xact_abort and not raised)
        if fatal and session.transaction.count:
            session.roll_back()
        self._report(error)
        if fatal or error.number in _ENDS_BATCH or error.severity >= 20:
            raise BatchEnds

    def _report(self, error: SqlError) -> None:
        self.session.last_error = error.number
        self.sink.error(error)

    # ---- control flow --------------------------------------------------------------------------------------------

    def _if(self, statement: tree.If) -> None:
        if self._condition(statement, statement.condition):
            self.statement(statement.then)
        elif statement.otherwise is not None:
            self.statement(statement.otherwise)

    def _condition(self, statement: tree.Statement, text: str) -> bool:
        try:
            plan = selects.condition_plan(self.session, self.frame, text)
            return bool(selects.evaluate(self.session, self.frame, plan))
        except SqlError as error:
            self._failed(error, statement)
            return False
        except BUGS as error:
            _LOG.exception("internal error in the condition %.200s", text)
            self._failed(internal(error), statement)
            return False
        finally:
            self.session.transaction.end_statement()

    # ---- values --------------------------------------------------------------------------------------------------

    def value(self, text: str, target: SqlType | None = None) -> Value:
        """Value of an expression."""
        return selects.evaluate(self.session, self.frame, selects.scalar_plan(self.session, self.frame, text, target))

    def typed_value(self, text: str) -> tuple[Value, SqlType]:
        """Value and type of an expression."""
        plan = selects.scalar_plan(self.session, self.frame, text)
        return selects.evaluate(self.session, self.frame, plan), plan.type

    def type_named(self, text: str, number: int = 1) -> SqlType:
        """A declared type, alias types included.

        Args:
            text: as it is written.
            number: which of the variables or parameters has it, for the message.

        Raises:
            SqlError: 2715 when there is no such type.
        """
        try:
            return parse_type(text)
        except SqlError as error:
            parts = tuple(part.strip("[] ") for part in text.split("."))
            found = SessionNames(self.session, self.frame).user_type(parts) if error.number in (243, 102) else None
            if found is not None:
                return found
            raise unknown_type(text, number) if error.number == 243 else error from error

    def _declare(self, statement: tree.Declare) -> None:
        if any(item.value for item in statement.items):
            self.session.rowcount = 1
        for number, item in enumerate(statement.items, start=1):
            if item.table:
                table = table_variable(self.session, self.frame, item)
                self.frame.declare_table(item.name, table)
                continue
            kind = self.type_named(item.type, number)
            value = self.value(item.value, kind) if item.value else None
            self.frame.declare(item.name, kind, value)

    def _assign(self, statement: tree.Assign) -> None:
        variable = self.frame.variable(statement.name)
        text = statement.expression
        if statement.operator != "=":
            text = f"{statement.name} {statement.operator[:-1]} ({text})"
        variable.value = self.value(text, variable.type)

    def _set_option(self, statement: tree.SetOption) -> None:
        session = self.session
        options.apply(session.options, statement.tokens)
        session.set_isolation(session.options.isolation)
        session.transaction.implicit = session.options.implicit_transactions

    def _use(self, statement: tree.Use) -> None:
        self.session.use(statement.database, self.sink)
        self.sink.done(None)

    # ---- messages ------------------------------------------------------------------------------------------------

    def _print(self, statement: tree.Print) -> None:
        text = self.value(statement.expression, SqlType("nvarchar", 4000))
        self.sink.message(SqlError(0, str(text or " "), 0))

    def _raise_error(self, statement: tree.RaiseError) -> None:
        error = messages.raised(self.session, statement, self.typed_value)
        if error.severity > 10:
            raise error
        self.sink.message(error)

    def _wait_for(self, statement: tree.WaitFor) -> None:
        text = self.value(statement.expression, SqlType("varchar", 50))
        end = time.monotonic() + messages.wait_seconds(statement.kind, str(text or ""), self.session.clock)
        while (left := end - time.monotonic()) > 0:
            self.sink.check()
            time.sleep(min(left, 0.02))
        self.sink.done(None)

    # ---- transactions --------------------------------------------------------------------------------------------

    def _transaction(self, statement: tree.Transaction) -> None:
        session, name = self.session, statement.name
        if name.startswith("@"):
            name = str(self.frame.variable(name).value or "")
        if statement.verb == "BEGIN":
            session.transaction.begin(name)
        elif statement.verb == "COMMIT":
            session.transaction.commit()
        elif statement.verb == "SAVE":
            session.transaction.save(name)
        else:
            session.roll_back(name)
        self.sink.done(None)

    # ---- inner texts and calls -----------------------------------------------------------------------------------

    def run_inner(self, text: str, frame: Frame) -> int:
        """Run a text in a frame of its own; an error ends that text only, unless it rolls back."""
        inner = Interpreter(self.session, frame, self.sink)
        database = self.session.database
        try:
            return inner._run(text)
        except SqlError as error:
            inner._report(error)
            return 1
        finally:
            self.session.drop_frame_tables(frame)
            if self.session.database != database:
                self.session.use(database, self.sink)

    def run_call(self, name: str, arguments: Sequence[Parameter]) -> int:
        """A client's call of a procedure: like EXEC, errors go to the sink."""
        try:
            return execute.call(self, name, arguments)
        except SqlError as error:
            failure = error
        except sqlite3.Error as error:
            failure = sqlite_errors.translate(self.session, error)
        except BUGS as error:
            _LOG.exception("internal error in %s", name)
            failure = internal(error)
        with contextlib.suppress(BatchEnds):
            self._failed(failure, tree.Statement(1))
        return 1

    def results_of(self, text: str) -> Sequence[Result]:
        """Run statements and keep the result sets; errors are raised, and messages go to the client."""
        sink = CollectingSink(self.sink)
        inner = Interpreter(self.session, self.frame, sink)
        outer, self.session.sink = self.session.sink, sink
        try:
            inner.block(parse_batch(text))
        finally:
            self.session.sink = outer
        return sink.results

    # ---- queries, changes, definitions ---------------------------------------------------------------------------

    def _query(self, statement: tree.Query) -> None:
        session = self.session
        plan = selects.select_plan(session, self.frame, statement.text)
        if plan.query.into is not None:
            select_into(self, plan)
        elif session.options.fmtonly:
            self.sink.columns(plan.query.columns)
            self.sink.done(0)
        else:
            selects.send(session, self.frame, plan, self.sink)

    def _change(self, statement: tree.Change) -> None:
        runner.run(self, statement)

    def _definition(self, statement: tree.Definition) -> None:
        dispatch.run(self, statement)
        self.sink.done(None)


_Run = Callable[[Interpreter, Any], None]

_CONTROL: Final[dict[type, _Run]] = {
    tree.Block: Interpreter.block, tree.If: Interpreter._if,
}  # fmt: skip
_ROW_COUNTS: Final[dict[type, int]] = {
    tree.Assign: 1, tree.SetOption: 0, tree.Use: 0, tree.Print: 0, tree.RaiseError: 0, tree.Transaction: 0,
}  # fmt: skip
"""@@ROWCOUNT after statements that count no rows (vendor page of @@ROWCOUNT); others leave or set it."""
_SIMPLE: Final[dict[type, _Run]] = {
    tree.Declare: Interpreter._declare, tree.Assign: Interpreter._assign, tree.SetOption: Interpreter._set_option,
    tree.Use: Interpreter._use, tree.Print: Interpreter._print, tree.RaiseError: Interpreter._raise_error,
    tree.WaitFor: Interpreter._wait_for, tree.Transaction: Interpreter._transaction,
    tree.Execute: execute.run, tree.Query: Interpreter._query, tree.Change: Interpreter._change,
    tree.Definition: Interpreter._definition,
}  # fmt: skip
