"""Faults on demand: the next matching statement meets one.

A fault waits until a statement's text contains what it was given (letter case does not
matter; an empty text matches any statement), strikes as often as `times` says, and is gone.
"""

import threading
from dataclasses import dataclass
from typing import Final

from mssql_standin.contract import Fault, Session
from mssql_standin.errors import SqlError

_TEXTS: Final = {
    1205: (
        "Transaction (Process ID {spid}) was deadlocked on lock resources with another process and has been chosen as "
        "the deadlock victim. Rerun the transaction.",
        13,
    ),
    1222: ("Lock request time out period exceeded.", 16),
    701: ("There is insufficient system memory in resource pool 'default' to run this query.", 17),
    9002: ("The transaction log for database '{database}' is full due to 'LOG_BACKUP'.", 17),
    40613: (
        "Database '{database}' on server 'standin' is not currently available. Please retry the connection later.",
        17,
    ),
}
"""Texts and severities of errors that tests inject without wording them."""


@dataclass(slots=True)
class _Waiting:
    matching: str
    number: int
    message: str
    severity: int
    fault: Fault
    times: int


class Faults:
    """The faults that wait for their statements. Safe for use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[_Waiting] = []
        self.struck: list[str] = []
        """Texts of the statements that met a fault."""

    def error(
        self,
        number: int,
        message: str = "",
        *,
        matching: str = "",
        severity: int | None = None,
        after_rows: int = 0,
        times: int = 1,
    ) -> None:
        """Answer with an error instead of running the statement.

        Args:
            number: SQL Server's; 1205 also rolls back the session's transaction.
            message: its text; known numbers have one.
            matching: part of the statement's text.
            severity: class; 20 and more end the connection. Default: the number's, else 16.
            after_rows: run the statement and fail it after so many rows.
            times: how many statements meet the fault.
        """
        text, usual = _TEXTS.get(number, ("An injected error.", 16))
        chosen = usual if severity is None else severity
        self._add(Fault(after_rows=after_rows), matching, times, number, message or text, chosen)

    def deadlock(self, *, matching: str = "", after_rows: int = 0, times: int = 1) -> None:
        """Make the session a deadlock victim: error 1205, transaction rolled back."""
        self.error(1205, matching=matching, after_rows=after_rows, times=times)

    def drop(self, *, matching: str = "", after_rows: int = 0, times: int = 1) -> None:
        """Close the connection instead of answering, or after so many rows."""
        self._add(Fault(drop=True, after_rows=after_rows), matching, times)

    def hang(self, *, matching: str = "", times: int = 1) -> None:
        """Half-open connection: take the request and never answer."""
        self._add(Fault(hang=True), matching, times)

    def slow(self, delay_s: float, *, matching: str = "", times: int = 1) -> None:
        """Wait before each packet of the answer, in seconds."""
        self._add(Fault(delay_s=delay_s), matching, times)

    def clear(self) -> None:
        """Forget the faults that did not strike."""
        with self._lock:
            self._waiting.clear()

    def _add(
        self, fault: Fault, matching: str, times: int, number: int = 0, message: str = "", severity: int = 16
    ) -> None:
        with self._lock:
            self._waiting.append(_Waiting(matching.casefold(), number, message, severity, fault, times))

    def take(self, session: Session, text: str) -> Fault | None:
        """The fault that a statement meets, or None."""
        if not self._waiting:
            return None
        folded = text.casefold()
        with self._lock:
            found = next((waiting for waiting in self._waiting if waiting.matching in folded), None)
            if found is None:
                return None
            found.times -= 1
            if found.times <= 0:
                self._waiting.remove(found)
            self.struck.append(text)
        return _fault(found, session)


def _fault(found: _Waiting, session: Session) -> Fault:
    if not found.number:
        return found.fault
    message = found.message.format(spid=session.session_id, database=session.database)
    return Fault(SqlError(found.number, message, found.severity), after_rows=found.fault.after_rows)
