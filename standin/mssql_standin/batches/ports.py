"""What the interpreter knows of its session, and what calls know of the interpreter."""

from contextlib import AbstractContextManager
from typing import Protocol

from mssql_standin.changes.ports import ChangeInterpreter
from mssql_standin.contract import Procedure, ResultSink
from mssql_standin.definitions.ports import DefinitionInterpreter, DefinitionSession
from mssql_standin.queries.frame import Frame
from mssql_standin.sqltypes import SqlType, Value


class BatchSession(DefinitionSession, Protocol):
    """A session that runs batches."""

    last_error: int
    """@@ERROR."""
    nest_level: int
    frames: list[Frame]

    def use(self, name: str, sink: ResultSink) -> None:
        """Change the database."""

    def within(self, database: str) -> AbstractContextManager[None]:
        """Another current database for a while."""

    def trusting(self, trusted: bool) -> AbstractContextManager[None]:
        """Check no rights, or check them again."""

    def set_isolation(self, level: str) -> None:
        """SET TRANSACTION ISOLATION LEVEL."""

    def roll_back(self, name: str = "") -> None:
        """ROLLBACK, with the contents of table variables kept."""

    def drop_frame_tables(self, frame: Frame) -> None:
        """Drop the temporary tables that a frame created, and its table variables."""

    def procedure(self, name: str) -> tuple[Procedure, str] | None:
        """The built-in procedure of that name, with the database it runs in."""


class BatchInterpreter(ChangeInterpreter, DefinitionInterpreter, Protocol):
    """Runs a statement in a frame, and what it calls."""

    @property
    def session(self) -> BatchSession:
        """Whose statement it is."""

    def value(self, text: str, target: SqlType | None = None) -> Value:
        """Value of an expression."""

    def typed_value(self, text: str) -> tuple[Value, SqlType]:
        """Value and type of an expression."""

    def run_inner(self, text: str, frame: Frame) -> int:
        """Run a text in a frame of its own."""
