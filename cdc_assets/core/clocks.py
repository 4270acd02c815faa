"""Ages by clocks that may have been set back: what seems to lie ahead has no age that is known, and never that of now."""

from datetime import datetime

CLOCK_SKEW_S = 60
"""Seconds by which something may seem to lie in the future, as a commit on a secondary whose clock is not its primary's; if by more,
the clock was set back after it."""


def seconds_behind(now: datetime | None, past: datetime | None) -> float | None:
    """Age of something in seconds, at least 0; None if one of the two times is not known, or the clock was set back between them."""
    if now is None or past is None:
        return None
    seconds = (now - past).total_seconds()
    return max(0.0, seconds) if seconds >= -CLOCK_SKEW_S else None
