"""A login on the engine: implements `contract.Session` and `contract.ProcedureContext`."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final, Protocol

from mssql_standin.batches.interpreter import Interpreter
from mssql_standin.batches.sinks import NullSink
from mssql_standin.batches.suggest import suggest
from mssql_standin.capture import hooks
from mssql_standin.catalog import Catalog, Column, Table, fold
from mssql_standin.certain import certain
from mssql_standin.contract import (
    AgentControl,
    Cancelled,
    Clock,
    Login,
    Names,
    Parameter,
    Procedure,
    ResultColumn,
    ResultSink,
)
from mssql_standin.definitions.ports import Server
from mssql_standin.engine import procedures
from mssql_standin.engine.functions import register_engine_functions
from mssql_standin.errors import SqlError
from mssql_standin.queries.frame import Frame
from mssql_standin.queries.names import SessionNames, check_online
from mssql_standin.queries.ports import Plan
from mssql_standin.rights import Rights
from mssql_standin.sql.registry import register_functions
from mssql_standin.sqltypes import SqlType, Value
from mssql_standin.store import physical
from mssql_standin.store.identity import Identities
from mssql_standin.store.storage import Storage
from mssql_standin.store.temporary import FIRST_TEMPORARY
from mssql_standin.store.transactions import Transaction
from mssql_standin.text.options import Options

_POLL_EVERY: Final = 50_000
"""SQLite instructions between two looks for an attention; about a millisecond."""


class Home(Server, Protocol):
    """The engine, as its sessions know it."""

    name: str
    storage: Storage

    @property
    def clock(self) -> Clock:
        """The server's clock."""

    @property
    def agent(self) -> AgentControl:
        """The server's capture Agent."""

    def closed(self, session: "EngineSession") -> None:
        """A session ended."""


class EngineSession:
    """One session with its own SQLite connection. Used by one thread at a time."""

    def __init__(self, engine: Home, session_id: int, login: Login, database: str) -> None:
        self.engine = engine
        self.session_id = session_id
        self.login = login
        self.started = engine.clock.local()
        self.home_database = self._database = database
        self.storage = engine.storage
        self.connection: sqlite3.Connection = engine.storage.connect()
        self.clock: Clock = engine.clock
        self.failure: SqlError | None = None
        self.rowcount = 0
        self.last_error = 0
        self.command_id = self.change_number = self.rewritten = 0
        self.options = Options()
        self.nest_level = 0
        self.temporary: dict[str, Table] = {}
        self.temporary_version = 0
        self._temporary_ids = FIRST_TEMPORARY
        self.identities = Identities(self)
        self.plans: dict[object, Plan] = {}
        self.sink: ResultSink = NullSink()
        self.procedure_database = database
        self.cancelled: BaseException | None = None
        self.frames: list[Frame] = []
        self.transaction = Transaction(engine.storage, self)
        self.disconnect: Callable[[], None] | None = None
        self.killed = False
        self._closed = False
        self._procedure: ExitStack | None = None
        self._procedure_catalog: Catalog | None = None
        self._limited = "" if fold(login.user) == fold(engine.user) else fold(login.user)
        self.principal = self._limited
        """Whose rights statements are checked for, a part of the key of their plans; empty for nobody's."""
        self._rights: tuple[int, Rights | None] = (-1, None)
        register_functions(self.connection, self)
        register_engine_functions(self)
        self.connection.set_progress_handler(self._poll, _POLL_EVERY)
        hooks.opened(self)

    # ---- what functions and procedures see -----------------------------------------------------------------------

    @property
    def database(self) -> str:
        """Current database, declared letter case."""
        return self._database

    @property
    def server_name(self) -> str:
        """@@SERVERNAME."""
        return self.engine.name

    @property
    def rights(self) -> Rights | None:
        """What the login may do; None for a sysadmin, and inside a procedure, which its owner answers for."""
        if not self.principal:
            return None
        catalog = self.catalog
        if self._rights[0] != catalog.version:
            self._rights = catalog.version, Rights.of(catalog, self.login.user)
        return self._rights[1]

    @contextmanager
    def trusting(self, trusted: bool) -> Iterator[None]:
        """Inside a procedure nothing is checked; a text that it executes is checked again."""
        outer, self.principal = self.principal, "" if trusted else self._limited
        try:
            yield
        finally:
            self.principal = outer

    @property
    def catalog(self) -> Catalog:
        """Committed catalogue, or the transaction's own copy."""
        return self.transaction.edited or self.storage.catalog

    def names_of_tables(self) -> Names:
        """What names mean in the text of a constraint."""
        return SessionNames(self, Frame())

    @property
    def transaction_count(self) -> int:
        """@@TRANCOUNT."""
        return self.transaction.count

    @property
    def in_transaction(self) -> bool:
        """Whether a T-SQL transaction is open."""
        return self.transaction.count > 0

    @property
    def savepoint_lsn(self) -> int | None:
        """LSN of the latest SAVE TRANSACTION."""
        return self.transaction.savepoint_lsn

    @property
    def agent(self) -> AgentControl:
        """The server's capture Agent."""
        return self.engine.agent

    @property
    def lock_timeout_s(self) -> float | None:
        """LOCK_TIMEOUT in seconds."""
        timeout = self.options.lock_timeout_ms
        return None if timeout < 0 else timeout / 1000

    def savepoint_lsn_now(self) -> int:
        """A fresh LSN of the current database's log."""
        return int.from_bytes(self.engine.agent.next_lsn(self._database), "big")

    def before_commit(self) -> None:
        """Transaction hook."""
        hooks.before_commit(self)

    def after_commit(self) -> None:
        """Transaction hook."""
        hooks.after_commit(self)

    def rolled_back(self) -> None:
        """Transaction hook."""
        hooks.rolled_back(self)

    # ---- attention -----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise Cancelled after an attention.

        Raises:
            SqlError: 596 after a KILL.
        """
        if self.killed:
            raise SqlError(596, "Cannot continue the execution because the session is in the kill state.", 21)
        self.sink.check()

    def _poll(self) -> int:
        """SQLite's progress handler.

        While SQLite's transaction is open for writing nothing is interrupted, since SQLite would roll back all of it, and no
        attention is taken, since nobody would answer it: the end of the statement finds it, or the wire behind its response.
        """
        if self.transaction.writing:
            return 0
        if self.cancelled is None:
            try:
                self.check()
            except BaseException as cancelled:  # noqa: BLE001 - carried across SQLite and raised again by `raise_cancelled`
                self.cancelled = cancelled
        return int(self.cancelled is not None)

    def raise_cancelled(self) -> None:
        """Raise what the progress handler caught."""
        if self.cancelled is not None:
            cancelled, self.cancelled = self.cancelled, None
            raise cancelled

    # ---- running -------------------------------------------------------------------------------------------------

    def batch(self, text: str, sink: ResultSink) -> None:
        """Run a SQL batch; errors go to the sink."""
        self._run(text, Frame(), sink)

    def execute_sql(self, text: str, parameters: Sequence[Parameter], sink: ResultSink) -> int:
        """Run text with parameters; output parameters are changed in place."""
        frame = Frame.of(parameters, 1, text)
        status = self._run(text, frame, sink)
        for parameter in parameters:
            if parameter.output:
                parameter.value = frame.variable(parameter.name).value
        if frame.temporary or frame.tables:
            self.drop_frame_tables(frame)
        return status

    def _run(self, text: str, frame: Frame, sink: ResultSink) -> int:
        previous, self.sink = self.sink, sink
        try:
            if self.killed:
                self.check()
            return Interpreter(self, frame, sink).run_text(text)
        except Cancelled:
            if self.options.xact_abort:
                self.transaction.abandon()
            raise
        finally:
            self.transaction.end_statement()
            self.sink = previous

    def call(self, procedure: str, arguments: Sequence[Parameter], sink: ResultSink) -> int:
        """EXEC of a named procedure by a client's RPC."""
        previous, self.sink = self.sink, sink
        try:
            return Interpreter(self, Frame(), sink).run_call(procedure, arguments)
        finally:
            self.transaction.end_statement()
            self.sink = previous

    def type_named(self, text: str, number: int) -> SqlType:
        """A declared type, alias types included."""
        return Interpreter(self, Frame(), self.sink).type_named(text, number)

    def describe_parameters(self, text: str) -> Sequence[Parameter]:
        """sp_describe_undeclared_parameters."""
        return suggest(self, text)

    def use(self, name: str, sink: ResultSink) -> None:
        """Change the database.

        Raises:
            SqlError: 911 when it does not exist, 942 when it is offline, 916 when the login may not use it.
        """
        found = self.catalog.database(name)
        if found is None:
            raise SqlError(911, f"Database '{name}' does not exist. Make sure that the name is entered correctly.")
        check_online(found)
        if (rights := self.rights) is not None:
            rights.require_entry(found)
        old, self._database = self._database, found.name
        sink.database_changed(old, found.name)

    @contextmanager
    def within(self, database: str) -> Iterator[None]:
        """Another current database for a while, which the client is not told."""
        outer, self._database = self._database, database
        try:
            yield
        finally:
            self._database = outer

    # ---- transaction-manager requests ----------------------------------------------------------------------------

    def begin(self, isolation: str | None = None) -> int:
        """BEGIN; returns the descriptor."""
        if isolation:
            self.set_isolation(isolation.upper())
        self.transaction.begin()
        return self.transaction.descriptor

    def commit(self) -> None:
        """COMMIT."""
        self.transaction.commit()

    def rollback(self, name: str = "") -> None:
        """ROLLBACK; succeeds with no transaction open and no name."""
        if name or self.transaction.count:
            self.roll_back(name)

    def roll_back(self, name: str = "") -> None:
        """ROLLBACK, with the contents of table variables kept: they are no part of the transaction."""
        self.transaction.rollback(name)
        self.forget_rolled_back_tables()

    def save(self, name: str) -> None:
        """SAVE."""
        self.transaction.save(name)

    def set_isolation(self, level: str) -> None:
        """SET TRANSACTION ISOLATION LEVEL."""
        self.options.isolation = level
        self.transaction.isolation = level

    def reset(self) -> None:
        """Connection reset."""
        self.transaction.abandon()
        for name in list(self.temporary):
            self.drop_temporary(name)
        self.options = Options()
        self.transaction.isolation, self.transaction.implicit = "READ COMMITTED", False
        self._database = self.home_database
        self.rowcount = self.last_error = 0
        self.identities.forget()

    def kill(self) -> None:
        """End the session from another one's thread: its own thread rolls back and closes."""
        self.killed = True
        if self.disconnect is not None:
            self.disconnect()

    def close(self) -> None:
        """Roll back and let go of everything; closing twice is fine."""
        if self._closed:
            return
        self._closed = True
        self.transaction.abandon()
        hooks.closed(self)
        self.engine.closed(self)
        self.connection.close()

    # ---- procedures ----------------------------------------------------------------------------------------------

    def edit(self) -> Catalog:
        """Begin writing and return the catalogue copy that may be changed."""
        if self._procedure is None:
            raise RuntimeError("edit() is for definition statements and procedures")
        if self._procedure_catalog is None:
            self._procedure.enter_context(self.transaction.statement())
            self._procedure_catalog = self.transaction.edit()
        return self._procedure_catalog

    def editing(self, work: Callable[[], Any]) -> Any:
        """Run something that may call `edit`; its effects are one statement."""
        outer = self._procedure, self._procedure_catalog
        with ExitStack() as stack:
            self._procedure, self._procedure_catalog = stack, None
            try:
                return work()
            finally:
                self._procedure, self._procedure_catalog = outer

    def create_table(self, table: Table) -> None:
        """Add the table to the copy and create its SQLite table and indexes."""
        database = certain(self.edit().database(table.database), table.database)
        database.tables[fold(table.schema), fold(table.name)] = table
        physical.create(self, table)

    def drop_table(self, table: Table) -> None:
        """Drop table, capture instances and triggers and remove it from the copy."""
        database = certain(self.edit().database(table.database), table.database)
        hooks.table_dropped(self, table)
        physical.drop(self, table)
        del database.tables[fold(table.schema), fold(table.name)]

    def convert_column(self, table: Table, column: Column, wanted: SqlType) -> None:
        """Convert the stored values of a column to another type; the caller changes the definition."""
        physical.convert_column(self, table, column, wanted)

    def send(self, columns: Sequence[ResultColumn], rows: Iterable[Sequence[Value]]) -> None:
        """Send a whole result set."""
        self.sink.columns(columns)
        count = self.sink.rows(rows)
        self.rowcount = count
        self.sink.done(None if self.options.nocount else count)

    # ---- temporary tables ----------------------------------------------------------------------------------------

    def new_temporary_id(self) -> int:
        """Object id of a temporary table or table variable."""
        self._temporary_ids += 1
        return self._temporary_ids

    def add_temporary(self, table: Table) -> None:
        """Make a created temporary table known."""
        self.temporary[fold(table.name)] = table
        self.temporary_version += 1

    def drop_temporary(self, name: str) -> None:
        """Drop a temporary table by its folded name."""
        table = self.temporary.pop(name)
        self.connection.execute(f"DROP TABLE IF EXISTS {table.sqlite}")
        self.temporary_version += 1

    def table_variables(self) -> list[Table]:
        """Table variables of the frames that run, for error messages."""
        return [table for frame in self.frames for table in frame.tables.values()]

    def drop_frame_tables(self, frame: Frame) -> None:
        """Drop the temporary tables that a frame created, and its table variables."""
        for name in frame.temporary:
            if name in self.temporary:
                self.drop_temporary(name)
        for table in frame.tables.values():
            self.connection.execute(f"DROP TABLE IF EXISTS {table.sqlite}")

    def forget_rolled_back_tables(self) -> None:
        """After a rollback, forget temporary tables whose creation it undid."""
        if self.temporary:
            there = {
                name for (name,) in self.connection.execute("SELECT name FROM temp.sqlite_master WHERE type = 'table'")
            }
            for name in [name for name, table in self.temporary.items() if table.sqlite not in there]:
                del self.temporary[name]
                self.temporary_version += 1

    def procedure(self, name: str) -> tuple[Procedure, str] | None:
        """The built-in procedure of that name, with the database it runs in."""
        return procedures.find(self, name)
