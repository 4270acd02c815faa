"""What the domain rooms need from the outside world, as protocols.

`adapters/` implements them; tests implement them over the stand-in or in memory.
Nothing here knows pyodbc, Spark or Dagster.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from cdc_assets.core.capture_job import CaptureJob
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.jobs import Job
from cdc_assets.core.lsn import ZERO_LSN, Lsn, Position
from cdc_assets.core.schema import CaptureInstance, Column, TableSchema
from cdc_assets.errors import CdcError

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class KeyRange:
    """A half-open range `[low, high)` of a table's leading key column; None is an open end.

    Bounds are the server's own text form of the value (`CONVERT(nvarchar(max), k, 126)`, binary as style 1),
    converted back by the server into the column's own type, so that comparison is the server's.
    A table without key has one range open at both ends.

    Args:
        type: declared type and collation of the column when the table was cut; empty without a column.
    """

    column: str | None
    low: str | None
    high: str | None
    type: str = ""


KeyExtent = tuple[int, int]
"""Least and greatest value of a table's leading key."""


@dataclass(frozen=True, slots=True)
class RecoveryFork:
    """A branch of a database's history: a restore to an earlier moment begins a new one.

    Args:
        identity: `recovery_fork_guid`, in capital letters.
        point: `fork_point_lsn`, the LSN at which the branch begins; None if the server does not report it, or for the
            first branch.
        is_of_replica: whether a readable secondary, which may lag, has shown it.
    """

    identity: str
    point: Lsn | None
    is_of_replica: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Captured:
    """How far the capture job has read by one server.

    Args:
        lsn: `sys.fn_cdc_get_max_lsn()`; None before the first scan.
        is_of_replica: whether that server is a readable secondary, which may lag.
    """

    lsn: Lsn | None = None
    is_of_replica: bool = False


class Source(Protocol):
    """Control plane of one SQL Server: small queries, one round trip each.

    Raises everywhere: ConnectionLostError and ServerBusyError (retryable), LoginError, QueryError.
    """

    def databases(self) -> Sequence[str]:
        """Configured databases in the server's letter case, in configured order, including those for which `trouble` returns an error."""

    def trouble(self, database: str) -> CdcError | None:
        """Query why a configured database cannot be captured now; None if it can."""

    def server_time(self) -> datetime:
        """`SYSDATETIMEOFFSET()`, aware."""

    def table_schema(self, table: TableId, known: Lsn = ZERO_LSN) -> TableSchema | None:
        """Current structure of a source table, or None if it does not exist; see `table_schemas`."""

    def table_schemas(self, tables: Sequence[TableId], known: Lsn = ZERO_LSN) -> Mapping[TableId, TableSchema]:
        """Current structures of those source tables that exist; a few queries for all of them.

        A replica that lags shows former ones: IncompleteReadError is raised if the server that answers has not the log up to `known`.
        Then all tables are of the database whose LSN that is.
        """

    def descriptions(self, schemas: Sequence[TableSchema]) -> Mapping[TableId, Mapping[int, str]]:
        """What the server says about source tables, under 0, and their columns, under their ordinals.

        One query per 1000 tables of a database. A table about which nothing is said, or may be read, is left out.
        """

    def user_tables(self, database: str) -> Sequence[TableId]:
        """All user tables of a database, without `cdc` and `sys`, sorted."""

    def capture_instances(self, database: str, known: Lsn = ZERO_LSN) -> Sequence[CaptureInstance]:
        """All capture instances with their columns, sorted by table and age (`CaptureInstance.age`); without those that have no
        start LSN yet (`beginning_tables`).

        A replica that lags does not show what was made since: IncompleteReadError is raised if the server that answers has not captured
        the log up to `known`. So all instances that begin before `known` are there.
        """

    def beginning_tables(self, database: str) -> frozenset[TableId]:
        """Tables with a capture instance that has no start LSN yet, so that it is unknown which changes it will hold.

        Raises IncompleteReadError if another server has answered `capture_instances` of this database before, as `hidden_sources`: why a
        table is not there is to be said by the one that does not show it.
        """

    def hidden_sources(self, database: str) -> frozenset[int]:
        """Object ids of captured tables that the catalogue does not show: the login has no right on them, or they are being dropped."""

    def columns_with_nulls(
        self, instance: CaptureInstance, columns: Sequence[Column], after: Lsn, known: Lsn = ZERO_LSN
    ) -> frozenset[str]:
        """Which of these captured columns hold a NULL in a change row after an LSN, and not a value that the log omits.

        Raises IncompleteReadError if the server that answers has not captured the log up to `known`.
        """

    def max_captured_lsn(self, database: str) -> Lsn | None:
        """`sys.fn_cdc_get_max_lsn()`: how far the capture job has read; None before its first scan."""

    def captured_by(self, database: str) -> Captured:
        """The same, and whether a readable secondary says it: two questions could reach two servers."""

    def recovery_fork(self, database: str, known: Lsn = ZERO_LSN) -> RecoveryFork | None:
        """The branch of its history that a database is on; None if the login may not see it or it is unknown.

        A replica that lags may show one that others have left: IncompleteReadError is raised if the server that answers has not captured
        the log up to `known`.
        """

    def leave_forks(self, database: str, forks: Sequence[str]) -> None:
        """From now on a server that still shows a database on one of these recovery forks counts as one that lags wherever the log is
        needed up to an LSN: who did not follow a forced failover has another history there, however far it is captured."""

    def left_forks(self, database: str) -> tuple[str, ...]:
        """The newest forks that were given to `leave_forks`."""

    def allows_snapshot(self, database: str) -> bool:
        """Whether transactions may see a database as of one moment (ALLOW_SNAPSHOT_ISOLATION ON)."""

    def is_replica(self, database: str) -> bool:
        """Whether the server has a database as a readable secondary replica, which may lag behind others."""

    def lists_as_replica(self, database: str) -> bool:
        """The same of the server that has answered `capture_instances`; raises as `hidden_sources` if it is another one now."""

    def max_transaction_lsn(self, database: str, after: Lsn | None, limit: int, known: Lsn = ZERO_LSN) -> Lsn | None:
        """Commit LSN of the newest captured transaction after `after`, or of the `limit`-th next one if `limit` > 0.

        Rows of `cdc.lsn_time_mapping` with tran_id 0x00 are not transactions. None if there is no such transaction, which
        of a replica that lags says nothing: it raises IncompleteReadError if the server that answers has not captured the log
        up to `known`.
        """

    def low_water_marks(self, database: str) -> Mapping[str, Lsn]:
        """Current `cdc.change_tables.start_lsn` by capture instance name.

        Raises IncompleteReadError if another server may have answered `active_instances` of this database before, or `rows_per_commit`
        between the two: one that lags in its clean-up does not show what the other one lacks.
        """

    def active_instances(self, database: str, bounds: Mapping[str, Lsn], until: Lsn) -> frozenset[str]:
        """Which instances have change rows in `(bounds[name], until]`; one query for all.

        Raises IncompleteReadError if the server that answers has not captured the log up to `until`, as `rows_per_commit`.
        """

    def rows_per_commit(
        self, database: str, bounds: Mapping[str, Lsn], until: Lsn, skipped: Sequence[int] = ()
    ) -> Mapping[str, Sequence[tuple[Lsn, int]]]:
        """Commit LSNs with change rows in `(bounds[name], until]`, in order, each with the number of rows without the
        operations `skipped`; by instance, one query for all of them. Instances whose rows cannot be counted, since their change
        table is gone or may not be read, are left out."""

    def positions_in_commit(
        self, database: str, instances: Sequence[str], commit: Lsn, step: int
    ) -> Sequence[Position]:
        """Positions of every `step`-th change row of each instance inside a commit, in order, with the greatest
        operation.

        No position separates the rows 3 and 4 of an update, which differ in operation only. Instances whose rows have
        no command id are left out.
        """

    def commit_times(self, database: str, lsns: Sequence[Lsn], known: Lsn = ZERO_LSN) -> Mapping[Lsn, datetime]:
        """Time of the newest commit up to each LSN, aware with the server's current offset; without LSNs that are older than all
        entries of the server.

        A replica that lags says earlier times: IncompleteReadError is raised if the server that answers has not captured the log up to
        `known`.
        """

    def was_set_back(self, database: str, lsn: Lsn) -> bool:
        """Whether the server's clock was set back after a commit, as when summer time ends, so that its time does not show its age."""

    def row_counts(self, schemas: Sequence[TableSchema]) -> Mapping[TableId, int]:
        """Approximate row counts from the server's metadata: no table is read and no table lock is needed."""

    def key_extents(self, schemas: Sequence[TableSchema], rows: Mapping[TableId, int]) -> Mapping[TableId, KeyExtent]:
        """Least and greatest leading keys of the tables for which `key_ranges` needs them; one query for many tables.

        `rows` holds approximate row counts. A table that cannot be queried is left out: `key_ranges` raises the reason.
        """

    def key_ranges(
        self, schema: TableSchema, rows: int, slices: int, extent: KeyExtent | None = None
    ) -> Sequence[KeyRange]:
        """Ranges of about equal rows that together cover the table, first and last open; one if it has no key.

        `rows` is the approximate row count, `extent` the result of `key_extents` (None: query it). No row lock is
        needed.
        """

    def lock_tables(self, tables: Sequence[TableId], timeout_ms: int) -> AbstractContextManager["HeldLocks"]:
        """Hold a shared lock on each table in a separate session: writers wait, readers do not.

        `timeout_ms` limits the wait for each; 0 does not wait, -1 waits for ever. Raises ServerBusyError after it.
        """

    def write_signal(self, table: TableId, row: tuple[str, str, str | None]) -> None:
        """Insert a row of id, type and data into a signal table; the columns are identified by ordinal."""

    def signal_lsn(self, instance: CaptureInstance, column: str, own_id: str, after: Lsn) -> Lsn | None:
        """Commit LSN, greater than `after`, of the inserted row with that id of a signal table, by the captured column
        of its id; None if it is not captured yet."""

    def has_signals(self, instance: CaptureInstance, column: str, but: Sequence[str], after: Lsn) -> bool:
        """Whether rows were inserted into a signal table after an LSN whose type, in the given captured column, is none of
        these."""

    def delete_signal(self, table: TableId, column: str, own_id: str) -> bool:
        """Delete the row with that id from a signal table, whose first column is given; False if there was none."""

    def agent_running(self, database: str) -> bool | None:
        """Whether the SQL Server Agent runs; None if unknown."""

    def empty_scans(self, database: str) -> tuple[object, int] | None:
        """What identifies the capture job's newest scan session among those of all servers, and how many scans of it in a row
        found nothing; None if the login may not see that, or there was no scan."""

    def capture_job(self, database: str) -> CaptureJob:
        """Query the health of the job that reads the log."""


class HeldLocks(Protocol):
    """Table locks that are being held."""

    def check(self) -> None:
        """Raise ConnectionLostError if the locks are lost."""

    def require_primary(self, database: str) -> None:
        """Raise PreflightError if the session is on a replica, whose locks keep no writer away."""


class BulkSource(Protocol):
    """Data plane: rows as Arrow. Picklable: it travels to Spark tasks and connects there."""

    def reaching(self, database: str, lsn: Lsn, *, captured: bool = True, left: Sequence[str] = ()) -> "Self":
        """The same source over sessions whose server has the log of a database up to an LSN.

        Each session is queried before its first row: with a listener in front of replicas it may be one that lags behind
        the server of the control plane. Reading raises IncompleteReadError then, also after some retries.

        Args:
            captured: whether change rows are read, which the capture job must have written up to the LSN; otherwise
                rows of source tables, for which the log itself is enough.
            left: recovery forks that the database has left, see `Source.leave_forks`.
        """

    def read(self, statement: str, parameters: Sequence[object] = ()) -> "Iterator[pa.RecordBatch]":
        """Stream a query's rows in the server's order; at least one batch, possibly empty, gives the schema."""

    def transaction(self) -> AbstractContextManager["ReadTransaction"]:
        """A session with an open SNAPSHOT transaction whose moment is not fixed yet."""


class ReadTransaction(Protocol):
    """A SNAPSHOT transaction: all of its statements see the data as of the first one."""

    def pin(self, table: TableId) -> None:
        """Read one row of a table; this fixes the moment that the transaction sees."""

    def require_primary(self, database: str) -> None:
        """Raise PreflightError if the session is on a replica, which shows an earlier moment than the primary."""

    def read(self, statement: str, parameters: Sequence[object] = ()) -> "Iterator[pa.RecordBatch]":
        """As `BulkSource.read`, one statement after the other; never retried."""


class TaskRunner(Protocol):
    """Runs one function over tasks, in parallel where it can (a Spark job; a loop in tests)."""

    @property
    def parallelism(self) -> int:
        """Approximate number of tasks that run at once. The query may start an engine, so ask only when there is
        work."""

    @property
    def may_start_twice(self) -> bool:
        """Whether a task may be started again while it runs. The query may start an engine."""

    def get_ready(self) -> None:
        """Called as soon as it is known that there will be jobs: an engine that needs time to start, starts beside what comes
        first. Never waits, and never fails: the next job does."""

    def run(self, function: Callable[[T], R], tasks: Sequence[T], job: Job) -> list[R]:
        """Results in task order. The first error is raised after the others have stopped."""


class Clock(Protocol):
    """Time."""

    def now(self) -> datetime:
        """Aware, UTC: for records and reports. It may be set back, so no wait is measured by it."""

    def elapsed(self) -> timedelta:
        """Time since some moment, the same for the life of the process; never set back: for waits and intervals."""

    def sleep(self, seconds: float) -> None:
        """Wait."""
