"""How far topics are published: what a marker says."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from cdc_assets.errors import LakeError
from cdc_assets.publish.after import After

PublishOffset = tuple[int, str]
"""A window's number, and the position in it up to which a topic is published, inclusive."""

RATE_S = 60.0
"""Seconds of which the rate is the mean."""
END_OF_WINDOW = "~"
"""Sorts after every position: the window is published as a whole."""


@dataclass(frozen=True, slots=True)
class Published:
    """How far topics are published.

    Args:
        lake: identity of the manifest whose windows are meant; another lake numbers them again.
        window: number of the window up to which topics are published that `places` does not name.
        places: how far other topics are: those in the middle of a window, those that are stopped, those whose database is ahead of
            another one, and those whose commits have numbers of their own.
        stopped: why topics are not published further, by name.
        after: commit LSNs after which events are published, by database; empty for all of them.
        writer: identity of the process that wrote this.
        lsn: commit LSN of the newest event of a table that is published; empty if there is none.
        written: seconds since 1970 at which it was written.
        span: range of a replay; empty for the publisher of everything.
        per_second: events per second that were published in the last `RATE_S` seconds before it.
        entry: newest entry of the manifest that was read before its events, which an older copy of the lake that is continued does not have.
    """

    lake: str
    window: int = -1
    places: Mapping[str, PublishOffset] = field(default_factory=dict)
    stopped: Mapping[str, str] = field(default_factory=dict)
    after: After = field(default_factory=dict)
    writer: str = ""
    lsn: str = ""
    written: float = 0.0
    per_second: float = 0.0
    span: str = ""
    entry: str = ""

    def of(self, topic: str, *, numbered: bool = True) -> PublishOffset:
        """How far a topic is.

        Args:
            numbered: whether its commits have the numbers of windows.
        """
        return self.places.get(topic, (self.window if numbered else -1, END_OF_WINDOW))

    def at(self, window: int, places: Mapping[str, PublishOffset]) -> "Published":
        """The same with other places; those that say no more than the window are left out."""
        return replace(self, window=window, places={t: p for t, p in places.items() if p != (window, END_OF_WINDOW)})

    def text(self) -> str:
        """As JSON, for the marker's value."""
        return json.dumps(asdict(self), separators=(",", ":"))


def entry_of(row: Mapping[str, Any]) -> str:
    """Number and time of an entry of the manifest."""
    return f"{row['sequence']} {row['at'].isoformat()}"


def has_other(rows: Iterable[Mapping[str, Any]], entry: str) -> bool | None:
    """Whether rows of a manifest are of an older copy than one with this entry: another entry has its number, or none has reached it; None if
    it is too old to be kept."""
    if not entry:
        return False
    known = {_number(found): found for found in map(entry_of, rows)}
    if _number(entry) in known:
        return known[_number(entry)] != entry
    return True if known and max(known) < _number(entry) else None


def _number(entry: str) -> int:
    return int(entry.partition(" ")[0])


def parse_published(text: str) -> Published:
    """Inverse of `Published.text`.

    Raises:
        LakeError: it is no marker.
    """
    try:
        data = json.loads(text)
        data["places"] = {topic: (int(window), str(at)) for topic, (window, at) in data["places"].items()}
        after = data.get("after", {})
        if isinstance(after, str):  # of an earlier version
            after = {"": after} if after else {}
        data["after"] = {str(database): str(lsn) for database, lsn in after.items()}
        return Published(**data)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise LakeError(
            f"The newest message of the topic of markers is not a marker ({error}): {text[:200]}. "
            "Next: see who else writes there, or delete the topic, and the published topics with it."
        ) from None
