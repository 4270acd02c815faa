"""Identity values and row versions.

The counters lie in the storage, outside transactions: a rollback leaves gaps, as on a real
server. Which counter a table draws from lies in its definition, so that a TRUNCATE is taken back by a rollback. Only the holder of the writer lock draws, so no two sessions get one value.
"""

from typing import Final

from mssql_standin.catalog import Table
from mssql_standin.errors import SqlError
from mssql_standin.sqltypes import SqlType
from mssql_standin.store.ports import StoreSession
from mssql_standin.store.temporary import is_temporary

_LIMITS: Final = {"tinyint": 255, "smallint": 2**15 - 1, "int": 2**31 - 1, "bigint": 2**63 - 1}


class Identities:
    """What a session draws, and what it drew last."""

    def __init__(self, session: StoreSession) -> None:
        self._session = session
        self._temporary: dict[str, int] = {}
        self.scope: int | None = None
        """SCOPE_IDENTITY()."""
        self.session: int | None = None
        """@@IDENTITY."""

    def forget(self) -> None:
        """Connection reset."""
        self.scope = self.session = None

    def current(self, table: Table) -> int | None:
        """The value drawn last for a table, None before the first."""
        counters = self._temporary if is_temporary(table) else self._session.storage.counters
        return counters.get(counter(table))

    def draw(self, key: str, temporary: int, seed: int, increment: int, limit: int) -> int:
        """The next value of a table's counter; called by SQLite per row."""
        storage = self._session.storage
        counters = self._temporary if temporary else storage.counters
        last = counters.get(key)
        value = seed if last is None else last + increment
        if value > limit or value < -limit - 1:
            self._session.failure = SqlError(8115, "Arithmetic overflow error converting IDENTITY to data type int.")
            raise self._session.failure
        if temporary:
            counters[key] = value
        else:
            storage.count(key, value)
        self.scope = self.session = value
        return value

    def restart(self, table: Table) -> None:
        """TRUNCATE TABLE: the next value is the seed again. A stored table must be the copy that the statement edits."""
        if is_temporary(table):
            self._temporary.pop(counter(table), None)
            return
        table.truncations += 1
        while counter(table) in self._session.storage.counters:  # drawn from after a TRUNCATE that was rolled back
            table.truncations += 1

    def row_version(self, database: str) -> bytes:
        """The next row version of a database; called by SQLite per row."""
        storage = self._session.storage
        key = f"v{database}"
        value = storage.counters.get(key, _FIRST_ROW_VERSION) + 1
        storage.count(key, value)
        return value.to_bytes(8, "big")


_FIRST_ROW_VERSION: Final = 2000


def counter(table: Table) -> str:
    """Name of the counter that holds the identity value drawn last."""
    return f"i{table.object_id}" + (f".{table.truncations}" if table.truncations else "")


def limit(sql_type: SqlType) -> int:
    """The largest identity value of a column type."""
    return _LIMITS.get(sql_type.name, 10**sql_type.precision - 1 if sql_type.precision else 2**63 - 1)
