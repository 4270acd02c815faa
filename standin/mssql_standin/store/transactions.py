"""The transaction of one session: T-SQL's rules over SQLite's transaction.

T-SQL's transaction (`count`, explicit, implicit or none) and SQLite's are not the same thing:

- READ COMMITTED opens SQLite's transaction at the first *write*, under the writer lock, so a
  reader inside a T-SQL transaction sees every new commit and never pins a snapshot.
- SNAPSHOT opens a deferred one at the first *read*, which pins; its first write then needs
  the newest state, else error 3960. (The real server compares rows; here any commit in between counts.)
- Without a T-SQL transaction each statement is one.

Every writing statement runs in a savepoint of its own, so that its failure undoes it alone. The
definition catalogue follows: `edited` is the transaction's copy, each definition statement edits a
fresh copy of it, so savepoints and failed statements restore an earlier copy by reference.

Commit order is LSN order: `before_commit` draws the LSN under the writer lock. A crash before SQLite's COMMIT
leaves nothing, one after it leaves rows, definitions, counters and staged changes together.
"""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from mssql_standin.catalog import Catalog, Table, fold
from mssql_standin.errors import SqlError
from mssql_standin.store.locks import WRITER, Mode
from mssql_standin.store.persist import Saved
from mssql_standin.store.storage import Storage


class Owner(Protocol):
    """The session, as far as its transaction knows it."""

    session_id: int
    connection: sqlite3.Connection
    command_id: int
    change_number: int

    def before_commit(self) -> None:
        """Under the writer lock, before SQLite's COMMIT."""

    def after_commit(self) -> None:
        """After the lock was released."""

    def rolled_back(self) -> None:
        """Everything that the transaction wrote was rolled back."""

    def check(self) -> None:
        """Raise Cancelled after an attention."""

    @property
    def lock_timeout_s(self) -> float | None:
        """LOCK_TIMEOUT; None waits for ever."""

    def savepoint_lsn_now(self) -> int:
        """A fresh LSN of the current database's log."""


@dataclass(frozen=True, slots=True)
class _Savepoint:
    name: str
    place: str
    """SQLite's name; empty when SQLite's transaction was not open yet."""
    catalog: Catalog | None
    locks: frozenset[int]


class Transaction:
    """State machine of one session's transaction."""

    def __init__(self, storage: Storage, owner: Owner) -> None:
        self._storage = storage
        self._owner = owner
        self.isolation = "READ COMMITTED"
        self.implicit = False
        self.count = 0
        self.name = ""
        self.edited: Catalog | None = None
        self.savepoint_lsn: int | None = None
        self.descriptor = 0
        self.began = 0.0
        self.writing = False
        """SQLite's transaction is open for writing and the writer lock is held."""
        self._pinned = False
        self._savepoints: list[_Savepoint] = []
        self._statement_locks: set[int] = set()
        self._depth = 0

    # ---- statements of the language ----------------------------------------------------------------------------

    def begin(self, name: str = "") -> None:
        """BEGIN TRANSACTION, or the implicit one; the outermost name may be rolled back by name."""
        if self.count == 0:
            self._reset()
            self.name = name
            self.began = time.time()
            self.descriptor = self._storage.next_version() + (self._owner.session_id << 32)
        self.count += 1

    def begin_implicit(self) -> None:
        """What a statement that uses tables does first under IMPLICIT_TRANSACTIONS ON."""
        if self.implicit and self.count == 0:
            self.begin()

    def commit(self) -> None:
        """COMMIT TRANSACTION.

        Raises:
            SqlError: 3902 without a transaction.
        """
        if self.count == 0:
            raise SqlError(3902, "The COMMIT TRANSACTION request has no corresponding BEGIN TRANSACTION.")
        if self.count > 1:
            self.count -= 1
            return
        self.count = 0
        self._finish()

    def rollback(self, name: str = "") -> None:
        """ROLLBACK TRANSACTION, to a savepoint when one of that name exists.

        Raises:
            SqlError: 3903 without a transaction, 6401 for an unknown name.
        """
        if self.count == 0:
            raise SqlError(3903, "The ROLLBACK TRANSACTION request has no corresponding BEGIN TRANSACTION.")
        if not name or (
            fold(name) == fold(self.name) and not any(fold(s.name) == fold(name) for s in self._savepoints)
        ):
            self.abandon()
            return
        wanted = fold(name)
        for place in range(len(self._savepoints) - 1, -1, -1):
            if fold(self._savepoints[place].name) == wanted:
                self._rollback_to(place)
                return
        raise SqlError(6401, f"Cannot roll back {name}. No transaction or savepoint of that name was found.")

    def save(self, name: str) -> None:
        """SAVE TRANSACTION.

        Raises:
            SqlError: 628 without a transaction.
        """
        if self.count == 0:
            raise SqlError(628, "Cannot issue SAVE TRANSACTION when there is no active transaction.")
        place = ""
        if self._owner.connection.in_transaction:
            place = f"save{len(self._savepoints)}"
            self._owner.connection.execute(f"SAVEPOINT {place}")
        self._savepoints.append(_Savepoint(name, place, self.edited, self._storage.locks.held_by(self._owner)))
        self.savepoint_lsn = self._owner.savepoint_lsn_now()

    def _rollback_to(self, place: int) -> None:
        """Undo what came after a savepoint; locks taken since then go, as on a real server."""
        savepoint = self._savepoints[place]
        connection = self._owner.connection
        if savepoint.place:
            connection.execute(f"ROLLBACK TO {savepoint.place}")
        elif self.writing:  # all that was written came after it
            if self._pinned:
                connection.execute(f"ROLLBACK TO {_PINNED}")
            else:
                connection.execute("ROLLBACK")
                self.writing = False
            self._owner.rolled_back()
        self.edited = savepoint.catalog
        del self._savepoints[place + 1 :]
        kept = savepoint.locks | ({WRITER} if self.writing else set())
        for resource in self._storage.locks.held_by(self._owner) - kept:
            self._storage.locks.release(self._owner, resource)

    def abandon(self) -> None:
        """Roll back everything; fine without a transaction."""
        self.count = 0
        connection = self._owner.connection
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        self._release_all()
        self._reset()
        self._owner.rolled_back()

    # ---- what statements need ----------------------------------------------------------------------------------

    @property
    def catalog(self) -> Catalog:
        """The transaction's own copy, or the committed catalogue."""
        return self.edited or self._storage.catalog

    def edit(self) -> Catalog:
        """A fresh copy of the catalogue for a definition statement; call it inside `statement`."""
        copy = self.catalog.copy()
        copy.version = self._storage.next_version()
        self.edited = copy
        return copy

    @contextmanager
    def statement(self) -> Iterator[None]:
        """A writing statement: all or nothing; commits when there is no T-SQL transaction.

        Raises:
            SqlError: 1205, 1222 from the writer lock; 3960.
        """
        self.begin_implicit()
        nested = self._depth > 0
        if self.count == 0 and not nested:
            self._reset()
        self._depth += 1
        try:
            self.open()
            if self.count or nested:
                yield from self._in_savepoint()
            else:
                yield from self._alone()
        finally:
            self._depth -= 1

    @contextmanager
    def private_statement(self) -> Iterator[None]:
        """A statement that changes a table variable: all or nothing, but no part of the transaction, and without locks.

        A driver that fills one while its transaction stays open (as mssql-jdbc reads the catalogue) must block nobody.
        """
        self._depth += 1
        try:
            yield from self._in_savepoint()
        finally:
            self._depth -= 1

    def _in_savepoint(self) -> Iterator[None]:
        connection, before, name = self._owner.connection, self.edited, f"statement{self._depth}"
        connection.execute(f"SAVEPOINT {name}")
        try:
            yield
        except BaseException:
            if connection.in_transaction:
                connection.execute(f"ROLLBACK TO {name}")
                connection.execute(f"RELEASE {name}")
            self.edited = before
            raise
        connection.execute(f"RELEASE {name}")

    def _alone(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.abandon()
            raise
        self._finish()

    def open(self) -> None:
        """Take the writer lock and open SQLite's transaction for writing."""
        if self.writing:
            return
        owner = self._owner
        self._storage.locks.acquire(owner, WRITER, Mode.X, owner.lock_timeout_s, owner.check)
        try:
            if self._pinned:
                self._promote()
            else:
                owner.connection.execute("BEGIN IMMEDIATE")
            if self.isolation == "SNAPSHOT" and self.count:
                owner.connection.execute(f"SAVEPOINT {_PINNED}")
                self._pinned = True
        except BaseException:
            if self.count == 0:
                self._release_all()
            else:
                self._storage.locks.release(owner, WRITER)
            raise
        self.writing = True

    def _promote(self) -> None:
        """Let the pinned snapshot write; SQLite refuses when it is no longer the newest state."""
        try:
            self._owner.connection.execute("DELETE FROM engine_counters WHERE 0")
        except sqlite3.OperationalError as error:
            raise SqlError(
                3960,
                "Snapshot isolation transaction aborted due to update conflict. You cannot use snapshot isolation to access "
                "tables that another transaction has changed since this one began. Retry the transaction or change the "
                "isolation level for the update/delete statement.",
                16,
                2,
            ) from error

    def before_read(self, tables: list[Table]) -> None:
        """Pin the snapshot under SNAPSHOT; wait for exclusive table locks otherwise.

        Raises:
            SqlError: 3952 when a database does not allow SNAPSHOT, 1222, 1205.
        """
        if self.isolation == "SNAPSHOT" and self.count and tables:
            self._pin(tables)
        elif self._storage.locks.exclusive and self.isolation != "READ UNCOMMITTED":
            for table in tables:
                self.lock(table, Mode.IS, keep=False)

    def _pin(self, tables: list[Table]) -> None:
        for table in tables:
            database = self.catalog.database(table.database)
            if (
                database
                and database.option("ALLOW_SNAPSHOT_ISOLATION") == "OFF"
                and fold(table.database) not in _ALWAYS_ALLOWED
            ):
                raise SqlError(
                    3952,
                    f"Snapshot isolation transaction failed accessing database '{database.name}' because snapshot isolation is "
                    "not allowed in this database. Use ALTER DATABASE to allow snapshot isolation.",
                )
        if not self._owner.connection.in_transaction:
            self._owner.connection.execute("BEGIN")
            self._owner.connection.execute("SELECT 1 FROM engine_counters LIMIT 1").fetchall()
            self._pinned = True

    def lock(self, table: Table, mode: Mode, keep: bool = True) -> None:
        """Lock a table, until the end of the transaction or (`keep` false) of the statement.

        A table has one lock: once it is to be kept, it is not let go with the statement, whatever else that asked for.
        """
        owner, locks, resource = self._owner, self._storage.locks, table.object_id
        kept = keep and self.count > 0
        known = locks.holds(owner, resource, Mode.IS)  # which every mode covers
        if not locks.holds(owner, resource, mode):
            locks.acquire(owner, resource, mode, owner.lock_timeout_s, owner.check)
        if kept:
            self._statement_locks.discard(resource)
        elif not known:
            self._statement_locks.add(resource)

    def end_statement(self) -> None:
        """Let go of locks that last for a statement only."""
        if self._statement_locks:
            for resource in self._statement_locks:
                self._storage.locks.release(self._owner, resource)
            self._statement_locks.clear()

    def _release_all(self) -> None:
        """Let go of every lock."""
        self._storage.locks.release_all(self._owner)
        self._statement_locks.clear()

    # ---- ends ------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Commit what was written, or end a pinned snapshot."""
        owner = self._owner
        if not self.writing:
            self.abandon_quietly()
            return
        saved: Saved | None = None
        edited = self.edited
        try:
            owner.before_commit()
            if edited is not None:
                saved = self._storage.save_catalog(owner.connection, edited)
            self._storage.save_counters(owner.connection)
            owner.connection.execute("COMMIT")
        except BaseException:
            self.abandon()
            raise
        if saved is not None:
            self._storage.publish(saved)
        self._release_all()
        self._reset()
        owner.after_commit()

    def abandon_quietly(self) -> None:
        """End a transaction that wrote nothing."""
        if self._owner.connection.in_transaction:
            self._owner.connection.execute("COMMIT")
        self._release_all()
        self._reset()

    def _reset(self) -> None:
        self.writing = self._pinned = False
        self.edited = self.savepoint_lsn = None
        if self._savepoints:
            self._savepoints.clear()
        self._owner.command_id = self._owner.change_number = 0


_PINNED: Final = "pinned"
"""SQLite's savepoint before the first write under SNAPSHOT: undoing all writes must not let go of the snapshot."""
_ALWAYS_ALLOWED: Final = frozenset({"master", "msdb", "tempdb"})
