"""A session over a real SQLite file, with the least that capture needs: no parser, no wire."""

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from mssql_standin.capture import hooks
from mssql_standin.capture.agent import Agent
from mssql_standin.capture.procedures import PROCEDURES
from mssql_standin.catalog import Catalog, Column, Database, Index, Table, fold
from mssql_standin.contract import Parameter, ResultColumn
from mssql_standin.errors import SqlError
from mssql_standin.sql.collation import register_collations
from mssql_standin.sqltypes import SqlType, Value, parse_type


class SteppingClock:
    """A clock that moves ten milliseconds whenever it is read."""

    offset_minutes = 0

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)

    def local(self) -> datetime:
        """Wall clock."""
        self.now += timedelta(milliseconds=10)
        return self.now.replace(tzinfo=None)

    def utc_ticks(self) -> int:
        """Ticks since year 1."""
        return (self.local().replace(tzinfo=UTC) - datetime(1, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 10


class Storage:
    """One file, one writer."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "harness.sqlite"
        self.lock = threading.Lock()
        self.catalog = Catalog()

    def connect(self) -> sqlite3.Connection:
        """A new connection."""
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    @contextmanager
    def writing(self, connection: sqlite3.Connection, owner: object) -> Iterator[None]:
        """The lock and a transaction."""
        with self.lock:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")


class Sink:
    """Keeps messages."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def message(self, message: SqlError) -> None:
        """An INFO token."""
        self.messages.append(message.message)


class Server:
    """Storage, clock and Agent with a database `shop`, an `other`, and `msdb`."""

    def __init__(self, folder: Path) -> None:
        self.storage, self.clock = Storage(folder), SteppingClock()
        for place, name in enumerate(("msdb", "shop", "other"), 4):
            self.storage.catalog.databases[name] = Database(name, place, created=self.clock.local())
        self.agent = Agent(self.storage, self.clock)
        self.sessions = 50

    def session(self) -> "Session":
        """A new session in `shop`."""
        self.sessions += 1
        return Session(self, self.sessions)


class Session:
    """Implements ProcedureContext; statements are SQLite statements over the `t…` tables."""

    server_name = "HARNESS"
    rights = None

    def __init__(self, server: Server, session_id: int) -> None:
        self.server, self.session_id, self.clock, self.agent = server, session_id, server.clock, server.agent
        self.connection = server.storage.connect()
        register_collations(self.connection)
        self.failure: SqlError | None = None
        self.rowcount = self.command_id = self.change_number = self.rewritten = self.transaction_count = 0
        self.savepoint_lsn: int | None = None
        self.database = self.procedure_database = "shop"
        self.sink = Sink()
        self.edited: Catalog | None = None
        self.sent: list[tuple[Sequence[ResultColumn], list[Sequence[Value]]]] = []
        hooks.opened(self)  # type: ignore[arg-type]

    @property
    def catalog(self) -> Catalog:
        """Committed, or the copy."""
        return self.edited or self.server.storage.catalog

    def edit(self) -> Catalog:
        """The copy."""
        self.edited = self.edited or self.server.storage.catalog.copy()
        return self.edited

    def create_table(self, table: Table) -> None:
        """Add a table."""
        database = self.edit().database(table.database)
        assert database is not None
        database.tables[fold(table.schema), fold(table.name)] = table
        self.connection.execute(f"CREATE TABLE {table.sqlite}({', '.join(column.sqlite for column in table.columns)})")
        for index in table.indexes:
            keys = ", ".join(found.sqlite for name, _ in index.keys if (found := table.column(name)))
            unique = "UNIQUE " if index.unique else ""
            self.connection.execute(
                f"CREATE {unique}INDEX i{table.object_id}_{index.index_id} ON {table.sqlite}({keys})"
            )

    def drop_table(self, table: Table) -> None:
        """Drop a table."""
        database = self.edit().database(table.database)
        assert database is not None
        hooks.table_dropped(self, table)  # type: ignore[arg-type]
        del database.tables[fold(table.schema), fold(table.name)]
        self.connection.execute(f"DROP TABLE {table.sqlite}")

    def send(self, columns: Sequence[ResultColumn], rows: Iterable[Sequence[Value]]) -> None:
        """A result set."""
        self.sent.append((columns, list(rows)))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction; rolled back on an exception."""
        with self.server.storage.lock:
            self.connection.execute("BEGIN IMMEDIATE")
            self.command_id = 0
            try:
                yield
                hooks.before_commit(self)  # type: ignore[arg-type]
            except BaseException:
                self.connection.execute("ROLLBACK")
                self.edited = None
                hooks.rolled_back(self)  # type: ignore[arg-type]
                raise
            self.connection.execute("COMMIT")
            if self.edited is not None:
                self.server.storage.catalog, self.edited = self.edited, None
        hooks.after_commit(self)  # type: ignore[arg-type]

    def run(self, statement: str, *values: Value) -> None:
        """One statement, within a transaction."""
        self.command_id += 1
        self.connection.execute(statement, values)

    def execute(self, statement: str, *values: Value) -> None:
        """One statement as a transaction."""
        with self.transaction():
            self.run(statement, *values)

    def call(self, procedure: str, **arguments: Value) -> list[dict[str, Value]]:
        """A procedure as a transaction; its last result set."""
        self.sent.clear()
        given = {name: Parameter("@" + name, _type(value), value) for name, value in arguments.items()}
        with self.transaction():
            assert PROCEDURES[procedure](self, given) == 0  # type: ignore[arg-type]
        if not self.sent:
            return []
        columns, rows = self.sent[-1]
        return [dict(zip((column.name for column in columns), row, strict=True)) for row in rows]

    def make(
        self, name: str, columns: str, key: str = "id", unique: Sequence[str] = (), database: str = "shop"
    ) -> Table:
        """Create a source table from `name type, …`; `key` is its primary key, empty for a heap."""
        with self.transaction():
            catalog = self.edit()
            listed = [
                Column(item.split()[0], place, parse_type(item.split(maxsplit=1)[1]), nullable=item.split()[0] != key)
                for place, item in enumerate(columns.split(";"), 1)
            ]
            table = Table(catalog.new_object_id(), database, "dbo", name, listed, created=self.clock.local())
            if key:
                table.indexes.append(
                    Index(f"PK_{name}", 1, ((key, False),), True, True, True, object_id=catalog.new_object_id())
                )
            for place, column in enumerate(unique, 2):
                table.indexes.append(Index(f"UX_{column}", place, ((column, False),), True))
            table.next_column_id = len(listed) + 1
            self.create_table(table)
        return table

    def enable(self, name: str = "t", **arguments: Value) -> None:
        """Enable database and table."""
        database = self.catalog.database(self.procedure_database)
        if database is not None and not database.cdc_enabled:
            self.call("sp_cdc_enable_db")
        self.call(
            "sp_cdc_enable_table", **{"source_schema": "dbo", "source_name": name, "role_name": None, **arguments}
        )

    def cdc(self, name: str) -> list[tuple[Value, ...]]:
        """All rows of a table of schema cdc."""
        database = self.catalog.database(self.procedure_database)
        table = database.table("cdc", name) if database else None
        assert table is not None
        return self.connection.execute(f"SELECT * FROM {table.sqlite} ORDER BY rowid").fetchall()

    def changes(self, instance: str = "dbo_t") -> list[tuple[Value, ...]]:
        """(operation, mask, captured columns…, command id) in `_CT` order."""
        database = self.catalog.database(self.procedure_database)
        table = database.table("cdc", f"{instance}_CT") if database else None
        assert table is not None
        command = table.columns[-1].sqlite
        rows = self.connection.execute(f"SELECT * FROM {table.sqlite} ORDER BY c1, {command}, c3, c4").fetchall()
        return [tuple(row[3:]) for row in rows]


def _type(value: Value) -> SqlType:
    return {int: parse_type("int"), bytes: parse_type("varbinary(max)")}.get(type(value), parse_type("nvarchar(4000)"))
