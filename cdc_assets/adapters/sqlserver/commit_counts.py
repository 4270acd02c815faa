"""Numbers of change rows per commit, counted by two connections at once where there is much to count.

The count is a scan of the change tables' clustered indexes, and nothing of a window can be read before it. So the range of
commits is divided at the transaction in the middle of `cdc.lsn_time_mapping`, and each connection counts one part. Fewer
than `_TRANSACTIONS` are counted by the one connection.

*Why it is right.* A commit belongs to one of the two parts, so both together count each row once. Change rows at or below
the upper bound do not change any more, except that the clean-up job removes them, which the reading of them reveals; so
it does not matter when which part is counted. The middle is only a place to divide at: any LSN would do. Nothing is
written.

An instance whose change table was dropped is ignored; reading it reveals that.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import cast

from cdc_assets.adapters.sqlserver import change_queries, queries
from cdc_assets.adapters.sqlserver.portions import PROBES_PER_QUERY, of_those_there, portions
from cdc_assets.adapters.sqlserver.rows import integer, lsn_of
from cdc_assets.adapters.sqlserver.session import Session
from cdc_assets.core.lsn import Lsn

_TRANSACTIONS = 1000
"""Number of transactions from which a second connection counts half of them."""


def rows_per_commit(
    session: Session, beside: Session, database: str, bounds: Mapping[str, Lsn], until: Lsn
) -> Sequence[tuple[Lsn, int]]:
    """Commit LSNs with change rows in `(bounds[name], until]`, in order, with the number of rows.

    Args:
        session: counts, and if there is much to count the first half of it.
        beside: counts the second half.
    """
    lowest = min(bounds.values(), default=until)
    middle = _middle(session, database, lowest, until)
    if middle is None:
        return _counted(session, database, bounds, until)
    with ThreadPoolExecutor(1, "count") as pool:
        rest = {name: max(after, middle) for name, after in bounds.items()}
        later = pool.submit(_counted, beside, database, rest, until)
        first = {name: after for name, after in bounds.items() if after < middle}
        return [*_counted(session, database, first, middle), *later.result()]


def _middle(session: Session, database: str, after: Lsn, until: Lsn) -> Lsn | None:
    """Commit LSN that halves the transactions in `(after, until]`; None if they are few."""
    statement = queries.of_database(queries.TRANSACTIONS, database)
    transactions = integer(session.value(statement, after.raw, until.raw))
    if transactions < _TRANSACTIONS:
        return None
    statement = queries.of_database(queries.NTH_TRANSACTION, database)
    middle = lsn_of(session.value(statement, transactions // 2, after.raw))
    return middle if middle is not None and middle < until else None


def _counted(session: Session, database: str, bounds: Mapping[str, Lsn], until: Lsn) -> list[tuple[Lsn, int]]:
    def counted(names: Sequence[str]) -> list[tuple[bytes, int]]:
        parameters = [raw for name in names for raw in (bounds[name].raw, until.raw)]
        rows = session.rows(change_queries.rows_per_commit(database, names), *parameters)
        return [(bytes(cast(bytes, raw)), integer(count)) for raw, count in rows]

    found = [
        row
        for portion in portions(sorted(bounds), PROBES_PER_QUERY)
        for row in of_those_there(portion, counted, lambda _: [])
    ]
    if len(bounds) > 1:
        counts = Counter[bytes]()
        for raw, rows in found:
            counts[raw] += rows
        found = sorted(counts.items())
    return [(Lsn(raw), rows) for raw, rows in found]
