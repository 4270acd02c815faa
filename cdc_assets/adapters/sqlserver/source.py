"""The control plane of SQL Server's change data capture: small queries, one round trip each where possible.

Bulk rows go through `cdc_assets.adapters.sqlserver.bulk`.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Self

from cdc_assets.adapters.sqlserver import change_tables, commit_counts, queries
from cdc_assets.adapters.sqlserver.commit_times import commit_times
from cdc_assets.adapters.sqlserver.driver import server_name
from cdc_assets.adapters.sqlserver.errors import cdc_is_off, cdc_objects
from cdc_assets.adapters.sqlserver.locks import locked
from cdc_assets.adapters.sqlserver.portions import by_database
from cdc_assets.adapters.sqlserver.probes import Probes
from cdc_assets.adapters.sqlserver.ranges import is_worth_cutting, key_extents, key_ranges
from cdc_assets.adapters.sqlserver.reached import Floor
from cdc_assets.adapters.sqlserver.retry import BUDGET_S
from cdc_assets.adapters.sqlserver.rows import Row, instances_of, integer, lsn_above_zero_of, lsn_of, options_of
from cdc_assets.adapters.sqlserver.session import Session
from cdc_assets.adapters.sqlserver.structures import table_schemas
from cdc_assets.config.column_rules import without_hidden_defaults
from cdc_assets.config.settings import CaptureConfig, ConnectionSettings, EventSettings
from cdc_assets.config.snapshot_modes import rule_of
from cdc_assets.core.capture_job import CaptureJob
from cdc_assets.core.clocks import CLOCK_SKEW_S
from cdc_assets.core.identifiers import TableId, quote
from cdc_assets.core.kept import kept
from cdc_assets.core.lsn import ZERO_LSN, Lsn, Position
from cdc_assets.core.ports import Captured, HeldLocks, KeyExtent, KeyRange, RecoveryFork
from cdc_assets.core.schema import CaptureInstance, Column, InstanceOptions, TableSchema
from cdc_assets.errors import (
    CdcError,
    DatabaseAwayError,
    IncompleteReadError,
    LockTimeoutError,
    LoginError,
    PreflightError,
    QueryError,
    ServerBusyError,
)

log = logging.getLogger(__name__)

_WRITTEN = "READ_WRITE"
"""`Updateability` of a database where it is written to; a server that cannot say it may not be that."""

_QUICK_LOGIN_S, _QUICK_QUERY_S, _QUICK_BUDGET_S = 5, 15, 5.0
"""Time limits in seconds of login and query for code that must not hang; a statement that took longer than the third is not repeated."""
_TABLES_PER_QUERY = 100
_IDS_PER_QUERY = 1000


class SqlServerSource:
    """Control plane of one SQL Server (`core.ports.Source`); opens its connections at first use.

    Args:
        settings: connection settings.
        agent_status_query: T-SQL giving 1 if the Agent runs, `#db` means the database; if empty,
            sys.dm_server_services is queried.
        require_cdc: whether a database needs change data capture to count as capturable.
        lock_timeout_ms: maximum wait of queries of source tables for a lock; 0 not at all, -1 as long as a query may
            take.
        budget_s: seconds after its begin within which a statement may be repeated.
        events: say which columns are hidden, whose default values are left out of structures.

    Every method raises ConnectionLostError or ServerBusyError after bounded retries, LoginError, PreflightError when a
    CDC object or a permission is missing, QueryError.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        agent_status_query: str = "",
        *,
        require_cdc: bool = True,
        lock_timeout_ms: int = -1,
        budget_s: float = BUDGET_S,
        events: EventSettings | None = None,
    ) -> None:
        self._settings, self._lock_timeout_ms = settings, lock_timeout_ms
        self._require_cdc, self._events = require_cdc, events
        self._agent_status_query = agent_status_query
        self.session = Session(settings, budget_s)
        self._beside = Session(settings, budget_s)
        """Counts half of the rows of a backlog; not opened before."""
        self._beside.left = self.session.left
        self._probes = Probes(self.session)
        self._listed: dict[str, int] = {}
        """By database, the connection over which `capture_instances` was answered last."""

    @classmethod
    def of(cls, config: CaptureConfig, budget_s: float = BUDGET_S) -> Self:
        """The source of a capture; a capture that never streams can also read tables without CDC.

        Args:
            budget_s: seconds after its begin within which a statement may be repeated.
        """
        streams = rule_of(config.snapshot).streams
        agent, timeout = config.streaming.agent_status_query, config.snapshot.lock_timeout_ms
        return cls(
            config.connection,
            agent,
            require_cdc=streams,
            lock_timeout_ms=timeout,
            budget_s=budget_s,
            events=config.events,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; the source may be used again."""
        self.session.close()
        self._beside.close()

    @kept
    def _databases(self) -> tuple[str, ...]:
        """Configured databases without duplicates, letter case ignored."""
        return tuple(dict.fromkeys(self._real_name(name) for name in self._settings.databases))

    def _real_name(self, name: str) -> str:
        rows = self._database(name)
        return str(rows[0][0]) if rows else name

    def databases(self) -> Sequence[str]:
        """Configured databases in the server's letter case, in configured order, including those for which `trouble` returns an error."""
        return self._databases

    def trouble(self, database: str) -> CdcError | None:
        """Query why a configured database cannot be captured now: LoginError, DatabaseAwayError, CdcDisabledError."""
        rows = self._database(database)
        if not rows:
            return LoginError(
                f"Database {database!r} is not on {server_name(self._settings)}, or the login may not see it. "
                "Next: check database.names, or create a user for the login in that database"
            )
        [(_, cdc, _, state)] = rows
        if state != "ONLINE":
            return DatabaseAwayError(
                f"Database {database!r} is {str(state).lower()}. "
                f"Next: ALTER DATABASE {quote(database)} SET ONLINE; the capture then resumes"
            )
        return cdc_is_off(database) if self._require_cdc and not cdc else None

    def server_time(self) -> datetime:
        """`SYSDATETIMEOFFSET()` with time zone, in microseconds."""
        with self.session.asking_little():
            return datetime.fromisoformat(str(self.session.value(queries.SERVER_TIME)))

    def table_schema(self, table: TableId, known: Lsn = ZERO_LSN) -> TableSchema | None:
        """Current structure of a source table, or None if it does not exist, over a connection whose server has the log up to `known`."""
        return self.table_schemas([table], known).get(table)

    def table_schemas(self, tables: Sequence[TableId], known: Lsn = ZERO_LSN) -> Mapping[TableId, TableSchema]:
        """Current structures of those source tables that exist, in the given order, over a connection whose server has the log up to
        `known`; two or three queries per 1000 tables of a database."""
        found: dict[TableId, TableSchema] = {}
        for database, portion in by_database(((table.database, table) for table in tables), _IDS_PER_QUERY):
            with self._waiting(), cdc_objects(database):
                floor = self.session.floor(database, known, captured=False)
                found |= table_schemas(partial(self.session.rows_behind, floor), database, portion)
        chosen = {table: found[table] for table in tables if table in found}
        if self._events is None:
            return chosen
        return {table: without_hidden_defaults(schema, self._events) for table, schema in chosen.items()}

    def descriptions(self, schemas: Sequence[TableSchema]) -> Mapping[TableId, Mapping[int, str]]:
        """`MS_Description` of tables and columns; one query per 1000 tables of a database, whose failure is only logged."""
        found: dict[TableId, dict[int, str]] = {}
        tables = {(schema.table.database, schema.object_id): schema.table for schema in schemas}
        for database, portion in by_database(tables, _IDS_PER_QUERY):
            for object_id, ordinal, text in self._descriptions(database, portion):
                if text:
                    found.setdefault(tables[database, integer(object_id)], {})[integer(ordinal)] = str(text)
        return found

    def _descriptions(self, database: str, object_ids: Sequence[int]) -> list[Row]:
        try:
            with self._waiting():
                return self.session.rows(queries.descriptions(database, len(object_ids)), *object_ids)
        except (QueryError, PreflightError, ServerBusyError) as error:
            log.warning(
                "Descriptions of tables in %s cannot be read; the capture does without them: %s", database, error
            )
            return []

    def user_tables(self, database: str) -> Sequence[TableId]:
        """All user tables of a database, without `cdc` and `sys`, sorted."""
        rows = self._rows(queries.USER_TABLES, database)
        return sorted(TableId(database, str(schema), str(table)) for schema, table in rows)

    def capture_instances(self, database: str, known: Lsn = ZERO_LSN) -> Sequence[CaptureInstance]:
        """All capture instances with their columns, sorted by table and age, over a connection whose server has captured the log up to
        `known`; none if CDC is not required and off."""
        try:
            with cdc_objects(database):
                for _ in range(2):  # again if it had to connect meanwhile: all of the answer is to be of one server
                    self._listed[database] = self.session.connections
                    tables = self._rows_reaching(known, queries.CHANGE_TABLES, database, database, database)
                    columns = self._rows_reaching(known, queries.CAPTURED_COLUMNS, database)
                    if self.session.connections == self._listed[database]:
                        break
        except PreflightError:
            if self._require_cdc:
                raise
            return []
        return instances_of(database, tables, columns)

    def beginning_tables(self, database: str) -> frozenset[TableId]:
        """Tables with a capture instance that has no start LSN yet: the capture job has not come to its creation; of the server that has
        answered `capture_instances`."""
        with cdc_objects(database):
            rows = self._rows(queries.CHANGE_TABLES, database, database, database)
        self._require_same(database, self._listed.get(database))
        named = [(row[2], row[3], lsn_of(row[5])) for row in rows]
        return frozenset(
            TableId(database, str(schema), str(table))
            for schema, table, start in named
            if schema is not None and table is not None and start is None
        )

    def hidden_sources(self, database: str) -> frozenset[int]:
        """Object ids of captured tables that the catalogue does not show: the login has no right on them, or they are being dropped; of
        the server that has answered `capture_instances`."""
        with cdc_objects(database):
            rows = self._rows(queries.UNSEEN_SOURCES, database, database)
        self._require_same(database, self._listed.get(database))
        return frozenset(integer(row[1]) for row in rows)

    def columns_with_nulls(
        self, instance: CaptureInstance, columns: Sequence[Column], after: Lsn, known: Lsn = ZERO_LSN
    ) -> frozenset[str]:
        """Which of these captured columns hold a NULL in a change row after an LSN, and not a value that the log omits; one query
        per 200 of them."""
        return change_tables.columns_with_nulls(self.session, instance, columns, after, known)

    def max_captured_lsn(self, database: str) -> Lsn | None:
        """`sys.fn_cdc_get_max_lsn()`: how far the capture job has read; None before its first scan."""
        with cdc_objects(database):
            return lsn_above_zero_of(self._value(queries.MAX_LSN, database))

    def captured_by(self, database: str) -> Captured:
        """The same, and whether a readable secondary says it; one query, so that one server answers."""
        with cdc_objects(database):
            [(lsn, updateability)] = self._rows(queries.CAPTURED_BY, database, database)
        return Captured(lsn_above_zero_of(lsn), updateability != _WRITTEN)

    def recovery_fork(self, database: str, known: Lsn = ZERO_LSN) -> RecoveryFork | None:
        """The branch of its history that a database is on, over a connection whose server has captured the log up to `known`; None if
        the login may not see it or it is unknown."""
        try:
            with self.session.asking_little():
                rows = self.session.rows_behind(Floor(database, known), queries.RECOVERY_FORK, database)
        except (QueryError, PreflightError):  # Azure SQL Database has no such view
            return None
        if not rows or rows[0][0] is None:
            return None
        [(identity, point, updateability)] = rows
        begins = None if point is None else Lsn.from_decimal(integer(point))
        return RecoveryFork(str(identity).upper(), begins, updateability != _WRITTEN)

    def leave_forks(self, database: str, forks: Sequence[str]) -> None:
        """From now on a server that still shows a database on one of these recovery forks counts as one that lags; see `core.ports`."""
        self.session.left[database] = tuple(forks)

    def left_forks(self, database: str) -> tuple[str, ...]:
        """The newest forks that were given to `leave_forks`."""
        return self.session.left.get(database, ())

    def allows_snapshot(self, database: str) -> bool:
        """Whether transactions may see a database as of one moment (ALLOW_SNAPSHOT_ISOLATION ON)."""
        rows = self._database(database)
        return bool(rows) and integer(rows[0][2]) == 1

    def is_replica(self, database: str) -> bool:
        """Whether the server has a database as a readable secondary replica (or as read-only)."""
        with self.session.asking_little():
            return self.session.value(queries.UPDATEABILITY, database) == "READ_ONLY"

    def lists_as_replica(self, database: str) -> bool:
        """The same of the server that has answered `capture_instances`."""
        found = self.is_replica(database)
        self._require_same(database, self._listed.get(database))
        return found

    def max_transaction_lsn(self, database: str, after: Lsn | None, limit: int, known: Lsn = ZERO_LSN) -> Lsn | None:
        """Commit LSN of the newest captured transaction after `after`, or of the `limit`-th next one if `limit` > 0, over a
        connection whose server has captured the log up to `known`."""
        start = (after or ZERO_LSN).raw
        query, parameters = (
            (queries.NTH_TRANSACTION, (limit, start)) if limit > 0 else (queries.MAX_TRANSACTION, (start,))
        )
        with cdc_objects(database):
            return lsn_of(self._rows_reaching(known, query, database, *parameters)[0][0])

    def ddl_statements(self, database: str) -> Mapping[str, Sequence[str]]:
        """DDL statements on captured tables, by capture instance, oldest first (`cdc.ddl_history`)."""
        with cdc_objects(database):
            rows = self._rows(queries.DDL_HISTORY, database)
        found: dict[str, list[str]] = {}
        for instance, command in rows:
            found.setdefault(str(instance), []).append(str(command).strip())
        return found

    def instance_options(self, database: str) -> Mapping[str, InstanceOptions]:
        """Options of each capture instance, by its name."""
        with cdc_objects(database):
            rows = self._rows(queries.INSTANCE_OPTIONS, database)
        return {str(name): options_of(options) for name, *options in rows}

    def low_water_marks(self, database: str) -> Mapping[str, Lsn]:
        """Current `cdc.change_tables.start_lsn` by capture instance name; without instances that have none yet.

        After `active_instances` they are those of the replica that answered it, and what else was asked since: another one, on which the
        clean-up has not come as far, would not show that the change rows are gone; then IncompleteReadError is raised.
        """
        with cdc_objects(database):
            rows = self._rows(queries.LOW_WATER_MARKS, database)
        self._require_same(database, self._probes.end(database))
        return {str(name): mark for name, start in rows if (mark := lsn_of(start)) is not None}

    def _require_same(self, database: str, connection: int | None) -> None:
        """Check that an answer was given over the connection of an earlier one, if there was any."""
        if connection not in (None, self.session.connections):
            raise IncompleteReadError(
                f"The connection to {server_name(self._settings)} was opened again between two questions about database {database}, "
                "perhaps to a replica that lags. The questions are repeated"
            )

    def active_instances(self, database: str, bounds: Mapping[str, Lsn], until: Lsn) -> frozenset[str]:
        """Which instances have change rows in `(bounds[name], until]`; one query per 200 of them.

        An instance whose change table was dropped, or is damaged, counts as active, so that reading it reveals that.
        """
        with self.session.asking_little():
            return self._probes.active(database, bounds, until)

    def rows_per_commit(
        self, database: str, bounds: Mapping[str, Lsn], until: Lsn, skipped: Sequence[int] = ()
    ) -> Mapping[str, Sequence[tuple[Lsn, int]]]:
        """Commit LSNs with change rows in `(bounds[name], until]` by instance, with the number of rows; one query per
        200 instances, two at once for many transactions.

        An instance whose change table was dropped, or is damaged, is ignored here; reading it reveals that. Between `active_instances` and
        `low_water_marks` all queries are of one connection.
        """
        beside = self.session if database in self._probes else self._beside
        bounds = {name: bounds[name] for name in self._probes.readable(database, bounds)}
        return commit_counts.rows_per_commit(self.session, beside, database, bounds, until, skipped)

    def positions_in_commit(
        self, database: str, instances: Sequence[str], commit: Lsn, step: int
    ) -> Sequence[Position]:
        """Positions of every `step`-th change row of each instance inside a commit; see `core.ports`."""
        readable = self._probes.readable(database, instances)
        return change_tables.positions_in_commit(self.session, database, readable, commit, step)

    def commit_times(self, database: str, lsns: Sequence[Lsn], known: Lsn = ZERO_LSN) -> Mapping[Lsn, datetime]:
        """Time of the newest commit up to each LSN, over a connection whose server has captured the log up to `known`; an LSN between
        two commits costs a query per 100 of them."""
        return commit_times(self.session, self.session.floor(database, known), lsns)

    def was_set_back(self, database: str, lsn: Lsn) -> bool:
        """Whether the server's clock was set back after a commit: later ones have earlier times, or times that are still to come."""
        statement = queries.of_database(queries.SET_BACK, database)
        return bool(self.session.rows(statement, lsn.raw, -CLOCK_SKEW_S, lsn.raw, CLOCK_SKEW_S))

    def row_counts(self, schemas: Sequence[TableSchema]) -> Mapping[TableId, int]:
        """Approximate row counts from `sys.partitions`; one query per 1000 tables of a database."""
        tables = {(schema.table.database, schema.object_id): schema.table for schema in schemas}
        found = dict.fromkeys(tables.values(), 0)
        for database, portion in by_database(tables, _IDS_PER_QUERY):
            with self._waiting():
                rows = self.session.rows(queries.row_counts(database, len(portion)), *portion)
            found |= {tables[database, integer(object_id)]: integer(count or 0) for object_id, count in rows}
        return found

    def key_extents(self, schemas: Sequence[TableSchema], rows: Mapping[TableId, int]) -> Mapping[TableId, KeyExtent]:
        """Least and greatest integer leading keys of tables large enough to divide; one query per 100 of them in a
        database."""
        found: dict[TableId, KeyExtent] = {}
        large = [schema for schema in schemas if is_worth_cutting(rows.get(schema.table, 0))]
        for _, portion in by_database(((schema.table.database, schema) for schema in large), _TABLES_PER_QUERY):
            with suppress(QueryError, PreflightError, LockTimeoutError), self._waiting():
                found |= key_extents(self.session, portion)
        return found

    def key_ranges(
        self, schema: TableSchema, rows: int, slices: int, extent: KeyExtent | None = None
    ) -> Sequence[KeyRange]:
        """Ranges of about equal rows that together cover the table, first and last open; one if it has no key."""
        with self._waiting():
            return key_ranges(self.session, schema, rows, slices, extent)

    def lock_tables(self, tables: Sequence[TableId], timeout_ms: int) -> AbstractContextManager[HeldLocks]:
        """Hold a shared lock on each table in a separate session: writers wait, readers do not."""
        return locked(self._settings, tables, timeout_ms)

    def write_signal(self, table: TableId, row: tuple[str, str, str | None]) -> None:
        """Insert a row of id, type and data into a signal table; not retried."""
        with self._waiting():
            self.session.write(f"INSERT INTO {table.quoted} VALUES (?, ?, ?)", *row)  # noqa: S608 - quoted name

    def signal_lsn(self, instance: CaptureInstance, column: str, own_id: str, after: Lsn) -> Lsn | None:
        """Commit LSN of the inserted row with that id of a signal table; None if it is not captured yet."""
        with self.session.asking_little():
            return change_tables.inserted_lsn(self.session, instance, column, own_id, after)

    def has_signals(self, instance: CaptureInstance, column: str, but: Sequence[str], after: Lsn) -> bool:
        """Whether rows of other types than these were inserted into a signal table after an LSN; one query."""
        with self.session.asking_little():
            return change_tables.inserted_others(self.session, instance, column, but, after)

    def delete_signal(self, table: TableId, column: str, own_id: str) -> bool:
        """Delete the row with that id from a signal table, whose first column is given; False if there was none."""
        with self._waiting():
            count = self.session.write(f"DELETE FROM {table.quoted} WHERE {quote(column)} = ?", own_id)  # noqa: S608 - quoted names
        return count != 0  # where the server counts nothing (NOCOUNT), it is believed to be deleted

    def agent_running(self, database: str) -> bool | None:
        """Whether the SQL Server Agent runs; None if unknown, as on Azure SQL or without permission."""
        text = self._agent_status_query.replace("#db", database) or queries.AGENT
        try:
            with self.session.asking_little():
                answer = self.session.value(text)
        except (QueryError, PreflightError):
            return None
        return None if answer is None else str(answer).lower() in ("1", "true")

    def empty_scans(self, database: str) -> tuple[object, int] | None:
        """Server and number of the newest scan session, and how many scans of it in a row found nothing; None if that is not
        known, as on a secondary."""
        try:
            rows = self._rows(queries.EMPTY_SCANS, database, database)
        except (QueryError, PreflightError):  # needs VIEW DATABASE STATE
            return None
        return next((((server, number), integer(empty)) for server, number, empty in rows), None)

    def capture_job(self, database: str) -> CaptureJob:
        """Query the health of the job that reads the log.

        Raises:
            CdcDisabledError: change data capture is off.
            CdcError: the server is unavailable.
        """
        with cdc_objects(database):
            quiet = self._value(queries.CAPTURE_QUIET, database)
        try:
            errors = self._rows(queries.CAPTURE_ERROR, database)
        except (QueryError, PreflightError):  # needs VIEW DATABASE STATE
            errors = []
        error = " ".join(str(part) for part in errors[0]) if errors else ""
        return CaptureJob(database, self.agent_running(database), None if quiet is None else integer(quiet), error)

    def _waiting(self) -> AbstractContextManager[None]:
        return self.session.waiting(self._lock_timeout_ms)

    def _rows(self, template: str, database: str, *parameters: object) -> list[Row]:
        """Rows of a question about the catalogue or the log."""
        with self.session.asking_little():
            return self.session.rows(queries.of_database(template, database), *parameters)

    def _rows_reaching(self, known: Lsn, template: str, database: str, *parameters: object) -> list[Row]:
        """The same, over a connection whose server has captured the log up to `known`."""
        with self.session.asking_little():
            floor = self.session.floor(database, known)
            return self.session.rows_behind(floor, queries.of_database(template, database), *parameters)

    def _value(self, template: str, database: str, *parameters: object) -> object:
        with self.session.asking_little():
            return self.session.value(queries.of_database(template, database), *parameters)

    def _database(self, name: str) -> list[Row]:
        """What the server says of a database: its real name, whether CDC is on, snapshot isolation, state."""
        with self.session.asking_little():
            return self.session.rows(queries.DATABASE, name)


def quick_source(config: CaptureConfig) -> SqlServerSource:
    """The control plane with short time-outs, for code that must not hang: loading, sensors, checks."""
    wait = min(config.connection.login_timeout_s, _QUICK_LOGIN_S)
    connection = replace(config.connection, login_timeout_s=wait, query_timeout_s=_QUICK_QUERY_S)
    return SqlServerSource.of(replace(config, connection=connection), _QUICK_BUDGET_S)
