"""What snapshots have read of tables later than the LSN that their READs carry.

READs carry the low watermark of their snapshot, and each row is as it was when it was read. So between that LSN and the last commit that
was made before the last row was read, a topic makes rows of different moments. Whoever needs the table as it was at one LSN has
to know this interval (`mirror.spans`). Tables without a key are read at one moment, whose place their READs carry; they have none.

*Why none is forgotten.* A reading is recorded with the plan of its round, before a row is read. So it is also known of a round
that is given up after some of its files were committed. Its end is recorded later (`capture.readings`), for all rounds up to a number; a round that
reads again under the same watermark has a greater number, and opens the reading again. What is open when a restore has ended a history
ends right behind that.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn

_KEEP = 100
"""Number of readings of a table that are kept apart; of more the oldest two become one, which is true of both."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Rows that were read after the LSN of their READs.

    Args:
        low: commit LSN of the READs.
        window: number of the newest round that read under it.
        high: commit LSN up to which everything is that was committed before the last row was read; None while that is not known.
    """

    low: Lsn
    window: int
    high: Lsn | None = None


Readings = Mapping[TableId, tuple[Reading, ...]]
"""By table, in the order in which they were read; those that ended where they began are left out."""


def opened(readings: Readings, lows: Mapping[TableId, Lsn], window: int) -> Readings:
    """With what a round is going to read, by the LSNs of its READs."""
    found = dict(readings)
    for table, low in lows.items():
        others = tuple(one for one in found.get(table, ()) if one.low != low)
        found[table] = _kept((*others, Reading(low, window)))
    return found


def without(readings: Readings, tables: Set[TableId], window: int) -> Readings:
    """Without those of a round that has read some tables at one moment."""
    return _present(
        {
            table: tuple(one for one in found if table not in tables or one.window != window)
            for table, found in readings.items()
        }
    )


def closed(readings: Readings, database: str, window: int, high: Lsn) -> Readings:
    """With the end of what was read of a database in rounds up to a number."""

    def end(one: Reading) -> Reading:
        return replace(one, high=max(high, one.low)) if one.high is None and one.window <= window else one

    return _present(
        {
            table: tuple(one for one in map(end, found) if one.high != one.low) if table.database == database else found
            for table, found in readings.items()
        }
    )


def open_databases(readings: Readings) -> set[str]:
    """Databases of which something was read until nobody knows where in the log."""
    return {table.database for table, found in readings.items() if any(one.high is None for one in found)}


def _kept(found: tuple[Reading, ...]) -> tuple[Reading, ...]:
    if len(found) <= _KEEP:
        return found
    first, second, *others = found
    high = None if first.high is None or second.high is None else max(first.high, second.high)
    return (Reading(min(first.low, second.low), max(first.window, second.window), high), *others)


def _present(readings: Readings) -> Readings:
    return {table: found for table, found in readings.items() if found}
