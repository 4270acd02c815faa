"""The loop over windows: until nothing is new, time is up, or another run waits.

After a retryable error the loop waits (`retriable.restart.connector.wait.ms`,
`errors.max.retries`) and then repeats the pending window with the same bounds.
The tables of a database whose change data capture was turned off end. A database that
is offline or gone is left out, checked from time to time, and continues
where it stopped. A database that was restored to an earlier moment is left out for good.
The other databases continue. Any other error ends the loop and leaves lake and positions
unchanged. If no table streams yet, the loop waits for a table to be enabled as long as
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
from cdc_assets.run.new_tables import NewTables
from cdc_assets.run.selection import included_by
from cdc_assets.snapshot.plan import Request
from cdc_assets.streaming.planner import IDLE_CHECK

log = logging.getLogger(__name__)

_NAP_S = 0.01
"""First wait for the end of an incremental round; doubled up to the poll interval, since the round may end at any moment."""

_SLOT_WAIT_S = 5.0
"""How long a window waits for a free task slot while a round uses all of them; after that its tasks queue in Spark."""

_FEW_EVENTS = 1000
"""A window with fewer events is hardly worth its job and its commits: the next one starts a poll interval after it."""

Ended = Literal["idle", "deadline", "yielded", "nothing"]


def _cut_small(streaming: StreamingSettings) -> bool:
    """Whether a window of few events may be only the start of a backlog, which must be read without waiting."""
    return 0 < streaming.max_iteration_transactions < 10 * _FEW_EVENTS


class StreamLoop:
    """Reads the windows of several databases in turn.

    Args:
        server: the server whose log is read.
        activities: components that carry out windows, and snapshots between them.
        new_tables: adds tables that were enabled while the loop runs, if they are to be captured.
        unavailable: databases that cannot be captured now, with the reason.
    """

    def __init__(
        self,
        config: CaptureConfig,
        server: Server,
        lake: Lake,
        ledger: Ledger,
        activities: Activities,
        new_tables: NewTables,
        unavailable: Mapping[str, CdcError],
    ) -> None:
        self._config, self._server, self._lake, self._ledger = config, server, lake, ledger
        self._activities, self._new_tables = activities, new_tables
        self._watch, self._incremental, self._blocking = activities.watch, activities.incremental, activities.blocking
        self._planner, self._jobs = activities.planner(), activities.jobs()
        self._awaited: set[str] = set()
        self._beyond_repair: set[TableId] = set()
        """Tables whose gap a snapshot in this run did not close; the next run tries again."""
        self.unavailable = dict(unavailable)
        self._checked: dict[str, datetime] = dict.fromkeys(self.unavailable, ledger.clock.now())
        self._failures = 0

    def run(self, databases: Sequence[str], should_yield: ShouldYield) -> Ended:
        """Run the loop; see `Capture.stream`."""
        self._activities.account.begin()
        self._watch.reset()
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
            self._incremental.wait_for_slot(_SLOT_WAIT_S)
            begun, before = clock.now(), account.streamed
            here = [database for database in databases if database not in self.unavailable or self._is_back(database)]
            received = self._run_or_wait(lambda: self._watch.listen(databases))
            worked = [received, *(self._turn(database) for database in here)]
            if any(worked):
                quiet_since, nap = clock.now(), _NAP_S
                if 0 < account.streamed - before < _FEW_EVENTS and not self._awaited and not _cut_small(streaming):
                    clock.sleep(max(0.0, streaming.poll_interval_s - (quiet_since - begun).total_seconds()))
                continue
            self._jobs.check(here)
            if self._awaited:  # rows are being read, or the capture job has not captured their markers yet
                quiet_since = clock.now()
                self._incremental.wait_for_read(min(nap, streaming.poll_interval_s))
                nap *= 2
                continue
            quiet_for = clock.now() - quiet_since
            if streaming.idle_timeout_s and quiet_for >= timedelta(seconds=streaming.idle_timeout_s):
                return "idle" if self._streams() else "nothing"
            if not self._run_or_wait(self._settle):
                clock.sleep(streaming.poll_interval_s)

    def _settle(self) -> bool:
        self._ledger.manifest.settle(self._ledger.clock.now())
        return False

    def _run_or_wait(self, action: Callable[[], bool]) -> bool:
        """Result of an action outside of a database's turn; True after a wait if it must be tried again."""
        try:
            return action()
        except RetryableError as error:
            self._wait_out(error)
            return True

    def _turn(self, database: str) -> bool:
        """Carry out one window of one database; False if there was nothing to do."""
        pending = self._ledger.state.pending
        if pending is not None and pending.database != database:
            return False  # it is finished first, in its own database's turn
        fork = self._ledger.state.log(database).fork
        try:
            self._incremental.recover(database)
            self._blocking.resume(database)
            self._incremental.close(database)
            worked = self._step(database)
            if fork != self._ledger.state.log(database).fork:
                self._incremental.discard_rounds(database)  # markers that were not read yet may be gone
            self._repair_gaps(database)
            self._new_tables.join(database, self._planner.tables_without_position)
            asked = self._handle_signals(database)
        except DatabaseRestoredError as error:
            return self._leave_out(database, error)
        except (DatabaseAwayError, CdcDisabledError) as error:
            return self._leave_out_or_wait(database, error)
        except RetryableError as error:
            self._wait_out(error)
            return True
        self._failures = 0
        self._activities.housekeeper.tidy_when_due()
        return self._run_or_wait(lambda: self._beat(database)) or worked or asked

    def _beat(self, database: str) -> bool:
        self._activities.heartbeat.beat(self._ledger.clock.now(), self._ledger.state.watermark(database))
        return False

    def _streams(self) -> bool:
        """Whether an available database has a table that streams, or will stream once its gap is repaired."""
        states = self._ledger.state.tables.values()
        databases = {state.table.database for state in states if state.streams or self._has_repairable_gap(state)}
        return not databases <= self.unavailable.keys()

    def _has_stopped(self) -> bool:
        """Whether a table cannot continue by itself; otherwise the first table to stream may still be enabled."""
        included = included_by(self._config)
        states = [state for state in self._ledger.state.tables.values() if included(state.table)]
        return bool(self.unavailable) or any(state.status in ("gap", "failed") for state in states)

    def _leave_out_or_wait(self, database: str, error: CdcError) -> bool:
        """Leave a database out, unless the whole server is away: then wait for it."""
        try:
            trouble = self._trouble(database, error)
        except RetryableError as lost:
            self._wait_out(lost)
            return True
        return self._leave_out(database, trouble)

    def _leave_out(self, database: str, error: CdcError) -> bool:
        """Leave a database out; if no other database is left and it may come back, wait for it."""
        self.unavailable[database], self._checked[database] = error, self._ledger.clock.now()
        if self._streams() or isinstance(error, CdcDisabledError | DatabaseRestoredError):
            leave_out_database(self._ledger, self._lake, database, error)
            return True
        del self.unavailable[database]
        if not isinstance(error, RetryableError):
            raise error
        self._wait_out(error)
        return True

    def _trouble(self, database: str, error: CdcError) -> CdcError:
        """Why a database cannot be captured; one without change data capture may have been restored without it."""
        trouble = self._server.source.trouble(database) or error
        if isinstance(trouble, CdcDisabledError):
            try:
                check_recovery_fork(self._ledger, self._server.source, database)
            except DatabaseRestoredError as restored:
                return restored
        return trouble

    def _is_back(self, database: str) -> bool:
        """Whether a database that was left out can be captured again; checked from time to time."""
        now = self._ledger.clock.now()
        if now - self._checked[database] < IDLE_CHECK or self._ledger.state.log(database).restored:
            return False
        self._checked[database] = now
        try:
            if self._server.source.trouble(database) is not None:
                return False
        except RetryableError:  # the server is away; the next read waits for it
            return False
        log.info("Database %s can be captured again.", database)
        del self.unavailable[database]
        return True

    def _step(self, database: str) -> bool:
        """Carry out the window in flight, or else the next one; returns whether there was one."""
        pending = self._ledger.state.pending
        repeated = pending is not None and pending.kind == "stream"
        window = pending if repeated else self._planner.plan(database)
        if window is not None:
            self._activities.windows.execute(window, repeated=repeated)
        return window is not None

    def _repair_gaps(self, database: str) -> None:
        if self._tables_to_repair(database):
            self._planner.end_missing_tables(database)  # a table that is gone cannot be read again
        if tables := self._tables_to_repair(database):
            self._activities.snapshotter.run(database, [Request(table) for table in tables])
            after = self._ledger.state.tables
            self._beyond_repair |= {table for table in tables if after[table].status == "gap"}

    def _tables_to_repair(self, database: str) -> list[TableId]:
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
        """Read signals and continue the snapshots they request; returns whether anything was done."""
        self._incremental.note_markers(database, self._watch.read_table(database))
        if self._activities.structures.turn(database) or self._blocking.turn(database):
            self._incremental.discard_rounds(database)  # their rows are older now
            return True
        turn = self._incremental.turn(database)
        (self._awaited.add if turn == "waiting" else self._awaited.discard)(database)
        return turn == "worked"

    def _wait_out(self, error: RetryableError) -> None:
        streaming = self._config.streaming
        self._failures += 1
        if 0 <= streaming.max_retries < self._failures:
            raise error
        log.warning("%s Retrying in %s s (failure %d).", error, streaming.retry_wait_s, self._failures)
        self._ledger.clock.sleep(streaming.retry_wait_s)
