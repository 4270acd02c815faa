"""What a reader's topics or files hold that is not in the lake: for the overview of the capture; the reader does not need it."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from cdc_assets.connectors.engine.feed import Offsets


@dataclass(frozen=True, slots=True)
class Unread:
    """What waits after recorded offsets.

    Args:
        since: time of the oldest record, or file, that waits; None if none does.
        what: how much waits, for people; empty if nothing does.
        missing: what the reader does not see of what it is to read, or has read, with the next step; empty if it sees all of it.
        seen: number of topics, or files, that it sees.
        absent: topics that are named and not there.
    """

    since: datetime | None = None
    what: str = ""
    missing: str = ""
    seen: int = 0
    absent: tuple[str, ...] = ()


AskUnread = Callable[[Offsets], Unread]
"""Queries what waits after offsets; raises CdcError if that cannot be queried."""
