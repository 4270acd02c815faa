"""Identity values and row versions.

The counters lie in the storage, outside transactions: a rollback leaves gaps, as on a real
server. Only the holder of the writer lock draws, so no two sessions get one value.
"""

from typing import TYPE_CHECKING, Final

from cdc_assets.standin.catalog import Column, Table
from cdc_assets.standin.engine.certain import certain
from cdc_assets.standin.errors import SqlError
from cdc_assets.standin.sqltypes import SqlType

if TYPE_CHECKING:
    from cdc_assets.standin.engine.session import EngineSession

_LIMITS: Final = {"tinyint": 255, "smallint": 2**15 - 1, "int": 2**31 - 1, "bigint": 2**63 - 1}


class Identities:
    """What a session draws, and what it drew last."""

    def __init__(self, session: "EngineSession") -> None:
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
        return self._counters(table).get(_key(table.object_id))

    def draw(self, object_id: int, seed: int, increment: int, limit: int) -> int:
        """The next value of a stored table; called by SQLite per row."""
        storage = self._session.storage
        key = _key(object_id)
        counters = storage.counters if object_id < 1_900_000_000 else self._temporary
        last = counters.get(key)
        value = seed if last is None else last + increment
        if value > limit or value < -limit - 1:
            self._session.failure = SqlError(8115, "Arithmetic overflow error converting IDENTITY to data type int.")
            raise self._session.failure
        if counters is storage.counters:
            storage.count(key, value)
        else:
            counters[key] = value
        self.scope = self.session = value
        return value

    def inserted(self, table: Table, column: Column, value: int) -> None:
        """An explicit value under IDENTITY_INSERT: the counter never stays behind it."""
        last = self.current(table)
        forward = certain(column.identity, "an identity")[1] > 0
        if last is None or (value > last if forward else value < last):
            self.reseed(table, value)
        self.scope = self.session = value

    def reseed(self, table: Table, value: int) -> None:
        """Set the value drawn last."""
        if table.object_id < 1_900_000_000:
            self._session.storage.count(_key(table.object_id), value)
        else:
            self._temporary[_key(table.object_id)] = value

    def restart(self, table: Table) -> None:
        """TRUNCATE TABLE: the next value is the seed again."""
        self._counters(table).pop(_key(table.object_id), None)
        for column in table.columns:
            if column.identity and self._counters(table) is self._session.storage.counters:
                self.reseed(table, column.identity[0] - column.identity[1])

    def row_version(self, database: str) -> bytes:
        """The next row version of a database; called by SQLite per row."""
        storage = self._session.storage
        key = f"v{database}"
        value = storage.counters.get(key, _FIRST_ROW_VERSION) + 1
        storage.count(key, value)
        return value.to_bytes(8, "big")

    def last_row_version(self) -> bytes:
        """@@DBTS."""
        return self._session.storage.counters.get(f"v{self._session.database}", _FIRST_ROW_VERSION).to_bytes(8, "big")

    def _counters(self, table: Table) -> dict[str, int]:
        return self._session.storage.counters if table.object_id < 1_900_000_000 else self._temporary


_FIRST_ROW_VERSION: Final = 2000


def _key(object_id: int) -> str:
    return f"i{object_id}"


def limit(sql_type: SqlType) -> int:
    """The largest identity value of a column type."""
    return _LIMITS.get(sql_type.name, 10**sql_type.precision - 1 if sql_type.precision else 2**63 - 1)
