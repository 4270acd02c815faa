"""Why old events stay in topics although they could be dropped, for people who look only at reports."""

from collections.abc import Iterator

from cdc_assets.errors import LAKE_ERRORS
from cdc_assets.overview.capture import CaptureOverview
from cdc_assets.publish.feed import Feed
from cdc_assets.publish.recorded import kept_for_former_lake


def kept_events(overview: CaptureOverview) -> Iterator[str]:
    """What retention of topics waits for that does not come by itself."""
    if not overview.config.lake.topic_hours:
        return
    topics = {table.topic for table in overview.tables}
    yield from (why for topic, why in sorted(overview.state.kept.items()) if topic in topics)
    feed = Feed(overview.config, overview.lake)
    try:
        lake = feed.lake()
    except LAKE_ERRORS:  # nothing was captured yet
        return
    try:
        reason = kept_for_former_lake(feed.recorded().read(), lake)
    except LAKE_ERRORS as error:  # such as a file that was emptied, and that nobody writes any more
        reason = f"Old events stay in the topics of the lake: {error}"
    if reason:
        yield reason
