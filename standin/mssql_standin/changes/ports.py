"""What changes know of a session and of the interpreter that runs them."""

from collections.abc import Sequence
from typing import Protocol

from mssql_standin.contract import ResultColumn, ResultSink
from mssql_standin.queries.frame import Frame
from mssql_standin.queries.ports import QuerySession
from mssql_standin.sqltypes import Value
from mssql_standin.store.identity import Identities

Result = tuple[Sequence[ResultColumn], Sequence[Sequence[Value]]]
"""Columns and rows of a result set."""


class ChangeSession(QuerySession, Protocol):
    """A session that changes rows."""

    identities: Identities

    def check(self) -> None:
        """Raise Cancelled after an attention."""


class ChangeInterpreter(Protocol):
    """Runs a statement in a frame."""

    @property
    def session(self) -> ChangeSession:
        """Whose statement it is."""

    @property
    def frame(self) -> Frame:
        """Its variables."""

    @property
    def sink(self) -> ResultSink:
        """Where its results go."""

    def results_of(self, text: str) -> Sequence[Result]:
        """Run statements and keep what they would send."""
