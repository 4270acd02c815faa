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

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import cast

from cdc_assets.adapters.sqlserver import change_queries, queries
from cdc_assets.adapters.sqlserver.portions import PROBES_PER_QUERY, of_those_there, portions
from cdc_assets.adapters.sqlserver.rows import integer, lsn_of
from cdc_assets.adapters.sqlserver.session import Session
from cdc_assets.core.lsn import Lsn

Counts = Mapping[str, Sequence[tuple[Lsn, int]]]
"""Commit LSNs in order, with numbers of change rows, by capture instance."""

_TRANSACTIONS = 1000
"""Number of transactions from which a second connection counts half of them."""


def rows_per_commit(
    session: Session,
    beside: Session,
    database: str,
    bounds: Mapping[str, Lsn],
    until: Lsn,
    skipped: Sequence[int] = (),
) -> Counts:
    """Commit LSNs with change rows in `(bounds[name], until]`, in order, with the number of rows; by instance, without those
    whose change table is gone, locked, or may not be read: of them nothing is known, which is not the same as no rows.

    Args:
        session: counts, and if there is much to count the first half of it.
        beside: counts the second half.
        skipped: operations that are not counted.
    """
    lowest = min(bounds.values(), default=until)
    middle = _middle(session, database, lowest, until)
    if middle is None:
        return _counted(session, database, bounds, until, skipped)
    with ThreadPoolExecutor(1, "count") as pool:
        rest = {name: max(after, middle) for name, after in bounds.items()}
        later = pool.submit(_counted, beside, database, rest, until, skipped)
        first = {name: after for name, after in bounds.items() if after < middle}
        found = _counted(session, database, first, middle, skipped)
        behind = later.result()
        return {
            name: [*found.get(name, ()), *counts]
            for name, counts in behind.items()
            if name in found or name not in first
        }


def _middle(session: Session, database: str, after: Lsn, until: Lsn) -> Lsn | None:
    """Commit LSN that halves the transactions in `(after, until]`; None if they are few."""
    statement = queries.of_database(queries.TRANSACTIONS, database)
    transactions = integer(session.value(statement, after.raw, until.raw))
    if transactions < _TRANSACTIONS:
        return None
    statement = queries.of_database(queries.NTH_TRANSACTION, database)
    middle = lsn_of(session.value(statement, transactions // 2, after.raw))
    return middle if middle is not None and middle < until else None


def _counted(
    session: Session, database: str, bounds: Mapping[str, Lsn], until: Lsn, skipped: Sequence[int]
) -> dict[str, list[tuple[Lsn, int]]]:
    def counted(names: Sequence[str]) -> list[tuple[str, list[tuple[Lsn, int]]]]:
        statement = change_queries.rows_per_commit(database, names, skipped)
        parameters = [raw for name in names for raw in (bounds[name].raw, until.raw)]
        found = [list[tuple[Lsn, int]]() for _ in names]
        for place, raw, count in session.rows_behind(session.floor(database, until), statement, *parameters):
            found[integer(place)].append((Lsn(bytes(cast(bytes, raw))), integer(count)))
        return list(zip(names, found, strict=True))

    return {
        name: counts
        for portion in portions(sorted(bounds), PROBES_PER_QUERY)
        for name, counts in of_those_there(session, portion, counted, lambda _: [])
    }
