"""A moment of a database, and whether everything that was committed before it has been read.

The capture job reads the log late, by an unknown time, so its progress does not show what is committed. It captures commits in the
order of the log. So it has passed a moment when it has captured a commit that was made later, by the server's own clock; or when
two of its scans since then were empty, because the second one began after the moment. A server that has become the primary since may
still show scans of a time when it was that before; so their number must be seen to grow. A login that never sees the job's scans
(`sys.dm_cdc_log_scan_sessions`) waits `settle_s` and relies on a healthy job.

From then on the newest captured transaction includes or follows everything that was committed before the moment, so a reader that has
reached it has read all of that. If the clean-up has removed all transactions, they lie before each low-water mark.
"""

from datetime import datetime, timedelta

from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.ports import Captured, Clock, Source
from cdc_assets.shared.instances import before

_LATER = timedelta(seconds=1)
"""How much later a commit must be made to be surely later: commit times are rounded."""
_STEP = timedelta(seconds=0.5)
"""By how much the server's clock may fall behind ours before it counts as set back: each answer takes a while."""


class Moment:
    """The moment at which this is made.

    Args:
        clock: measures `settle_s`.
        settle_s: seconds in which a capture job whose looks cannot be seen finds what is committed; None if that is not
            believed.

    Raises:
        CdcError: the server cannot be queried.
    """

    def __init__(self, source: Source, clock: Clock, database: str, settle_s: float | None) -> None:
        self._source, self._clock, self._database, self._settle_s = source, clock, database, settle_s
        self._scans = source.empty_scans(database)
        self.captured, self.at = source.max_captured_lsn(database) or ZERO_LSN, source.server_time()
        """How far the capture job was, and the server's time."""
        self.seen = self.captured
        """How far the job was at most; behind the moment that is all that was committed before it. A replica that lags is not asked what it
        has captured."""
        self._begun = clock.elapsed()
        self._known = self.captured
        """Commits up to here say nothing: they were captured before, or have times of a clock that was set back."""
        self.target: Lsn | None = None
        """What is read by whoever has read everything that was committed before the moment; None if not known yet."""

    def is_passed(self, reached: Lsn) -> bool:
        """Whether everything that was committed before the moment lies at or below an LSN.

        Raises:
            CdcError: the server cannot be queried.
        """
        if self.target is None and self.is_behind():
            newest = self._source.max_transaction_lsn(self._database, None, 0, self.seen)
            self.target = newest or before(min(self._source.low_water_marks(self._database).values(), default=ZERO_LSN))
        return self.target is not None and reached >= self.target

    @property
    def sees_scans(self) -> bool:
        """Whether any server has shown scans of the capture job since."""
        return self._scans is not None

    def is_behind(self) -> bool:
        """Whether the capture job has passed the moment.

        Raises:
            CdcError: the server cannot be queried.
        """
        return self._job_found_nothing() or self._job_found_something_later()

    def latest(self) -> datetime:
        """The latest time that a commit can have by now: one of a later time was made before the clock was set back.

        Raises:
            CdcError: the server cannot be queried.
        """
        return self._source.server_time() + _LATER

    def is_comparable(self) -> bool:
        """Whether times of commits say which were made before the moment: not if the server's clock was set back since then,
        nor if the offset of its time zone has changed, which they lack.

        Raises:
            CdcError: the server cannot be queried.
        """
        elapsed, now = self._clock.elapsed() - self._begun, self._source.server_time()
        return now - self.at >= elapsed - _STEP and now.utcoffset() == self.at.utcoffset()

    def _job_found_something_later(self) -> bool:
        captured = self._source.max_captured_lsn(self._database) or ZERO_LSN
        self.seen = max(self.seen, captured)
        if captured <= self._known:
            return False
        time, latest = self._source.commit_times(self._database, [captured], captured).get(captured), self.latest()
        if time is not None and time > latest:
            self._known = captured
        return time is not None and self.at + _LATER < time <= latest

    def _job_found_nothing(self) -> bool:
        scans = self._source.empty_scans(self._database)
        if scans is not None and self._scans is not None:
            session, empty = scans
            known, counted = self._scans
            if session != known:
                # perhaps of another server, from the time when it was the primary before
                counted = empty if empty > 1 else 0
                self._scans = session, counted
            return empty >= counted + 2 and not self._note_captured().is_of_replica
        if (
            scans is not None or self._scans is not None
        ):  # a secondary, which shows none, has answered one of the two questions
            self._scans = self._scans or scans
            return False
        if self._settle_s is None or self._clock.elapsed() - self._begun < timedelta(seconds=self._settle_s):
            return False
        self._note_captured()
        return not self._source.capture_job(self._database).trouble

    def _note_captured(self) -> Captured:
        """How far the server that answers is captured: a secondary may not have all that the primary's job found before it found nothing."""
        captured = self._source.captured_by(self._database)
        self.seen = max(self.seen, captured.lsn or ZERO_LSN)
        return captured
