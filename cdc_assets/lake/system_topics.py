"""The lake's tables that belong to a capture as a whole, not to one captured table."""

from collections.abc import Collection, Mapping

from cdc_assets.config.settings import CaptureConfig, EventSettings, HeartbeatSettings

WINDOWS = "windows"
"""Short name of the window manifest."""
HISTORY = "schema_history"
"""Short name of the schema history."""
GROWING = ("transactions", "heartbeat", "notifications")
"""Short names of the tables that grow with every window or over time."""


def system_topics(config: CaptureConfig) -> Mapping[str, str]:
    """Directories of the tables written with these settings, by a short name for users."""
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


def topics_of_capture(config: CaptureConfig, found: Collection[str]) -> Mapping[str, str]:
    """The same with those that were written with other settings.

    Args:
        found: topics that have commits.
    """
    events = config.events
    numbered = {"schema_changes": events.topic_prefix, "transactions": transaction_topic(events)}
    former = {kind: topic for kind, topic in numbered.items() if topic in found}
    return {**former, **system_topics(config)}


def manifest_directory(prefix: str) -> str:
    """Directory of a topic prefix's manifest in the lake."""
    return f"{prefix}.__windows"


def history_directory(prefix: str) -> str:
    """Directory of a topic prefix's schema history in the lake."""
    return f"{prefix}.__schema_history"


def transaction_topic(settings: EventSettings) -> str:
    """Name of the topic of BEGIN and END events."""
    return f"{settings.topic_prefix}{settings.topic_delimiter}{settings.transaction_topic}"


def heartbeat_topic(settings: HeartbeatSettings, events: EventSettings) -> str:
    """`topic.heartbeat.name`, or prefix, delimiter and topic prefix."""
    return settings.topic_name or f"{settings.topic_prefix}{events.topic_delimiter}{events.topic_prefix}"


def is_numbered(directory: str, config: CaptureConfig) -> bool:
    """Whether commits to a topic are numbered by window and not by time, by its present name; its mark says so whatever its name
    was."""
    return directory not in {heartbeat_topic(config.heartbeat, config.events), config.notifications.sink_topic}
