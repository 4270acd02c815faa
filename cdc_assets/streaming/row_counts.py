"""Proves that a window's tasks got as many change rows as there are.

The planner counts the change rows of each commit anyway, so it records with each read how many there are. A task that got
others read a replica that lags behind the one that was queried, or a result that was cut short. Nothing of the window is
committed then, and it is read again.

*Why it is right.* Change rows up to a window's end do not change any more: the capture job writes them together with the
commit's row in `cdc.lsn_time_mapping`, and the count is made over a connection that has that row (`core.ports`). Only the
clean-up job removes rows, after it has raised the low-water mark; such a table has a gap, and is not judged here. What is read
again only to be counted for transaction metadata is counted by itself, and lacks nothing if it was cleaned up: it is in the lake.

*What could not be counted* when the window was planned, because somebody locked the change table or a right was missing, is counted
when it was read; if it cannot be even then, nothing is known of it but what arrived.

*No wait lasts for ever.* If the server counts again what was read, rows were removed by hand since the window was planned:
nothing can bring them back, and the window continues.
"""

import dataclasses
import logging
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, groupby
from operator import itemgetter

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.ports import Source
from cdc_assets.errors import IncompleteReadError
from cdc_assets.ledger.state import TableRead
from cdc_assets.shared.instances import gap_of

log = logging.getLogger(__name__)

Counts = Sequence[tuple[Lsn, int]]
"""Commit LSNs in order, each with a number of change rows."""
RowKey = tuple[TableId, str, bool]
"""A table, its capture instance, and whether rows are read only to be counted, since they are committed already."""
RowsRead = Mapping[RowKey, int]
"""Change rows that a task got."""


def key_of(read: TableRead) -> RowKey:
    """By what the rows of a read are counted."""
    return read.table, read.instance, read.counted


def together(by_instance: Mapping[str, Counts]) -> Counts:
    """Change rows of all instances by commit."""
    found = list(by_instance.values())
    if len(found) == 1:
        return found[0]
    ordered = sorted(chain.from_iterable(found), key=lambda entry: entry[0].raw)  # runs in order: a merge
    return [(commit, sum(rows for _, rows in of_commit)) for commit, of_commit in groupby(ordered, itemgetter(0))]


def counted(read: TableRead, by_instance: Mapping[str, Counts]) -> TableRead:
    """The read with the number of its rows; without one if it begins inside a transaction, whose rows it shares, or if they
    could not be counted."""
    if read.begins is not None or read.instance not in by_instance:
        return read
    counts = by_instance[read.instance]
    first, end = (bisect_right(counts, lsn, key=lambda entry: entry[0]) for lsn in (read.after, read.until))
    return dataclasses.replace(read, rows=sum(rows for _, rows in counts[first:end]))


def check_rows(source: Source, reads: Iterable[TableRead], got: Collection[RowsRead], skipped: Sequence[int]) -> None:
    """Check that the tasks of a window got all rows of some reads.

    Args:
        source: counts again what does not fit.
        reads: whole reads of one database, as they were planned.
        got: of each task.
        skipped: operations that are not read.

    Raises:
        IncompleteReadError: they did not, or the server is away or busy.
    """
    total = Counter[RowKey]()
    for rows in got:
        total.update(rows)
    alike: dict[RowKey, list[TableRead]] = {}
    for read in reads:
        alike.setdefault(key_of(read), []).append(read)
    for key, same in alike.items():
        found, expected = total[key], rows_of_reads(same)
        if any(read.begins is not None for read in same):  # they share the rows of a commit with another reader
            continue
        if expected != found and not _are_gone(source, same, found, skipped):
            known = "an unknown number of" if expected is None else expected
            raise IncompleteReadError(
                f"Of {known} change rows of {_named(same)}, {found} arrived: a replica lags, or a connection broke. "
                "They are read again"
            )


def rows_of_reads(reads: Iterable[TableRead]) -> int | None:
    """Planned change rows of some reads; None if those of one are not known."""
    found = [read.rows for read in reads]
    return None if None in found else sum(rows for rows in found if rows is not None)


def _named(reads: Sequence[TableRead]) -> str:
    spans = ", ".join(f"({read.after}, {read.until}]" for read in reads)
    return f"{reads[0].instance} in {spans} of database {reads[0].table.database}"


def _are_gone(source: Source, reads: Sequence[TableRead], found: int, skipped: Sequence[int]) -> bool:
    """Whether reads of one instance lack nothing that anybody waits for: the server itself has no other number of rows than were
    read, or never says how many, and the clean-up job has removed none; or it has, of rows that were only to be counted.

    All of it is asked of one server: on another one the clean-up may not have come as far.
    """
    first = reads[0]
    database, name = first.table.database, first.instance
    begin, end = min(read.after for read in reads), max(read.until for read in reads)
    source.active_instances(database, {name: begin}, end)  # from here up to the low-water marks
    counts = source.rows_per_commit(database, {name: begin}, end, skipped)
    if gap_of(reads, source.low_water_marks(database)):
        if first.counted:
            log.warning(
                "Rows of %s were cleaned up before END of their transactions, which does not count them.", _named(reads)
            )
        return first.counted
    planned = rows_of_reads(reads)
    if name not in counts:
        return planned is None  # a login that may only call functions can read what it cannot count
    if rows_of_reads([counted(read, counts) for read in reads]) != found:
        return False
    if planned is None:
        return True
    log.warning(
        "%s had %s change rows when the window was planned, and has %d: somebody has removed rows of its change table.",
        _named(reads), planned, found,
    )  # fmt: skip
    return True
