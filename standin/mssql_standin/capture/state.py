"""What a session's open transaction has changed, and the SQL functions that capture triggers call."""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from mssql_standin.capture import changes, lsn
from mssql_standin.capture.times import to_stored
from mssql_standin.contract import Clock, SessionContext
from mssql_standin.errors import SqlError
from mssql_standin.sqltypes import Value


@dataclass(slots=True)
class SessionState:
    """The captured part of the open transaction; empty while it has changed no captured table."""

    draw: Callable[[], int]
    """Gives the next transaction number."""
    clock: Clock
    number: int = 0
    begin_time: int = 0
    current: int = 0
    """Transaction and change number of the row change at hand."""
    command: int = 0
    """Number of the statement that made the latest change."""
    command_start: int = 0
    """Its first change number."""
    rekeys: int = 0
    """How many keys it has changed."""
    splits: list[tuple[int, int]] = field(default_factory=list)
    """(first, last) change numbers of the statements that changed several keys."""
    touched: set[tuple[int, int]] = field(default_factory=set)
    """(database id, source object id)."""
    logged: bool = False
    """The transaction left staged rows for a later scan."""

    def begin(self) -> None:
        """First captured change: the transaction gets its number."""
        self.number, self.begin_time = self.draw(), to_stored(self.clock.local())
        self.command = self.rekeys = 0

    def next_change(self, command: int, number: int) -> int:
        """The number of the next change; behind a statement that changed several keys there is room for its inserts."""
        if command == self.command:
            return number
        number = self.end_command(number)
        self.command, self.command_start = command, number
        return number

    def end_command(self, number: int) -> int:
        """Note a statement that changed several keys; returns the next free number behind its moved inserts."""
        if self.rekeys > 1:
            self.splits.append((self.command_start, number - 1))
            number += number - self.command_start
        self.rekeys = 0
        return number

    def rekey(self) -> None:
        """The change at hand is a delete and an insert."""
        self.rekeys += 1

    def reset(self) -> None:
        """The transaction is over."""
        self.number = self.command = self.rekeys = 0
        self.touched, self.splits = set(), []


def register(context: SessionContext, state: SessionState) -> None:
    """Register what capture triggers, change functions and move statements call on the session's connection."""

    def next_change(database_id: int, source: int) -> int:
        if not state.number:
            state.begin()
        number = state.next_change(context.command_id, context.change_number)
        context.change_number = number + 1
        state.touched.add((database_id, source))
        state.current = state.number << 32 | number
        return state.current

    connection = context.connection
    connection.create_function("cdc_next", 2, next_change)
    connection.create_function("cdc_this", 0, lambda: state.current)
    connection.create_function("cdc_command", 0, lambda: context.command_id)
    connection.create_function("cdc_rekey", 0, state.rekey)
    connection.create_function("cdc_rewrites", 1, lambda source: int(context.rewritten == source))
    connection.create_function("cdc_mask", -1, update_mask, deterministic=True)
    connection.create_function("cdc_check", 6, _parking(context, changes.check))
    connection.create_function("cdc_union", 2, changes.union, deterministic=True)
    register_scan(connection)


def _parking(context: SessionContext, function: Callable[..., int]) -> Callable[..., int]:
    """SQLite tells only that a function raised: keep the error for the session."""

    def run(*values: Value) -> int:
        try:
            return function(context, *values)
        except SqlError as failure:
            context.failure = failure
            raise

    return run


def register_scan(connection: sqlite3.Connection) -> None:
    """Register what a move statement calls (the Agent's own connections need no more)."""
    connection.create_function("cdc_seqval", 3, lsn.run_lsn, deterministic=True)


@lru_cache(maxsize=4096)
def update_mask(width: int, *parts: int) -> bytes:
    """The update mask of `width` columns from integers of 48 bits, lowest columns first."""
    bits = 0
    for place, part in enumerate(parts):
        bits |= part << (48 * place)
    return bits.to_bytes((width + 7) // 8, "big")
