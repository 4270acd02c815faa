"""How far the topics in Kafka are, and what is wrong, or not known, of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from cdc_assets.errors import CdcError, ConnectionLostError, describe_error
from cdc_assets.ledger.state import CaptureState
from cdc_assets.overview.capture import CaptureOverview
from cdc_assets.overview.formatting import duration
from cdc_assets.overview.report import Trouble
from cdc_assets.publish.feed import Feed
from cdc_assets.publish.offset import Published, parse_published
from cdc_assets.publish.start import MARKER_GONE, WITHOUT_MARKER, foreign, is_of
from cdc_assets.publish.view import AskMarker, PublishedReport, published_report
from cdc_assets.publish.waiting import waiting_unlisted

KAFKA = "Kafka"


def published_of(overview: CaptureOverview, at: datetime, marker: AskMarker | None) -> PublishedReport | None:
    """How far the topics in Kafka are; None too if nothing publishes: nothing is there yet, and Dagster is not to do it."""
    if marker is None:
        return None
    try:
        text, feed = marker(), Feed(overview.config, overview.lake)
        if text is None and (recorded := feed.recorded().read()) and is_of(recorded, feed.lake()):
            return PublishedReport(problem=f"{MARKER_GONE}. Next: {WITHOUT_MARKER}")
        if text is None and not overview.config.kafka.enabled:
            return None
        state, rows = overview.state, overview.rows()
        if text is not None and (wrong := _foreign(feed, parse_published(text), state, rows)):
            return PublishedReport(problem=wrong)

        def unlisted(known: Published | None, waits: bool) -> datetime | None:
            return waiting_unlisted(feed, state, known, rows, waits=waits)

        numbered = [topic.name for topic in feed.topics(state) if topic.numbered]
        found = published_report(text, rows, at, unlisted, numbered)
        return replace(found, held=state.held_by) if found.waiting else found
    except CdcError as error:
        return PublishedReport(problem=describe_error(error), is_away=isinstance(error, ConnectionLostError))


def _foreign(feed: Feed, known: Published, state: CaptureState, rows: Sequence[Mapping[str, Any]]) -> str:
    """Why topics were not published from this lake; empty if they were. What is ahead of a state may be complete by now."""
    lake, continued = feed.lake(), feed.is_continued(known.entry, rows)
    if not foreign(known, lake, state.complete_window, feed.topics(state), continued=continued):
        return ""
    complete, topics = feed.read()
    return foreign(known, lake, complete, topics, continued=feed.is_continued(known.entry))


def kafka_troubles(published: PublishedReport | None, late_s: float) -> Iterator[Trouble]:
    """That they lag, and which of them are stopped.

    Args:
        late_s: seconds by which they may lag the lake.
    """
    if published and (published.behind_s or 0.0) > late_s:
        yield Trouble(
            KAFKA,
            f"its topics are {duration(published.behind_s or 0.0)} behind the lake, and {published.waiting:,} windows wait. Next: check "
            "that `cdc-assets publish --follow`, or Dagster's sensor, runs, and read its log",
        )
    for topic, reason in published.stopped.items() if published else ():
        yield Trouble(
            topic,
            f"it is not published to Kafka further: {reason}. Next: make room for the record, give the right, or change "
            "what refuses it; the next start of publishing tries it again",
        )


def kafka_unknown(published: PublishedReport | None) -> Iterator[Trouble]:
    """How far its topics are, or how long what waits has waited, if that is not known."""
    if published and published.problem:
        yield Trouble(KAFKA, f"How far its topics are is not known: {published.problem}")
    if published and published.is_age_unknown:
        yield Trouble(
            KAFKA,
            f"{published.waiting:,} windows wait, and how long is not known: they were complete at a time that lies ahead of the clock here. "
            "Next: correct the clocks; what is published ends this, too",
        )
