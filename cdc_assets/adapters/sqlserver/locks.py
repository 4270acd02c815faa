"""Shared table locks, held by a separate session until they are released.

The statement reads one row, because a plan that reads nothing takes no lock. HOLDLOCK keeps the lock until the
transaction ends (https://learn.microsoft.com/en-us/sql/t-sql/queries/hints-transact-sql-table). The locks end with the
session, so a process that dies leaves none. In a deadlock this session is the victim, not the application's
transaction; the snapshot is retried.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import pyodbc

from cdc_assets.adapters.sqlserver import queries, table_queries
from cdc_assets.adapters.sqlserver.reached import require_writes
from cdc_assets.adapters.sqlserver.session import Link, connect, translate
from cdc_assets.adapters.sqlserver.watchdog import bounded
from cdc_assets.config.settings import ConnectionSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.errors import ConnectionLostError, LockTimeoutError


class HeldTableLocks:
    """Locks of an open session (`core.ports.HeldLocks`)."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def check(self) -> None:
        """Check that the session, and so its locks, is alive.

        Raises:
            ConnectionLostError: it is not.
        """
        try:
            self._link.wait(lambda cursor: cursor.execute(queries.PING).fetchall())
        except pyodbc.Error as error:
            raise translate(error, self._link.settings) from error

    def require_primary(self, database: str) -> None:
        """Check that the session is where the database is written to: a listener may route each session elsewhere.

        Raises:
            PreflightError: it is not.
            CdcError: the server is unavailable.
        """
        try:
            rows = self._link.wait(lambda cursor: cursor.execute(queries.UPDATEABILITY, database).fetchall())
        except pyodbc.Error as error:
            raise translate(error, self._link.settings) from error
        require_writes(database, self._link.server, rows[0][0])


@contextmanager
def locked(settings: ConnectionSettings, tables: Sequence[TableId], timeout_ms: int) -> Iterator[HeldTableLocks]:
    """Hold a shared lock on each table; they are taken in the given order.

    Args:
        settings: connection settings.
        timeout_ms: maximum wait for each lock in milliseconds; 0 not at all, -1 for ever.

    Raises:
        LockTimeoutError: a table could not be locked in time.
        CdcError: the server is unavailable, or refused.
    """
    link = connect(settings)
    try:
        link.connection.autocommit = False
        link.connection.timeout = 0  # LOCK_TIMEOUT limits the wait
        for setting in (table_queries.YIELD_IN_DEADLOCK, table_queries.lock_timeout(timeout_ms)):
            _set(link, setting)
        for table in tables:
            _lock(link, table, timeout_ms)
        link.connection.timeout = settings.query_timeout_s
        yield HeldTableLocks(link)
    finally:
        with suppress(pyodbc.Error, ConnectionLostError), bounded(link.tcp, settings.query_timeout_s, link.server):
            link.connection.rollback()
        link.close()


def _set(link: Link, setting: str) -> None:
    try:
        link.wait(lambda cursor: cursor.execute(setting).close())
    except pyodbc.Error as error:
        raise translate(error, link.settings) from error


def _lock(link: Link, table: TableId, timeout_ms: int) -> None:
    usual_s = link.settings.query_timeout_s
    limit_s = (
        usual_s + timeout_ms / 1000 if usual_s and timeout_ms >= 0 else 0
    )  # the wait may be configured without limit
    try:
        link.wait(lambda cursor: cursor.execute(table_queries.shared_lock(table.quoted)).fetchall(), limit_s)
    except pyodbc.Error as error:
        ours = translate(error, link.settings)
        if isinstance(ours, LockTimeoutError):
            raise LockTimeoutError(
                f"{table} could not be locked within {timeout_ms} ms, because another session changes it. It is "
                "retried. Next: if that session does not end, end it, or raise snapshot.lock.timeout.ms (-1 waits for ever)"
            ) from error
        raise ours from error
