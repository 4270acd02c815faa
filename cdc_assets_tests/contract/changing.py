"""Tables that change at random on the stand-in, with everything that the server ever held, by LSN."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn
from mssql_standin.errors import SqlError

Row = dict[str, Any]

TYPES: dict[str, Callable[[random.Random], Any]] = {
    "smallint": lambda rng: rng.randrange(-9, 9),
    "int": lambda rng: rng.randrange(-99, 99),
    "bigint": lambda rng: rng.randrange(-(10**12), 10**12),
    "bit": lambda rng: rng.random() < 0.5,
    "decimal(10, 2)": lambda rng: Decimal(rng.randrange(-999, 999)) / 100,
    "decimal(14, 4)": lambda rng: Decimal(rng.randrange(-99999, 99999)) / 10000,
    "nvarchar(20)": lambda rng: f"ä{rng.randrange(99)}",
    "nvarchar(60)": lambda rng: "ö" * rng.randrange(1, 40),
    "date": lambda rng: date(2026, 1, 1) + timedelta(days=rng.randrange(99)),
    "datetime2(3)": lambda rng: datetime(2026, 1, 1) + timedelta(milliseconds=rng.randrange(10**9)),  # noqa: DTZ001
    "datetime2(7)": lambda rng: datetime(2026, 1, 1) + timedelta(microseconds=rng.randrange(10**12)),  # noqa: DTZ001
}
RETYPES = {
    "smallint": ["int", "bigint"],
    "int": ["bigint", "nvarchar(60)"],
    "bigint": ["nvarchar(60)"],
    "decimal(10, 2)": ["decimal(14, 4)"],
    "nvarchar(20)": ["nvarchar(60)"],
    "date": ["datetime2(3)"],
    "datetime2(3)": ["datetime2(7)"],
}
"""What each type may become, wider or not compatible."""


@dataclass(eq=False)
class ColumnModel:
    """A column of the table as it is now."""

    name: str
    kind: str
    nullable: bool = True
    default: str = ""
    """Name of its default constraint."""
    since: Lsn | None = None
    """Rows that no change touched after this LSN hold what the column's last definition made of them."""


@dataclass
class TableModel:
    """A table, its columns besides the key `id`, and its capture instances, oldest first, with their columns."""

    name: str
    columns: list[ColumnModel] = field(default_factory=list)
    instances: dict[str, list[ColumnModel]] = field(default_factory=dict)
    touched: dict[int, Lsn] = field(default_factory=dict)

    def captured(self) -> list[ColumnModel]:
        """Columns of the newest instance."""
        return list(self.instances.values())[-1] if self.instances else []


@dataclass(frozen=True)
class Moment:
    """What a table held right after a commit.

    Args:
        lsn: of the commit.
        rows: by key.
        columns: captured ones, and whether rows that were not touched since an LSN may differ.
        touched: LSN of each row's last change.
    """

    lsn: Lsn
    rows: dict[int, Row]
    columns: dict[str, Lsn | None]
    touched: dict[int, Lsn]


class ChangingTables:
    """Random statements on some tables.

    Args:
        server: with the database.
        seed: of the choices.
    """

    def __init__(self, server: StandIn, seed: int) -> None:
        self.server = server
        self.rng = random.Random(seed)  # noqa: S311 - a workload that can be repeated
        self.tables = [TableModel("lines"), TableModel("orders")]
        self.moments: dict[str, list[Moment]] = {table.name: [] for table in self.tables}
        self.said: list[str] = []
        self._made = 0
        self._keys = 0
        self._last = ZERO_LSN
        for table in self.tables:
            self._create(table)
        self.work()

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        self.said.append(statement)
        return self.server.execute(statement, database=DATABASE)

    # ---- data --------------------------------------------------------------------------------------------------

    def work(self) -> None:
        """A transaction of some changes over all tables."""
        with self.server.connect(DATABASE, autocommit=False) as connection:
            touched = [self._change(connection.execute) for _ in range(self.rng.randrange(1, 6))]
            connection.commit()
        self.said.append(f"-- a transaction of {len(touched)} changes")
        self._committed([change for change in touched if change is not None])

    def _committed(self, touched: Sequence[tuple[TableModel, int]]) -> None:
        """Take note of what the server holds now, if the transaction was one that is captured."""
        self.server.agent.drain()
        lsn = self.newest()
        if lsn > self._last:
            self._last = lsn
            for table, key in touched:
                table.touched[key] = lsn
            for table in self.tables:
                self._remember(table, lsn)

    def newest(self) -> Lsn:
        """The newest captured transaction."""
        [(raw,)] = self.server.execute("SELECT MAX(start_lsn) FROM cdc.lsn_time_mapping", database=DATABASE)
        return Lsn(bytes(raw))

    def _change(self, execute: Callable[..., Any]) -> tuple[TableModel, int] | None:
        """The row that was changed in a captured column, if one was."""
        table = self.rng.choice(self.tables)
        keys = [row[0] for row in execute(f"SELECT id FROM dbo.{table.name}").fetchall()]
        what = self.rng.choice(["insert", "insert", "update", "update", "update", "delete"]) if keys else "insert"
        if what == "insert":
            self._keys += 1
            names = ["id", *(column.name for column in table.columns)]
            values = [self._keys, *(self._value(column) for column in table.columns)]
            marks = ", ".join("?" * len(values))
            execute(f"INSERT INTO dbo.{table.name} ({', '.join(names)}) VALUES ({marks})", *values)
            return table, self._keys
        key = self.rng.choice(keys)
        if what == "delete":
            execute(f"DELETE FROM dbo.{table.name} WHERE id = ?", key)
        elif table.columns:
            changed = self.rng.sample(table.columns, self.rng.randrange(1, len(table.columns) + 1))
            sets = ", ".join(f"{column.name} = ?" for column in changed)
            values = [self._value(column) for column in changed]
            captured = ", ".join(["id", *(column.name for column in table.columns if column in table.captured())])
            look = f"SELECT {captured} FROM dbo.{table.name} WHERE id = {key}"
            before = execute(look).fetchall()
            execute(f"UPDATE dbo.{table.name} SET {sets} WHERE id = ?", *values, key)
            return (table, key) if execute(look).fetchall() != before else None
        return None

    def _value(self, column: ColumnModel) -> Any:
        if column.nullable and self.rng.random() < 0.25:
            return None
        return TYPES[column.kind](self.rng)

    def _remember(self, table: TableModel, lsn: Lsn) -> None:
        if not table.instances:
            return
        names = ["id", *(column.name for column in table.columns)]
        found = self.server.execute(f"SELECT {', '.join(names)} FROM dbo.{table.name}", database=DATABASE)
        rows = {row[0]: dict(zip(names, row, strict=True)) for row in found}
        columns = {column.name: column.since for column in table.columns if column in table.captured()}
        self.moments[table.name].append(Moment(lsn, rows, {"id": None} | columns, dict(table.touched)))

    def snapshotted(self, table: TableModel) -> None:
        """All rows were read: none is older than its columns."""
        for column in table.columns:
            column.since = None

    # ---- structure ---------------------------------------------------------------------------------------------

    def add(self) -> None:
        """A column more: nullable, or NOT NULL with a default."""
        table = self.rng.choice(self.tables)
        self._made += 1
        own = {column.name for column in table.columns}
        free = [name for name in ("note", "number", *(f"c{made}" for made in range(self._made))) if name not in own]
        name = self.rng.choice(free) if self.rng.random() < 0.3 else f"c{self._made}"
        column = ColumnModel(name, self.rng.choice(list(TYPES)), since=self.newest())
        text = "NULL"
        if column.kind in ("int", "bit") and self.rng.random() < 0.5:
            column.nullable, column.default = False, f"df_{self._made}"
            text = f"NOT NULL CONSTRAINT {column.default} DEFAULT 1"
        self.execute(f"ALTER TABLE dbo.{table.name} ADD {name} {column.kind} {text}")
        table.columns.append(column)

    def drop(self) -> None:
        """A column less."""
        table = self.rng.choice(self.tables)
        if len(table.columns) > 1:
            column = self.rng.choice(table.columns)
            self._free(table, column)
            self.execute(f"ALTER TABLE dbo.{table.name} DROP COLUMN {column.name}")
            table.columns.remove(column)

    def rename(self) -> None:
        """Another name: refused while the column is captured."""
        table = self.rng.choice(self.tables)
        column = self.rng.choice(table.columns)
        self._made += 1
        new = f"c{self._made}"
        statement = f"EXEC sp_rename N'dbo.{table.name}.{column.name}', N'{new}', N'COLUMN'"
        if any(column in columns for columns in table.instances.values()):
            with pytest.raises(SqlError, match="4928"):
                self.execute(statement)
        else:
            self.execute(statement)
            column.name = new

    def retype(self) -> None:
        """Another type in place."""
        table = self.rng.choice(self.tables)
        column = self.rng.choice(table.columns)
        if column.kind in RETYPES:
            self._free(table, column)
            column.kind = self.rng.choice(RETYPES[column.kind])
            column.since = self.newest()
            self._alter(table, column)

    def loosen_or_tighten(self) -> None:
        """NULL to NOT NULL, once no row holds a NULL, and back."""
        table = self.rng.choice(self.tables)
        column = self.rng.choice(table.columns)
        if column.nullable:
            value = TYPES[column.kind](self.rng)
            statement = f"UPDATE dbo.{table.name} SET {column.name} = ? WHERE {column.name} IS NULL"
            keys = self.execute(f"SELECT id FROM dbo.{table.name} WHERE {column.name} IS NULL")
            if keys:
                self.server.execute(statement, value, database=DATABASE)
                self._committed([(table, key) for (key,) in keys if column in table.captured()])
        column.nullable = not column.nullable
        self._alter(table, column)

    def _alter(self, table: TableModel, column: ColumnModel) -> None:
        null = "NULL" if column.nullable else "NOT NULL"
        self.execute(f"ALTER TABLE dbo.{table.name} ALTER COLUMN {column.name} {column.kind} {null}")

    def _free(self, table: TableModel, column: ColumnModel) -> None:
        """Take the column's default off."""
        if column.default:
            self.execute(f"ALTER TABLE dbo.{table.name} DROP CONSTRAINT {column.default}")
            column.default = ""

    # ---- capture -----------------------------------------------------------------------------------------------

    def second_instance(self) -> None:
        """A capture instance with the columns of now, or some of them."""
        table = self.rng.choice(self.tables)
        if len(table.instances) < 2:
            self._enable(table)

    def drop_old_instance(self) -> None:
        """The older one goes, read or not."""
        table = self.rng.choice(self.tables)
        if len(table.instances) == 2:
            self._disable(table, next(iter(table.instances)))

    def disable(self) -> None:
        """Capture of the table ends."""
        table = self.rng.choice(self.tables)
        for name in list(table.instances):
            self._disable(table, name)

    def enable(self) -> None:
        """Capture begins anew."""
        for table in self.tables:
            if not table.instances:
                self._enable(table)

    def create_again(self) -> None:
        """Another table of the same name."""
        table = self.rng.choice(self.tables)
        for name in list(table.instances):
            self._disable(table, name)
        self.execute(f"DROP TABLE dbo.{table.name}")
        self._create(table)

    def _create(self, table: TableModel) -> None:
        table.columns = [ColumnModel("note", "nvarchar(20)"), ColumnModel("number", "int", nullable=False)]
        table.touched = {}
        self.execute(
            f"CREATE TABLE dbo.{table.name} (id int NOT NULL PRIMARY KEY, note nvarchar(20) NULL, number int NOT NULL)"
        )
        self._enable(table)

    def _enable(self, table: TableModel) -> None:
        name = self.rng.choice([name for name in self._names(table) if name not in table.instances])
        columns = list(table.columns)
        chosen = ""
        if len(columns) > 1 and self.rng.random() < 0.25:
            columns = self.rng.sample(columns, len(columns) - 1)
            chosen = f", @captured_column_list = N'{', '.join(['id', *(column.name for column in columns)])}'"
        self.execute(
            f"EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'{table.name}', "
            f"@role_name = NULL, @capture_instance = N'{name}'{chosen}"
        )
        before = [own for owned in table.instances.values() for own in owned]
        for column in columns:
            if column not in before:
                column.since = self.newest()
        table.instances[name] = columns
        self.server.agent.drain()

    def _names(self, table: TableModel) -> list[str]:
        """So few that each is given again soon."""
        return [f"{table.name}_{number}" for number in range(3)]

    def _disable(self, table: TableModel, instance: str) -> None:
        self.execute(
            f"EXEC sys.sp_cdc_disable_table @source_schema = N'dbo', @source_name = N'{table.name}', "
            f"@capture_instance = N'{instance}'"
        )
        del table.instances[instance]
