"""Databases that go offline.

A state is part of the catalogue, so it is there again after a restart. It is looked at when a session enters a database
(login, USE) and when a statement names a table there. Sessions that stand in the way of a change of state are waited for, or
ended as ROLLBACK IMMEDIATE says: their connection is closed, their own thread rolls back.
"""

import time
from typing import Final

from mssql_standin.catalog import fold
from mssql_standin.definitions.ports import DefinitionSession, OpenSession, OpenSessions
from mssql_standin.errors import SqlError, unsupported
from mssql_standin.text.reader import Reader

_POLL_S: Final = 0.01
_PATIENCE_S: Final = 10.0


def _others(engine: OpenSessions, database: str, session: object) -> list[OpenSession]:
    return [other for other in engine.sessions() if other is not session and fold(other.database) == fold(database)]


def read_termination(reader: Reader) -> bool:
    """`WITH ROLLBACK IMMEDIATE`: whether others are ended; without the clause they are waited for."""
    if not reader.accept("WITH"):
        return False
    if not reader.accept("ROLLBACK", "IMMEDIATE"):
        raise unsupported("ALTER DATABASE … WITH other clauses than ROLLBACK IMMEDIATE")
    return True


def clear(session: DefinitionSession, database: str, end: bool) -> None:
    """Return when no other session uses the database.

    Args:
        session: the one that changes the state.
        database: its name.
        end: whether the others are ended.

    Raises:
        SqlError: 5070 when sessions do not end; 1222 after LOCK_TIMEOUT.
    """
    started, ended = time.monotonic(), False
    while others := _others(session.engine, database, session):
        waited = time.monotonic() - started
        if end and waited > _PATIENCE_S:
            raise SqlError(
                5070, f"Database state cannot be changed while other users are using the database '{database}'"
            )
        if not end and session.lock_timeout_s is not None and waited > session.lock_timeout_s:
            raise SqlError(1222, "Lock request time out period exceeded.", 16, 45)
        if end and not ended:
            ended = True
            for other in others:
                other.kill()
        session.check()
        time.sleep(_POLL_S)
