"""A server of two databases whose tables change at random, and an account of all that was committed.

Each transaction also writes its number into `dbo.journal`, a table that the capture leaves out. Its change table tells
the commit LSN of every transaction later, so that the account is independent of the code under test.
"""

import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from mssql_standin.control import StandIn

DATABASES = ("Here", "There")
KEYED, KEYLESS = ("orders", "lines"), "notes"
SIGNALS = "signals"


@dataclass(frozen=True, eq=False)
class Column:
    """A column as it was added; another one of the same name is another column."""

    name: str


@dataclass(frozen=True)
class Change:
    """A change as the event must show it.

    Args:
        op: as in the envelope.
        key: of a table that has one, else None.
        before: captured columns.
        after: captured columns.
    """

    op: str
    key: int | None
    before: dict[str, Any] | None
    after: dict[str, Any] | None


Rows = dict[int, dict[Column, Any]]


@dataclass(eq=False)
class Table:
    """A table as it is now.

    Args:
        columns: besides the key, in the order of the table.
        instances: names and captured columns, oldest first.
        rows: by key, or by a running number if the table has none.
    """

    table: TableId
    columns: list[Column]
    keyed: bool
    instances: dict[str, list[Column]] = field(default_factory=dict)
    rows: Rows = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """The column that tells rows apart; without a key it is not captured, and captured rows may be equal."""
        return "id" if self.keyed else "n"

    def seen(self, number: int, row: dict[Column, Any]) -> dict[str, Any]:
        """The captured columns of a row; those that were dropped from the table are null."""
        captured = list(self.instances.values())[-1]
        shown = {column.name: row.get(column) if column in self.columns else None for column in captured}
        return {"id": number} | shown if self.keyed else shown


class Chronicle:
    """Random work on a server, and its account.

    Args:
        server: with the databases.
        rng: source of all choices.
    """

    def __init__(self, server: StandIn, rng: random.Random) -> None:
        self.server, self.rng = server, rng
        self.said: list[str] = []
        self.committed: dict[TableId, dict[int, list[Change]]] = {}
        """Changes by table and transaction."""
        self.hurt: set[TableId] = set()
        """Tables of which changes may have been taken away before they were read."""
        self.offline: set[str] = set()
        self._made = self._transactions = self._keys = 0
        self._lock = threading.RLock()
        self.tables: list[Table] = []
        for database in DATABASES:
            self._create(database)

    def execute(self, statement: str, database: str) -> list[tuple[Any, ...]]:
        self.said.append(f"{database}: {statement}")
        return self.server.execute(statement, database=database)

    def _create(self, database: str) -> None:
        self.execute("CREATE TABLE dbo.journal (id int NOT NULL PRIMARY KEY)", database)
        self.execute(
            f"CREATE TABLE dbo.{SIGNALS} (id varchar(64) PRIMARY KEY, type varchar(32) NOT NULL, data varchar(2048) NULL)",
            database,
        )
        for name in ("journal", SIGNALS):
            self._enable(TableId(database, "dbo", name))
        for name in (*KEYED, KEYLESS):
            key = "id int NOT NULL PRIMARY KEY" if name != KEYLESS else "n int NOT NULL"
            self.execute(f"CREATE TABLE dbo.{name} ({key}, v int NOT NULL, c0 int NULL)", database)
            table = Table(TableId(database, "dbo", name), [Column("v"), Column("c0")], name != KEYLESS)
            self.committed[table.table] = {}
            self.tables.append(table)
            self.enable(table)
            self._fill(table)

    def _fill(self, table: Table) -> None:
        for _ in range(12):
            self._keys += 1
            row = dict.fromkeys(table.columns, self._keys)
            table.rows[self._keys] = row
            names = [table.identity, *(column.name for column in table.columns)]
            values = ", ".join([str(self._keys)] * len(names))
            self.server.execute(
                f"INSERT INTO {table.table.table} ({', '.join(names)}) VALUES ({values})", database=table.table.database
            )

    # ---- work --------------------------------------------------------------------------------------------------

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Nobody else works on the server meanwhile."""
        with self._lock:
            yield

    def work(self) -> None:
        """One transaction of a few changes in one database."""
        with self._lock:
            database = self.rng.choice([name for name in DATABASES if name not in self.offline] or [""])
            if not database:
                return
            own = [table for table in self.tables if table.table.database == database and table.instances]
            self._transactions += 1
            number = self._transactions
            changes: list[tuple[Table, list[Change]]] = []
            with self.server.connect(database, autocommit=False) as connection:
                for _ in range(self.rng.randrange(1, 5)):
                    table = self.rng.choice(own)
                    statements, change = self._change(table)
                    for statement in statements:
                        connection.execute(statement)
                    changes.append((table, change))
                connection.execute(f"INSERT INTO dbo.journal VALUES ({number})")
                connection.commit()
            for table, change in changes:
                self.committed[table.table].setdefault(number, []).extend(change)
            told = ", ".join(
                f"{table.table.table} {one.op}{one.key or ''} {one.after or one.before}"
                for table, found in changes
                for one in found
            )
            self.said.append(f"-- {database} transaction {number}: {told}")

    def touch_all(self) -> None:
        """One transaction for each table, in which every row changes in every column."""
        with self._lock:
            for table in self.tables:
                for number in list(table.rows):
                    self._transactions += 1
                    statement, change = self._update(table, number, table.columns)
                    with self.server.connect(table.table.database, autocommit=False) as connection:
                        connection.execute(statement)
                        connection.execute(f"INSERT INTO dbo.journal VALUES ({self._transactions})")
                        connection.commit()
                    self.committed[table.table].setdefault(self._transactions, []).extend(change)

    def _change(self, table: Table) -> tuple[list[str], list[Change]]:
        kinds = ["insert", "insert", "update", "update", "update", "delete"]
        what = self.rng.choice([*kinds, "rekey"] if table.keyed else [*kinds, "twin"]) if table.rows else "insert"
        number = self.rng.choice(list(table.rows)) if table.rows else 0
        if what == "insert":
            return self._insert(table)
        if what == "twin":
            return self._insert(table, dict(table.rows[number]))
        if what == "rekey":
            return self._rekey(table, number)
        if what == "delete":
            return self._delete(table, number)
        captured = list(table.instances.values())[-1]
        some = [
            column for column in table.columns if column.name == "v" or (column in captured and self.rng.random() < 0.5)
        ]
        statement, change = self._update(table, number, some)
        return [statement], change

    def _insert(self, table: Table, row: dict[Column, Any] | None = None) -> tuple[list[str], list[Change]]:
        self._keys += 1
        number = self._keys
        row = row or dict.fromkeys(table.columns, number)
        table.rows[number] = row
        values = {table.identity: number} | {column.name: row[column] for column in table.columns}
        texts = ", ".join("NULL" if value is None else str(value) for value in values.values())
        statement = f"INSERT INTO dbo.{table.table.table} ({', '.join(values)}) VALUES ({texts})"
        return [statement], [Change("c", number if table.keyed else None, None, table.seen(number, row))]

    def _update(self, table: Table, number: int, columns: Sequence[Column]) -> tuple[str, list[Change]]:
        self._keys += 1
        before = table.seen(number, table.rows[number])
        table.rows[number] = table.rows[number] | dict.fromkeys(columns, self._keys)
        sets = ", ".join(f"{column.name} = {self._keys}" for column in columns)
        change = Change("u", number if table.keyed else None, before, table.seen(number, table.rows[number]))
        return f"UPDATE dbo.{table.table.table} SET {sets} WHERE {table.identity} = {number}", [change]

    def _delete(self, table: Table, number: int) -> tuple[list[str], list[Change]]:
        before = table.seen(number, table.rows.pop(number))
        statement = f"DELETE FROM dbo.{table.table.table} WHERE {table.identity} = {number}"
        return [statement], [Change("d", number if table.keyed else None, before, None)]

    def _rekey(self, table: Table, number: int) -> tuple[list[str], list[Change]]:
        self._keys += 1
        before, row = table.seen(number, table.rows[number]), table.rows.pop(number)
        table.rows[self._keys] = row
        after = table.seen(self._keys, row)
        statement = f"UPDATE dbo.{table.table.table} SET id = {self._keys} WHERE id = {number}"
        return [statement], [Change("d", number, before, None), Change("c", self._keys, None, after)]

    # ---- structure ---------------------------------------------------------------------------------------------

    def alter(self, table: Table) -> None:
        """A column more, with a name that may have been used before, or one less."""
        with self._lock:
            own = {column.name for column in table.columns}
            free = [name for name in ("c0", "c1", "c2") if name not in own]
            if free and (len(table.columns) < 3 or self.rng.random() < 0.5):
                name = self.rng.choice(free)
                self.execute(f"ALTER TABLE dbo.{table.table.table} ADD {name} int NULL", table.table.database)
                column = Column(name)
                table.columns.append(column)
                for row in table.rows.values():
                    row[column] = None
            elif len(table.columns) > 1:
                column = self.rng.choice(table.columns[1:])
                self.execute(f"ALTER TABLE dbo.{table.table.table} DROP COLUMN {column.name}", table.table.database)
                table.columns.remove(column)

    def enable(self, table: Table, statement: str = "") -> None:
        """Another capture instance, by a given statement or by a plain one that takes the default name."""
        with self._lock:
            before = self._instances(table.table)
            names = ", ".join(([table.identity] if table.keyed else []) + [column.name for column in table.columns])
            self._enable(table.table, statement, f", @captured_column_list = N'{names}'")
            [made] = self._instances(table.table) - before
            table.instances[made] = list(table.columns)

    def disable(self, table: Table, instance: str, statement: str = "") -> None:
        """A capture instance less."""
        with self._lock:
            self.execute(
                statement
                or f"EXEC sys.sp_cdc_disable_table @source_schema = N'dbo', @source_name = N'{table.table.table}', "
                f"@capture_instance = N'{instance}'",
                table.table.database,
            )
            del table.instances[instance]

    def _enable(self, table: TableId, statement: str = "", more: str = "") -> None:
        self.execute(
            statement
            or f"EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'{table.table}', "
            f"@role_name = NULL{more}",
            table.database,
        )

    def _instances(self, table: TableId) -> set[str]:
        found = self.server.execute(
            "SELECT capture_instance FROM cdc.change_tables WHERE source_object_id = OBJECT_ID(?)",
            f"dbo.{table.table}",
            database=table.database,
        )
        return {name for (name,) in found}

    # ---- account -----------------------------------------------------------------------------------------------

    def lsns(self, database: str) -> dict[int, Lsn]:
        """Commit LSN of each transaction that was captured."""
        found = self.server.execute(
            "SELECT id, __$start_lsn FROM cdc.dbo_journal_CT WHERE __$operation = 2", database=database
        )
        return {number: Lsn(bytes(raw)) for number, raw in found}
