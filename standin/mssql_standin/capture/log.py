"""The logs of the databases: where each one ends, and the numbers of transactions.

Numbers and positions live in memory; what makes them right after a restart lies in the file: the VLF in use, and the
numbers of captured and waiting transactions (see `lsn` for why no committed LSN comes again).
"""

import sqlite3
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Final

from mssql_standin.capture.lsn import LogPosition
from mssql_standin.catalog import fold

_FIRST_VLF: Final = 0x2C


class Logs:
    """Safe for use from any thread.

    Args:
        connect: gives a connection for a while.
    """

    def __init__(self, connect: Callable[[], AbstractContextManager[sqlite3.Connection]]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._positions: dict[str, LogPosition] = {}
        with connect() as connection:
            self._number = _last_number(connection)

    def position(self, database: str) -> LogPosition:
        """Where the database's log ends."""
        name = fold(database)
        with self._lock:
            found = self._positions.get(name)
        if found is not None:
            return found
        with self._connect() as connection:
            row = connection.execute("SELECT vlf FROM capture_databases WHERE name = ?", (name,)).fetchone()
        with self._lock:
            return self._positions.setdefault(name, LogPosition(row[0] + 1 if row else _FIRST_VLF))

    def restored(self, ends: Mapping[str, bytes]) -> None:
        """The databases come from a backup: their logs go on where they ended then, by folded name."""
        with self._lock:
            self._positions.update({name: LogPosition.at(end) for name, end in ends.items()})

    def new_number(self) -> int:
        """The next transaction number, never used before in these databases."""
        with self._lock:
            self._number += 1
            return self._number


def _last_number(connection: sqlite3.Connection) -> int:
    """The highest transaction number in use, waiting or captured; numbers become the `tran_id` of captured transactions."""
    found: list[int] = [connection.execute("SELECT coalesce(max(tran), 0) FROM capture_log").fetchone()[0]]
    for (mapping,) in connection.execute("SELECT mapping FROM capture_databases").fetchall():
        top = connection.execute(f"SELECT max(c4) FROM {mapping} WHERE length(c4) = 6").fetchone()[0]
        found.append(int.from_bytes(top or b"", "big"))
    return max(found)
