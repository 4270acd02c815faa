"""Sessions of the data plane: opened when they are needed, kept for a while when they are not.

A slice reads many tables one after the other, so a session is handed on from read to read. There is no limit on how many
are in use: one that refused the seventeenth would fail what is only parallel. What is bounded is the number that wait for
work, and for how long. A session is handed on only to a read that wants the same settings of it, and only if its last
result was read to its end; so nothing needs to be reset. All others are closed, their socket first, for the driver would
wait for the server's consent.

*Crash:* a session that the process does not close is ended by the server.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import mssql_python
from mssql_python.exceptions import ConnectionStringParseError

from cdc_assets.adapters.sqlserver.driver import connection_string, keywords, server_name, without_database
from cdc_assets.adapters.sqlserver.line import Line
from cdc_assets.adapters.sqlserver.watchdog import bounded
from cdc_assets.config.settings import ConnectionSettings
from cdc_assets.core.interruption import cancelled_by

ERRORS = (mssql_python.Error, ConnectionStringParseError, RuntimeError, ValueError)
"""What comes out of mssql-python: its native part raises RuntimeError, its shortening of messages ValueError."""

IDLE_MOST: Final = 64
"""Sessions that wait for work at most."""
IDLE_S: Final = 60.0
"""How long one waits for work; firewalls drop idle connections silently."""

_OWN_NAME: Final = "APP=MSSQL-Python"

mssql_python.pooling(enabled=False)  # its pool refuses who comes when all are in use


class NamedConnection(mssql_python.Connection):
    """A connection with an application name of ours, which mssql-python lets nobody choose."""

    def __init__(self, text: str, application: str, **options: Any) -> None:
        self._application = application  # first: the base class asks for its connection string at once
        super().__init__(text, **options)

    def _construct_connection_string(self, connection_str: str = "", **options: Any) -> tuple[str, dict[str, str]]:
        text, pairs = super()._construct_connection_string(connection_str, **options)
        return text.replace(_OWN_NAME, connection_string({"APP": self._application}), 1), pairs | {
            "APP": self._application
        }


@dataclass(eq=False)
class BulkSession:
    """An open session of the data plane.

    Args:
        line: the TCP connection under it.
        settings: how it was opened.
        statements: settings of the session that were carried out.
        reusable: whether another read may have it.
    """

    connection: mssql_python.Connection
    line: Line
    settings: ConnectionSettings
    statements: tuple[str, ...] = ()
    reusable: bool = True
    since: float = field(default_factory=time.monotonic)
    """When it began to wait for work."""

    def wait(self, action: Callable[[], Any]) -> Any:
        """What a call of the driver returns; the wait for it is bounded.

        Raises:
            ConnectionLostError: the server said nothing for too long, and the connection was given up.
            Interrupted: the run was asked to end; the connection was given up.
            Exception: of `ERRORS`.
        """
        with _waiting(self.line, self.settings, self.settings.query_timeout_s):
            return action()

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> mssql_python.Cursor:
        """A cursor on a statement's result."""
        cursor = self.connection.cursor()
        self.wait(lambda: cursor.execute(statement, *parameters))
        return cursor

    def end(self) -> None:
        """Close it, whatever state it is in, and wait for nobody."""
        self.line.cut()
        with suppress(*ERRORS):
            self.connection.close()


def opened(settings: ConnectionSettings, statements: Sequence[str] = ()) -> BulkSession:
    """A new session with its settings carried out.

    Raises:
        Exception: of `ERRORS`.
        ConnectionLostError: the server said nothing for too long.
    """
    pairs = keywords(settings)
    try:
        session = _open(settings, pairs)
    except ERRORS as error:
        elsewhere = without_database(pairs, str(error))
        if elsewhere is None:
            raise
        try:
            session = _open(settings, elsewhere)
        except ERRORS:
            raise error from None
        session.reusable = False
    try:
        session.connection.timeout = settings.query_timeout_s
        for statement in statements:
            session.execute(statement).close()
    except BaseException:
        session.end()
        raise
    session.statements = tuple(statements)
    return session


def _open(settings: ConnectionSettings, pairs: dict[str, str]) -> BulkSession:
    line = Line.of(settings)
    with _waiting(line, settings, settings.login_timeout_s):
        connection = NamedConnection(
            connection_string(pairs | line.keywords()),
            settings.application,
            autocommit=True,
            timeout=settings.login_timeout_s,
        )
    line.opened()
    return BulkSession(connection, line, settings)


@contextmanager
def _waiting(line: Line, settings: ConnectionSettings, limit_s: float) -> Iterator[None]:
    with cancelled_by(line.cut), bounded(line, limit_s, server_name(settings)):
        yield


class SessionPool:
    """Sessions that wait for work. Safe for use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: deque[BulkSession] = deque()
        """The one that has waited longest first."""

    def take(self, settings: ConnectionSettings, statements: Sequence[str]) -> BulkSession:
        """A session of these settings, one that waits or a new one.

        Raises:
            Exception: of `ERRORS`.
            ConnectionLostError: the server said nothing for too long.
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
            if not found.line.is_closed():
                return found
            found.end()

    def give(self, session: BulkSession) -> None:
        """Take a session back whose last result was read to its end."""
        if not session.reusable or session.line.ended:
            session.end()
            return
        session.since = time.monotonic()
        with self._lock:
            self._idle.append(session)
            stale = self._stale()
        _end(stale)

    def clear(self, settings: ConnectionSettings | None = None) -> None:
        """End what waits: of one server that was lost, or all."""
        with self._lock:
            gone = [each for each in self._idle if settings is None or each.settings == settings]
            self._idle = deque(each for each in self._idle if each not in gone)
        _end(gone)

    def _stale(self) -> list[BulkSession]:
        """Take out what waits for too long or is too many; under the lock."""
        oldest = time.monotonic() - IDLE_S
        found = []
        while self._idle and (len(self._idle) > IDLE_MOST or self._idle[0].since < oldest):
            found.append(self._idle.popleft())
        return found


def _end(sessions: Sequence[BulkSession]) -> None:
    for session in sessions:
        session.end()


POOL: Final = SessionPool()
"""Of this process."""
