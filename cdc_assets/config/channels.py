"""Channels of signals and of notifications, from properties."""

from collections.abc import Mapping, Set
from typing import Any

from cdc_assets.config.found import Found, of_pattern
from cdc_assets.config.settings import NotificationSettings, SignalSettings
from cdc_assets.core.identifiers import TableId, parts_of
from cdc_assets.errors import ConfigurationError, InvalidValueError

_SIGNAL_CHANNELS = ("source", "file", "kafka")
_NOTIFICATION_CHANNELS = ("sink", "log")


def signal_settings(values: Mapping[str, Mapping[str, Any]], found: Found) -> SignalSettings:
    """The settings of signals; their tables are in databases that are read."""
    given = dict(values["signals"])
    databases = {name.lower() for name in values["connection"]["databases"]}
    tables = tuple(_parse_signal_table(name, databases) for name in given.pop("collections", ()))
    if len({table.database.lower() for table in tables}) < len(tables):
        raise ConfigurationError(
            "signal.data.collection", ", ".join(map(str, tables)), "one table per database at most", "remove the others"
        )
    for channel in given.get("channels", ()):
        if channel not in _SIGNAL_CHANNELS:
            raise ConfigurationError(
                "signal.enabled.channels", channel, "one of " + ", ".join(_SIGNAL_CHANNELS), "remove it"
            )
    if "kafka" in given.get("channels", ()) and not given.get("kafka_servers"):
        raise ConfigurationError(
            "signal.kafka.bootstrap.servers", "", "host:port of a broker, since channel kafka is enabled", "add it"
        )
    consumer = tuple((holes["option"], text) for _, holes, text in of_pattern(found, "signal.consumer.<option>"))
    return SignalSettings(**given, collections=tables, kafka_consumer=consumer)


def _parse_signal_table(name: str, databases: Set[str]) -> TableId:
    try:
        table = TableId(*parts_of(name))
    except (TypeError, InvalidValueError):  # wrong number of parts, or not a name
        table = None
    if table is None or table.database.lower() not in databases:
        raise ConfigurationError(
            "signal.data.collection", name, "database.schema.table with a database of database.names", "correct it"
        )
    return table


def notification_settings(values: dict[str, Any]) -> NotificationSettings:
    """The settings of notifications."""
    settings = NotificationSettings(**values)
    for channel in settings.channels:
        if channel not in _NOTIFICATION_CHANNELS:
            raise ConfigurationError(
                "notification.enabled.channels",
                channel,
                "one of " + ", ".join(_NOTIFICATION_CHANNELS),
                "remove the channel",
            )
    if "sink" in settings.channels and not settings.sink_topic:
        raise ConfigurationError(
            "notification.sink.topic.name", "", "a topic name, since the channel sink is enabled", "add it"
        )
    return settings
