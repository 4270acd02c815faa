"""What waits while no run records anything: whether one works is not known here, where only its traces are seen."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import cache
from math import inf

from cdc_assets.core.clocks import seconds_behind
from cdc_assets.ledger.fenced_log import Row
from cdc_assets.overview.capture import CaptureOverview
from cdc_assets.overview.formatting import duration
from cdc_assets.overview.report import LATE_S, DatabaseReport, TableReport, Trouble

STUCK_S = 15 * 60.0
"""Seconds without a row of the manifest after which it is not known whether anybody reads what is to be read."""
_MAX_NAMED = 5


def unknown_while_idle(
    overview: CaptureOverview, databases: Sequence[DatabaseReport], tables: Sequence[TableReport], at: datetime
) -> Iterator[Trouble]:
    """What is not known because no run has recorded anything for long, or because none has compared positions."""
    idle = cache(lambda database: _idle_s(overview.rows(), at, database))
    for database in databases:
        if database.is_lag_unknown and idle(database.database) > LATE_S:
            yield Trouble(
                database.database,
                f"changes wait, and no run has read for {_for(idle(database.database))}; how long they wait is not known, because the server "
                "has no time of them. Next: start a run, or find out what holds it",
            )
    # databases are snapshotted one after the other, and streamed when all are
    if not any(idle(name) <= STUCK_S for name in overview.state.snapshots):
        yield from _left_waiting(tables, idle)
        yield from _left_requested(overview, idle)
        for database in databases:
            yield from left_unread(database, idle(database.database))
    # a busy run reports itself, and its own commits shorten the log
    for commit in overview.unclear if idle("") > LATE_S else ():
        yield Trouble(
            commit.directory,
            "it is not known whether other programs have put rows in a second time, because its log no longer shows it. Next: let a "
            "run of the capture compare the positions, which takes a minute; cdc-assets doctor does it, too",
        )


def left_unread(database: DatabaseReport, idle_s: float) -> Iterator[Trouble]:
    """That changes have waited for long, and nothing is written: what is late is read by a run, and whether one works is not known here.

    Args:
        idle_s: seconds for which nothing has been recorded of the database.
    """
    behind_s = database.lag.behind_s or 0.0
    if min(behind_s, idle_s) > STUCK_S:
        yield Trouble(
            database.database,
            f"changes have waited for {duration(behind_s)}, and nothing has been written of {database.database} for {_for(idle_s)}, so it is "
            "not known whether a run reads. Next: see whether a run works, and its log; else start one",
        )


def _left_waiting(tables: Sequence[TableReport], idle: Callable[[str], float]) -> Iterator[Trouble]:
    """Tables that are to be read, by database, if nothing is written of it: whether a run works is not known here."""
    waiting: dict[str, list[str]] = {}
    for table in tables:
        if table.condition in ("waiting", "snapshotting") and idle(table.table.database) > STUCK_S:
            waiting.setdefault(table.table.database, []).append(str(table.table))
    for database, names in waiting.items():
        more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
        yield Trouble(
            database,
            f"{', '.join(names[:_MAX_NAMED])}{more} are to be read, and nothing has been written of {database} for {_for(idle(database))}, so "
            "it is not known whether a run reads. Next: see whether a run works, and its log; else start one",
        )


def _left_requested(overview: CaptureOverview, idle: Callable[[str], float]) -> Iterator[Trouble]:
    """What signals have requested, and nothing is written of it: its run may have ended before, or in the middle of it. Where the mode
    streams nothing, no run works on it."""
    for database, signals in overview.requests.items():
        if overview.streams and signals.unfinished and idle(database) > STUCK_S:
            yield Trouble(
                database,
                f"what signals requested of it waits, and nothing has been written of {database} for {_for(idle(database))}, so it is not "
                "known whether a run works on it. Next: see whether a run works, and its log; else start one",
            )


def _idle_s(rows: Sequence[Row], at: datetime, database: str) -> float:
    """For how long no run has recorded anything of a database, or of anything if it is empty, at least; without end if none ever has, or
    the newest row lies ahead."""
    own = (row["at"] for row in reversed(rows) if database in (row["database"] or "").split(", ") or not database)
    if not rows:
        return inf
    idle_s = seconds_behind(at, next(own, rows[0]["at"]))
    return inf if idle_s is None else idle_s


def _for(seconds: float) -> str:
    return "an unknown time" if seconds == inf else duration(seconds)
