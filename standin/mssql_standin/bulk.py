"""Large tables and backlogs in seconds, written straight into SQLite.

Rows are computed by SQLite from their number, so a million of them never pass through Python. A load
holds the writer lock and is one SQLite transaction: a failure leaves nothing.

`load_table` bypasses triggers: on a captured table the rows count as older than the capture.
`load_changes` writes what the capture would have written for the same updates: the base table ends in the state that
the change rows describe, LSNs are drawn from the database's log, the last one is published by its mapping row.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Final

from mssql_standin.capture import lsn, scan
from mssql_standin.capture.state import register_scan, update_mask
from mssql_standin.capture.times import to_stored
from mssql_standin.catalog import Column, Database, Table, fold
from mssql_standin.engine.server import Engine
from mssql_standin.errors import invalid_object, unsupported
from mssql_standin.sqltypes import (
    CHARACTER,
    DECIMAL,
    INTEGER,
    LEGACY_LOB,
    MONEY,
    SqlType,
    decimal_to_stored,
    offset_to_stored,
)
from mssql_standin.store.identity import counter

_DAY: Final = 864_000_000_000
_BASE_DAY: Final = 737_425
"""2020-01-01 as days since 0001-01-01."""
_LIMITS: Final = {"bit": 2, "tinyint": 256, "smallint": 32768, "int": 2**31, "bigint": 2**62}

# SQLite text of a value from the row number n
_BY_NAME: Final = {
    "real": "(n % 1000000) * 0.25",
    "float": "n * 0.5",
    "date": f"{_BASE_DAY} + n % 3650",
    "datetime": "43829 * 25920000 + n * 300",
    "smalldatetime": "(43829 * 1440 + n) % 94000000",
    "xml": "'<row n=\"' || n || '\"/>'",
    "text": "'text of row ' || n",
    "ntext": "'text of row ' || n || ' Ω'",
    "money": "n * 12345 % 100000000000",
    "smallmoney": "n * 123 % 1000000000",
}


def value_text(sql_type: SqlType) -> str:
    """SQLite text that computes a value of the type from the row number `n`.

    Raises:
        SqlError: for types whose values have no inner form here (sql_variant, CLR types).
    """
    name = sql_type.name
    if name in _BY_NAME:
        return _BY_NAME[name]
    if name in INTEGER:
        return f"n % {_LIMITS[name]}"
    if name in DECIMAL:
        scaled = f"n * 7919 % {10 ** min(sql_type.precision, 18)}"
        return f"bulk_decimal({scaled})" if sql_type.is_wide_decimal else scaled
    if name in ("time", "datetime2", "datetimeoffset"):
        return _time_text(sql_type)
    if name in CHARACTER:
        return _character_text(sql_type)
    if name in ("binary", "varbinary", "image", "rowversion", "uniqueidentifier"):
        fixed = {"binary": sql_type.length, "rowversion": 8, "uniqueidentifier": 16}
        return f"bulk_bytes(n, {fixed.get(name, 8 if sql_type.length <= 0 else min(sql_type.length, 8))})"
    raise unsupported(f"generated values of type {name}")


def _time_text(sql_type: SqlType) -> str:
    step = 10 ** (7 - sql_type.scale)
    clock = f"n * 12345678 % {_DAY} / {step} * {step}"
    if sql_type.name == "time":
        return clock
    moment = f"({_BASE_DAY} + n / 86400) * {_DAY} + {clock}"
    return moment if sql_type.name == "datetime2" else f"bulk_offset({moment}, n % 27 * 60 - 780)"


def _character_text(sql_type: SqlType) -> str:
    length = sql_type.length if sql_type.length > 0 else 60
    text = f"substr('row ' || n || ' of many', 1, {length})" if length >= 16 else f"substr(n, -{length})"
    return f"substr({text} || '{' ' * length}', 1, {length})" if sql_type.name in ("char", "nchar") else text


def _register(connection: sqlite3.Connection) -> None:
    wide = SqlType("decimal", precision=38)
    connection.create_function("bulk_decimal", 1, lambda n: decimal_to_stored(n, wide), deterministic=True)
    connection.create_function("bulk_bytes", 2, lambda n, size: n.to_bytes(16, "big")[-size:].rjust(size, b"\0"))
    connection.create_function("bulk_offset", 2, offset_to_stored, deterministic=True)
    register_scan(connection)


class Bulk:
    """Loads of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._storage = engine.storage

    def load_table(self, database: str, table: str, rows: int, schema: str = "dbo") -> int:
        """Add generated rows to a table; none of them is captured.

        Args:
            database: with the table.
            table: its name; column types of CLR and sql_variant are not supported.
            rows: how many. Integer key columns continue after their highest value.
            schema: of the table.

        Returns:
            The number of the first row.

        Raises:
            SqlError: 208 when there is no such table.
        """
        found = self._table(database, schema, table)
        with self._loading() as connection:
            start = _last_number(connection, found) + 1
            columns = [column for column in found.columns if column.computed is None]
            values = ", ".join(_column_text(found, column) for column in columns)
            numbers = (
                "WITH RECURSIVE numbers(n) AS (VALUES (:first) UNION ALL SELECT n + 1 FROM numbers WHERE n < :last)"
            )
            names = ", ".join(column.sqlite for column in columns)
            with _without_triggers(connection, found):
                connection.execute(
                    f"{numbers} INSERT INTO {found.sqlite} ({names}) SELECT {values} FROM numbers",
                    {"first": start, "last": start + rows - 1},
                )
            self._raise_counters(found, start + rows - 1)
        return start

    def load_changes(self, database: str, capture_instance: str, transactions: int, updates: int) -> bytes:
        """Write a captured backlog: so many transactions of so many single-row updates each.

        Every update changes one column of one row; rows are taken in the order of the table, again and again.

        Args:
            database: enabled for capture.
            capture_instance: whose source table has at least `updates` rows.
            transactions: how many.
            updates: rows that each transaction updates.

        Returns:
            The LSN of the last transaction.

        Raises:
            SqlError: 208 for an unknown instance.
            ValueError: there is no transaction to write, committed ones wait to be captured (their LSNs are lower), the
                table has too few rows, or no captured column that may be changed.
        """
        if transactions < 1:
            raise ValueError(f"{transactions} transactions; at least one is expected")
        owner = self._database(database)
        change_table = self._table(database, "cdc", f"{capture_instance}_CT")
        with self._loading() as connection:
            if scan.backlog(connection, owner.database_id):
                raise ValueError(f"transactions of {database} wait to be captured; drain the Agent before a load")
            source = self._source(connection, owner, change_table)
            backlog = _Backlog(connection, owner, source, change_table, self._engine.agent.logs.new_number)
            last = b""
            with _without_triggers(connection, source):
                for _ in range(transactions):
                    vlf, block = self._engine.agent.logs.position(owner.name).run(updates)
                    last = backlog.transaction(vlf, block, updates, to_stored(self._engine.clock.local()))
            connection.execute("UPDATE capture_databases SET vlf = ? WHERE database_id = ?", (vlf, owner.database_id))
        return last

    # ---- helpers ---------------------------------------------------------------------------------------------

    @contextmanager
    def _loading(self) -> Iterator[sqlite3.Connection]:
        """A connection in a transaction, under the writer lock."""
        with closing(self._storage.connect()) as connection:
            _register(connection)
            with self._storage.writing(connection, object()):
                yield connection

    def _database(self, name: str) -> Database:
        found = self._storage.catalog.database(name)
        if found is None:
            raise invalid_object(name)
        return found

    def _table(self, database: str, schema: str, name: str) -> Table:
        found = self._database(database).table(schema, name)
        if found is None:
            raise invalid_object(f"{database}.{schema}.{name}")
        return found

    def _source(self, connection: sqlite3.Connection, owner: Database, change_table: Table) -> Table:
        row = connection.execute(
            "SELECT source FROM capture_instances WHERE ct = ?", (change_table.object_id,)
        ).fetchone()
        source = owner.table_by_id(row[0]) if row else None
        if source is None:
            raise invalid_object(str(change_table))
        return source

    def _raise_counters(self, table: Table, last: int) -> None:
        """Identity values and row versions go on after the loaded ones."""
        if any(column.identity for column in table.columns):
            self._storage.count(counter(table), last)
        if any(column.type.name == "rowversion" for column in table.columns):
            name = f"v{table.database}"
            self._storage.count(name, max(self._storage.counters.get(name, 0), last))


def _last_number(connection: sqlite3.Connection, table: Table) -> int:
    """The highest number in use: of rows, and of an integer key."""
    highest = [connection.execute(f"SELECT coalesce(max(rowid), 0) FROM {table.sqlite}").fetchone()[0]]
    for column in _key_columns(table):
        if column.type.name in INTEGER:
            text = f"SELECT coalesce(max({column.sqlite}), 0) FROM {table.sqlite}"
            highest.append(connection.execute(text).fetchone()[0])
    return int(max(highest))


def _key_columns(table: Table) -> list[Column]:
    names = {fold(name) for index in table.indexes if index.unique for name, _ in index.keys}
    return [column for column in table.columns if fold(column.name) in names]


def _column_text(table: Table, column: Column) -> str:
    """The value of a column; every eleventh is NULL where that may be."""
    text = value_text(column.type)
    if column.nullable and column not in _key_columns(table):
        return f"CASE WHEN n % 11 = {column.column_id % 11} THEN NULL ELSE {text} END"
    return text


@contextmanager
def _without_triggers(connection: sqlite3.Connection, table: Table) -> Iterator[None]:
    """The triggers of a table away for a while, but for those that guard encoded blocks."""
    query = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ? AND name NOT GLOB 'blocks_*'"
    triggers = connection.execute(query, (table.sqlite,)).fetchall()
    for name, _ in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    yield
    for _, text in triggers:
        connection.execute(text)


class _Backlog:
    """Writes captured updates of one table."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        owner: Database,
        source: Table,
        change_table: Table,
        new_number: Callable[[], int],
    ) -> None:
        self._connection, self._owner = connection, owner
        self._source, self._change_table, self._new_number = source, change_table, new_number
        self._rows = connection.execute(f"SELECT count(*), min(rowid) FROM {source.sqlite}").fetchone()
        self._place = 0
        self._captured = [column for column in change_table.columns if not column.name.startswith("__$")]
        self._changed = self._column_to_change()
        mapping = owner.table("cdc", "lsn_time_mapping")
        if mapping is None:
            raise invalid_object("cdc.lsn_time_mapping")
        self._mapping = mapping.sqlite

    def _column_to_change(self) -> Column:
        keys = {
            fold(name) for index in self._source.indexes if index.unique or index.clustered for name, _ in index.keys
        }
        captured = {fold(column.name) for column in self._captured}
        for column in self._source.columns:
            name = fold(column.name)
            if name in captured and name not in keys and _changeable(column):
                return column
        raise ValueError(f"{self._source} has no captured number or text outside its keys that an update could change")

    def _new_value(self) -> str:
        column = self._changed
        old = f"coalesce(b.{column.sqlite}, 0)"
        if column.type.name in ("varchar", "nvarchar"):
            length = column.type.length if column.type.length > 0 else 60
            return f"substr('changed ' || :number, 1, {length})"
        modulus = _LIMITS.get(column.type.name) or 10 ** min(column.type.precision or 9, 9)
        return f"({old} + 1) % {modulus}"

    def transaction(self, vlf: int, block: int, updates: int, now: int) -> bytes:
        """One transaction; returns its LSN."""
        count, first = self._rows
        if count < updates:
            raise ValueError(f"{self._source} has {count} rows; {updates} updates in one transaction need as many")
        if self._place + updates > count:
            self._place = 0
        low = first + self._place
        self._place += updates
        number = self._new_number()
        bounds = {"low": low, "high": low + updates, "number": number}
        commit = lsn.run_lsn(vlf, block, updates)
        self._connection.execute(self._images(), {**bounds, "lsn": commit, "vlf": vlf, "block": block})
        self._connection.execute(
            f"UPDATE {self._source.sqlite} AS b SET {self._changed.sqlite} = {self._new_value()} "
            "WHERE rowid >= :low AND rowid < :high",
            bounds,
        )
        begin = lsn.pack(vlf, block, lsn.FIRST_SLOT - 1)
        tran = number.to_bytes(6, "big")
        scan.map_time(self._connection, self._mapping, (commit, now, now, tran, begin))
        return commit

    def _images(self) -> str:
        """Before and after images in the order of the change table's clustered index."""
        mask = self._mask().hex()
        values = ", ".join(self._image(column) for column in self._captured)
        names = ", ".join(column.sqlite for column in self._change_table.columns)
        return (
            f"INSERT INTO {self._change_table.sqlite} ({names}) "
            f"SELECT :lsn, NULL, cdc_seqval(:vlf, :block, b.rowid - :low), o.column1, x'{mask}', {values}, 1 "
            f"FROM {self._source.sqlite} AS b CROSS JOIN (VALUES (3), (4)) AS o "
            "WHERE b.rowid >= :low AND b.rowid < :high ORDER BY b.rowid, o.column1"
        )

    def _image(self, captured: Column) -> str:
        """As the capture triggers form them: unchanged (max) values and computed columns are NULL."""
        source = self._source.column(captured.name)
        if source is None or source.computed is not None:
            return "NULL"
        if source is self._changed:
            return f"CASE o.column1 WHEN 3 THEN b.{source.sqlite} ELSE {self._new_value()} END"
        return "NULL" if source.type.is_max or source.type.name in LEGACY_LOB else f"b.{source.sqlite}"

    def _mask(self) -> bytes:
        names = [fold(column.name) for column in self._captured]
        place = names.index(fold(self._changed.name))
        parts = [(1 << place >> start) & ((1 << 48) - 1) for start in range(0, len(names), 48)]
        return update_mask(len(names), *parts)


def _changeable(column: Column) -> bool:
    if column.computed is not None or column.identity or column.type.is_max:
        return False
    narrow = column.type.name in DECIMAL and not column.type.is_wide_decimal
    return narrow or column.type.name in INTEGER | MONEY | {"varchar", "nvarchar"}
