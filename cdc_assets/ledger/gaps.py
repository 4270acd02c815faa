"""Intervals of changes that are lost or were left out, as states of tables keep them, and READs of a table that has no state yet."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cdc_assets.core.lsn import Lsn

Interval = tuple[Lsn, Lsn]
"""Commit LSNs after the first, up to the second."""

_KEEP_GAPS = 100
"""Number of gaps kept in a table's state; older ones are in the manifest's rows and Delta's versions."""


def with_lost(gaps: Sequence[Interval], after: Lsn, until: Lsn, *, joined: bool = False) -> tuple[Interval, ...]:
    """Intervals of lost changes, with another one.

    Args:
        joined: whether it continues the newest one if that reaches it.
    """
    if joined and gaps and after <= gaps[-1][1]:
        *gaps, last = gaps
        after, until = min(after, last[0]), max(until, last[1])
    return (*gaps, (after, until))[-_KEEP_GAPS:]


def ending_at(gaps: Sequence[Interval], lsn: Lsn) -> tuple[Interval, ...]:
    """Intervals of lost changes of a table that is read again at an LSN, behind which it streams. Only one that was found before the
    database was restored ends later, at an LSN that is given away again."""
    return tuple((after, min(until, lsn) if after < lsn else until) for after, until in gaps)


def united(gaps: Sequence[Interval], more: Sequence[Interval]) -> tuple[Interval, ...]:
    """All of them, each once."""
    return tuple(dict.fromkeys((*gaps, *more)))[-_KEEP_GAPS:]


@dataclass(frozen=True, slots=True)
class Skipped:
    """An interval of the log that was read without some operations, as the settings wanted then: no loss, but not enough for mirrors.

    Args:
        after: commit LSN after which it begins.
        until: commit LSN at which it ends, inclusive.
        operations: letters of `skipped.operations` that change rows.
    """

    after: Lsn
    until: Lsn
    operations: str

    @property
    def made_good_by(self) -> Lsn:
        """Least LSN of READs that make it good; events from there on say which rows there are.

        At its own end a READ is of no use but for rows that were made: that commit may have made a row and removed it, or given it other
        values, which in a table without a key is another row.
        """
        return self.until if self.operations == "c" else self.until.next()


def with_skipped(found: Sequence[Skipped], new: Skipped, read: Lsn | None) -> tuple[Skipped, ...]:
    """Intervals with another one, which continues the newest one if no reading has made that good.

    Args:
        read: LSN of the last snapshot of the whole table.
    """
    if found and (read is None or read < found[-1].made_good_by):
        *found, last = found
        new = _joined(last, new)
    if len(found) >= _KEEP_GAPS:
        found = (_joined(found[0], found[1]), *found[2:])
    return (*found, new)


def _joined(first: Skipped, second: Skipped) -> Skipped:
    operations = "".join(sorted({*first.operations, *second.operations}))
    return Skipped(first.after, max(first.until, second.until), operations)


def skipped_before(found: Sequence[Skipped], lsn: Lsn) -> tuple[Skipped, ...]:
    """Those of a table that is read again at an LSN; see `ending_at`."""
    end = Lsn.from_int(int(lsn) - 1) if int(lsn) else lsn
    return tuple(replace(one, until=end) if one.after < lsn < one.until else one for one in found)


@dataclass(frozen=True, slots=True)
class EarlyReads:
    """READs of a table that were written while it had no position from which its changes can be read.

    Changes after them belong to the table's rows like those after a position: its next snapshot takes up the same
    watermark, or else they are a gap.

    Args:
        low: the least watermark that they carry.
        object_id: object id of the table that was read; None if not all are of this object and of one history of the log.
        gaps: intervals of lost changes that the table's next state starts with.
        ignored_gaps: those of them that it goes on without, unless its rows are read.
        skipped: what was read of it without some operations.
    """

    low: Lsn
    object_id: int | None
    gaps: tuple[Interval, ...] = ()
    ignored_gaps: tuple[Interval, ...] = ()
    skipped: tuple[Skipped, ...] = ()

    def joined(self, other: "EarlyReads") -> "EarlyReads":
        """With further READs."""
        object_id = other.object_id if other.object_id == self.object_id else None
        gaps = united(self.gaps, other.gaps)
        ignored = united(self.ignored_gaps, other.ignored_gaps)
        skipped = tuple(dict.fromkeys((*self.skipped, *other.skipped)))
        return EarlyReads(min(self.low, other.low), object_id, gaps, ignored, skipped)

    def of_former_history(self, lost: Interval | None) -> "EarlyReads":
        """As they are after a restore.

        Args:
            lost: what of the former history is lost; None while that is unknown.
        """
        found = () if lost is None else (lost,)
        gaps, ignored = united(self.gaps, found), united(self.ignored_gaps, found)
        return replace(self, object_id=None, gaps=gaps, ignored_gaps=ignored)
