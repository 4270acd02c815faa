"""Tries tables again that failed at a position from which they can continue (`TableState.resumes`).

A table fails alone: its structure or its changes could not be read, or not be made into events (`windows`). Nothing of the
window is committed for it, and its changes are still on the server. Often the cause passes by itself, or a person removes
it: a missing right, a replica that ended a transaction, a value that the settings did not allow. So the table counts
as healthy again, and the next window reads it from its position. If it fails there again, the pause until the next
attempt is twice as long; if it has come further, pauses start over. Each run tries at its beginning, since settings or
server may have changed.

*Crash between any two steps.* Before the row that says healthy, the table has failed, and the next run tries it at once.
After that row the next run reads it as any other.
"""

import logging
from dataclasses import dataclass, replace
from datetime import timedelta

from cdc_assets.core.lsn import Lsn
from cdc_assets.ledger.ledger import Ledger
from cdc_assets.ledger.table_state import TableState

log = logging.getLogger(__name__)

FIRST_PAUSE = timedelta(seconds=10)
"""Time between the first failure of a table and the next attempt."""
LONGEST_PAUSE = timedelta(minutes=10)
"""Longest time between two attempts."""


@dataclass(frozen=True, slots=True)
class _Pause:
    """When a table is tried again.

    Args:
        position: at which it failed.
        length: of the pause.
        end: when it ends, by `Clock.elapsed`; None once the table was tried.
    """

    position: Lsn | None
    length: timedelta
    end: timedelta | None


class Retries:
    """The pauses of one run."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        now = ledger.clock.elapsed()
        failed = [state for state in ledger.state.tables.values() if state.resumes]
        self._pauses = {state.table: _Pause(state.position, timedelta(), now) for state in failed}

    def begin(self, database: str) -> None:
        """Let the tables of a database whose pauses are over take part in the next window. No window may be in flight.

        Raises:
            FencedError: another writer has taken over.
        """
        states = self._ledger.state.tables.values()
        due = [state for state in states if state.table.database == database and state.resumes and self._is_due(state)]
        for state in due:
            log.info("%s is tried again from %s.", state.table, state.position)
        self._ledger.manifest.mark(self._ledger.clock.now(), database, [state.tried_again() for state in due])

    def _is_due(self, state: TableState) -> bool:
        """Whether a table's pause is over; if it has failed since the last call, its pause begins."""
        now, known = self._ledger.clock.elapsed(), self._pauses.get(state.table)
        if known is None or known.end is None:
            again = known is not None and known.position == state.position
            length = min(max(2 * known.length, FIRST_PAUSE), LONGEST_PAUSE) if known and again else FIRST_PAUSE
            self._pauses[state.table] = _Pause(state.position, length, now + length)
            return False
        if now < known.end:
            return False
        self._pauses[state.table] = replace(known, end=None)
        return True
