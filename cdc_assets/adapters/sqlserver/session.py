"""One pyodbc connection that reconnects by itself.

Control queries only read, and each is one statement in autocommit, so a statement that failed because the connection
broke or the server was busy is retried (`cdc_assets.adapters.sqlserver.retry`). The first connection is not retried: a
wrong host should be reported at once, and a capture has its own retry. A watchdog limits each wait for the server
(`cdc_assets.adapters.sqlserver.watchdog`), because the driver's own time-out works only while the server answers;
questions that ask little wait for a short while only (`cdc_assets.adapters.sqlserver.patience`).
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import TypeVar

import pyodbc

from cdc_assets.adapters.sqlserver import table_queries
from cdc_assets.adapters.sqlserver.driver import (
    check_reachable,
    connection_string,
    driver_option,
    find_driver,
    keywords,
    server_name,
    without_database,
)
from cdc_assets.adapters.sqlserver.errors import to_cdc_error
from cdc_assets.adapters.sqlserver.patience import Patience
from cdc_assets.adapters.sqlserver.queries import PING
from cdc_assets.adapters.sqlserver.reached import Floor, Reached
from cdc_assets.adapters.sqlserver.retry import BUDGET_S, repeated
from cdc_assets.adapters.sqlserver.tcp_connection import TcpConnection
from cdc_assets.adapters.sqlserver.watchdog import bounded
from cdc_assets.config.settings import ConnectionSettings
from cdc_assets.core.interruption import cancelled_by, in_thread
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.refused_logins import offered
from cdc_assets.errors import CdcError, ConnectionLostError, IncompleteReadError, QueryError

IDLE_CHECK_S = 60.0
"""Idle seconds after which a connection is checked by a round trip before use: firewalls drop idle ones silently."""

T = TypeVar("T")
Row = Sequence[object]

_TIMED_OUT = ("HYT00", "HYT01", "HY008")
"""SQLSTATEs after which it is unknown whether the server has stopped the statement."""


@dataclass(frozen=True, slots=True)
class Link:
    """A driver connection and its TCP connection."""

    connection: pyodbc.Connection
    tcp: TcpConnection
    settings: ConnectionSettings
    reached: Reached = field(default_factory=Reached)

    @property
    def server(self) -> str:
        """For messages."""
        return server_name(self.settings)

    def wait(self, action: Callable[[pyodbc.Cursor], T], limit_s: float | None = None) -> T:
        """Call a function with a cursor; the wait for the server is limited by `limit_s` or the settings.

        Raises:
            ConnectionLostError: the server was silent for too long, and the connection was closed.
            Interrupted: the run was to end; the connection was closed. pyodbc.Error: error of the driver.
        """
        limit_s = self.settings.query_timeout_s if limit_s is None else limit_s
        cursor = self.connection.cursor()
        with (
            cancelled_by(lambda: self.tcp.cut() or cursor.cancel()),
            bounded(self.tcp, limit_s, self.server),
        ):
            try:
                return action(cursor)
            finally:
                # Left to the garbage collector it would be closed by whatever thread that happens to be, which would
                # wait for the statement that the connection is busy with then.
                with suppress(pyodbc.Error):
                    cursor.close()

    def close(self) -> None:
        """Close it in any state, without waiting."""
        self.tcp.cut()
        with suppress(pyodbc.Error):
            self.connection.close()


def connect(settings: ConnectionSettings) -> Link:
    """Open a connection in autocommit, READ COMMITTED, with time-outs.

    Raises:
        CdcError: translation of the driver's error; or the password was refused a short time ago (`core.refused_logins`).
    """
    return in_thread(lambda: _connect(settings))


def _connect(settings: ConnectionSettings) -> Link:
    check_reachable(settings)
    with offered(server_name(settings), settings.user, settings.password):
        return _logged_in(settings)


def _logged_in(settings: ConnectionSettings) -> Link:
    driver = driver_option(settings) or find_driver(pyodbc.drivers())
    pairs = {"Driver": driver, "APP": settings.application} | keywords(settings)
    try:
        link = _open(pairs, settings)
    except pyodbc.Error as error:
        elsewhere = without_database(pairs, str(error))
        if elsewhere is None:
            raise translate(error, settings) from error
        try:
            link = _open(elsewhere, settings)
        except pyodbc.Error:
            raise translate(error, settings) from error
    link.connection.timeout = settings.query_timeout_s
    return link


@cache
def _without_pool() -> None:
    """Before the first connection of this process: a session keeps its own, and the driver manager's pool would hide broken ones."""
    pyodbc.pooling = False


def _open(pairs: dict[str, str], settings: ConnectionSettings) -> Link:
    _without_pool()
    tcp = TcpConnection.of(settings)
    with bounded(tcp, settings.login_timeout_s, server_name(settings)):
        connection = pyodbc.connect(
            connection_string(pairs | tcp.keywords()), autocommit=True, timeout=settings.login_timeout_s
        )
    tcp.opened()
    for kind in (pyodbc.SQL_WCHAR, pyodbc.SQL_WVARCHAR, pyodbc.SQL_WLONGVARCHAR):
        connection.add_output_converter(kind, _text)
    return Link(connection, tcp, settings)


def _text(units: bytes | None) -> str | None:
    """A text of UTF-16, of which nvarchar may hold half a pair, at which pyodbc's own conversion fails: it comes as U+FFFD, as in rows."""
    return None if units is None else units.decode("utf-16-le", "replace")


def translate(error: pyodbc.Error, settings: ConnectionSettings, link: Link | None = None) -> CdcError:
    """Translate an error of pyodbc; `link` shows whether its connection is broken, which has many error texts."""
    state = _state(error)
    text = str(error.args[1]) if len(error.args) > 1 else str(error)
    ours = to_cdc_error(state, text, server_name(settings), (settings.password,))
    if isinstance(ours, QueryError) and ours.number is None and link is not None and link.tcp.is_closed():
        return to_cdc_error("08S01", text, server_name(settings), (settings.password,))
    return ours


def _value(rows: Sequence[Row]) -> object:
    return rows[0][0] if rows else None


def _state(error: pyodbc.Error) -> str:
    return str(error.args[0]) if error.args else ""


class Session:
    """A connection opened at first use and reopened when it breaks. One statement at a time, from any thread.

    Args:
        budget_s: seconds after its begin within which a statement may be repeated.
    """

    def __init__(self, settings: ConnectionSettings, budget_s: float = BUDGET_S) -> None:
        self._settings, self._budget_s = settings, budget_s
        self._lock = threading.RLock()
        self._link: Link | None = None
        self.connections = 0
        """How often it has connected: each time perhaps to another replica."""
        self.left: dict[str, tuple[str, ...]] = {}
        """Recovery forks that databases have left."""
        self._last_use = 0.0
        self._lock_timeout_ms, self._in_force_ms = table_queries.lock_wait_ms(settings.query_timeout_s), -1
        self._patience, self._asks_little = Patience(settings.query_timeout_s), False
        self._in_doubt = False
        """Whether the connection before broke."""

    @contextmanager
    def asking_little(self) -> Iterator[None]:
        """Statements inside ask what a server in good health answers within moments: repeated soon if it does not."""
        with self._lock:
            before, self._asks_little = self._asks_little, True
            try:
                yield
            finally:
                self._asks_little = before

    @contextmanager
    def waiting(self, milliseconds: int) -> Iterator[None]:
        """Limit the wait of statements inside for a lock; 0 not at all, -1 as long as a statement may take.

        Raises:
            LockTimeoutError: raised by a statement inside.
        """
        with self._lock:
            before, self._lock_timeout_ms = self._lock_timeout_ms, milliseconds
            try:
                yield
            finally:
                self._lock_timeout_ms = before

    def rows(self, statement: str, *parameters: object) -> list[Row]:
        """All rows of the statement's first result set.

        Raises:
            CdcError: after the last attempt, or at once if repeating cannot help.
        """
        return self._repeat(lambda cursor: list(cursor.execute(statement, *parameters).fetchall()), statement)

    def floor(self, database: str, lsn: Lsn, *, captured: bool = True) -> Floor:
        """What a server must have that is asked about the log up to an LSN."""
        return Floor(database, lsn, captured, left=self.left.get(database, ()))

    def rows_behind(self, floor: Floor, statement: str, *parameters: object) -> list[Row]:
        """As `rows`, over a connection whose server has the log up to `floor`.

        Raises:
            CdcError: as `rows`; IncompleteReadError if no server had.
        """

        def read(cursor: pyodbc.Cursor) -> list[Row]:
            assert self._link is not None  # noqa: S101 - it is ready
            self._link.reached.check(floor, lambda *query: _value(cursor.execute(*query).fetchall()), self._link.server)
            return list(cursor.execute(statement, *parameters).fetchall())

        return self._repeat(read, statement)

    def value(self, statement: str, *parameters: object) -> object:
        """First column of the first row, or None if there is no row."""
        return _value(self.rows(statement, *parameters))

    def write(self, statement: str, *parameters: object) -> int:
        """Execute a writing statement once, without retries: if the connection breaks, its result is unknown.

        Returns:
            Number of rows; -1 if the server does not count them.

        Raises:
            CdcError: the statement failed.
        """
        with self._lock:
            return self._try(lambda cursor: int(cursor.execute(statement, *parameters).rowcount), statement)

    def named_rows(self, statement: str, *parameters: object) -> list[dict[str, object]]:
        """Rows as dictionaries by column name."""

        def read(cursor: pyodbc.Cursor) -> list[dict[str, object]]:
            cursor.execute(statement, *parameters)
            names = [column[0] for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

        return self._repeat(read, statement)

    def close(self) -> None:
        """Close the connection; the session may be used again."""
        with self._lock:
            if self._link is not None:
                self._link.close()
            self._link = None

    def _repeat(self, action: Callable[[pyodbc.Cursor], T], question: str) -> T:
        with self._lock:
            return repeated(lambda: self._try(action, question), lambda: self.connections > 0, self._budget_s)

    def _try(self, action: Callable[[pyodbc.Cursor], T], question: str) -> T:
        try:
            result = self._answer(self._ready(), action, question)
        except pyodbc.Error as error:
            ours = translate(error, self._settings, self._link)
            if isinstance(ours, ConnectionLostError) or _state(error) in _TIMED_OUT:
                self._give_up()
            raise ours from error
        except (ConnectionLostError, IncompleteReadError):  # the next connection may be to another replica
            self._give_up()
            raise
        self._last_use = time.monotonic()
        return result

    def _give_up(self) -> None:
        self.close()
        self._in_doubt = True

    def _answer(self, link: Link, action: Callable[[pyodbc.Cursor], T], question: str) -> T:
        if not self._asks_little:
            return link.wait(action)
        began = time.monotonic()
        try:
            result = link.wait(action, self._patience.limit_s(question))
        except ConnectionLostError:
            self._patience.lost(question)
            raise
        self._patience.answered(question, time.monotonic() - began)
        return result

    def _ready(self) -> Link:
        """The open connection, checked if it was idle."""
        if self._link is not None and self._link.tcp.ended:
            self.close()
        if self._link is not None and time.monotonic() - self._last_use > IDLE_CHECK_S:
            try:
                self._ping(self._link)
            except (pyodbc.Error, ConnectionLostError):
                self.close()
        if self._link is None:
            self._link = connect(self._settings)
            self.connections, self._in_force_ms = self.connections + 1, -1
            if self._in_doubt:
                self._ping(self._link)
                self._in_doubt = False
        if self._in_force_ms != self._lock_timeout_ms:
            setting = table_queries.lock_timeout(self._lock_timeout_ms)
            self._link.wait(lambda cursor: cursor.execute(setting).close(), self._settings.login_timeout_s)
            self._in_force_ms = self._lock_timeout_ms
        return self._link

    def _ping(self, link: Link) -> None:
        """Ask nothing; raises as `Link.wait` if that is not answered as soon as a login must be."""
        link.wait(lambda cursor: cursor.execute(PING).fetchall(), self._settings.login_timeout_s)
