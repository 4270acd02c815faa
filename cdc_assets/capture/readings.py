"""Finds out up to where in the log the rows of snapshots may have changes (`ledger.readings`).

The log position of the last read is known from a moment after it (`capture.moment`): when the capture job has passed that, the newest
captured transaction is at or after all that was committed before. How far the job was when the row was read would not do,
because it lags behind the log. On a secondary, or without VIEW DATABASE STATE, scans are not shown, and only a later
entry of the job tells that, since it may lag by any time; it notes the end of a quiet log every five minutes.

*Nothing is remembered* but that the end is not known yet. A later moment is as right, only later in the log, so after a crash the next run
takes another one. A moment is taken while no snapshot of its database is in flight, and counts only for the rounds before it: one that
begins meanwhile has a greater number.

The stream does not wait for it: each turn tries once. A run that would end because nothing is new continues for a while, since on an idle
database no other run may come; so does a snapshot outside of a stream. Where the job does not run, it stays unknown.
"""

import logging
from contextlib import suppress
from datetime import timedelta

from cdc_assets.core.ports import Source
from cdc_assets.errors import CdcError, RetryableError
from cdc_assets.ledger.ledger import Ledger
from cdc_assets.ledger.readings import open_databases
from cdc_assets.shared.forks import restore_problem
from cdc_assets.shared.moment import Moment

log = logging.getLogger(__name__)

_MIN_POLLS = 3
"""Attempts after a snapshot for which nothing waits: enough to find the moment, and for an idle job to have polled twice since."""
_POLL_S = 0.5
_JOB_POLL_S = 5.0
"""Seconds after which a capture job has polled, with SQL Server's default."""
_MAX_QUIET = timedelta(seconds=330)
"""After that a capture job has noted the end of a log in which there is nothing new."""


class OpenReadings:
    """The readings of a run of which it is not known where they ended.

    Args:
        max_wait_s: how long a run continues for it where scans can be seen.
        waits: whether anybody needs to know it soon.
    """

    def __init__(self, source: Source, ledger: Ledger, max_wait_s: float, *, waits: bool) -> None:
        self._source, self._ledger, self._waits = source, ledger, waits
        self._max_wait = timedelta(seconds=max_wait_s + _JOB_POLL_S)
        self._moments: dict[str, tuple[Moment, int, timedelta]] = {}
        """By database: the moment, the number of the newest round before it, and when it was."""

    def find_end(self, database: str) -> None:
        """Record where readings of a database ended, if that is known by now. A server that does not answer is queried again later.

        Raises:
            LakeError: the lake cannot be written.
            FencedError: another writer has taken over.
        """
        state = self._ledger.state
        if database not in open_databases(state.readings) or database in state.snapshots:
            self._moments.pop(database, None)
            return
        try:
            if database not in self._moments:
                moment = Moment(self._source, self._ledger.clock, database, settle_s=None)
                self._moments[database] = moment, state.next_window - 1, self._ledger.clock.elapsed()
                return
            moment, window, _ = self._moments[database]
            moment.is_passed(moment.captured)
            if moment.target is not None and restore_problem(self._source, state, database)[1]:
                return  # what was read may be behind the newest transaction that there is now
        except CdcError as error:
            log.debug("The log position up to which %s was read is not known yet: %s", database, error)
            return
        if moment.target is not None:
            del self._moments[database]
            self._ledger.manifest.close_readings(self._ledger.clock.now(), database, window, moment.target)

    @property
    def is_awaited(self) -> bool:
        """Whether a run that has nothing else to do continues for it."""
        return self._is_awaited(_MAX_QUIET)

    def _is_awaited(self, max_quiet: timedelta) -> bool:
        """Whether it is waited for longer.

        Args:
            max_quiet: how long at most where scans cannot be seen.
        """
        now = self._ledger.clock.elapsed()
        return self._waits and any(
            now - begun < (self._max_wait if moment.sees_scans else max_quiet)
            for moment, _, begun in self._moments.values()
        )

    def wait_briefly(self) -> None:
        """Look for the end of snapshots outside of a stream, and wait for a while if somebody needs it. A lake that does not take it now
        is left to the next run: the snapshot is complete.

        Raises:
            LakeError: the lake cannot be written.
            FencedError: another writer has taken over.
        """
        with suppress(RetryableError):
            self._wait_briefly()

    def _wait_briefly(self) -> None:
        polls = 0
        while open_databases(self._ledger.state.readings) and (polls < _MIN_POLLS or self._is_awaited(self._max_wait)):
            if polls >= _MIN_POLLS:
                self._ledger.clock.sleep(_POLL_S)
            for database in sorted(open_databases(self._ledger.state.readings)):
                self.find_end(database)
            polls += 1
