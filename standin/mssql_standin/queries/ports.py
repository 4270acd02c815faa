"""What names, plans and SELECT know of a session."""

from typing import Protocol

from mssql_standin.contract import RowBlocks, SessionContext
from mssql_standin.store.ports import StoreSession
from mssql_standin.store.transactions import Transaction
from mssql_standin.text.options import Options


class Plan(Protocol):
    """Something compiled."""

    shared: bool
    """Whether other sessions may use it."""


class SharedPlans(Protocol):
    """What all sessions of a server share."""

    plans: dict[object, Plan]
    blocks: RowBlocks | None


class QuerySession(StoreSession, SessionContext, Protocol):
    """A session that compiles and reads."""

    options: Options
    transaction: Transaction
    plans: dict[object, Plan]
    """Its own: those that hold temporary tables."""
    principal: str
    """Whose rights statements are checked for; empty for nobody's."""
    temporary_version: int

    @property
    def engine(self) -> SharedPlans:
        """The server."""

    @property
    def server_name(self) -> str:
        """@@SERVERNAME."""
