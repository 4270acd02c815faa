"""The capture Agent: what stands for SQL Server Agent and its capture jobs.

With `latency_s` 0 (the default) the committing session itself moves its rows, inside its
own transaction (`commit`): when the client's COMMIT returns, the change is captured.
Otherwise commits only log their transaction, and the Agent's thread moves it when it is
`latency_s` old. Stopped, paused, or with the database's capture job stopped, nothing moves;
going on moves everything that waits, in order (see `scan` for why that is right).

A scan that fails is rolled back alone: the client's changes stay committed and staged. The
failure shows in `sys.dm_cdc_errors` and is raised once, by the next commit with captured
changes, so that a broken Agent cannot hide; the next scan tries again.

The thread holds the engine's write lock only while it moves rows, and only when it has
something to move.
"""

import contextlib
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Final, Protocol

from mssql_standin.capture import lsn, scan
from mssql_standin.capture.instances import create_internal
from mssql_standin.capture.log import Logs
from mssql_standin.capture.messages import error
from mssql_standin.capture.scan import Moved, Transaction
from mssql_standin.capture.sessions import ScanHistory
from mssql_standin.capture.state import SessionState, register, register_scan
from mssql_standin.capture.tables import integer, select
from mssql_standin.capture.times import to_stored
from mssql_standin.catalog import Catalog, fold
from mssql_standin.contract import Clock, SessionContext
from mssql_standin.errors import SqlError

IDLE_INTERVAL_S: Final = 300.0
"""A quiet database gets an idle row (tran_id 0x00) that often."""

_AFTER_FAILURE_S: Final = 0.2
_PATIENCE_S: Final = 2.0
_DUE: Final = "SELECT min(committed) FROM capture_log WHERE database_id = ?"
_DATABASE: Final = (
    "SELECT name, mapping, vlf, EXISTS (SELECT 1 FROM capture_log WHERE capture_log.database_id = d.database_id)"
    " FROM capture_databases d WHERE d.database_id = ?"
)


class Storage(Protocol):
    """What the Agent needs of the engine's storage."""

    @property
    def catalog(self) -> Catalog:
        """The committed catalogue."""

    def connect(self) -> sqlite3.Connection:
        """A new connection in autocommit mode, usable from any thread."""

    def writing(self, connection: sqlite3.Connection, owner: object) -> AbstractContextManager[object]:
        """Hold the single-writer lock and a SQLite transaction; commit at the end, roll back on an exception."""


class Agent:
    """Captures committed changes; implements `contract.AgentControl`.

    Args:
        storage: the engine's storage.
        clock: the server's clock.
    """

    def __init__(self, storage: Storage, clock: Clock) -> None:
        self.latency_s = 0.0
        self.clock = clock
        self.running = False
        self.started = clock.local()
        self._storage = storage
        self._paused = False
        self._stopped_jobs: set[int] = set()
        self._dropped_jobs: set[int] = set()
        self._states: dict[int, SessionState] = {}
        self._histories: dict[int, ScanHistory] = {}
        self._active: dict[int, float] = {}
        self._failure: SqlError | None = None
        self._injected: SqlError | None = None
        self._wake = threading.Condition()
        self._news = False
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        with self._connection() as connection:
            create_internal(connection)
            self._dropped_jobs.update(_without_job(connection, storage.catalog))
        self.logs = Logs(self._connection)
        self.start()

    # ---- control ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start, or start again after `stop`; capture jobs that were stopped start with it, as those of a real Agent do."""
        with self._wake:
            if self.running:
                return
            self.running, self.started = True, self.clock.local()
            self._stopped_jobs.clear()
            self._thread = threading.Thread(target=self._run, name="standin-agent", daemon=True)
            self._thread.start()
        self._catch_up()

    def stop(self) -> None:
        """Stop: nothing is captured, `sys.dm_server_services` says so."""
        with self._wake:
            self.running = False
            self._wake.notify_all()
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(_PATIENCE_S)  # it may wait for a writer that waits for the caller

    def pause(self) -> None:
        """Commits succeed, nothing is captured."""
        self._paused = True

    def resume(self) -> None:
        """Go on after `pause`."""
        self._paused = False
        self._catch_up()

    def stop_job(self, database_id: int) -> None:
        """`sp_cdc_stop_job` for the capture job."""
        self._stopped_jobs.add(database_id)

    def start_job(self, database_id: int) -> None:
        """`sp_cdc_start_job` for the capture job."""
        self._stopped_jobs.discard(database_id)
        self.wake()

    def drop_job(self, database_id: int) -> None:
        """`sp_cdc_drop_job` for the capture job: until there is one again nothing starts it."""
        self._dropped_jobs.add(database_id)

    def add_job(self, database_id: int) -> None:
        """There is a capture job, not started yet."""
        self._dropped_jobs.discard(database_id)
        self._stopped_jobs.add(database_id)

    def enabled(self, database_id: int) -> None:
        """A database is being enabled: what is remembered under its number is another's, or from before."""
        for remembered in (self._stopped_jobs, self._dropped_jobs):
            remembered.discard(database_id)
        with self._lock:
            self._histories.pop(database_id, None)
        self._active.pop(database_id, None)

    def job_runs(self, database_id: int) -> bool:
        """Whether the Agent is up and the database's capture job was started and not stopped."""
        return self.running and database_id not in self._stopped_jobs | self._dropped_jobs

    def capturing(self, database_id: int) -> bool:
        """Whether the database's capture job runs."""
        return not self._paused and self.job_runs(database_id)

    def drain(self) -> None:
        """Return when everything committed so far is captured; a paused or stopped Agent captures all the same."""
        with self._connection() as connection:
            for database_id in _databases(connection):
                self._scan_alone(connection, database_id, time.time(), forced=True)

    def fail_next(self, error: SqlError) -> None:
        """Make the next scan fail with this error."""
        self._injected = error

    def idle_row(self, database: str) -> None:
        """Write one idle row (tran_id 0x00); nothing while committed transactions wait to be captured.

        Raises:
            SqlError: 22901 when the database is not enabled.
        """
        with self._connection() as connection:
            name = fold(database)
            found = connection.execute("SELECT database_id FROM capture_databases WHERE name = ?", (name,)).fetchone()
            if found is None:
                raise error(22901, database)
            with self._writing(connection):
                self._idle(connection, found[0])

    def cleanup(self, database: str, capture_instance: str, low_water_mark: bytes) -> None:
        """What the clean-up job does to one instance."""
        from mssql_standin.capture.cleanup import clean_instance

        with self._connection() as connection, self._writing(connection):
            clean_instance(connection, self._storage.catalog, database, capture_instance, low_water_mark)

    # ---- log -------------------------------------------------------------------------------------------------

    def next_lsn(self, database: str) -> bytes:
        """Draw the next LSN of a database's log."""
        return self.logs.position(database).next()

    def history(self, database_id: int) -> ScanHistory:
        """The scans of a database."""
        with self._lock:
            return self._histories.setdefault(database_id, ScanHistory())

    # ---- sessions --------------------------------------------------------------------------------------------

    def opened(self, context: SessionContext) -> None:
        """Register the functions that capture triggers call on the session's connection."""
        state = SessionState(self.logs.new_number, self.clock)
        self._states[context.session_id] = state
        register(context, state)

    def closed(self, context: SessionContext) -> None:
        """Forget the session."""
        self._states.pop(context.session_id, None)

    def state(self, context: SessionContext) -> SessionState:
        """What the session's transaction has changed; a session that was never announced is taken in."""
        found = self._states.get(context.session_id)
        if found is None:
            self.opened(context)
            found = self._states[context.session_id]
        return found

    def commit(self, connection: sqlite3.Connection, state: SessionState, changes: int) -> None:
        """Give the transaction its LSNs and move its rows, or leave them to the thread; runs under the write lock."""
        self._report()
        changes = scan.separate(connection, state, changes)
        for database_id in sorted({database_id for database_id, _ in state.touched}):
            row = connection.execute(_DATABASE, (database_id,)).fetchone()
            if row is None:
                continue  # the transaction also disabled the database
            name, mapping, stored_vlf, waits = row
            sources = sorted(source for owner, source in state.touched if owner == database_id)
            vlf, block = self.logs.position(name).run(changes)
            if vlf != stored_vlf:
                connection.execute("UPDATE capture_databases SET vlf = ? WHERE database_id = ?", (vlf, database_id))
            ids = state.number, database_id
            transaction = Transaction(*ids, vlf, block, changes, state.begin_time, self._now(), mapping, sources)
            self._capture(connection, state, transaction, bool(waits))

    def _capture(
        self, connection: sqlite3.Connection, state: SessionState, transaction: Transaction, waits: bool
    ) -> None:
        database_id, now = transaction.database_id, transaction.end_time
        synchronous = self.latency_s == 0 and self.capturing(database_id)
        if synchronous and not waits and self._injected is None:
            moved = Moved()
            scan.move(connection, transaction, moved)
            self.history(database_id).record(now, now, moved)
            self._active[database_id] = time.monotonic()
            return
        scan.log(connection, transaction, time.time())
        state.logged = True
        if synchronous:
            self.scan(connection, database_id, time.time())

    # ---- scanning --------------------------------------------------------------------------------------------

    def scan(self, connection: sqlite3.Connection, database_id: int, until: float, limit: int = -1) -> Moved:
        """Move what was committed by `until`; runs under the write lock, inside a transaction.

        A failure is recorded for the next commit and undoes only the scan.
        """
        moved, started = Moved(), self._now()
        connection.execute("SAVEPOINT capture_scan")
        try:
            self._fail_if_told()
            for transaction in scan.waiting(connection, database_id, until, limit):
                scan.move(connection, transaction, moved)
                scan.forget(connection, transaction)
            if not moved.transactions:
                self.first_idle(connection, database_id)
            self.history(database_id).record(started, self._now(), moved)
        except (sqlite3.Error, SqlError) as failure:
            connection.execute("ROLLBACK TO capture_scan")
            self._failed(database_id, failure)
            moved = Moved()
        connection.execute("RELEASE capture_scan")
        return moved

    def first_idle(self, connection: sqlite3.Connection, database_id: int) -> None:
        """A capture job that starts on an empty map writes an idle row, so that there is a maximum LSN."""
        if self._unmapped(connection, database_id):
            self._idle(connection, database_id)

    def look(self, connection: sqlite3.Connection, database_id: int) -> None:
        """Record the empty scan that a running job would have made since the last one that found something."""
        if self.capturing(database_id) and not scan.backlog(connection, database_id):
            self.history(database_id).record(self._now(), self._now(), Moved())

    def wake(self) -> None:
        """Tell the thread that something was committed."""
        with self._wake:
            self._news = True
            self._wake.notify_all()

    def _run(self) -> None:
        """The thread: a round, a pause. A failed round is recorded and tried again: the thread never dies silently."""
        with self._connection() as connection:
            while self.running:
                try:
                    pause = self._round(connection)
                except sqlite3.Error as failure:
                    if failure.sqlite_errorcode != sqlite3.SQLITE_SCHEMA:  # tables are made faster than one can look
                        self._failed(0, failure)
                    pause = _AFTER_FAILURE_S
                with self._wake:
                    if self.running and not self._news:
                        self._wake.wait(pause)
                    self._news = False

    def _round(self, connection: sqlite3.Connection) -> float:
        """Scan what is due; returns the seconds until something may be due again."""
        pause = IDLE_INTERVAL_S
        for database_id in filter(self.capturing, _databases(connection)):
            until = time.time() - self.latency_s
            due = connection.execute(_DUE, (database_id,)).fetchone()[0]
            if due is not None and due <= until:
                moved = self._scan_alone(connection, database_id, until)
                return 0.0 if moved.transactions else _AFTER_FAILURE_S
            pause = min(pause, self._quiet(connection, database_id) if due is None else due - until)
        return max(pause, 0.001)

    def _quiet(self, connection: sqlite3.Connection, database_id: int) -> float:
        """Write the idle row of a quiet database when it is due; returns the seconds until the next one is."""
        last = self._active.setdefault(database_id, time.monotonic())
        rest = last + IDLE_INTERVAL_S - time.monotonic()
        if rest > 0 and not self._unmapped(connection, database_id):
            return rest
        with self._writing(connection):
            self._idle(connection, database_id)
        return IDLE_INTERVAL_S

    def _unmapped(self, connection: sqlite3.Connection, database_id: int) -> bool:
        """Whether the database has a capture instance, but no LSN yet."""
        row = connection.execute(_DATABASE, (database_id,)).fetchone()
        instances = connection.execute("SELECT 1 FROM capture_instances WHERE database_id = ?", (database_id,))
        return (
            row is not None
            and instances.fetchone() is not None
            and connection.execute(f"SELECT 1 FROM {row[1]} LIMIT 1").fetchone() is None
        )

    def _idle(self, connection: sqlite3.Connection, database_id: int) -> None:
        """Publish an LSN behind everything committed, so not while a transaction waits: its lower LSN would appear too late."""
        row = connection.execute(_DATABASE, (database_id,)).fetchone()
        if row is None:
            return  # disabled meanwhile
        name, mapping, _, waits = row
        if waits:
            return
        now = self._now()
        scan.map_time(connection, mapping, (self.next_lsn(name), now, now, b"\0", lsn.ZERO))
        self._active[database_id] = time.monotonic()

    def _scan_alone(
        self, connection: sqlite3.Connection, database_id: int, until: float, forced: bool = False
    ) -> Moved:
        """Scan in a transaction of its own; the job may have been stopped while this waited for the lock."""
        if scan.backlog(connection, database_id):
            with self._writing(connection):
                if forced or self.capturing(database_id):
                    return self.scan(connection, database_id, until)
        return Moved()

    def _catch_up(self) -> None:
        """Let the thread capture what waits; without latency wait for it, unless a writer keeps it from doing so."""
        self.wake()
        if self.latency_s:
            return
        end = time.monotonic() + _PATIENCE_S
        with self._connection() as connection:
            running = [database_id for database_id in _databases(connection) if self.capturing(database_id)]
            while any(scan.backlog(connection, found) for found in running):
                if self._failure is not None or time.monotonic() > end:
                    return
                time.sleep(0.002)

    # ---- failures --------------------------------------------------------------------------------------------

    def _fail_if_told(self) -> None:
        injected, self._injected = self._injected, None
        if injected is not None:
            raise injected

    def _failed(self, database_id: int, failure: sqlite3.Error | SqlError) -> None:
        reason = (
            failure
            if isinstance(failure, SqlError)
            else SqlError(22863, f"Failed to insert rows into Change Data Capture change tables. {failure}")
        )
        self.history(database_id).failed(self._now(), reason)
        self._failure = reason

    def _report(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise SqlError(failure.number, f"The capture Agent failed after an earlier commit: {failure.message}")

    # ---- small parts -----------------------------------------------------------------------------------------

    def _now(self) -> int:
        return to_stored(self.clock.local())

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        connection = self._storage.connect()
        register_scan(connection)
        try:
            yield connection
        finally:
            connection.close()

    def _writing(self, connection: sqlite3.Connection) -> AbstractContextManager[object]:
        """The write lock and a SQLite transaction; a fresh owner each time, since threads must exclude each other."""
        return self._storage.writing(connection, object())


def _without_job(connection: sqlite3.Connection, catalog: Catalog) -> set[int]:
    """Databases with capture instances whose capture job was dropped."""
    captured = {row[0] for row in connection.execute("SELECT database_id FROM capture_instances")}
    msdb = catalog.database("msdb")
    jobs = msdb.table("dbo", "cdc_jobs") if msdb else None
    rows = select(connection, jobs, ("database_id",), "{job_type} = 'capture'") if jobs else []
    return captured - {integer(row[0]) for row in rows}


def _databases(connection: sqlite3.Connection) -> list[int]:
    return [row[0] for row in connection.execute("SELECT database_id FROM capture_databases")]
