"""What every data-changing statement has around it."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from cdc_assets.standin.contract import ResultColumn
from cdc_assets.standin.sqltypes import Value

if TYPE_CHECKING:
    from cdc_assets.standin.engine.interpreter import Interpreter

Row = Sequence[Value]


@contextlib.contextmanager
def changing(interpreter: "Interpreter", private: bool = False) -> Iterator[None]:
    """A data-changing statement: writer lock (unless only a table variable changes), savepoint, command number, attention."""
    session = interpreter.session
    with session.transaction.private_statement() if private else session.transaction.statement():
        session.command_id += 1
        yield
        session.raise_cancelled()
        session.check()


def finish(interpreter: "Interpreter", columns: Sequence[ResultColumn] | None, rows: Iterable[Row], count: int) -> None:
    """Tell the client."""
    session, sink = interpreter.session, interpreter.sink
    if columns is not None:
        sink.columns(columns)
        sink.rows(rows)
    session.rowcount = count
    sink.done(None if session.options.nocount else count)
