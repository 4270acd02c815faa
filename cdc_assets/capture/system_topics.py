"""The lake's tables of a capture as a whole, beside the topics of its captured tables."""

from collections.abc import Mapping

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.heartbeat import heartbeat_topic
from cdc_assets.history.store import history_directory
from cdc_assets.ledger.manifest import manifest_directory
from cdc_assets.transactions import transaction_topic

WINDOWS = "windows"
"""Short name of the window manifest."""
HISTORY = "schema_history"
"""Short name of the schema history."""
GROWING = ("transactions", "heartbeat", "notifications")
"""Short names of those that get a file per window, or with time."""


def system_topics(config: CaptureConfig) -> Mapping[str, str]:
    """Directories of the tables that these settings have written, by a short name for people."""
    events, notifications = config.events, config.notifications
    topics = {WINDOWS: manifest_directory(events.topic_prefix), HISTORY: history_directory(events.topic_prefix)}
    if config.history.publish:
        topics["schema_changes"] = events.topic_prefix
    if events.transaction_metadata:
        topics["transactions"] = transaction_topic(events)
    if config.heartbeat.interval_s:
        topics["heartbeat"] = heartbeat_topic(config.heartbeat, events)
    if "sink" in notifications.channels:
        topics["notifications"] = notifications.sink_topic
    return topics
