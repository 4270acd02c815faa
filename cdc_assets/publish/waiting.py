"""What waits to be published for so long that the rows of the manifest do not list it any more.

*Why not only by rows.* The manifest keeps some rows for people, and a database writes one each time its log moves, also without
events: while nobody publishes, a window with events leaves the list within minutes on a busy server. What does not get lost are the
numbers of the newest commits by topic (marks), and the place of each topic in the marker. Where a mark is ahead of its place, the
files of the table show whether there are events behind it: a number may have been taken without any. A mark that is not ahead proves nothing
if the table has commits behind the marked one: then the table is read, too. Of a topic of several databases its rows show which of them are published.

*What it costs.* One question for a file for each topic that is published, since no mark is ahead; two more for one with such commits, whose log is
read when its version is another one (`reached`). Otherwise tables are read until one has such events.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from cdc_assets.ledger.state import CaptureState
from cdc_assets.publish.after import After, after_in
from cdc_assets.publish.feed import Feed, Topic
from cdc_assets.publish.offset import END_OF_WINDOW, Published, PublishOffset
from cdc_assets.publish.view import has_events


def waiting_unlisted(
    feed: Feed, state: CaptureState, known: Published | None, rows: Sequence[Mapping[str, Any]], *, waits: bool
) -> datetime | None:
    """A time at or after which the oldest events that wait were complete, if rows do not list them; None if there are none.

    Args:
        known: how far topics are published; None if nothing is.
        rows: rows of the manifest in order.
        waits: whether rows list windows that wait.

    Raises:
        LakeError: a table cannot be read.
    """
    known, topics = known or Published(""), feed.topics(state)
    listed = min((row["number"] for row in rows if has_events(row)), default=None) if waits else None
    offsets = {topic.name: known.of(topic.name) for topic in topics if topic.numbered}
    changed = feed.changed_topics(state)
    for topic in sorted(topics, key=lambda topic: offsets.get(topic.name, (0, ""))):
        offset = offsets.get(topic.name)
        behind = offset is not None and topic.newest is not None and _is_behind(offset, topic.newest)
        if offset is None or not (behind or topic.name in changed):
            continue
        until = topic.complete if listed is None else min(topic.complete, listed - 1)  # what rows list is counted
        if not behind and not _is_behind(offset, topic.rows.reached()):
            continue
        number = _first_behind(topic, offset, until, known.after)
        if number is not None:
            return _since(rows, topic.name, number)
    return None


def _first_behind(topic: Topic, offset: PublishOffset, until: int, after: After) -> int | None:
    """The least number after a place that has events to publish; None if none has."""
    number = topic.rows.first_behind(offset, until, after_in(after, topic.database))
    if number is None or topic.divided is None or not after:
        return number
    rows = topic.divided(topic.rows.read(offset, until), after)
    return next((batch.column("window_id")[0].as_py() for batch in rows if len(batch)), None)


def _is_behind(offset: PublishOffset, newest: int) -> bool:
    return offset[0] < newest or (offset[0] == newest and offset[1] != END_OF_WINDOW)


def _since(rows: Sequence[Mapping[str, Any]], topic: str, number: int) -> datetime:
    """When the first row was written that knows a commit of a topic under a number or after it; that of the oldest row if none does."""
    for row in rows:
        if row["event"] == "state" or '"marks"' not in row["detail"]:
            continue
        for directory, mark in json.loads(row["detail"]).get("marks", {}).items():
            if mark and directory.partition("@")[0] == topic and mark["window"] >= number:
                return row["at"]  # type: ignore[no-any-return]
    return rows[0]["at"]  # type: ignore[no-any-return]
