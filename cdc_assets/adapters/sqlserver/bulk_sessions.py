"""Pool of sessions of the data plane.

A slice reads many tables one after the other, so reads reuse sessions. The number of sessions in use has no limit,
because a limit would fail parallel reads. The number of idle sessions and their idle time are limited. A session is
reused only by a read with the same session settings, and only if its last result was read to its end; so nothing needs
to be reset. All others are closed, their socket first, because the driver would wait for the server's answer.

*Crash:* the server ends sessions that the process did not close.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import mssql_python
from mssql_python.exceptions import ConnectionStringParseError, sqlstate_to_exception

from cdc_assets.adapters.sqlserver.driver import connection_string, keywords, server_name, without_database
from cdc_assets.adapters.sqlserver.errors import redact, to_cdc_error
from cdc_assets.adapters.sqlserver.named_connection import NamedConnection
from cdc_assets.adapters.sqlserver.queries import PING
from cdc_assets.adapters.sqlserver.reached import Floor, Reached
from cdc_assets.adapters.sqlserver.tcp_connection import TcpConnection
from cdc_assets.adapters.sqlserver.watchdog import bounded
from cdc_assets.config.settings import ConnectionSettings
from cdc_assets.core.interruption import cancelled_by
from cdc_assets.core.refused_logins import offered
from cdc_assets.errors import CdcError, ConnectionLostError, QueryError

ERRORS = (mssql_python.Error, ConnectionStringParseError, RuntimeError, ValueError)
"""Exceptions of mssql-python: its native part raises RuntimeError, its shortening of messages ValueError."""

_STATES = (
    "08001",
    "08003",
    "08004",
    "08007",
    "08S01",
    "28000",
    "40001",
    "HYT00",
    "HYT01",
    "HY008",
    "IM002",
    "IM003",
    "IM004",
)
_STATE_OF = {sqlstate_to_exception(state, "").driver_error: state for state in _STATES}
"""SQLSTATEs by the texts into which mssql-python converts them."""

MAX_IDLE: Final = 64
"""Maximum number of idle sessions."""
IDLE_S: Final = 60.0
"""Maximum idle time in seconds; firewalls drop idle connections silently."""
CHECKED_S: Final = 5.0
"""Idle seconds after which a session must answer before it is used: if it is open on one side only, the read would wait for as long as
a statement may take."""


@dataclass(eq=False)
class BulkSession:
    """An open session of the data plane.

    Args:
        tcp: the TCP connection under it.
        settings: settings with which it was opened.
        statements: SET statements that were executed in the session.
        reusable: whether another read may use it.
    """

    connection: mssql_python.Connection
    tcp: TcpConnection
    settings: ConnectionSettings
    statements: tuple[str, ...] = ()
    reusable: bool = True
    since: float = field(default_factory=time.monotonic)
    """Time since which it is idle."""
    reached: Reached = field(default_factory=Reached)

    def wait(self, action: Callable[[], Any]) -> Any:
        """Call the driver and return its result; the wait is limited.

        Raises:
            ConnectionLostError: the server was silent for too long, and the connection was closed.
            Interrupted: the run was to end; the connection was closed.
            Exception: one of `ERRORS`.
        """
        with _waiting(self.tcp, self.settings, self.settings.query_timeout_s):
            return action()

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> mssql_python.Cursor:
        """A cursor on a statement's result."""
        cursor = self.connection.cursor()
        self.wait(lambda: cursor.execute(statement, *parameters))
        return cursor

    def require(self, floor: Floor) -> None:
        """Check that its server has the log up to a floor.

        Raises:
            IncompleteReadError: it has not.
            Exception: as `wait`.
        """
        self.reached.check(floor, self.value, server_name(self.settings))

    def value(self, query: str, *parameters: object) -> object:
        """The first value of a query; None if it has no row.

        Raises:
            Exception: as `wait`.
        """
        with closing(self.execute(query, parameters)) as cursor:
            row = self.wait(cursor.fetchone)
        return row[0] if row else None

    def answers(self) -> bool:
        """Whether its server answers, as soon as it must answer a login."""
        try:
            with (
                _waiting(self.tcp, self.settings, self.settings.login_timeout_s),
                closing(self.connection.cursor()) as cursor,
            ):
                cursor.execute(PING)
                cursor.fetchall()
        except (*ERRORS, ConnectionLostError):
            return False
        return True

    def end(self) -> None:
        """Close it in any state, without waiting."""
        self.tcp.cut()
        with suppress(*ERRORS):
            self.connection.close()


def opened(settings: ConnectionSettings, statements: Sequence[str] = ()) -> BulkSession:
    """Open a session and execute its SET statements.

    Raises:
        Exception: one of `ERRORS`, of a statement.
        CdcError: the login failed, or the password was refused a short time ago (`core.refused_logins`).
    """
    with offered(server_name(settings), settings.user, settings.password):
        session = _logged_in(settings)
    try:
        session.connection.timeout = settings.query_timeout_s
        for statement in statements:
            session.execute(statement).close()
    except BaseException:
        session.end()
        raise
    session.statements = tuple(statements)
    return session


def _logged_in(settings: ConnectionSettings) -> BulkSession:
    pairs = keywords(settings)
    try:
        return _open(settings, pairs)
    except ERRORS as error:
        elsewhere = without_database(pairs, str(error))
        if elsewhere is None:
            raise translate(error, settings) from error
        try:
            session = _open(settings, elsewhere)
        except ERRORS:
            raise translate(error, settings) from error
    session.reusable = False
    return session


@cache
def _without_pool() -> None:
    """Before the first connection of this process: the driver's pool raises an error when all of its connections are in use."""
    mssql_python.pooling(enabled=False)


def _open(settings: ConnectionSettings, pairs: dict[str, str]) -> BulkSession:
    _without_pool()
    tcp = TcpConnection.of(settings)
    with _waiting(tcp, settings, settings.login_timeout_s):
        connection = NamedConnection(
            connection_string(pairs | tcp.keywords()),
            settings.application,
            autocommit=True,
            timeout=settings.login_timeout_s,
        )
    tcp.opened()
    return BulkSession(connection, tcp, settings)


def translate(error: Exception, settings: ConnectionSettings, session: BulkSession | None = None) -> CdcError:
    """Translate an error of mssql-python; `session` shows whether its connection is broken, which has many error
    texts."""
    state = _STATE_OF.get(getattr(error, "driver_error", ""), "")
    text = getattr(error, "ddbc_error", "") or redact(str(error))
    ours = to_cdc_error(state, text, server_name(settings), (settings.password,))
    if isinstance(ours, QueryError) and ours.number is None and session is not None and session.tcp.is_closed():
        return to_cdc_error("08S01", text, server_name(settings), (settings.password,))
    return ours


@contextmanager
def _waiting(tcp: TcpConnection, settings: ConnectionSettings, limit_s: float) -> Iterator[None]:
    with cancelled_by(tcp.cut), bounded(tcp, limit_s, server_name(settings)):
        yield


class SessionPool:
    """Idle sessions. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: deque[BulkSession] = deque()
        """The session that has been idle longest comes first."""

    def take(self, settings: ConnectionSettings, statements: Sequence[str]) -> BulkSession:
        """An idle or new session with these settings.

        Raises:
            Exception: as `opened`.
        """
        wanted = tuple(statements)
        while True:
            with self._lock:
                stale = self._stale()
                found = next(
                    (each for each in reversed(self._idle) if (each.settings, each.statements) == (settings, wanted)),
                    None,
                )
                if found is not None:
                    self._idle.remove(found)
            _end(stale)
            if found is None:
                return opened(settings, wanted)
            is_fresh = time.monotonic() - found.since < CHECKED_S
            if not found.tcp.is_closed() and (is_fresh or found.answers()):
                return found
            found.end()

    def give(self, session: BulkSession) -> None:
        """Return a session whose last result was read to its end."""
        if not session.reusable or session.tcp.ended:
            session.end()
            return
        session.since = time.monotonic()
        with self._lock:
            self._idle.append(session)
            stale = self._stale()
        _end(stale)

    def clear(self, settings: ConnectionSettings | None = None) -> None:
        """Close idle sessions: those of one lost server, or all."""
        with self._lock:
            gone = [each for each in self._idle if settings is None or each.settings == settings]
            self._idle = deque(each for each in self._idle if each not in gone)
        _end(gone)

    def _stale(self) -> list[BulkSession]:
        """Remove and return sessions that are idle for too long or too many; needs the lock."""
        oldest = time.monotonic() - IDLE_S
        found = []
        while self._idle and (len(self._idle) > MAX_IDLE or self._idle[0].since < oldest):
            found.append(self._idle.popleft())
        return found


def _end(sessions: Sequence[BulkSession]) -> None:
    for session in sessions:
        session.end()


POOL: Final = SessionPool()
"""The pool of this process."""
