"""Proves that a window's tasks got as many change rows as there are.

The planner counts the change rows of each commit anyway, so it records with each read how many there are. A task that got
others read a replica that lags behind the one that was queried, or a result that was cut short. Nothing of the window is
committed then, and it is read again.

*Why it is right.* Change rows up to a window's end do not change any more: the capture job writes them together with the
commit's row in `cdc.lsn_time_mapping`, and the count is made over a connection that has that row (`core.ports`). Only the
clean-up job removes rows, after it has raised the low-water mark; such a table has a gap, and is not judged here.

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

from cdc_assets.capture.instances import gap_of
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.ports import Source
from cdc_assets.errors import IncompleteReadError
from cdc_assets.ledger.state import TableRead

log = logging.getLogger(__name__)

Counts = Sequence[tuple[Lsn, int]]
"""Commit LSNs in order, each with a number of change rows."""
RowsRead = Mapping[tuple[TableId, str], int]
"""Change rows that a task got, by table and capture instance."""


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
    total = Counter[tuple[TableId, str]]()
    for rows in got:
        total.update(rows)
    for read in reads:
        found = total[read.table, read.instance]
        if read.rows not in (None, found) and not _are_gone(source, read, found, skipped):
            raise IncompleteReadError(
                f"Of {read.rows} change rows of {read.instance} in ({read.after}, {read.until}] of database "
                f"{read.table.database}, {found} arrived: a replica lags, or a connection broke. They are read again"
            )


def _are_gone(source: Source, read: TableRead, found: int, skipped: Sequence[int]) -> bool:
    """Whether the server itself has no other number of rows than were read, and the clean-up job has removed none."""
    database = read.table.database
    counts = source.rows_per_commit(database, {read.instance: read.after}, read.until, skipped)
    marks = source.low_water_marks(database)
    if read.instance not in counts or gap_of([read], marks):
        return False
    if sum(rows for _, rows in counts[read.instance]) != found:
        return False
    log.warning(
        "%s had %s change rows in (%s, %s] when the window was planned, and has %d: somebody has removed rows of its "
        "change table.", read.instance, read.rows, read.after, read.until, found,
    )  # fmt: skip
    return True
