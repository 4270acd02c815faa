"""Rows as Arrow through mssql-python, inside whatever process asks: a Spark task or the driver.

Reading is repeatable as a whole, never in part: it is tried again here until the first batch was handed out; a later
error reaches the task, whose slice is read again from its start. Every type is exact but two, which the Arrow reader cuts
(measured): for datetime2(7) and datetimeoffset statements ask for the server's own binary form (`typemap.wire`).
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Self

import mssql_python
import pyarrow as pa
from mssql_python.exceptions import ConnectionStringParseError, sqlstate_to_exception

from cdc_assets.config.settings import CaptureConfig, ConnectionSettings, IsolationMode
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.interruption import cancelled_by
from cdc_assets.errors import CdcError
from resources.sqlserver_driver import connection_string, keywords, server_name, without_database
from resources.sqlserver_errors import redact, to_cdc_error
from resources.sqlserver_queries import isolation_level, lock_timeout, one_of
from resources.sqlserver_retry import repeated

DEFAULT_ISOLATION: Final = "read_committed"
"""What a new session has; mssql-python sets it again when it hands a pooled one out."""

ROWS_TAG: Final = "/* cdc-assets: rows */"
"""Begins statements that read source tables (`streaming.statements.rows_query`). All others read change tables and stay
READ COMMITTED: locks held longer would escalate to the whole change table and stop the capture job."""
CHUNK_TAG: Final = "/* cdc-assets: chunk"
"""Begins statements of incremental snapshots (`snapshot.chunks`). A lock that one of them waits for without end would
hold the stream back where few tasks run at once."""

_STATES = (
    "08001",
    "08003",
    "08004",
    "08007",
    "08S01",
    "28000",
    "40001",
    "HYT00",
    "HYT01",
    "HY008",
    "IM002",
    "IM003",
    "IM004",
)
_STATE_OF = {sqlstate_to_exception(state, "").driver_error: state for state in _STATES}
"""mssql-python turns a SQLSTATE into a text; this turns it back."""

_ERRORS = (mssql_python.Error, ConnectionStringParseError, RuntimeError, ValueError)
"""What comes out of mssql-python: its native part raises RuntimeError, its shortening of messages ValueError."""

mssql_python.pooling(max_size=16, idle_timeout=60)  # a slice reads many tables; a reused session is reset first


@dataclass(frozen=True, slots=True)
class MssqlBulkSource:
    """Data plane over mssql-python (`core.ports.BulkSource`); a value, so it travels to Spark tasks.

    Args:
        settings: how to reach the server; the password travels with it and is in no repr.
        batch_rows: rows per Arrow batch.
        snapshot_rows: the same of statements that read source tables; 0 for no difference.
        isolation: isolation level of statements that read source tables in a snapshot.
        lock_timeout_ms: how long statements that read source tables wait for a lock; 0 not at all, -1 for ever.
    """

    settings: ConnectionSettings
    batch_rows: int = 32_768
    isolation: IsolationMode = DEFAULT_ISOLATION
    lock_timeout_ms: int = -1
    snapshot_rows: int = 0

    @classmethod
    def of(cls, config: CaptureConfig) -> Self:
        """The data plane of a capture."""
        rows, snapshot = config.streaming.fetch_size, config.snapshot
        return cls(config.connection, rows, snapshot.isolation, snapshot.lock_timeout_ms, snapshot.fetch_size)

    def read(self, statement: str, parameters: Sequence[object] = ()) -> Iterator[pa.RecordBatch]:
        """Stream a query's rows in the server's order; at least one batch, possibly empty, tells the schema.

        Raises:
            CdcError: ConnectionLostError, ServerBusyError, LoginError, PreflightError or QueryError.
        """
        with ExitStack() as stack:
            may_retry = not statement.startswith(CHUNK_TAG)  # its round is read again
            batches = repeated(lambda: self._begin(stack, statement, parameters), lambda: may_retry)
            try:
                yield from batches
            except _ERRORS as error:
                raise translate(error, self.settings) from error

    @contextmanager
    def transaction(self) -> Iterator["SnapshotTransaction"]:
        """A session with an open SNAPSHOT transaction, which sees nothing yet; it ends without a trace.

        Raises:
            CdcError: as `read`.
        """
        with _closing(self._connect()) as connection:
            try:
                connection.cursor().execute(isolation_level("snapshot"))
                if self.lock_timeout_ms >= 0:
                    connection.cursor().execute(lock_timeout(self.lock_timeout_ms))
                connection.cursor().execute("BEGIN TRANSACTION")
                yield SnapshotTransaction(self, connection)
            except _ERRORS as error:
                raise translate(error, self.settings) from error
            finally:
                with suppress(*_ERRORS):
                    connection.cursor().execute("IF @@TRANCOUNT > 0 ROLLBACK")

    def _begin(self, stack: ExitStack, statement: str, parameters: Sequence[object]) -> Iterator[pa.RecordBatch]:
        """Batches, of which the first one is there; the connection is closed with the stack, or now if this fails."""
        with ExitStack() as opened:
            try:
                connection = opened.enter_context(_closing(self._connect()))
                cursor = connection.cursor()
                for setting in self._settings_of(statement):
                    cursor.execute(setting)
                batches = self._executed(cursor, statement, parameters)
            except _ERRORS as error:
                raise translate(error, self.settings) from error
            stack.push(opened.pop_all())
        return batches

    def _executed(
        self, cursor: mssql_python.Cursor, statement: str, parameters: Sequence[object]
    ) -> Iterator[pa.RecordBatch]:
        """What a statement gives; when this returns, the first batch is there."""
        rows = (statement.startswith(ROWS_TAG) and self.snapshot_rows) or self.batch_rows
        with _cancelled(cursor):
            cursor.execute(statement, *parameters)
            reader = cursor.arrow_reader(rows)
            first = next(reader, None)
        return _batches(
            cursor, reader, pa.RecordBatch.from_pylist([], schema=reader.schema) if first is None else first
        )

    def _settings_of(self, statement: str) -> Iterator[str]:
        if statement.startswith(ROWS_TAG) and self.isolation != DEFAULT_ISOLATION:
            yield isolation_level(self.isolation)
        if statement.startswith((ROWS_TAG, CHUNK_TAG)) and self.lock_timeout_ms >= 0:
            yield lock_timeout(self.lock_timeout_ms)

    def _connect(self) -> mssql_python.Connection:
        settings = self.settings
        pairs = keywords(settings)
        try:
            connection = self._open(pairs)
        except _ERRORS as error:
            elsewhere = without_database(pairs, str(error))
            if elsewhere is None:
                raise translate(error, settings) from error
            try:
                connection = self._open(elsewhere)
            except _ERRORS:
                raise translate(error, settings) from error
        return connection

    def _open(self, pairs: dict[str, str]) -> mssql_python.Connection:
        timeout = self.settings.login_timeout_s
        connection = mssql_python.connect(connection_string(pairs), autocommit=True, timeout=timeout)
        connection.timeout = self.settings.query_timeout_s
        return connection


class SnapshotTransaction:
    """An open SNAPSHOT transaction (`core.ports.ReadTransaction`)."""

    def __init__(self, source: MssqlBulkSource, connection: mssql_python.Connection) -> None:
        self._source, self._connection = source, connection
        self._cursor = connection.cursor()

    def pin(self, table: TableId) -> None:
        """Read one row of a table, which fixes the moment that all later statements see.

        Raises:
            CdcError: as `MssqlBulkSource.read`; 3952 if the database does not allow SNAPSHOT.
        """
        try:
            with _cancelled(self._fresh()):
                self._cursor.execute(one_of(table.quoted))
                self._cursor.fetchall()
        except _ERRORS as error:
            raise translate(error, self._source.settings) from error

    def read(self, statement: str, parameters: Sequence[object] = ()) -> Iterator[pa.RecordBatch]:
        """As `MssqlBulkSource.read`, but never tried again: another session would see another moment."""
        try:
            yield from self._source._executed(self._fresh(), statement, parameters)
        except _ERRORS as error:
            raise translate(error, self._source.settings) from error

    def _fresh(self) -> mssql_python.Cursor:
        """A cursor; the one before gives up what nobody has read of it."""
        self._cursor.close()
        self._cursor = self._connection.cursor()
        return self._cursor


@contextmanager
def _closing(connection: mssql_python.Connection) -> Iterator[mssql_python.Connection]:
    """Closes the connection (or gives it back to the pool) whatever state it is in."""
    try:
        yield connection
    finally:
        with suppress(*_ERRORS):
            connection.close()


def _batches(cursor: mssql_python.Cursor, reader: Any, first: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    batch: pa.RecordBatch | None = first
    while batch is not None:
        yield batch
        with _cancelled(cursor):
            batch = next(reader, None)


def _cancelled(cursor: mssql_python.Cursor) -> AbstractContextManager[None]:
    """A block in which the cursor waits for the server.

    The driver has no method of its own for it: what it calls when a reader is closed is asked for here, and may be called
    from any thread.
    """
    return cancelled_by(lambda: cursor.hstmt._cancel())


def translate(error: Exception, settings: ConnectionSettings) -> CdcError:
    """Ours for mssql-python's."""
    state = _STATE_OF.get(getattr(error, "driver_error", ""), "")
    text = getattr(error, "ddbc_error", "") or redact(str(error))
    return to_cdc_error(state, text, server_name(settings), (settings.password,))
