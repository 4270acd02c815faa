"""How far topics are published, seen from outside: the newest marker against what the manifest has completed.

*A window without events* is published with the next one that has some. So what waits are the windows and rounds after the marker
that have events, not the difference of two numbers.

*A topic that is ahead* of the marker's number, because its database is ahead of another one, is named in the marker: a window waits only if
one of the topics that it was committed to does.

*What rows do not list any more* is read from topics (`waiting`).
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from cdc_assets.core.clocks import seconds_behind
from cdc_assets.core.lsn import Lsn
from cdc_assets.publish.after import After, after_in
from cdc_assets.publish.offset import END_OF_WINDOW, RATE_S, Published, parse_published

AskMarker = Callable[[], str | None]
"""Queries a broker for the newest marker."""


@dataclass(frozen=True, slots=True)
class PublishedReport:
    """How far the topics in Kafka are.

    Args:
        window: number of the window up to which they are published; -1 if nothing is.
        lsn: commit LSN of the newest event of a table that is published.
        waiting: windows and rounds with events that are complete in the lake and not published; those that the manifest does not
            list any more count as one.
        behind_s: age of the oldest of them, at least; 0 if there is none; None if it is not known, because a clock was set back.
        per_second: events per second, published in the last minute.
        at: when the newest transaction was committed.
        stopped: why topics are not published further, by name.
        held: what holds publishing back, if windows wait; empty if nothing does.
        problem: why this is not known, if it could not be queried; then nothing else is.
        is_away: whether it is not known because no broker answers.
    """

    window: int = -1
    lsn: Lsn | None = None
    waiting: int = 0
    behind_s: float | None = None
    per_second: float = 0.0
    at: datetime | None = None
    stopped: Mapping[str, str] = field(default_factory=dict)
    held: str = ""
    problem: str = ""
    is_away: bool = False

    @property
    def is_age_unknown(self) -> bool:
        """Whether something waits for an unknown time."""
        return self.waiting > 0 and self.behind_s is None


AskUnlisted = Callable[[Published | None, bool], datetime | None]
"""Finds since when events wait that the manifest's rows do not list; None if there are none. Takes how far topics are published,
and whether rows list any that wait."""


def _none(known: Published | None, waits: bool) -> None:
    del known, waits


def published_report(
    marker: str | None,
    rows: Sequence[Mapping[str, Any]],
    now: datetime,
    unlisted: AskUnlisted = _none,
    numbered: Collection[str] = (),
) -> PublishedReport:
    """The report of a marker.

    Args:
        marker: the newest one; None if nothing is published yet.
        rows: rows of the manifest in order.
        numbered: topics whose commits have the numbers of windows.

    Raises:
        LakeError: it is no marker, or a topic's table cannot be read.
    """
    known = parse_published(marker) if marker is not None else None
    ends = _ends(rows) if known is not None and known.after else {}
    times = [row["at"] for row in rows if has_events(row) and _waits(row, known or Published(""), numbered, ends)]
    if (since := unlisted(known, bool(times))) is not None:
        times.append(since)
    behind_s = _oldest(now, times)
    if known is None:
        return PublishedReport(waiting=len(times), behind_s=behind_s)
    at = datetime.fromtimestamp(known.written, UTC) if known.written else None
    age_s = seconds_behind(now, at)
    return PublishedReport(
        window=known.window,
        lsn=Lsn.parse(known.lsn) if known.lsn else None,
        waiting=len(times),
        behind_s=behind_s,
        per_second=known.per_second if age_s is not None and age_s < RATE_S else 0.0,
        at=at,
        stopped=dict(known.stopped),
    )


def _oldest(now: datetime, times: Sequence[datetime]) -> float | None:
    """Age of the oldest; not known if one of them lies ahead, because nobody knows how long ago its clock was set back."""
    ages = [seconds_behind(now, time) for time in times]
    return None if None in ages else max(filter(None, ages), default=0.0)


def has_events(row: Mapping[str, Any]) -> bool:
    """Whether a row of the manifest completes a window or a round with events."""
    return row["event"] == "complete" and bool(row["rows"]) and row["number"] is not None


def _ends(rows: Sequence[Mapping[str, Any]]) -> Mapping[int, Mapping[str, str]]:
    """The last LSNs, by number and database, of windows of several databases, as far as the rows that planned them are listed."""
    several = (row for row in rows if row["event"] == "planned" and row["until"] is None)
    planned = {row["number"]: json.loads(row["detail"]).get("windows", ()) for row in several}
    return {number: {one["database"]: one["until"] for one in windows} for number, windows in planned.items()}


def _waits(
    row: Mapping[str, Any], known: Published, numbered: Collection[str], ends: Mapping[int, Mapping[str, str]]
) -> bool:
    """Whether a window or a round is not published."""
    if row["number"] <= known.window or _before(row, known.after, ends.get(row["number"], {})):
        return False
    marks = json.loads(row["detail"]).get("marks", {}) if known.places else {}
    reached = {directory.partition("@")[0]: mark["window"] for directory, mark in marks.items() if mark}
    own = reached.keys() & set(numbered)
    return not own or any(known.of(topic) < (reached[topic], END_OF_WINDOW) for topic in own)


def _before(row: Mapping[str, Any], after: After, ends: Mapping[str, str]) -> bool:
    """Whether all its events are left out, because publishing began after them."""
    if row["until"] is not None:
        ends = {row["database"] or "": row["until"]}
    return bool(ends) and all(until <= after_in(after, database) for database, until in ends.items())
