"""The SQLite file that holds every database, and the committed catalogue.

WAL mode, so that readers see the last commit and never wait; `synchronous = OFF`, since the stand-in survives a crash
of the process, not of the machine. One writer at a time, arranged by the lock `locks.WRITER` and not by
SQLite's busy handler: waiting then honours LOCK_TIMEOUT, attentions and deadlock detection.

A crash between any two steps leaves what SQLite committed: the catalogue and the
counters are written in the transaction whose effects they describe.
"""

import itertools
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mssql_standin.catalog import Catalog
from mssql_standin.sql.collation import register_collations
from mssql_standin.store import persist
from mssql_standin.store.locks import WRITER, Locks, Mode


class Storage:
    """One file, many connections.

    Args:
        directory: where the file lies and is found again; None for a temporary folder that `close` removes.
    """

    def __init__(self, directory: Path | None) -> None:
        if sqlite3.sqlite_version_info < (3, 38):
            raise RuntimeError(f"SQLite {sqlite3.sqlite_version} is too old; the stand-in needs 3.38 or later.")
        self._temporary = directory is None
        self.directory = directory or _temporary_folder()
        self.directory.mkdir(parents=True, exist_ok=True)
        self.path = self.directory / "standin.sqlite"
        self.locks = Locks()
        self._home = self.connect()
        self._home.execute("PRAGMA journal_mode = WAL")
        for statement in persist.SCHEMA:
            self._home.execute(statement)
        self._saved = persist.load(self._home)
        self.catalog = self._saved.catalog
        self._versions = itertools.count(self.catalog.version + 1)
        self.counters: dict[str, int] = dict(self._home.execute("SELECT name, value FROM engine_counters"))
        """Identity values and row versions, last used; changed only by the holder of the writer lock."""
        self._dirty: set[str] = set()
        self._mutex = threading.Lock()

    def connect(self) -> sqlite3.Connection:
        """A connection in autocommit mode with our collations, usable from any thread."""
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, cached_statements=1000)
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA cache_size = -65536")
        connection.execute("PRAGMA busy_timeout = 5000")
        register_collations(connection)
        return connection

    @contextmanager
    def writing(self, connection: sqlite3.Connection, owner: object) -> Iterator[None]:
        """For the Agent and bulk loads: hold the writer lock and a SQLite transaction; commit, or roll back on an exception."""
        self.locks.acquire(owner, WRITER, Mode.X)
        try:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.save_counters(connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        finally:
            self.locks.release_all(owner)

    def next_version(self) -> int:
        """A catalogue version never used before in this process."""
        with self._mutex:
            return next(self._versions)

    # ---- at commit, by the holder of the writer lock -----------------------------------------------------------

    def save_catalog(self, connection: sqlite3.Connection, catalog: Catalog) -> persist.Saved:
        """Write the changed definitions; pass the result to `publish` after the commit."""
        return persist.save(connection, catalog, self._saved)

    def publish(self, saved: persist.Saved) -> None:
        """Make a catalogue, whose rows are committed, the one that all sessions see."""
        saved.catalog.freeze()
        self._saved = saved
        self.catalog = saved.catalog

    def count(self, name: str, value: int) -> None:
        """Set a counter."""
        self.counters[name] = value
        self._dirty.add(name)

    def save_counters(self, connection: sqlite3.Connection) -> None:
        """Write the counters that changed since the last commit."""
        if self._dirty:
            rows = [(name, self.counters[name]) for name in self._dirty]
            connection.executemany("INSERT OR REPLACE INTO engine_counters VALUES (?, ?)", rows)
            self._dirty.clear()

    def close(self) -> None:
        """Close the file; remove it if it was temporary."""
        self._home.close()
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)


def _temporary_folder() -> Path:
    """A folder in memory where the system has one: the WAL is then never written to a disk."""
    memory = Path("/dev/shm")  # noqa: S108 - only a place for mkdtemp, which makes a private folder
    return Path(tempfile.mkdtemp(prefix="cdc-standin-", dir=memory if memory.is_dir() else None))
