"""Which topics a connector writes: those of tables, and those of the capture as a whole."""

from collections.abc import Iterable, Mapping

from cdc_assets.config.engine import EngineConfig, with_defaults
from cdc_assets.config.settings import EventSettings
from cdc_assets.connectors.engine.ledger import batches_directory
from cdc_assets.connectors.engine.staging import history_directory
from cdc_assets.core.identifiers import TableId
from cdc_assets.envelope.naming import sanitized

BATCHES, HISTORY = "batches", "schema_history"
"""Short names of the ledger, and of the connector's schema history."""
_WITH_DDL = ("mysql", "mariadb", "oracle")
"""Connectors that have a schema history, and a topic of schema changes unless it is turned off."""
_WITHOUT_SCHEMAS = ("mysql", "mariadb")


def system_topics(config: EngineConfig) -> Mapping[str, str]:
    """Directories of the tables that belong to a capture as a whole, by a short name for users."""
    given, prefix = config.properties, config.topic_prefix
    found = {BATCHES: batches_directory(prefix)}
    if config.kind in _WITH_DDL:
        found[HISTORY] = history_directory(prefix)
        if given.get("include.schema.changes", "true").lower() != "false":
            found["schema_changes"] = prefix
    if given.get("provide.transaction.metadata", "false").lower() == "true":
        found["transactions"] = f"{prefix}{config.delimiter}{given.get('topic.transaction') or 'transaction'}"
    if int(given.get("heartbeat.interval.ms") or 0):
        found["heartbeat"] = config.heartbeat_topic
    if topic := notification_topic(config):
        found["notifications"] = topic
    return found


def notification_topic(config: EngineConfig) -> str:
    """Where the connector's notifications go; empty if they do not go into a topic."""
    channels = config.properties.get("notification.enabled.channels", "").split(",")
    return config.properties.get("notification.sink.topic.name", "") if "sink" in map(str.strip, channels) else ""


def signal_topic(config: EngineConfig) -> str:
    """Where rows of the connector's signal table go, if it reads that; empty if it has none."""
    parts = config.properties.get("signal.data.collection", "").strip().split(".")
    name = config.delimiter.join([config.topic_prefix, *parts[-2:]])
    return sanitized(name, EventSettings(config.topic_prefix, config.delimiter)) if all(parts) else ""


def with_notifications(config: EngineConfig) -> EngineConfig:
    """The settings with notifications in a topic of the lake, unless something else is said."""
    own = {"notification.enabled.channels": "sink", "notification.sink.topic.name": _own_notifications(config)}
    return with_defaults(config, own)


def _own_notifications(config: EngineConfig) -> str:
    return f"{config.topic_prefix}.notifications"


def routes(config: EngineConfig) -> bool:
    """Whether the names of topics are not those that the connector gives by itself, so that tables cannot be derived from them."""
    given = config.properties
    routed = any(name.startswith("transforms.") and "Rout" in text for name, text in given.items())
    return routed or not given.get("topic.naming.strategy", "DefaultTopicNamingStrategy").endswith(
        ("SchemaTopicNamingStrategy", "DefaultTopicNamingStrategy")
    )


def topic_of(table: TableId, config: EngineConfig) -> str:
    """Topic of a table's events, unless a transform routes them elsewhere."""
    parts = (table.database, table.table) if config.kind in _WITHOUT_SCHEMAS else (table.schema, table.table)
    settings = EventSettings(config.topic_prefix, config.delimiter)
    return sanitized(config.delimiter.join([config.topic_prefix, *parts]), settings)


def topic_named(name: str, config: EngineConfig) -> str:
    """Topic of a table that the connector names with points between the parts."""
    return f"{config.topic_prefix}{config.delimiter}{name.replace('.', config.delimiter)}"


def table_of(topic: str, config: EngineConfig) -> TableId:
    """The table of a topic in the lake, as far as its name shows."""
    delimiter = config.delimiter
    rest = topic.removeprefix(config.topic_prefix + delimiter)
    first, has_more, last = rest.partition(delimiter)
    if not has_more:
        return TableId(config.topic_prefix, "", rest)
    if config.kind in _WITHOUT_SCHEMAS:
        return TableId(first, "", last)
    database = config.properties.get("database.pdb.name") or config.properties.get("database.dbname", "")
    return TableId(database or config.topic_prefix, first, last)


def topics_of_tables(directories: Iterable[str], config: EngineConfig) -> list[str]:
    """Topics of tables among directories that batches were committed to; generations of one topic count once."""
    topics = dict.fromkeys(directory.partition("@")[0] for directory in directories)
    others = {*system_topics(config).values(), history_directory(config.topic_prefix), config.heartbeat_topic}
    others |= {config.topic_prefix, _own_notifications(config), f"{config.topic_prefix}{config.delimiter}transaction"}
    return sorted(topic for topic in topics if topic not in others)
