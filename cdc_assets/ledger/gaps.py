"""Intervals of changes that are lost, as states of tables keep them, and READs of a table that has no state yet."""

from collections.abc import Sequence
from dataclasses import dataclass

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
class EarlyReads:
    """READs of a table that were written while it had no position from which its changes can be read.

    Changes after them belong to the table's rows like those after a position: its next snapshot takes up the same
    watermark, or else they are a gap.

    Args:
        low: the least watermark that they carry.
        object_id: object id of the table that was read; None if not all are of this object and of one history of the log.
        gaps: intervals of lost changes that the table's next state starts with.
        ignored_gaps: those of them that it goes on without, unless its rows are read.
    """

    low: Lsn
    object_id: int | None
    gaps: tuple[Interval, ...] = ()
    ignored_gaps: tuple[Interval, ...] = ()

    def joined(self, other: "EarlyReads") -> "EarlyReads":
        """With further READs."""
        object_id = other.object_id if other.object_id == self.object_id else None
        gaps = united(self.gaps, other.gaps)
        ignored = united(self.ignored_gaps, other.ignored_gaps)
        return EarlyReads(min(self.low, other.low), object_id, gaps, ignored)

    def of_former_history(self, lost: Interval | None) -> "EarlyReads":
        """As they are after a restore.

        Args:
            lost: what of the former history is lost; None while that is unknown.
        """
        found = () if lost is None else (lost,)
        return EarlyReads(self.low, None, united(self.gaps, found), united(self.ignored_gaps, found))
