"""Shared table locks, held by a session of their own until they are released.

One row is asked for, because a plan that reads nothing takes no lock. HOLDLOCK keeps the lock until the
transaction ends (https://learn.microsoft.com/en-us/sql/t-sql/queries/hints-transact-sql-table). Whatever ends the
session ends the locks, so nothing is left behind by a process that dies. In a deadlock this session gives way, not the
application whose transaction is in it; the snapshot is tried again.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import pyodbc

from cdc_assets.config.settings import ConnectionSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.interruption import cancelled_by
from cdc_assets.errors import LockTimeoutError
from resources import sqlserver_queries as queries
from resources.sqlserver_session import connect, translate


class HeldTableLocks:
    """Locks of an open session (`core.ports.HeldLocks`)."""

    def __init__(self, connection: pyodbc.Connection, settings: ConnectionSettings) -> None:
        self._connection, self._settings = connection, settings

    def check(self) -> None:
        """Prove that the session, and with it the locks, is alive.

        Raises:
            ConnectionLostError: it is not.
        """
        try:
            self._connection.execute(queries.PING).fetchall()
        except pyodbc.Error as error:
            raise translate(error, self._settings) from error


@contextmanager
def locked(settings: ConnectionSettings, tables: Sequence[TableId], timeout_ms: int) -> Iterator[HeldTableLocks]:
    """Hold a shared lock on each table; they are taken in the given order.

    Args:
        settings: how to reach the server.
        tables: which.
        timeout_ms: how long to wait for each; 0 not at all, -1 for ever.

    Raises:
        LockTimeoutError: a table could not be locked in time.
        CdcError: the server is away, or refused.
    """
    connection = connect(settings)
    try:
        connection.autocommit = False
        connection.timeout = 0  # LOCK_TIMEOUT limits the wait
        connection.execute(queries.YIELD_IN_DEADLOCK).close()
        connection.execute(queries.lock_timeout(timeout_ms)).close()
        for table in tables:
            _lock(connection, settings, table, timeout_ms)
        connection.timeout = settings.query_timeout_s
        yield HeldTableLocks(connection, settings)
    finally:
        with suppress(pyodbc.Error):
            connection.rollback()
        with suppress(pyodbc.Error):
            connection.close()


def _lock(connection: pyodbc.Connection, settings: ConnectionSettings, table: TableId, timeout_ms: int) -> None:
    try:
        cursor = connection.cursor()
        with cancelled_by(cursor.cancel):
            cursor.execute(queries.shared_lock(table.quoted)).fetchall()
    except pyodbc.Error as error:
        ours = translate(error, settings)
        if isinstance(ours, LockTimeoutError):
            raise LockTimeoutError(
                f"{table} could not be locked within {timeout_ms} ms, because another session changes it. Next: it is "
                "tried again; if that session does not end, end it, or raise snapshot.lock.timeout.ms (-1 waits for ever)"
            ) from error
        raise ours from error
