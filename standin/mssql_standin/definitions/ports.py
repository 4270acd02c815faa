"""What definitions know of a session, of the server, and of the interpreter that runs them."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from mssql_standin.catalog import Table
from mssql_standin.changes.ports import ChangeSession
from mssql_standin.contract import Login, ProcedureContext
from mssql_standin.queries.frame import Frame
from mssql_standin.queries.ports import SharedPlans
from mssql_standin.sqltypes import SqlType


class OpenSession(Protocol):
    """Another session, or this one, as a list of the open ones shows it."""

    session_id: int
    login: Login

    @property
    def database(self) -> str:
        """Its current database."""

    def kill(self) -> None:
        """End it; any thread may call it."""


class OpenSessions(Protocol):
    """The server, as far as a database's state depends on it."""

    def sessions(self) -> Sequence[OpenSession]:
        """The open sessions."""


class Server(SharedPlans, OpenSessions, Protocol):
    """The server, as definitions know it."""

    user: str
    """The login it was started with."""


class DefinitionSession(ChangeSession, ProcedureContext, Protocol):
    """A session that changes the catalogue."""

    login: Login

    @property
    def engine(self) -> Server:
        """The server."""

    @property
    def lock_timeout_s(self) -> float | None:
        """LOCK_TIMEOUT; None waits for ever."""

    def editing(self, work: Callable[[], Any]) -> Any:
        """Run something that may call `edit`; its effects are one statement."""

    def new_temporary_id(self) -> int:
        """Object id of a temporary table or table variable."""

    def add_temporary(self, table: Table) -> None:
        """Make a created temporary table known."""

    def drop_temporary(self, name: str) -> None:
        """Drop a temporary table by its folded name."""


class DefinitionInterpreter(Protocol):
    """Runs a statement in a frame."""

    @property
    def session(self) -> DefinitionSession:
        """Whose statement it is."""

    @property
    def frame(self) -> Frame:
        """Its variables."""

    def type_named(self, text: str, number: int = 1) -> SqlType:
        """A declared type, alias types included."""
