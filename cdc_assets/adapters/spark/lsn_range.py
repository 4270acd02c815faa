"""Ranges of commit LSNs: which of a topic's events a reader wants, and which of its files may hold some of them."""

from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from cdc_assets.core.lsn import LSN_WIDTH, Lsn
from cdc_assets.lake.retained import Retained

EARLIEST = "earliest"
"""In place of the first LSN: from where on the topic holds every event."""
_HINT = f"begin at {EARLIEST} (from_lsn; in Dagster the input's metadata), or read the table's mirror, which holds what was before"
_COMMIT = f"substr(position, 1, {LSN_WIDTH})"
"""A position begins with its commit LSN in fixed width, so text order is LSN order."""


@dataclass(frozen=True, slots=True)
class LsnRange:
    """Commit LSNs in (after, until]; None is an open end.

    Args:
        earliest: whether it begins where the topic does, also if older events were dropped.
    """

    after: Lsn | None = None
    until: Lsn | None = None
    earliest: bool = False

    @classmethod
    def parse(cls, after: str = "", until: str = "") -> "LsnRange":
        """The range between two LSNs; empty texts are open ends, and it may begin at `earliest`.

        Raises:
            InvalidValueError: a text is no LSN.
        """
        earliest = after == EARLIEST
        begin = Lsn.parse(after) if after and not earliest else None
        return cls(begin, Lsn.parse(until) if until else None, earliest)

    def held_by(self, topic: str, found: Retained) -> "LsnRange":
        """The range, as far as a topic holds it.

        Raises:
            EventsDroppedError: it begins before the topic does.
        """
        if self.earliest and found.rows:
            return replace(self, after=None, earliest=False)
        if self.earliest:
            return replace(self, after=Lsn.parse(found.after) if found.after else None, earliest=False)
        lsn = str(self.after) if self.after else ""
        found.require(topic, lsn, f"events after {lsn}" if lsn else "all events", _HINT)
        return self

    def may_hold(self, least: str | None, greatest: str | None) -> bool:
        """Whether a file with these smallest and greatest positions may hold rows of the range."""
        if least is None or greatest is None:
            return True
        return not (self.until and least[:LSN_WIDTH] > str(self.until)) and not (
            self.after and greatest[:LSN_WIDTH] <= str(self.after)
        )

    def filter(self, frame: DataFrame) -> DataFrame:
        """Rows of the range."""
        if self.after:
            frame = frame.where(f"{_COMMIT} > '{self.after}'")
        return frame.where(f"{_COMMIT} <= '{self.until}'") if self.until else frame
