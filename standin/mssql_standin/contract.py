"""What the rooms of the stand-in promise each other.

The wire knows a `Server` and its `Session`s and hands them a `ResultSink`; the engine
knows nothing of TDS. The compiler asks `Names` what a name means and returns SQLite
text with types; it knows nothing of sessions. All protocols are structural: nobody
inherits from them.
"""

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol

from mssql_standin.catalog import Catalog, Table
from mssql_standin.errors import SqlError
from mssql_standin.rights import Rights
from mssql_standin.sqltypes import SqlType, Value

ISOLATION: Final = {
    "READ UNCOMMITTED": 1,
    "READ COMMITTED": 2,
    "REPEATABLE READ": 3,
    "SERIALIZABLE": 4,
    "SNAPSHOT": 5,
}
"""Level → number in sys.dm_exec_sessions."""


class Cancelled(Exception):  # noqa: N818 - not an error: the client asked for it
    """Raised by a sink's methods after an attention; the engine unwinds and rolls back the statement only."""


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column of a result set, as COLMETADATA tells it."""

    name: str
    type: SqlType
    nullable: bool = True
    identity: bool = False
    computed: bool = False


class ResultSink(Protocol):
    """Where a session sends what a batch produces, in order. Implemented by the wire, and by INSERT … EXEC."""

    def columns(self, columns: Sequence[ResultColumn]) -> None:
        """Begin a result set."""

    def rows(self, rows: Iterable[Sequence[Value]]) -> int:
        """Send rows of stored values; returns how many. May be called repeatedly for one result set."""

    def blocks(self, blocks: Iterable[tuple[int, bytes]]) -> int:
        """Send (row count, encoded ROW tokens) made earlier by `wire.rowenc` for the same columns; returns the rows."""

    def done(self, count: int | None = None) -> None:
        """End a statement; `count` None when NOCOUNT is on or there is nothing to count."""

    def message(self, message: SqlError) -> None:
        """PRINT and RAISERROR up to severity 10: an INFO token."""

    def error(self, error: SqlError) -> None:
        """An error that did not end the batch, or that did: the session decides, the sink only tells."""

    def database_changed(self, old: str, new: str) -> None:
        """USE."""

    def check(self) -> None:
        """Raise `Cancelled` if the client sent an attention; cheap, called often by long statements."""


@dataclass(slots=True)
class Parameter:
    """A parameter of sp_executesql or of a procedure call; `value` of an output parameter is set by the callee."""

    name: str
    """With its `@`; empty for a positional argument."""
    type: SqlType
    value: Value
    output: bool = False
    default: bool = False
    """The caller wrote DEFAULT."""


class Session(Protocol):
    """One login on the engine. Used by one thread at a time."""

    session_id: int
    disconnect: Callable[[], None] | None
    """Set by the wire: ends the client's connection; any thread may call it."""

    @property
    def database(self) -> str:
        """Current database, declared letter case."""

    @property
    def in_transaction(self) -> bool:
        """Whether a T-SQL transaction is open."""

    def batch(self, text: str, sink: ResultSink) -> None:
        """Run a SQL batch. Errors go to the sink; only `Cancelled` and faults propagate."""

    def execute_sql(self, text: str, parameters: Sequence[Parameter], sink: ResultSink) -> int:
        """sp_executesql: run text with parameters; returns the status. Output parameters are changed in place."""

    def call(self, procedure: str, arguments: Sequence[Parameter], sink: ResultSink) -> int:
        """EXEC of a named procedure (name as written, possibly multi-part); returns its status, error 2812 if unknown."""

    def type_named(self, text: str, number: int) -> SqlType:
        """The type of the parameter of that number, alias types included; SqlError 2715 for one that nobody knows."""

    def describe_parameters(self, text: str) -> Sequence[Parameter]:
        """sp_describe_undeclared_parameters: the `@P1 …` of a text with suggested types, in order of their names."""

    def begin(self, isolation: str | None = None) -> int:
        """Transaction-manager BEGIN; returns the 8-byte descriptor as an integer."""

    def commit(self) -> None:
        """Transaction-manager COMMIT."""

    def rollback(self, name: str = "") -> None:
        """Transaction-manager ROLLBACK, to a savepoint when named; succeeds with no transaction open and no name."""

    def save(self, name: str) -> None:
        """Transaction-manager SAVE."""

    def reset(self) -> None:
        """Connection reset: roll back, drop temporary tables and variables, restore options and database."""

    def close(self) -> None:
        """Roll back and let go of everything."""


@dataclass(frozen=True, slots=True)
class Login:
    """What a LOGIN7 asks for."""

    user: str
    password: str
    database: str
    application: str = ""
    host: str = ""


class Server(Protocol):
    """The engine as the wire sees it."""

    name: str

    def open(self, login: Login) -> Session:
        """Raises SqlError 18456 for a bad login and 4060 for a database that cannot be opened."""

    def before_statement(self, session: Session, text: str) -> "Fault | None":
        """Fault injection: what shall happen to the request whose text this is."""


class RowBlocks(Protocol):
    """Encoded rows of large tables (`wire.blocks`); the engine asks it before it runs a SELECT."""

    def send(
        self, connection: sqlite3.Connection, query: "Query", values: Mapping[str, Value], sink: ResultSink
    ) -> int | None:
        """Send the query's columns and rows and return how many; None if that cannot be done, nothing is sent then.

        Not for a session with uncommitted changes, nor under SET ROWCOUNT.
        """


@dataclass(frozen=True, slots=True)
class Fault:
    """An injected fault (control for tests)."""

    error: SqlError | None = None
    after_rows: int = 0
    """Send the error or the drop only after so many rows."""
    drop: bool = False
    """Close the socket."""
    hang: bool = False
    """Half-open: never answer."""
    delay_s: float = 0.0
    """Slow: wait before each packet."""


# ---- compiler ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Typed:
    """A piece of SQLite text with the T-SQL type of its value."""

    sql: str
    type: SqlType
    nullable: bool = True
    literal: bool = False
    """An untyped literal that may take the other side's type (string and NULL literals)."""


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column of a relation; `sql` names it inside the relation, without alias."""

    name: str
    sql: str
    type: SqlType
    nullable: bool = True
    identity: bool = False
    computed: bool = False


@dataclass(frozen=True, slots=True)
class Relation:
    """Something that can stand in FROM."""

    sql: str
    """SQLite table name or parenthesised SELECT."""
    columns: tuple[RelationColumn, ...]
    table: Table | None = None
    """The stored table behind it, for locks, DML and row blocks."""
    refresh: Callable[[], None] | None = None
    """Called before each execution: refills the temporary table of a system view."""


class Names(Protocol):
    """What the compiler asks about names; the engine implements it for a session at a statement."""

    @property
    def database(self) -> str:
        """Current database."""

    @property
    def collation(self) -> str:
        """Collation of the current database."""

    def relation(self, parts: tuple[str, ...]) -> Relation:
        """One- to four-part name, table variable (`@t`) or temporary table (`#t`); SqlError 208 with the name as written."""

    def function_relation(self, parts: tuple[str, ...], arguments: Sequence[Typed]) -> Relation:
        """Table-valued function call; SqlError 208 if unknown, 313 for a wrong number of arguments."""

    def variable(self, name: str) -> SqlType:
        """Type of `@name`; SqlError 137 if it is not declared. `@@name` are functions, not variables."""

    def user_type(self, parts: tuple[str, ...]) -> SqlType | None:
        """Base type of an alias type, or None."""


@dataclass(slots=True)
class Query:
    """A compiled SELECT.

    `sql` takes T-SQL variables as SQLite parameters `:name` (without `@`, folded);
    `variables` lists those it uses.
    """

    sql: str
    columns: list[ResultColumn]
    relations: list[Relation] = field(default_factory=list)
    variables: list[str] = field(default_factory=list)
    hints: list[tuple[Relation, frozenset[str]]] = field(default_factory=list)
    """Table hints in upper case, such as TABLOCKX, HOLDLOCK, NOLOCK."""
    into: tuple[str, ...] | None = None
    """SELECT … INTO."""


class Clock(Protocol):
    """The server's clock; tests set it."""

    offset_minutes: int
    """Of the server's time zone."""

    def utc_ticks(self) -> int:
        """100 ns ticks since 0001-01-01, UTC."""

    def local(self) -> datetime:
        """Server-local wall clock, naive."""


class SessionContext(Protocol):
    """What built-in functions, views and procedures may see of the session that runs them.

    One per SQLite connection; registered functions close over it. A function that fails parks its `SqlError`
    in `failure`, since SQLite reports only that a user-defined function raised.

    The engine calls `capture.hooks.opened(context)` once per connection, right after opening it (it registers the
    functions that capture triggers call), and `capture.hooks.closed(context)` at the end. `before_commit` runs under the
    write lock inside the SQLite transaction, `after_commit` behind the lock.
    """

    session_id: int
    connection: sqlite3.Connection
    """The session's own connection; functions and collations are registered on it."""
    clock: Clock
    failure: SqlError | None
    rowcount: int
    """@@ROWCOUNT."""
    command_id: int
    """Number of the data-changing statement within the transaction, from 1; CDC triggers read it."""
    change_number: int
    """Number of the change row within the transaction, from 0; CDC triggers count it up."""
    rewritten: int
    """Object id of the table whose clustered key the running statement sets, if only to what it is; else 0."""

    @property
    def database(self) -> str:
        """Current database, declared letter case."""

    @property
    def catalog(self) -> Catalog:
        """Committed catalogue, or the transaction's own copy."""

    @property
    def rights(self) -> Rights | None:
        """What the login may do; None when it may do everything."""

    @property
    def transaction_count(self) -> int:
        """@@TRANCOUNT."""

    @property
    def savepoint_lsn(self) -> int | None:
        """LSN of the latest SAVE TRANSACTION as an integer of its 10 bytes."""

    @property
    def agent(self) -> "AgentControl":
        """The server's capture Agent: hooks, functions and procedures of `capture` reach it here."""


class ProcedureContext(SessionContext, Protocol):
    """What a built-in procedure may use besides; implemented by the engine's session."""

    sink: ResultSink
    procedure_database: str
    """The database in whose name it runs: the prefix it was called with, else the session's."""

    def edit(self) -> Catalog:
        """Begin writing (lock, transaction, statement savepoint) and return the catalogue copy that may be changed."""

    def create_table(self, table: Table) -> None:
        """Add the table to the copy and create its SQLite table and indexes."""

    def drop_table(self, table: Table) -> None:
        """Drop table and triggers and remove it from the copy."""

    def send(self, columns: Sequence[ResultColumn], rows: Iterable[Sequence[Value]]) -> None:
        """Send a whole result set."""


Procedure = Callable[[ProcedureContext, dict[str, Parameter]], int]
"""A built-in procedure: arguments by folded name without `@`, or by "1", "2", … when positional; returns the status."""


class AgentControl(Protocol):
    """The capture Agent as tests steer it; implemented by `capture.agent.Agent`."""

    latency_s: float
    """0: synchronous, the committing client waits until its changes are captured."""

    def start(self) -> None:
        """Start the thread, or start it again after `stop`."""

    def stop(self) -> None:
        """Stopped Agent: sys.dm_server_services says so, nothing is captured."""

    def pause(self) -> None:
        """Capture job paused: commits succeed, nothing is captured, the maximum LSN stays."""

    def resume(self) -> None:
        """Go on after `pause`."""

    def drain(self) -> None:
        """Return when everything committed so far is captured."""

    def idle_row(self, database: str) -> None:
        """Write one idle row (tran_id 0x00) to cdc.lsn_time_mapping."""

    def cleanup(self, database: str, capture_instance: str, low_water_mark: bytes) -> None:
        """What the clean-up job does."""

    def next_lsn(self, database: str) -> bytes:
        """Draw the next LSN of a database's log, for SAVE TRANSACTION: above every commit so far, below every later one."""
