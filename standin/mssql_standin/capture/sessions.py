"""What the Agent remembers of its scans: the rows of `sys.dm_cdc_log_scan_sessions` and `sys.dm_cdc_errors`.

Like a real server's they live in memory, the newest 32 per database. A scan that finds
nothing is folded into one session with an `empty_scan_count`; its `start_lsn` is
`00000000:00000000:0000` and one U+0000 (spec debezium-live §3 no. 10).
"""

import threading
from collections import deque
from dataclasses import dataclass
from typing import Final

from mssql_standin.capture import lsn
from mssql_standin.capture.scan import Moved
from mssql_standin.errors import SqlError

KEPT: Final = 32
EMPTY_LSN: Final = "00000000:00000000:0000\0"


@dataclass(slots=True)
class ScanSession:
    """One scan, or a run of empty ones; times as stored datetimes."""

    session_id: int
    started: int
    ended: int
    first: bytes | None = None
    last: bytes | None = None
    last_commit_time: int | None = None
    transactions: int = 0
    changes: int = 0
    empty: int = 0
    errors: int = 0

    @property
    def start_lsn(self) -> str:
        """As the DMV prints it."""
        return lsn.text(self.first) if self.first else EMPTY_LSN

    @property
    def end_lsn(self) -> str:
        """As the DMV prints it."""
        return lsn.text(self.last) if self.last else EMPTY_LSN


@dataclass(frozen=True, slots=True)
class ScanError:
    """A row of `sys.dm_cdc_errors`."""

    session_id: int
    entered: int
    error: SqlError


class ScanHistory:
    """The scans of one database."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: deque[ScanSession] = deque(maxlen=KEPT)
        self._errors: deque[ScanError] = deque(maxlen=KEPT)
        self._next = 1

    def record(self, started: int, ended: int, moved: Moved) -> None:
        """Remember a scan that moved something, or fold in an empty one."""
        with self._lock:
            newest = self._sessions[-1] if self._sessions else None
            if not moved.transactions and newest is not None and newest.empty:
                newest.ended, newest.empty = ended, newest.empty + 1
                return
            session = ScanSession(self._number(), started, ended, empty=0 if moved.transactions else 1)
            session.first, session.last, session.last_commit_time = moved.first, moved.last, moved.end_time
            session.transactions, session.changes = moved.transactions, moved.changes
            self._sessions.append(session)

    def failed(self, at: int, error: SqlError) -> None:
        """Remember a scan that failed."""
        with self._lock:
            session = ScanSession(self._number(), at, at, errors=1)
            self._sessions.append(session)
            self._errors.append(ScanError(session.session_id, at, error))

    def sessions(self) -> list[ScanSession]:
        """Oldest first."""
        with self._lock:
            return list(self._sessions)

    def errors(self) -> list[ScanError]:
        """Oldest first."""
        with self._lock:
            return list(self._errors)

    def _number(self) -> int:
        self._next += 1
        return self._next - 1
