"""Settings of mirrors."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MirrorSettings:
    """Which tables have a mirror: their rows and the history of them in natural types.

    Args:
        enabled: whether runs keep mirrors.
        include: regexes of tables with a mirror; all if empty.
        interval_s: seconds from one step to the next while a loop runs.
        late_s: seconds for which none may move while one is behind.
        reconcile_ranges: key ranges of a table that a job compares with the server; 0 for all.
        settle_s: seconds after which a change that nobody has captured is believed not to be in flight.
    """

    enabled: bool = False
    include: tuple[str, ...] = ()
    interval_s: float = 30.0
    late_s: float = 600.0
    reconcile_ranges: int = 0
    settle_s: float = 15.0
