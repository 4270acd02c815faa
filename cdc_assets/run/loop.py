"""The loop over windows: until nothing is new, time is up, or another run waits.

Retryable errors are waited out (`retriable.restart.connector.wait.ms`,
`errors.max.retries`); the pending window is then carried out again with its
bounds. A database whose change data capture was turned off ends its tables; one
that is offline or gone is left out and looked at from time to time, and goes on
where it stopped; one that was restored to an earlier moment is left for good.
The others go on. Any other error ends the loop and leaves lake and positions as
they are. Where nothing streams yet, it waits for a table to be enabled, as long as
it would wait for a change.
"""

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal

from cdc_assets.capture.endings import leave_out_database
from cdc_assets.capture.forks import check_recovery_fork
from cdc_assets.capture.lake import Lake
from cdc_assets.capture.ledger import Ledger
from cdc_assets.capture.progress import ShouldYield
from cdc_assets.capture.server import Server
from cdc_assets.config.settings import CaptureConfig, StreamingSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.errors import CdcDisabledError, CdcError, DatabaseAwayError, DatabaseRestoredError, RetryableError
from cdc_assets.ledger.state import TableState
from cdc_assets.run.activities import Activities
from cdc_assets.run.newcomers import Newcomers
from cdc_assets.run.selection import included_by
from cdc_assets.snapshot.plan import Request
from cdc_assets.streaming.planner import IDLE_CHECK

log = logging.getLogger(__name__)

_NAP_S = 0.01
"""First wait for the end of an incremental round; doubled up to the poll interval, for it may come at any moment."""

_MAKE_WAY_S = 5.0
"""How long a window waits for a round that leaves no task to it; later its tasks stand in Spark's queue."""

_FEW_EVENTS = 1000
"""A window with fewer is hardly worth its job and its commits: the next one begins a poll interval after it."""

Ended = Literal["idle", "deadline", "yielded", "nothing"]


def _cut_small(streaming: StreamingSettings) -> bool:
    """Whether a window of few events may be but the start of a backlog, which nobody must wait for."""
    return 0 < streaming.max_iteration_transactions < 10 * _FEW_EVENTS


class StreamLoop:
    """Reads windows of some databases in turn.

    Args:
        server: whose log is read.
        activities: carry out windows, and snapshots between them.
        newcomers: takes tables in that were enabled while the loop runs, if they are to be captured.
        away: databases that cannot be captured now, and why.
    """

    def __init__(
        self,
        config: CaptureConfig,
        server: Server,
        lake: Lake,
        ledger: Ledger,
        activities: Activities,
        newcomers: Newcomers,
        away: Mapping[str, CdcError],
    ) -> None:
        self._config, self._server, self._lake, self._ledger = config, server, lake, ledger
        self._activities, self._newcomers = activities, newcomers
        self._watch, self._incremental, self._blocking = activities.watch, activities.incremental, activities.blocking
        self._planner, self._jobs = activities.planner(), activities.jobs()
        self._awaited: set[str] = set()
        self._beyond_repair: set[TableId] = set()
        """Tables with a gap that could not be read again; the next run tries."""
        self.away = dict(away)
        self._looked: dict[str, datetime] = dict.fromkeys(self.away, ledger.clock.now())
        self._failures = 0

    def run(self, databases: Sequence[str], should_yield: ShouldYield) -> Ended:
        """Loop; see `Capture.stream`."""
        self._activities.account.begin()
        self._watch.look_again()
        try:
            return self._run(databases, should_yield)
        finally:
            self._incremental.stop()

    def _run(self, databases: Sequence[str], should_yield: ShouldYield) -> Ended:
        clock, streaming, account = self._ledger.clock, self._config.streaming, self._activities.account
        quiet_since, nap = clock.now(), _NAP_S
        deadline = clock.now() + timedelta(seconds=streaming.max_duration_s) if streaming.max_duration_s else None
        while True:
            if should_yield():
                return "yielded"
            if deadline is not None and clock.now() >= deadline:
                return "deadline"
            if not self._streams() and self._has_stopped():
                self._end_missing_tables(databases)
                return "nothing"
            self._incremental.make_way(_MAKE_WAY_S)
            begun, before = clock.now(), account.streamed
            here = [database for database in databases if database not in self.away or self._is_back(database)]
            heard = self._patiently(lambda: self._watch.listen(databases))
            worked = [heard, *(self._turn(database) for database in here)]
            if any(worked):
                quiet_since, nap = clock.now(), _NAP_S
                if 0 < account.streamed - before < _FEW_EVENTS and not self._awaited and not _cut_small(streaming):
                    clock.sleep(max(0.0, streaming.poll_interval_s - (quiet_since - begun).total_seconds()))
                continue
            self._jobs.check(here)
            if self._awaited:  # rows are being read, or the capture job has not read their markers yet
                quiet_since = clock.now()
                self._incremental.rest(min(nap, streaming.poll_interval_s))
                nap *= 2
                continue
            quiet_for = clock.now() - quiet_since
            if streaming.idle_timeout_s and quiet_for >= timedelta(seconds=streaming.idle_timeout_s):
                return "idle" if self._streams() else "nothing"
            if not self._patiently(self._settle):
                clock.sleep(streaming.poll_interval_s)

    def _settle(self) -> bool:
        self._ledger.manifest.settle(self._ledger.clock.now())
        return False

    def _patiently(self, action: Callable[[], bool]) -> bool:
        """What an action outside of a database's turn gives; True if it has to be tried again, after a wait."""
        try:
            return action()
        except RetryableError as error:
            self._wait_out(error)
            return True

    def _turn(self, database: str) -> bool:
        """One window of one database; False if there was nothing to do."""
        pending = self._ledger.state.pending
        if pending is not None and pending.database != database:
            return False  # it is finished first, in a turn of its own database
        fork = self._ledger.state.log(database).fork
        try:
            self._incremental.recover(database)
            self._blocking.resume(database)
            self._incremental.close(database)
            worked = self._step(database)
            if fork != self._ledger.state.log(database).fork:
                self._incremental.discard_rounds(database)  # markers may be gone, which nobody has read yet
            self._repair_gaps(database)
            self._newcomers.join(database, self._planner.tables_without_position)
            asked = self._handle_signals(database)
        except DatabaseRestoredError as error:
            return self._part(database, error)
        except (DatabaseAwayError, CdcDisabledError) as error:
            return self._find_out(database, error)
        except RetryableError as error:
            self._wait_out(error)
            return True
        self._failures = 0
        self._activities.housekeeper.tidy_when_due()
        return self._patiently(lambda: self._beat(database)) or worked or asked

    def _beat(self, database: str) -> bool:
        self._activities.heartbeat.beat(self._ledger.clock.now(), self._ledger.state.watermark(database))
        return False

    def _streams(self) -> bool:
        """Whether there is a table to stream, or to read again so that it streams, in a database that is there."""
        states = self._ledger.state.tables.values()
        databases = {state.table.database for state in states if state.streams or self._has_repairable_gap(state)}
        return not databases <= self.away.keys()

    def _has_stopped(self) -> bool:
        """Whether a table will not go on by itself; if there is none, the first one to stream may still come."""
        included = included_by(self._config)
        states = [state for state in self._ledger.state.tables.values() if included(state.table)]
        return bool(self.away) or any(state.status in ("gap", "failed") for state in states)

    def _find_out(self, database: str, error: CdcError) -> bool:
        """Leave a database out, unless it is the whole server that went away: that is waited for."""
        try:
            trouble = self._trouble(database, error)
        except RetryableError as lost:
            self._wait_out(lost)
            return True
        return self._part(database, trouble)

    def _part(self, database: str, error: CdcError) -> bool:
        """Leave a database out; if no other is left and it may come back, wait for it."""
        self.away[database], self._looked[database] = error, self._ledger.clock.now()
        if self._streams() or isinstance(error, CdcDisabledError | DatabaseRestoredError):
            leave_out_database(self._ledger, self._lake, database, error)
            return True
        del self.away[database]
        if not isinstance(error, RetryableError):
            raise error
        self._wait_out(error)
        return True

    def _trouble(self, database: str, error: CdcError) -> CdcError:
        """What is wrong with a database; one without capture may have been restored without it."""
        trouble = self._server.source.trouble(database) or error
        if isinstance(trouble, CdcDisabledError):
            try:
                check_recovery_fork(self._ledger, self._server.source, database)
            except DatabaseRestoredError as restored:
                return restored
        return trouble

    def _is_back(self, database: str) -> bool:
        """Whether a database that was left out can be captured again; looked at from time to time."""
        now = self._ledger.clock.now()
        if now - self._looked[database] < IDLE_CHECK or self._ledger.state.log(database).restored:
            return False
        self._looked[database] = now
        try:
            if self._server.source.trouble(database) is not None:
                return False
        except RetryableError:  # the server is away; whoever reads from it waits
            return False
        log.info("Database %s is back.", database)
        del self.away[database]
        return True

    def _step(self, database: str) -> bool:
        """Carry the window out that is in flight, or else the next one; whether there was one."""
        pending = self._ledger.state.pending
        repeated = pending is not None and pending.kind == "stream"
        window = pending if repeated else self._planner.plan(database)
        if window is not None:
            self._activities.windows.execute(window, repeated=repeated)
        return window is not None

    def _repair_gaps(self, database: str) -> None:
        if self._mendable(database):
            self._planner.end_missing_tables(database)  # a table that is gone cannot be read again
        if tables := self._mendable(database):
            self._activities.snapshotter.run(database, [Request(table) for table in tables])
            after = self._ledger.state.tables
            self._beyond_repair |= {table for table in tables if after[table].status == "gap"}

    def _mendable(self, database: str) -> list[TableId]:
        states = self._ledger.state.tables.values()
        return sorted(
            state.table for state in states if state.table.database == database and self._has_repairable_gap(state)
        )

    def _has_repairable_gap(self, state: TableState) -> bool:
        policy = self._config.streaming.gap_policy
        return state.is_to_be_repaired(policy) and state.table not in self._beyond_repair

    def _end_missing_tables(self, databases: Sequence[str]) -> None:
        """Publish a DROP for failed tables that have since disappeared."""
        for database in databases:
            if self._ledger.state.log(database).restored:
                continue
            with contextlib.suppress(CdcDisabledError, DatabaseAwayError):
                self._planner.end_missing_tables(database)

    def _handle_signals(self, database: str) -> bool:
        """Look for signals and go on with the snapshots they ask for; whether anything was done."""
        self._incremental.note_markers(database, self._watch.read_table(database))
        if self._activities.structures.turn(database) or self._blocking.turn(database):
            self._incremental.discard_rounds(database)  # its rows are older now
            return True
        turn = self._incremental.turn(database)
        (self._awaited.add if turn == "waiting" else self._awaited.discard)(database)
        return turn == "worked"

    def _wait_out(self, error: RetryableError) -> None:
        streaming = self._config.streaming
        self._failures += 1
        if 0 <= streaming.max_retries < self._failures:
            raise error
        log.warning("%s Trying again in %s s (failure %d).", error, streaming.retry_wait_s, self._failures)
        self._ledger.clock.sleep(streaming.retry_wait_s)
