"""From committed transactions to change tables.

A transaction that changed captured tables draws its LSN per database while it holds the
engine's only write lock (`commit`). Then, still in its own SQLite transaction, either

- its rows move at once (Agent synchronous and nothing older waits), or
- one row in `capture_log` says that its staged rows are committed, and a later scan moves
  them in a transaction of its own.

Why the order is right: both paths move transactions in the order of their numbers, which
is the order of their commits, which is the order of their LSNs. A scan moves the rows of a
transaction, writes its row of `cdc.lsn_time_mapping` (so the maximum LSN is published with
the rows, never before) and deletes staged and log rows, all in one SQLite transaction: a
crash before its commit leaves everything staged, a crash after it leaves nothing to do.
A transaction whose rows were all undone by a savepoint leaves no mapping row.
"""

import json
import sqlite3
from dataclasses import dataclass, field
from typing import Final

from mssql_standin.capture import lsn, triggers
from mssql_standin.capture.state import SessionState

TRANSACTION_RANKS: Final = 1 << 34
"""Ranks of one transaction in a staging table: 2^32 changes of 4 operations (see `triggers`)."""


@dataclass(slots=True)
class Transaction:
    """A transaction that changed captured tables of one database."""

    number: int
    database_id: int
    vlf: int
    block: int
    changes: int
    begin_time: int
    end_time: int
    mapping: str
    """SQLite table of the database's `cdc.lsn_time_mapping`."""
    sources: list[int]
    lsn: bytes = field(init=False)
    """Commit LSN, which is every row's `__$start_lsn`."""

    def __post_init__(self) -> None:
        self.lsn = lsn.run_lsn(self.vlf, self.block, self.changes)

    @property
    def begin_lsn(self) -> bytes:
        """LSN of the begin record: just below the first change."""
        return lsn.pack(self.vlf, self.block, lsn.FIRST_SLOT - 1)


@dataclass(slots=True)
class Moved:
    """What a scan moved."""

    transactions: int = 0
    changes: int = 0
    first: bytes | None = None
    last: bytes | None = None
    end_time: int | None = None


def log(connection: sqlite3.Connection, transaction: Transaction, committed: float) -> None:
    """Say that the transaction's staged rows are committed."""
    connection.execute(
        "INSERT INTO capture_log VALUES (?,?,?,?,?,?,?,?,?)",
        (
            transaction.number, transaction.database_id, transaction.vlf, transaction.block, transaction.changes,
            transaction.begin_time, transaction.end_time, committed, json.dumps(transaction.sources),
        ),
    )  # fmt: skip


def separate(connection: sqlite3.Connection, state: SessionState, changes: int) -> int:
    """Put the deletes of each statement that changed several keys before its inserts (see `triggers`).

    Args:
        connection: the committing session's.
        state: its transaction.
        changes: how many change numbers it used.

    Returns:
        How many it uses now.
    """
    changes = state.end_command(changes)
    base = state.number * TRANSACTION_RANKS
    for first, last in state.splits:
        for source in {source for _, source in state.touched}:
            for (change_table,) in connection.execute(
                "SELECT ct FROM capture_instances WHERE source = ?", (source,)
            ).fetchall():
                triggers.separate(connection, change_table, base + first * 4, base + (last + 1) * 4, last + 1 - first)
    return changes


def backlog(connection: sqlite3.Connection, database_id: int) -> bool:
    """Whether committed transactions wait."""
    row = connection.execute("SELECT 1 FROM capture_log WHERE database_id = ? LIMIT 1", (database_id,)).fetchone()
    return row is not None


def waiting(connection: sqlite3.Connection, database_id: int, until: float, limit: int = -1) -> list[Transaction]:
    """Logged transactions committed by then, in commit order."""
    rows = connection.execute(
        "SELECT tran, database_id, capture_log.vlf, block, changes, begin_time, end_time, mapping, sources"
        " FROM capture_log JOIN capture_databases USING (database_id)"
        " WHERE database_id = ? AND committed <= ? ORDER BY tran LIMIT ?",
        (database_id, until, limit),
    )
    return [
        Transaction(number, owner, vlf, block, changes, begin, end, mapping, json.loads(sources))
        for number, owner, vlf, block, changes, begin, end, mapping, sources in rows
    ]


def forget(connection: sqlite3.Connection, transaction: Transaction) -> None:
    """The transaction no longer waits."""
    connection.execute(
        "DELETE FROM capture_log WHERE database_id = ? AND tran = ?", (transaction.database_id, transaction.number)
    )


def move(connection: sqlite3.Connection, transaction: Transaction, moved: Moved) -> None:
    """Move one transaction's staged rows into the change tables and publish its LSN."""
    low = transaction.number * TRANSACTION_RANKS
    bounds = {"low": low, "high": low + TRANSACTION_RANKS}
    place = {"lsn": transaction.lsn, "vlf": transaction.vlf, "block": transaction.block, **bounds}
    count = 0
    for source in transaction.sources:
        found = connection.execute("SELECT ct, move FROM capture_instances WHERE source = ?", (source,)).fetchall()
        for change_table, statement in found:
            count += connection.execute(statement, place).rowcount
            connection.execute(f"DELETE FROM s{change_table} WHERE rank >= :low AND rank < :high", bounds)
    if count:
        _publish(connection, transaction)
        moved.first = moved.first or transaction.lsn
        moved.last, moved.end_time = transaction.lsn, transaction.end_time
        moved.transactions += 1
        moved.changes += count


def _publish(connection: sqlite3.Connection, transaction: Transaction) -> None:
    tran_id = (transaction.number & 0xFFFFFFFFFFFF).to_bytes(6, "big")
    row = (transaction.lsn, transaction.begin_time, transaction.end_time, tran_id, transaction.begin_lsn)
    map_time(connection, transaction.mapping, row)


def map_time(connection: sqlite3.Connection, mapping: str, row: tuple[bytes, int, int, bytes, bytes]) -> None:
    """Add a row to a `cdc.lsn_time_mapping`."""
    connection.execute(f"INSERT INTO {mapping} VALUES (?,?,?,?,?)", row)
