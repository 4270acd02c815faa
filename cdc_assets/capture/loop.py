"""The loop over windows: until nothing is new, time is up, or another run waits.

*A turn* covers all databases: each finishes what an earlier turn left and drafts its next window; one job reads the
windows of all; then each database reads its signals and finds new tables. Windows in flight are finished before
anything is planned, in a turn of only their databases.

A retryable error of one database postpones that database only (`retriable.restart.connector.wait.ms`,
`errors.max.retries`), longer each time: its window is given up, nothing of it being committed, and drafted again. If it is an error of the lake,
or all databases have one, the loop waits and then repeats the pending windows with the same bounds.
The tables of a database whose change data capture was turned off end. A database that
is offline or gone, or refuses the login, is left out, checked from time to time, and continues
where it stopped. A database that was restored to an earlier moment is left out for good.
The other databases continue. Any other error ends the loop and leaves lake and positions
unchanged. If no table streams yet, the loop waits for a table to be enabled as long as
it would wait for a change.
"""

import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Literal

from cdc_assets.capture.activities import Activities
from cdc_assets.capture.new_tables import NewTables
from cdc_assets.capture.selection import included_by
from cdc_assets.config.settings import StreamingSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.outages import Outages
from cdc_assets.core.task_counters import note_retry
from cdc_assets.errors import (
    LAKE_WAITS,
    TURN_ERRORS,
    CdcDisabledError,
    CdcError,
    CredentialsError,
    DatabaseAwayError,
    DatabaseRestoredError,
    IncompleteReadError,
    LoginError,
    PreflightError,
    RetryableError,
)
from cdc_assets.ledger.state import Window
from cdc_assets.ledger.table_state import TableState
from cdc_assets.shared.endings import leave_out_database, make_way
from cdc_assets.shared.forks import check_recovery_fork
from cdc_assets.shared.parts import CaptureParts
from cdc_assets.shared.progress import ShouldYield
from cdc_assets.streaming.planner import IDLE_CHECK

log = logging.getLogger(__name__)

_NAP_S = 0.01
"""First wait for the end of an incremental round; doubled up to the poll interval, since the round may end at any moment."""

_SLOT_WAIT_S = 5.0
"""How long a window waits for a free task slot while a round uses all of them; after that its tasks queue in Spark."""

_FEW_EVENTS = 1000
"""A window with fewer events is hardly worth its job and its commits: the next one starts a poll interval after it."""

_MAX_WAITS = 10
"""How many times `retriable.restart.connector.wait.ms` a database waits that fails on and on beside others: each attempt takes commits
and a part of their time."""

OnHindered = Callable[[Mapping[str, Exception]], None]

Ended = Literal["idle", "deadline", "yielded", "nothing"]


_WINDOWS = "Windows"


def _name(database: str) -> str:
    return f"Database {database}"


def _cut_small(streaming: StreamingSettings) -> bool:
    """Whether a window of few events may be only the start of a backlog, which must be read without waiting."""
    return 0 < streaming.max_iteration_transactions < 10 * _FEW_EVENTS


class StreamLoop:
    """Reads the windows of several databases together, turn after turn.

    Args:
        activities: components that carry out windows, and snapshots between them.
        new_tables: adds tables that were enabled while the loop runs, if they are to be captured.
        unavailable: databases that cannot be captured now, with the reason.
        on_hindered: called with what hinders the stream, by what cannot continue; with nothing after a turn in which all went on.
    """

    def __init__(
        self,
        parts: CaptureParts,
        activities: Activities,
        new_tables: NewTables,
        unavailable: Mapping[str, CdcError],
        on_hindered: OnHindered = lambda _: None,
    ) -> None:
        self._config, self._server, self._lake, self._ledger = parts.config, parts.server, parts.lake, parts.ledger
        self._activities, self._new_tables = activities, new_tables
        self._watch, self._incremental, self._blocking = activities.watch, activities.incremental, activities.blocking
        self._planner, self._jobs = activities.planner(), activities.jobs()
        self._awaited: set[str] = set()
        self._beyond_repair: set[TableId] = set()
        """Tables whose gap a snapshot in this run did not close; the next run tries again."""
        self.unavailable = dict(unavailable)
        self._checked: dict[str, timedelta] = dict.fromkeys(self.unavailable, parts.ledger.clock.elapsed())
        self._failures, self._outages, self._on_hindered = 0, Outages(), on_hindered
        self._failed: Counter[str] = Counter()
        """Retryable errors of a database since its last good turn."""
        self._postponed: dict[str, timedelta] = {}
        """When a database with a retryable error is tried again, by `Clock.elapsed`."""
        self._here: Sequence[str] = ()
        """Databases that are not left out."""
        self._forks: dict[str, str] = {}
        """The recovery fork of each database when its rounds were begun: the window that finds another one may fail."""

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
        manifest = self._ledger.manifest
        quiet_since, nap = clock.elapsed(), _NAP_S
        deadline = clock.elapsed() + timedelta(seconds=streaming.max_duration_s) if streaming.max_duration_s else None
        while True:
            if should_yield():
                return "yielded"
            if deadline is not None and clock.elapsed() >= deadline:
                return "deadline"
            if self._run_or_wait("The record of windows", lambda: manifest.end_doubt(clock.now())):
                continue
            if not self._streams() and self._has_stopped():
                self._end_missing_tables(databases)
                if busy := [error for error in self.unavailable.values() if isinstance(error, TURN_ERRORS)]:
                    raise busy[0]  # so that whoever retries does
                return "nothing"
            self._incremental.reader.wait_for_slot(_SLOT_WAIT_S)
            begun, before = clock.elapsed(), account.streamed
            here = [database for database in databases if database not in self.unavailable or self._is_back(database)]
            self._here = here
            received = self._run_or_wait("Signals", lambda: self._watch.listen(databases))
            if self._run_or_wait("The stream", partial(self._turn, here)) or received:
                quiet_since, nap = clock.elapsed(), _NAP_S
                if 0 < account.streamed - before < _FEW_EVENTS and not self._awaited and not _cut_small(streaming):
                    clock.sleep(max(0.0, streaming.poll_interval_s - (quiet_since - begun).total_seconds()))
                continue
            self._jobs.check(here)
            if self._awaited:  # rows are being read, or the capture job has not captured their markers yet
                quiet_since = clock.elapsed()
                self._incremental.reader.wait_for_read(min(nap, streaming.poll_interval_s))
                nap *= 2
                continue
            quiet_for = clock.elapsed() - quiet_since
            is_over = streaming.idle_timeout_s and quiet_for >= timedelta(seconds=streaming.idle_timeout_s)
            if is_over and not self._activities.readings.is_awaited:
                return "idle" if self._streams() else "nothing"
            if not self._run_or_wait("Notifications", lambda: manifest.record_sent(clock.now())):
                clock.sleep(streaming.poll_interval_s)

    def _run_or_wait(self, what: str, action: Callable[[], bool | None]) -> bool:
        """Whether an action outside of a database's turn has done anything; True after a wait if it must be tried again.

        Args:
            what: for the log.
        """
        try:
            done = action()
        except RetryableError as error:
            self._wait_out(what, error)
            return True
        self._outages.end(what)
        return bool(done)

    def _turn(self, databases: Sequence[str]) -> bool:
        """Carry out one window of each database, all in one job; False if there was nothing to do."""
        now = self._ledger.clock.elapsed()
        postponed = [self._postponed[name] for name in databases if self._postponed.get(name, now) > now]
        databases = [name for name in databases if self._postponed.get(name, now) <= now]
        worked = bool(databases) and self._turn_of(databases)
        if postponed and not worked:
            streaming, wait_s = self._config.streaming, (min(postponed) - now).total_seconds()
            # whether the run is to end, or another database is back, is to be seen soon, however long this one waits
            self._ledger.clock.sleep(min(wait_s, streaming.poll_interval_s if databases else streaming.retry_wait_s))
        return worked or bool(postponed)

    def _turn_of(self, databases: Sequence[str]) -> bool:
        for database in databases:
            self._forks.setdefault(database, self._ledger.state.log(database).fork)
        drafts: list[Window] = []
        well, worked = self._each(databases, lambda database: self._prepare(database, drafts))
        try:
            troubles = self._step(drafts)
        except RetryableError as error:
            self._wait_out(_WINDOWS, error)
            return True
        self._outages.end(_WINDOWS)
        for database, trouble in troubles.items():
            self._recover_from(database, trouble)
        well = [database for database in well if database not in troubles]
        _, followed = self._each(well, self._follow_up)
        self._on_hindered(self._outages.errors)
        return worked or followed

    def _each(self, databases: Sequence[str], action: Callable[[str], bool]) -> tuple[list[str], bool]:
        """Run an action for each database; an error of one database does not affect the others.

        A database is skipped while only other databases have something in flight: that is finished first.

        Returns:
            The databases without an error, and whether anything was done or has to be tried again.
        """
        well, worked = list[str](), False
        for database in databases:
            state = self._ledger.state
            if state.pending and state.in_flight(database) is None:
                continue
            try:
                worked |= action(database)
            except CredentialsError:  # of the whole server
                raise
            except (LoginError, PreflightError, DatabaseRestoredError, RetryableError) as error:
                self._recover_from(database, error)
                worked = True
            else:
                well.append(database)
        return well, worked

    def _recover_from(self, database: str, error: CdcError) -> None:
        """Leave a database out, postpone it, or wait, as its error requires."""
        if isinstance(error, IncompleteReadError) and (restored := self._restored(database)):
            self._leave_out(database, restored)
        elif isinstance(error, DatabaseRestoredError):
            self._leave_out(database, error)
        elif isinstance(error, DatabaseAwayError | LoginError | PreflightError):
            self._leave_out_or_wait(database, error)
        elif isinstance(error, LAKE_WAITS):
            self._wait_out(_name(database), error)
        elif isinstance(error, RetryableError):
            self._postpone(database, error)

    def _postpone(self, database: str, error: RetryableError) -> None:
        """Try a database again after a while; the others continue."""
        streaming = self._config.streaming
        self._failed[database] += 1
        note_retry(error)
        if 0 <= streaming.max_retries < self._failed[database]:
            raise error
        others, wait_s = [name for name in self._here if name != database], streaming.retry_wait_s
        is_seldom = any(name not in self._failed for name in others)  # a whole server that is back is to be met soon
        self._report_retry(_name(database), error, ", and less often the longer it lasts" if is_seldom else "")
        if others:
            self._activities.snapshotter.commit_recorded(database)
            make_way(self._ledger, self._lake, database)
        if is_seldom:
            wait_s *= min(self._failed[database], _MAX_WAITS)
        self._postponed[database] = self._ledger.clock.elapsed() + timedelta(seconds=wait_s)

    def _beat(self, database: str) -> bool:
        self._activities.heartbeat.beat(self._ledger.clock, self._ledger.state.watermark(database))
        return False

    def _streams(self) -> bool:
        """Whether an available database has a table that streams, or will stream again by itself."""
        states = self._ledger.state.tables.values()
        databases = {state.table.database for state in states if state.goes_on or self._has_repairable_gap(state)}
        return not databases <= self.unavailable.keys()

    def _has_stopped(self) -> bool:
        """Whether a table cannot continue by itself; otherwise the first table to stream may still be enabled."""
        included = included_by(self._config)
        states = [state for state in self._ledger.state.tables.values() if included(state.table)]
        return bool(self.unavailable) or any(state.status in ("gap", "failed") for state in states)

    def _leave_out_or_wait(self, database: str, error: CdcError) -> None:
        """Leave a database out, unless the whole server is away: then wait for it."""
        try:
            trouble = self._trouble(database, error)
        except LAKE_WAITS as lost:
            self._wait_out(_name(database), lost)
        except RetryableError as lost:
            self._postpone(database, lost)
        else:
            self._leave_out(database, trouble)

    def _leave_out(self, database: str, error: CdcError) -> None:
        """Leave a database out; if no other database is left and it may come back, wait for it."""
        self.unavailable[database], self._checked[database] = error, self._ledger.clock.elapsed()
        self._awaited.discard(database)
        if not self._streams() and not isinstance(error, CdcDisabledError | DatabaseRestoredError):
            del self.unavailable[database]
            if not isinstance(error, RetryableError):
                raise error
            self._wait_out(_name(database), error)
            return
        try:
            leave_out_database(self._ledger, self._lake, database, error)
        except RetryableError:  # not all of it is recorded: the next turn meets the error again
            del self.unavailable[database]
            raise

    def _trouble(self, database: str, error: CdcError) -> CdcError:
        """Why a database cannot be captured; one without change data capture may have been restored without it."""
        trouble = self._server.source.trouble(database) or error
        if isinstance(trouble, CdcDisabledError):
            try:
                check_recovery_fork(self._ledger, self._server.source, database)
            except DatabaseRestoredError as restored:
                return restored
        return trouble

    def _restored(self, database: str) -> DatabaseRestoredError | None:
        """Why no server will ever have the log as far as is asked for, if a database was restored."""
        try:
            check_recovery_fork(self._ledger, self._server.source, database)
        except DatabaseRestoredError as error:
            return error
        except (LoginError, PreflightError, RetryableError):  # the next turn meets it
            return None
        return None

    def _is_back(self, database: str) -> bool:
        """Whether a database that was left out can be captured again; checked from time to time."""
        now = self._ledger.clock.elapsed()
        if now - self._checked[database] < IDLE_CHECK or self._ledger.state.log(database).restored:
            return False
        self._checked[database] = now
        try:
            if self._server.source.trouble(database) is not None:
                return False
            self._server.instances(database)  # it may refuse the login still
        except (LoginError, PreflightError, RetryableError):  # or the server is away; the next read waits for it
            return False
        log.info("Database %s can be captured again.", database)
        del self.unavailable[database]
        return True

    def _prepare(self, database: str, drafts: list[Window]) -> bool:
        """Finish what an earlier turn left of a database, and draft its next window unless one is in flight; returns whether there is a
        window, or the next one may be drafted at once."""
        self._incremental.recover(database)
        self._blocking.resume(database)
        self._incremental.close(database)
        self._watch.begin(database)
        window = self._ledger.state.in_flight(database) or self._planner.plan(database)
        if window is not None:
            drafts.append(window)
        return window is not None or self._planner.has_passed(database)

    def _step(self, drafts: Sequence[Window]) -> Mapping[str, CdcError]:
        """Carry out the windows in flight, or else the drafted ones; returns errors by database."""
        pending = self._ledger.state.pending
        if any(window.kind != "stream" for window in pending) or not (pending or drafts):
            return {}
        windows = pending or self._planner.record(drafts)
        return self._activities.windows.execute(windows, repeated=bool(pending))

    def _follow_up(self, database: str) -> bool:
        """Do what follows a database's window, also if there was none; returns whether signals caused any work."""
        fork = self._ledger.state.log(database).fork
        if fork != self._forks[database]:
            self._incremental.discard_rounds(database)  # markers that were not read yet may be gone
            self._forks[database] = fork
        self._repair_gaps(database)
        self._new_tables.join(database, self._planner.tables_without_position(database))
        self._activities.readings.find_end(database)
        asked = self._handle_signals(database)
        self._failures = 0
        self._failed.pop(database, None)
        self._outages.end(_name(database))
        self._activities.housekeeper.tidy_when_due()
        return self._run_or_wait("Heartbeats", lambda: self._beat(database)) or asked

    def _repair_gaps(self, database: str) -> None:
        if self._tables_to_repair(database):
            self._planner.end_missing_tables(database)  # a table that is gone cannot be read again
        if tables := self._tables_to_repair(database):
            self._incremental.discard_rounds(database)  # their older rows would come after the snapshot's
            self._activities.snapshotter.run(database, self._activities.due.whole(tables))
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
            with contextlib.suppress(LoginError, PreflightError, DatabaseAwayError, IncompleteReadError):
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

    def _wait_out(self, what: str, error: RetryableError) -> None:
        streaming = self._config.streaming
        self._failures += 1
        if 0 <= streaming.max_retries < self._failures:
            raise error
        self._report_retry(what, error)
        self._ledger.clock.sleep(streaming.retry_wait_s)

    def _report_retry(self, what: str, error: RetryableError, then: str = "") -> None:
        self._outages.report(log, what, error, f"Retrying every {self._config.streaming.retry_wait_s} s{then}.")
        self._on_hindered(self._outages.errors)
