"""Finds the place in the log of a moment at which tables are read.

*Why tables without a key need it.* READs of a table with a key may show changes that are streamed again, because the
newer event of a key wins. Without a key nothing can be folded away: a row whose insertion is streamed, and that was read,
is there twice. So such tables are read at one moment M, and their READs are placed at an LSN L. Every change of them that was
committed before M is at or below L, and every later one above it. How far the capture job has got at M is
no such LSN: the job lags behind the log, so a change from before M may be captured, and streamed, after M.

*M* is inside a time in which a shared lock keeps writers from the tables. A lock is granted when no transaction that has
changed its table is open, and a commit is in the log before its locks are released. So each change of the tables was
committed before the lock was granted or after it was released. Either the rows are read while it is held, or it is held
until readers have opened SNAPSHOT transactions, which still see M (`barrier`).

| way | L | the lock ends when |
|---|---|---|
| `Marked`: there is a signal table | the commit LSN of a row that is written into it while the lock is held | the readers have opened their transactions, or else have read |
| `Timed`: the database allows SNAPSHOT | the last change that was committed before the middle of the time for which the lock was held, by the commit times in the log | that time is over: one second |
| `Passed`: neither | how far the capture job is when it has passed a moment after the lock was granted | the rows are read |

*Marked.* The row is committed while the lock is held: later than all changes from before it, and before all later ones.

*Timed.* Commit times are the server's, as are the two moments that enclose the lock. Commits near the borders are distinguished from
one another by half a second, which is far more than what such times are rounded by. Four things refuse that moment: a commit in
between, which there is only if no lock could be taken (`snapshot.locking.mode=none`); one that is not yet over by the server's
clock; times in another order than the log; and another offset of the server's time zone, as by daylight saving time. So does a
clock that was set back since the lock was granted, because later commits then have earlier times. What no time tells is a clock that
is set back just before the lock, after a commit that is only captured when the clock has passed its time again.

*Passed.* All changes from before the moment are captured, and no later one is made before the lock ends. When the job has
passed a moment is seen, never believed (`capture.moment`). Until then, and no longer than `snapshot.keyless.wait.ms`, is
waited; with `Marked` for the row.

*A crash at any time* ends the sessions, and with them locks and transactions; nothing was recorded of the round (`lake.step`), so
its slices are read again, at another moment. A row in the signal table stays: it requests nothing.

*Readable secondaries* cannot be locked, and show an earlier moment than their clock: there such tables are refused. A listener may
route each session elsewhere, so the one that holds the locks is queried too, and so are those with SNAPSHOT transactions. Rows that
are read under the locks alone may come from a replica that has the log up to L: it shows no later changes, for there are none.
"""

import json
import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from threading import Event
from typing import Protocol

from cdc_assets.config.settings import SignalSettings, SnapshotSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.ports import Clock
from cdc_assets.core.schema import CaptureInstance
from cdc_assets.core.signal import signal_table
from cdc_assets.errors import CaptureNotReadyError, CdcError, PreflightError, QueryError, ServerBusyError
from cdc_assets.shared.instances import before, newest
from cdc_assets.shared.moment import Moment
from cdc_assets.shared.server import Server

log = logging.getLogger(__name__)

_POLL_S = 0.1
_MARGIN_S = 0.5
"""How long the tables stay locked before readers fix their moment, and after that, where commit times tell it."""


class MarkerRefusedError(PreflightError):
    """The login may not write into the signal table."""


class Way(Protocol):
    """A way to find the place of a moment."""

    def begin(self) -> None:
        """Called while the locks are held, before any reader has fixed what it sees."""

    def fix(self) -> None:
        """Called while the locks are held, when all readers have fixed what they see."""

    def place(self, gone: Event | None = None) -> Lsn:
        """Wait for the LSN.

        Args:
            gone: set when nobody needs it any longer.

        Raises:
            CaptureNotReadyError: the capture job does not get that far in time.
            ServerBusyError: the moment has no known place; another one may have.
        """


class Moments:
    """Chooses the way for some tables.

    Args:
        server: server with the tables, their log and the signal table.
    """

    def __init__(self, server: Server, clock: Clock, settings: SnapshotSettings, signals: SignalSettings) -> None:
        self._server, self._clock, self._settings, self._signals = server, clock, settings, signals
        self._unmarked: set[str] = set()
        """Databases into whose signal table the login may not write."""

    def require_primary(self, database: str) -> None:
        """Check that tables can be read at a known moment here.

        Raises:
            PreflightError: the server is a readable secondary.
        """
        if self._server.source.is_replica(database):
            raise PreflightError(
                "a table without a key is read under a lock, which a secondary replica cannot take. Next: read it from the "
                "primary, or give its events a key (message.key.columns)"
            )

    def way(self, database: str, tables: Sequence[TableId], *, meets: bool) -> Way:
        """How the place of a moment of some tables is found.

        Args:
            meets: whether readers open SNAPSHOT transactions, so that no lock is needed while they read.

        Raises:
            PreflightError: there is no way.
        """
        waiting = Waiting(self._server, self._clock, database, self._settings.keyless_wait_s)
        locks = self._settings.locking != "none"
        if locks and (marker := self._marker(database)):
            return Marked(waiting, *marker, deletes=self._signals.watermarking == "insert_delete")
        if meets:
            return Timed(waiting, self._clock, self._instances(database, tables))
        if locks:
            return Passed(waiting)
        raise PreflightError(
            "a table without a key is read at one moment, for which it must be locked, and snapshot.locking.mode=none forbids "
            "that. Next: remove that setting, or ALTER DATABASE … SET ALLOW_SNAPSHOT_ISOLATION ON"
        )

    def refuse_marker(self, database: str, error: MarkerRefusedError) -> None:
        """Write into this database's signal table no more."""
        log.warning("%s Tables without a key stay locked until the capture job has passed them.", error)
        self._unmarked.add(database)

    def _marker(self, database: str) -> tuple[TableId, CaptureInstance] | None:
        """The signal table with its capture instance, if rows of it can be found in the log."""
        instances = self._server.instances(database)
        table = signal_table(self._signals.collections, database, instances)
        instance = newest(instances[table]) if table else None
        usable = instance is not None and len(instance.columns) == 3 and database not in self._unmarked
        return (table, instance) if table and instance and usable else None

    def _instances(self, database: str, tables: Sequence[TableId]) -> list[CaptureInstance]:
        found = self._server.instances(database)
        return [instance for table in tables for instance in found.get(table, [])]


class Waiting:
    """Waits for the capture job of a database.

    Args:
        limit_s: how long, in seconds.
    """

    def __init__(self, server: Server, clock: Clock, database: str, limit_s: float) -> None:
        self.source, self.database = server.source, database
        self._clock, self._limit_s = clock, limit_s

    def captured(self) -> Lsn:
        """How far the capture job is."""
        return self.source.max_captured_lsn(self.database) or ZERO_LSN

    def until(self, find: Callable[[], Lsn | None], gone: Event | None) -> Lsn:
        """What is found in the end.

        Raises:
            CaptureNotReadyError: nothing was found in time.
            ServerBusyError: nobody needs it any longer.
        """
        end = self._clock.elapsed() + timedelta(seconds=self._limit_s)
        while (found := find()) is None:
            if gone is not None and gone.is_set():
                raise ServerBusyError("The readers of a table without a key have ended. Next: it is read again")
            if self._clock.elapsed() > end:
                raise CaptureNotReadyError(
                    f"the capture job of {self.database} has not passed the moment at which a table without a key was read "
                    f"within {self._limit_s:g} s. Next: check that the job runs; if it lags, raise snapshot.keyless.wait.ms; if "
                    "nothing is committed there, set signal.data.collection, or grant VIEW DATABASE STATE"
                )
            self._clock.sleep(_POLL_S)
        return found

    def moment(self) -> Moment:
        """A moment that is to be passed: now. It must be seen that the job has."""
        return Moment(self.source, self._clock, self.database, settle_s=None)

    def behind(self, moment: Moment, gone: Event | None) -> Lsn:
        """How far the job is when it has passed a moment; raises as `until`."""
        return self.until(lambda: moment.seen if moment.is_behind() else None, gone)


class Marked:
    """A row of the signal table, written at the moment.

    Args:
        table: into which the row is written.
        instance: in whose change table its commit LSN is found.
        deletes: whether the row is deleted afterwards.
    """

    def __init__(self, waiting: Waiting, table: TableId, instance: CaptureInstance, *, deletes: bool) -> None:
        self._waiting, self._table, self._instance, self._deletes = waiting, table, instance, deletes
        self._id, self._after = f"{uuid.uuid4()}-moment", ZERO_LSN

    def begin(self) -> None:
        """Nothing is to be done."""

    def fix(self) -> None:
        """Write the row."""
        self._after = self._waiting.captured()
        data = json.dumps({"closeWindowTimestamp": self._waiting.source.server_time().isoformat()})
        try:
            self._waiting.source.write_signal(self._table, (self._id, "snapshot-window-close", data))
        except (QueryError, PreflightError) as error:
            raise MarkerRefusedError(f"No row can be written into {self._table}: {error}") from error

    def place(self, gone: Event | None = None) -> Lsn:
        """Its commit LSN."""
        source, column = self._waiting.source, self._instance.columns[0]
        found = self._waiting.until(lambda: source.signal_lsn(self._instance, column, self._id, self._after), gone)
        if self._deletes:
            self._delete(column)
        return found

    def _delete(self, column: str) -> None:
        """Delete the row; it requests nothing, so nothing is wrong if it stays."""
        try:
            self._waiting.source.delete_signal(self._table, column, self._id)
        except CdcError as error:
            log.warning("A row without effect is left in %s: %s", self._table, error)


class Passed:
    """How far the capture job is once it has passed the moment; the locks are held until it has."""

    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting
        self._moment: Moment | None = None

    def begin(self) -> None:
        """Nothing is to be done."""

    def fix(self) -> None:
        """Note the moment."""
        self._moment = self._waiting.moment()

    def place(self, gone: Event | None = None) -> Lsn:
        """How far it is."""
        assert self._moment is not None  # noqa: S101 - it was fixed
        return self._waiting.behind(self._moment, gone)


@dataclass
class Timed:
    """The last commit before the middle of the time for which tables were locked.

    Args:
        instances: all of the tables. In their change tables are all commits of the tables from the newest one's start on, which
            lies before the moment, though it may not be captured yet.
    """

    waiting: Waiting
    clock: Clock
    instances: Sequence[CaptureInstance]
    _begun: Moment | None = None
    _ended: Moment | None = None

    def begin(self) -> None:
        """Note the beginning, and let it pass."""
        self._begun = self.waiting.moment()
        self.clock.sleep(_MARGIN_S)

    def fix(self) -> None:
        """Note the end, after a while."""
        self.clock.sleep(_MARGIN_S)
        self._ended = self.waiting.moment()

    def place(self, gone: Event | None = None) -> Lsn:
        """The last of those commits."""
        assert self._begun is not None  # noqa: S101 - it was begun
        assert self._ended is not None  # noqa: S101 - it was fixed
        until = self.waiting.behind(self._ended, gone)
        source, database = self.waiting.source, self.waiting.database
        after = max([self._begun.captured, *(before(instance.start_lsn) for instance in self.instances)])
        commits = source.rows_per_commit(database, {instance.name: after for instance in self.instances}, until)
        if lacking := [instance.name for instance in self.instances if instance.name not in commits]:
            raise PreflightError(
                f"Changes of {', '.join(lacking)} cannot be counted: the change table is gone, locked, or may not be read. "
                "Next: `cdc-assets doctor` names what is missing; then read the table again"
            )
        times = source.commit_times(database, sorted({lsn for found in commits.values() for lsn, _ in found}), until)
        near, latest = timedelta(seconds=_MARGIN_S / 2), self._begun.latest()
        earlier = [lsn for lsn, time in times.items() if time <= self._begun.at + near]
        later = [lsn for lsn, time in times.items() if self._ended.at - near <= time <= latest]
        place = max(earlier, default=after)
        is_apart = len(earlier) + len(later) == len(times) and all(lsn > place for lsn in later)
        if not (is_apart and self._begun.is_comparable()):
            raise ServerBusyError(
                "A table without a key, or the server's clock, was changed at the moment at which it was to be read. "
                "Next: it is read again"
            )
        return place
