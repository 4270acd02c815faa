"""Reads rows as Arrow through mssql-python, in the calling process: a Spark task or the driver.

A read can be repeated only as a whole: it is retried here until the first batch was returned; a later error reaches the
task, whose slice is read again from its start. A watchdog limits each wait for the server
(`cdc_assets.adapters.sqlserver.watchdog`), because the driver's own time-out works only while the server answers. All
types are exact but two, which the Arrow reader truncates (measured): for datetime2(7) and datetimeoffset statements
request the server's binary form (`typemap.wire`).

*Memory goes by bytes.* The driver makes room for as many rows of declared width as one fetch requests. It takes a value without a
declared width as long as it is. So it is asked for pieces: of so many rows that their declared width is
bounded; and where a column may hold anything, of a few rows, their number following what the rows before came to. Pieces are
put together until a batch has its rows or its bytes, whichever comes first. So tables of ordinary width arrive in batches of
`fetch.size` rows as if they were fetched at once, wide ones in smaller batches. What is held is at most a batch and a piece.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

import mssql_python
import pyarrow as pa

from cdc_assets.adapters.sqlserver import queries, table_queries
from cdc_assets.adapters.sqlserver.bulk_sessions import ERRORS, POOL, BulkSession, opened, translate
from cdc_assets.adapters.sqlserver.driver import server_name
from cdc_assets.adapters.sqlserver.errors import to_cdc_error
from cdc_assets.adapters.sqlserver.reached import Floor, require_writes
from cdc_assets.adapters.sqlserver.retry import repeated
from cdc_assets.adapters.sqlserver.table_queries import isolation_level, lock_timeout, one_of
from cdc_assets.config.settings import CaptureConfig, ConnectionSettings, IsolationMode
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.errors import CdcError, ConnectionLostError, LockTimeoutError

DEFAULT_ISOLATION: Final = "read_committed"
"""Isolation level of a new session."""

ROWS_TAG: Final = "/* cdc-assets: rows */"
"""Prefix of statements that read source tables (`capture.statements.rows_query`). All others read change tables and
stay READ COMMITTED: locks held longer would escalate to the whole change table and stop the capture job."""
CHUNK_TAG: Final = "/* cdc-assets: chunk"
"""Prefix of statements of incremental snapshots (`incremental.chunks`). If one of them waited for a lock without limit,
it would delay the stream where few tasks run at once."""
_CHANGES_TAGS: Final = "/* cdc-assets: changes */", "/* cdc-assets: preceding */"
"""Prefixes of statements that read change tables one after the other (`shared.statements`)."""
_LATER_WAIT_MS: Final = 100
"""Longest wait for the lock of a change table once that of another one was waited for in vain."""

BATCH_BYTES: Final = 16 * 1024 * 1024
"""Arrow bytes at which a batch is handed out, however few rows it has."""
_ROOM_BYTES: Final = 64 * 1024 * 1024
"""Declared width of the rows that are requested from the driver at once."""
_UNBOUNDED_ROWS: Final = 8, 64
"""First and greatest number of rows that are requested where a column may hold up to 2 GB."""


@dataclass(slots=True)
class _Locks:
    """Whether the lock of a change table was waited for in vain: somebody may hold those of many, and each would take as long again."""

    are_held: bool = False


@dataclass(frozen=True, slots=True)
class MssqlBulkSource:
    """Data plane over mssql-python (`core.ports.BulkSource`); a value that can be sent to Spark tasks.

    Args:
        settings: connection settings; they contain the password, which no repr shows.
        batch_rows: rows per Arrow batch.
        snapshot_rows: the same for statements that read source tables; 0 for the same value.
        floor: what the server of each session must have before it is read; None requests nothing.
        isolation: isolation level of statements that read source tables in a snapshot.
        lock_timeout_ms: maximum wait for a lock of statements that read source tables; 0 not at all, -1 for ever.
    """

    settings: ConnectionSettings
    batch_rows: int = 32_768
    isolation: IsolationMode = DEFAULT_ISOLATION
    lock_timeout_ms: int = -1
    snapshot_rows: int = 0
    floor: Floor | None = None
    _locks: _Locks = field(default_factory=_Locks, repr=False, compare=False)

    @classmethod
    def of(cls, config: CaptureConfig) -> Self:
        """The data plane of a capture."""
        rows, snapshot = config.streaming.fetch_size, config.snapshot
        return cls(config.connection, rows, snapshot.isolation, snapshot.lock_timeout_ms, snapshot.fetch_size)

    def reaching(self, database: str, lsn: Lsn, *, captured: bool = True, left: Sequence[str] = ()) -> Self:
        """The same over sessions whose server has the log of a database up to an LSN; see `core.ports`."""
        floor = Floor(database, lsn, captured, tuple(left)) if lsn > ZERO_LSN or left else None
        return replace(self, floor=floor, _locks=_Locks())

    def read(self, statement: str, parameters: Sequence[object] = ()) -> Iterator[pa.RecordBatch]:
        """Stream a query's rows in the server's order; at least one batch, possibly empty, gives the schema.

        A result of one batch is read to its end before it is returned, so that few sessions are in use where many small
        results are read in parallel.

        Raises:
            CdcError: ConnectionLostError, ServerBusyError, IncompleteReadError, LoginError, PreflightError or QueryError.
        """
        may_retry = not statement.startswith(CHUNK_TAG)  # its round is repeated
        result = repeated(lambda: self._begin(statement, parameters), lambda: may_retry)
        try:
            yield from result.batches(self.settings)
        finally:
            result.end()

    @contextmanager
    def transaction(self) -> Iterator["SnapshotTransaction"]:
        """A session with an open SNAPSHOT transaction whose moment is not fixed yet; it is rolled back at the end.

        Raises:
            CdcError: as `read`.
        """
        locks = [lock_timeout(self.lock_timeout_ms)] if self.lock_timeout_ms >= 0 else []
        try:
            session = self._reached(opened(self.settings))
            for statement in (isolation_level("snapshot"), *locks, "BEGIN TRANSACTION"):
                session.execute(statement).close()
        except CdcError:  # translated already; some are among `ERRORS`
            raise
        except ERRORS as error:
            raise translate(error, self.settings) from error
        transaction = SnapshotTransaction(self, session)
        try:
            yield transaction
        finally:
            transaction.end()

    def _begin(self, statement: str, parameters: Sequence[object]) -> "_Result":
        """Start a statement: its result and first batch."""
        session = None
        try:
            session = self._reached(POOL.take(self.settings, tuple(self._settings_of(statement))))
            result = _Result(session, session.execute(statement, parameters), self.rows_of(statement), POOL.give)
            session = None
        except CdcError as error:
            if isinstance(error, ConnectionLostError):
                POOL.clear(self.settings)
            raise
        except ERRORS as error:
            ours = translate(error, self.settings, session)
            if isinstance(ours, ConnectionLostError):
                POOL.clear(self.settings)
            if isinstance(ours, LockTimeoutError) and statement.startswith(_CHANGES_TAGS):
                self._locks.are_held = True
            raise ours from error
        finally:
            if session is not None:
                session.end()
        return result

    def _reached(self, session: BulkSession) -> BulkSession:
        """The session, whose server has reached the floor; closed if not: the next one may be of another replica."""
        if self.floor is not None:
            try:
                session.require(self.floor)
            except BaseException:
                session.end()
                raise
        return session

    def rows_of(self, statement: str) -> int:
        """Batch size in rows of this statement."""
        return (statement.startswith(ROWS_TAG) and self.snapshot_rows) or self.batch_rows

    def _settings_of(self, statement: str) -> Iterator[str]:
        if statement.startswith(ROWS_TAG) and self.isolation != DEFAULT_ISOLATION:
            yield isolation_level(self.isolation)
        of_tables = statement.startswith((ROWS_TAG, CHUNK_TAG))
        own_ms, others_ms = self.lock_timeout_ms, table_queries.lock_wait_ms(self.settings.query_timeout_s)
        if self._locks.are_held and statement.startswith(_CHANGES_TAGS):
            others_ms = min(others_ms, _LATER_WAIT_MS)
        milliseconds = own_ms if of_tables else others_ms
        if milliseconds >= 0:
            yield lock_timeout(milliseconds)


def _is_notice(state: str) -> bool:
    """Whether a driver message next to a batch, of the form `[SQLSTATE] (number)`, is harmless."""
    return state.startswith(("[00", "[01"))


class _Result:
    """An open result whose first batch was read; closes itself once it is read to its end.

    *Why its end is verified.* If the connection breaks where a row and a packet end together, mssql-python returns the
    rows received so far and then reports the end of the result; the error is only in the cursor's messages (measured:
    two of a hundred breaks). So these are checked after each batch, and the connection at the end.

    Args:
        session: session of the statement.
        rows: maximum rows of a batch.
        free: function that takes the session back when the result was read to its end.
    """

    def __init__(
        self, session: BulkSession, cursor: mssql_python.Cursor, rows: int, free: Callable[[BulkSession], None]
    ) -> None:
        self._session: BulkSession | None = session
        self._cursor, self._free, self._rows = cursor, free, rows
        self._piece, self._max_piece = piece_rows(cursor.description, rows)
        self._schema = session.wait(lambda: cursor.arrow_batch(0)).schema
        first = self._next()
        self._read = [pa.RecordBatch.from_pylist([], schema=self._schema) if first is None else first]

    def batches(self, settings: ConnectionSettings) -> Iterator[pa.RecordBatch]:
        """All batches.

        Raises:
            CdcError: as `MssqlBulkSource.read`.
        """
        yield from self._read
        self._read.clear()
        try:
            while (batch := self._next()) is not None:
                yield batch
        except ERRORS as error:
            raise translate(error, settings, self._session) from error

    def end(self) -> None:
        """Discard unread rows."""
        if self._session is not None:
            self._session.end()
            self._session = None

    def _next(self) -> pa.RecordBatch | None:
        """The next batch, or None at the end; the end is reached with the last rows if they do not fill a batch."""
        pieces: list[pa.RecordBatch] = []
        rows = size = 0
        while rows < self._rows and size < BATCH_BYTES:
            piece = self._fetch(min(self._piece, self._rows - rows))
            if piece is None:
                break
            pieces.append(piece)
            rows, size = rows + piece.num_rows, size + piece.nbytes
            wanted = BATCH_BYTES * piece.num_rows // max(1, piece.nbytes)
            self._piece = max(1, min(self._max_piece, wanted, 2 * self._piece))
        if len(pieces) < 2:
            return pieces[0] if pieces else None
        return pa.concat_batches(pieces)

    def _fetch(self, rows: int) -> pa.RecordBatch | None:
        """Some rows of the driver, proved whole; None at the end."""
        if self._session is None:
            return None
        settings = self._session.settings
        batch: pa.RecordBatch = self._session.wait(lambda: self._cursor.arrow_batch(rows))
        if trouble := next((text for state, text in self._cursor.messages if not _is_notice(state)), None):
            raise to_cdc_error("08S01", trouble, server_name(settings), (settings.password,))
        if batch.num_rows:
            return batch
        if self._session.tcp.is_closed():
            raise to_cdc_error("08S01", "it was closed at the end of a result", server_name(settings))
        self._cursor.close()
        self._free(self._session)
        self._session = None
        return None


def piece_rows(description: Sequence[Sequence[Any]], rows: int) -> tuple[int, int]:
    """How many rows to ask the driver for at once: first, and at most.

    Args:
        description: of the result's columns as the driver gives it; size 0 is that of a type without a bound.
        rows: of a batch.
    """
    sizes = [column[3] for column in description]
    if not all(sizes):
        return min(_UNBOUNDED_ROWS[0], rows), min(_UNBOUNDED_ROWS[1], rows)
    max_rows = max(
        1,
        min(
            rows,
            _ROOM_BYTES
            // sum(4 * size if column[1] is str else size for column, size in zip(description, sizes, strict=True)),
        ),
    )
    return max_rows, max_rows


class SnapshotTransaction:
    """An open SNAPSHOT transaction (`core.ports.ReadTransaction`)."""

    def __init__(self, source: MssqlBulkSource, session: BulkSession) -> None:
        self._source, self._session = source, session
        self._cursor: mssql_python.Cursor | None = None

    def pin(self, table: TableId) -> None:
        """Read one row of a table, which fixes the moment that all later statements see.

        Raises:
            CdcError: as `MssqlBulkSource.read`; 3952 if the database does not allow SNAPSHOT.
        """
        for _ in self.read(one_of(table.quoted)):
            pass

    def require_primary(self, database: str) -> None:
        """Check that the session is where the database is written to: a listener may route each session elsewhere.

        Raises:
            PreflightError: it is not.
            CdcError: as `MssqlBulkSource.read`.
        """
        settings = self._source.settings
        try:
            found = self._session.value(queries.UPDATEABILITY, database)
        except ERRORS as error:
            raise translate(error, settings, self._session) from error
        require_writes(database, server_name(settings), found)

    def read(self, statement: str, parameters: Sequence[object] = ()) -> Iterator[pa.RecordBatch]:
        """As `MssqlBulkSource.read`, but never retried: another session would see another moment."""
        settings = self._source.settings
        try:
            self._abandon()
            self._cursor = self._session.execute(statement, parameters)
            result = _Result(self._session, self._cursor, self._source.rows_of(statement), lambda _: None)
        except ERRORS as error:
            raise translate(error, settings, self._session) from error
        yield from result.batches(settings)

    def end(self) -> None:
        """End the transaction; if the server does not confirm, close the session."""
        try:
            with suppress(*ERRORS, ConnectionLostError):
                self._abandon()
                self._session.execute("IF @@TRANCOUNT > 0 ROLLBACK")
        finally:
            self._session.end()

    def _abandon(self) -> None:
        """Discard unread rows of the last statement; the server has to stop it."""
        cursor, self._cursor = self._cursor, None
        if cursor is not None:
            self._session.wait(cursor.close)
