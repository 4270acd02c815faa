"""T-SQL texts over captured tables: bounds of their keys, locks, access (`queries` says how they are built)."""

from collections.abc import Sequence

from cdc_assets.adapters.sqlserver.queries import TAG, query, union_all

_UNLOCKED = "WITH (NOLOCK)"
"""Hint of statements that search for range bounds: any value is good, even one that is rolled back later, and no row lock
is needed. https://learn.microsoft.com/en-us/sql/t-sql/queries/hints-transact-sql-table"""


def extremes(keys: Sequence[tuple[str, str]]) -> str:
    """Index, least and greatest value of integer columns, each given by quoted table and column.

    Each value is a query of its own, one seek in the key's index: requested together, they take a scan of it.
    """
    parts = [
        f"SELECT {index} AS i, CAST((SELECT MIN({column}) FROM {table} {_UNLOCKED}) AS bigint) AS low, "
        f"CAST((SELECT MAX({column}) FROM {table} {_UNLOCKED}) AS bigint) AS high"
        for index, (table, column) in enumerate(keys)
    ]
    return f"{TAG.format(name='extremes')}{union_all(parts)}"


def key_at(table: str, column: str, shown: str, low: str | None) -> str:
    """The key a given number of rows (last parameter) after a bound (first parameter, if there is one), as text.

    One index seek and a short scan.
    https://learn.microsoft.com/en-us/sql/t-sql/queries/select-order-by-clause-transact-sql
    """
    condition = f"{column} >= {low}" if low else f"{column} IS NOT NULL"
    inner = (
        f"SELECT {column} AS k FROM {table} {_UNLOCKED} WHERE {condition} "
        f"ORDER BY {column} OFFSET ? ROWS FETCH NEXT 1 ROWS ONLY"
    )
    return f"{TAG.format(name='key_at')}SELECT {shown} FROM ({inner}) AS s"


def key_after(table: str, column: str, shown: str, low: str) -> str:
    """The least key greater than a bound (parameter), as text."""
    inner = f"SELECT MIN({column}) AS k FROM {table} {_UNLOCKED} WHERE {column} > {low}"
    return f"{TAG.format(name='key_after')}SELECT {shown} FROM ({inner}) AS s"


_LEVELS = {
    "read_committed": "READ COMMITTED",
    "repeatable_read": "REPEATABLE READ",
    "exclusive": "READ COMMITTED",  # another session holds the lock against writers
    "snapshot": "SNAPSHOT",
}


def isolation_level(mode: str) -> str:
    """Sets the session's isolation level.

    https://learn.microsoft.com/en-us/sql/t-sql/statements/set-transaction-isolation-level-transact-sql
    """
    return f"SET TRANSACTION ISOLATION LEVEL {_LEVELS[mode]}"


YIELD_IN_DEADLOCK = query("yield_in_deadlock", "SET DEADLOCK_PRIORITY LOW")
"""https://learn.microsoft.com/en-us/sql/t-sql/statements/set-deadlock-priority-transact-sql"""


LOCK_WAIT_MS = 30_000
"""Longest wait for a lock of statements that read no captured table: one on a change table must not hold up the other tables.

https://learn.microsoft.com/en-us/sql/t-sql/statements/set-lock-timeout-transact-sql"""


def lock_wait_ms(query_timeout_s: int) -> int:
    """How long such statements wait: less than they may take (0 for ever), since the end of that tells of no lock.

    https://learn.microsoft.com/en-us/sql/t-sql/statements/set-lock-timeout-transact-sql
    """
    return min(LOCK_WAIT_MS, 500 * query_timeout_s) if query_timeout_s else LOCK_WAIT_MS


def lock_timeout(milliseconds: int) -> str:
    """Sets the maximum wait of a session's statements for a lock; 0 not at all, -1 for ever.

    https://learn.microsoft.com/en-us/sql/t-sql/statements/set-lock-timeout-transact-sql
    """
    return f"SET LOCK_TIMEOUT {milliseconds:d}"


def shared_lock(table: str) -> str:
    """Locks a quoted table against writers until the transaction ends.

    https://learn.microsoft.com/en-us/sql/t-sql/queries/hints-transact-sql-table
    """
    return f"{TAG.format(name='shared_lock')}SELECT TOP (1) 1 AS one FROM {table} WITH (TABLOCK, HOLDLOCK)"


def one_of(table: str) -> str:
    """Reads a row of a quoted table, which fixes the moment of a SNAPSHOT transaction.

    https://learn.microsoft.com/en-us/sql/t-sql/statements/set-transaction-isolation-level-transact-sql
    """
    return f"{TAG.format(name='one_of')}SELECT TOP (1) 1 AS one FROM {table}"


def access_check_query(table: str) -> str:
    """Checks that a quoted table may be read, without reading a row."""
    return f"{TAG.format(name='access_check_query')}SELECT TOP (0) 1 AS one FROM {table}"
