"""Who may use a database: ONLINE and OFFLINE, SINGLE_USER, RESTRICTED_USER and MULTI_USER; and KILL.

A state is part of the catalogue, so it is there again after a restart. It is looked at when a session enters a database
(login, USE) and when a statement names a table there. Sessions that stand in the way of a change of state are waited for, or
ended as ROLLBACK IMMEDIATE says: their connection is closed, their own thread rolls back.
"""

import time
from typing import Final

from cdc_assets.standin.catalog import Database, fold
from cdc_assets.standin.definitions.ports import DefinitionSession, OpenSession, OpenSessions
from cdc_assets.standin.errors import SqlError
from cdc_assets.standin.queries.names import check_online
from cdc_assets.standin.text.reader import Reader

_POLL_S: Final = 0.01
_PATIENCE_S: Final = 10.0


def check_entry(engine: OpenSessions, database: Database, session: object = None) -> None:
    """Refuse a session that wants to enter a database.

    Raises:
        SqlError: 942 for one that is offline, 924 for one in single-user mode that another session uses.
    """
    check_online(database)
    if database.user_access == "SINGLE_USER" and _others(engine, database.name, session):
        raise SqlError(924, f"Database '{database.name}' is already open and can only have one user at a time.", 14)


def _others(engine: OpenSessions, database: str, session: object) -> list[OpenSession]:
    return [other for other in engine.sessions() if other is not session and fold(other.database) == fold(database)]


def read_termination(reader: Reader) -> float | None:
    """`WITH ROLLBACK IMMEDIATE | ROLLBACK AFTER n [SECONDS] | NO_WAIT`: seconds until others are ended.

    Returns:
        None without the clause: they are waited for. Negative for NO_WAIT.
    """
    if not reader.accept("WITH"):
        return None
    if reader.accept("NO_WAIT"):
        return -1.0
    reader.expect("ROLLBACK")
    if reader.accept("IMMEDIATE"):
        return 0.0
    reader.expect("AFTER")
    seconds = float(reader.take().text)
    reader.accept("SECONDS")
    return seconds


def clear(session: DefinitionSession, database: str, after_s: float | None) -> None:
    """Return when no other session uses the database.

    Args:
        session: the one that changes the state.
        database: its name.
        after_s: as `read_termination` gives it.

    Raises:
        SqlError: 5070 under NO_WAIT, or when sessions do not end; 1222 after LOCK_TIMEOUT.
    """
    engine, started = session.engine, time.monotonic()
    ended = False
    while others := _others(engine, database, session):
        waited = time.monotonic() - started
        if after_s is not None and (after_s < 0 or waited > after_s + _PATIENCE_S):
            raise SqlError(
                5070, f"Database state cannot be changed while other users are using the database '{database}'"
            )
        if after_s is None and session.lock_timeout_s is not None and waited > session.lock_timeout_s:
            raise SqlError(1222, "Lock request time out period exceeded.", 16, 45)
        if after_s is not None and waited >= after_s and not ended:
            ended = True
            for other in others:
                other.kill()
        session.check()
        time.sleep(_POLL_S)


def kill(session: DefinitionSession, number: int) -> None:
    """KILL.

    Raises:
        SqlError: 6102 for a login that is no sysadmin, 6104 for the session itself, 6106 for one that is not there.
    """
    if session.rights is not None:
        raise SqlError(6102, "User does not have permission to use the KILL statement.", 14)
    if number == session.session_id:
        raise SqlError(6104, "Cannot use KILL to kill your own process.")
    found = next((other for other in session.engine.sessions() if other.session_id == number), None)
    if found is None:
        raise SqlError(6106, f"Process ID {number} is not an active process ID.")
    found.kill()
