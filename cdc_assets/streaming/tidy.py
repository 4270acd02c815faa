"""What a loop leaves behind, put in order when it ends: small files joined, files that nobody needs removed."""

from collections.abc import Iterable

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.envelope.naming import topic_name
from cdc_assets.heartbeat import heartbeat_topic
from cdc_assets.lake.upkeep import Upkeep
from cdc_assets.streaming.context import Context
from cdc_assets.transactions import transaction_topic


def tidy(context: Context, tables: Iterable[TableId]) -> None:
    """Compact and vacuum the topics that a loop has written to, and vacuum the manifest if it was folded.

    Args:
        context: of the only writer, between two windows.
        tables: that have new events.
    """
    if context.manifest.state.files_wait:
        return
    topics = [topic_name(table, context.config.events) for table in tables]
    topics += _topics_of_the_capture(context.config)
    upkeep = Upkeep(context.tables, context.config.lake)
    upkeep.tidy(directory for topic in topics for directory in context.tables.generations(topic))
    if context.manifest.folded:
        upkeep.try_vacuum(context.manifest.directory)


def _topics_of_the_capture(config: CaptureConfig) -> Iterable[str]:
    """Topics of no table that get a file per window, or with time."""
    if config.events.transaction_metadata:
        yield transaction_topic(config.events)
    if config.heartbeat.interval_s:
        yield heartbeat_topic(config.heartbeat, config.events)
    if "sink" in config.notifications.channels:
        yield config.notifications.sink_topic
