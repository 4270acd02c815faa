"""Versions of the rows of stored tables, block by block: what tells whether encoded rows are still those of the table.

Three triggers on a *watched* table count, for each block of rowids, the rows that arrived in it and those that were changed
or deleted. The counts lie in a table beside the rows, so they belong to the same transaction: a rollback takes both
back, and a reader sees counts and rows of one snapshot. In committed states a count only grows; equal counts therefore mean that
nothing touched the block in between. The engine never changes a rowid.

The names of the triggers carry the size of the blocks that they count by, and a token, drawn when watching began, that is
part of every version. A table that is rebuilt has lost its triggers, so watching begins again with another token, and what
the counts were before means nothing.
"""

import secrets
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mssql_standin.errors import SqlError
from mssql_standin.store.locks import WRITER, Mode
from mssql_standin.store.storage import Storage

Version = tuple[object, int, int]
"""(that of the tables, rows that arrived in the block, rows changed or deleted in it)."""

_SCHEMA: Final = (
    "CREATE TABLE IF NOT EXISTS block_versions("
    "place INTEGER PRIMARY KEY, arrived INTEGER NOT NULL, changed INTEGER NOT NULL)"
)
"""`place` is the table's object id · 2^32 + the number of the block."""
_MOST_BLOCKS: Final = (1 << 32) - 1
_EVENTS: Final = {"INSERT": ("NEW", "arrived"), "UPDATE": ("OLD", "changed"), "DELETE": ("OLD", "changed")}


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions of a driving table's blocks in one snapshot; a block that is not listed was never touched."""

    tables: tuple[object, ...]
    """Tokens of all tables of a scan, and the changes of the joined one, on whose rows every block may depend."""
    counts: Mapping[int, tuple[int, int]]
    """Block number → arrived, changed."""

    def of(self, number: int) -> Version:
        """The version of a block."""
        return (self.tables, *self.counts.get(number, (0, 0)))


def of(connection: sqlite3.Connection, tables: Sequence[int], block: int) -> Versions | None:
    """Versions in the present snapshot; None if one of the tables is not watched.

    Args:
        connection: of the reader.
        tables: object ids, the driving table first, then the joined one.
        block: rowids of a block.
    """
    tokens = [_token(connection, table, block) for table in tables]
    if None in tokens:
        return None
    driving, *joined = (_rows(table) for table in tables)
    changes = [connection.execute(f"SELECT ifnull(sum(changed), 0) {rows}").fetchone()[0] for rows in joined]
    counts = connection.execute(f"SELECT place & {_MOST_BLOCKS}, arrived, changed {driving}")
    return Versions((*tokens, *changes), {number: (arrived, changed) for number, arrived, changed in counts})


def _rows(table: int) -> str:
    return f"FROM block_versions WHERE place BETWEEN {table} << 32 AND ({table} << 32) + {_MOST_BLOCKS}"


def _token(connection: sqlite3.Connection, table: int, block: int) -> str | None:
    """The token under which a table is watched."""
    found = _triggers(connection, table, f"blocks_{block}_*_insert")
    return found[0] if found else None


def _triggers(connection: sqlite3.Connection, table: int, pattern: str) -> list[str]:
    query = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ? AND name GLOB ?"
    return [name for (name,) in connection.execute(query, (f"t{table}", pattern))]


def watched(storage: Storage, connection: sqlite3.Connection, tables: Sequence[int], block: int) -> bool:
    """Whether changes of the tables are watched; begins to watch them if no writer is in the way.

    Args:
        storage: of the engine.
        connection: of the reader.
        tables: object ids.
        block: rowids of a block.
    """
    missing = [table for table in tables if _token(connection, table, block) is None]
    if not missing:
        return True
    if connection.in_transaction:  # a snapshot from before would not see the triggers
        return False
    owner = object()
    try:
        storage.locks.acquire(owner, WRITER, Mode.X, timeout_s=0)
    except SqlError:
        return False
    writer = storage.connect()
    try:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute(_SCHEMA)
        for table in missing:
            _watch(writer, table, block)
        writer.execute("COMMIT")
    except sqlite3.Error:  # the table is gone, or its definition changes: the ordinary way will tell
        return False
    finally:
        writer.close()
        storage.locks.release_all(owner)
    return True


def _watch(writer: sqlite3.Connection, table: int, block: int) -> None:
    for name in _triggers(writer, table, "blocks_*"):
        writer.execute(f"DROP TRIGGER {name}")
    token = secrets.token_hex(8)
    for event, (row, count) in _EVENTS.items():
        writer.execute(
            f"CREATE TRIGGER blocks_{block}_{token}_{event.lower()} AFTER {event} ON t{table} BEGIN "
            f"INSERT INTO block_versions VALUES (({table} << 32) + {row}.rowid / {block}, {int(count == 'arrived')}, "
            f"{int(count == 'changed')}) ON CONFLICT DO UPDATE SET {count} = {count} + 1; END"
        )
