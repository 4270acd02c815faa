"""From property texts to `CaptureConfig`: every name known, every value valid, every combination possible."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cdc_assets.config.channels import notification_settings, signal_settings
from cdc_assets.config.columns import column_rules
from cdc_assets.config.connection import connection_settings, driver_options
from cdc_assets.config.found import Found, of_pattern
from cdc_assets.config.kafka import kafka_settings
from cdc_assets.config.masks import PATTERN, Masks
from cdc_assets.config.properties import PROPERTIES, property_of
from cdc_assets.config.property import HIDDEN, Property, Status, shown_name
from cdc_assets.config.settings import (
    CaptureConfig,
    EventSettings,
    FilterSettings,
    HeartbeatSettings,
    HistorySettings,
    LakeSettings,
    MetricsSettings,
    MirrorSettings,
    StreamingSettings,
    TextSettings,
)
from cdc_assets.config.snapshot import snapshot_settings, unsafe_isolation, without_statement
from cdc_assets.config.table.connection import DRIVER_OPTIONS, EXCLUSIVE, JAVA_STORES, JDBC_ONLY
from cdc_assets.config.transforms import transform_chain
from cdc_assets.errors import ConfigurationError, shortened

Given = Mapping[str, str]
"""Property names as written and their texts."""
_TYPED_DRIVER_OPTIONS = {
    row.name.lower(): row.name for row in PROPERTIES if row.name.startswith("driver.") and not row.patterned
}
_NAMES = frozenset(row.name for row in PROPERTIES)
_REFUSED = tuple(row for row in PROPERTIES if row.status is Status.REFUSED)
_PLUGIN_LISTS = ("converters", "post.processors")
"""Refused properties with names, whose options begin with these names or with the property's own."""
_KAFKA = property_of("bootstrap.servers").group


def build_config(given: Given) -> CaptureConfig:
    """Validate properties and turn them into settings.

    Args:
        given: texts by property name; placeholders are already replaced.

    Raises:
        ConfigurationError: a property is unknown, wrong, missing, not supported, or contradicts another.
    """
    masks = Masks(given)
    try:
        return _build(given, masks)
    except ConfigurationError as error:
        raise masks.mask(error) from None


def _build(given: Given, masks: Masks) -> CaptureConfig:
    for name, text in given.items():
        _check_characters(name, text)
    canonical = list(_canonical(given))
    if problems := [masks.mask(problem) for problem in _problems(canonical, masks)]:
        raise ConfigurationError.of_all(problems)
    found = [(name, property_of(name), text) for name, text in canonical]
    _check_exclusive(found)
    values = _values(found)
    signals = signal_settings(values, found)
    also = frozenset(str(table).lower() for table in signals.collections)
    events = EventSettings(**values["events"], column_rules=column_rules(found))
    options, ignored_options = driver_options(found)
    capture = {"name": events.topic_prefix} | values["capture"]
    config = CaptureConfig(
        **capture,
        connection=connection_settings(values["connection"], options),
        filters=FilterSettings(**values["filters"], also=also),
        events=events,
        text=TextSettings(**values["text"]),
        snapshot=snapshot_settings(values["snapshot"], found),
        streaming=StreamingSettings(**values["streaming"]),
        lake=_lake(values["lake"], found, mirrored=values["mirror"].get("enabled", False)),
        mirror=MirrorSettings(**values["mirror"]),
        metrics=MetricsSettings(**values["metrics"]),
        kafka=kafka_settings(values["kafka"], dict(canonical), values["text"].get("format", "debezium")),
        history=HistorySettings(**values["history"]),
        heartbeat=HeartbeatSettings(**values["heartbeat"]),
        notifications=notification_settings(values["notifications"]),
        signals=signals,
        ignored=(
            *_ignored(found),
            *_without_brokers(found),
            *without_statement(found),
            *unsafe_isolation(found),
            *_without_secret(masks),
            *ignored_options,
        ),
    )
    _check_own_topics(config)
    return config


def _check_own_topics(config: CaptureConfig) -> None:
    """Refuse one name for two of a capture's own topics: rows of the one would count as those of the other, whose next ones
    were then taken for written."""
    prefix = config.events.topic_prefix
    owners = {prefix.lower(): "topic.prefix"} if config.history.publish else {}
    for name, topic in _named_topics(config):
        if topic.lower().startswith(f"{prefix}.__".lower()):
            expected = f"a name that does not begin with {prefix}.__, as the capture's own records do"
            raise ConfigurationError(name, topic, expected, "choose another name")
        if (other := owners.setdefault(topic.lower(), name)) != name:
            raise ConfigurationError(name, topic, f"another topic than that of {other}", "choose another name")


def _named_topics(config: CaptureConfig) -> Iterator[tuple[str, str]]:
    """The capture's own topics that it writes, besides that of schema changes, with the properties that name them."""
    events, heartbeat, notifications = config.events, config.heartbeat, config.notifications
    if events.transaction_metadata:
        yield "topic.transaction", f"{events.topic_prefix}{events.topic_delimiter}{events.transaction_topic}"
    if heartbeat.interval_s and heartbeat.topic_name:
        yield "topic.heartbeat.name", heartbeat.topic_name
    elif heartbeat.interval_s:
        yield "topic.heartbeat.prefix", f"{heartbeat.topic_prefix}{events.topic_delimiter}{events.topic_prefix}"
    if "sink" in notifications.channels:
        yield "notification.sink.topic.name", notifications.sink_topic


def _lake(values: Mapping[str, Any], found: Found, *, mirrored: bool) -> LakeSettings:
    lake = LakeSettings(**{"path": "lake"} | dict(values), storage_options=_storage_options(found))
    if lake.topic_hours and not (mirrored or lake.topic_unmirrored):
        raise ConfigurationError(
            "lake.topic.retention.hours",
            lake.topic_hours,
            "0 without mirrors, because what is dropped from a topic would be nowhere in the lake",
            "set mirror.enabled=true; or lake.topic.retention.unmirrored=true, if that is what you want",
        )
    if lake.topic_policy == "compact" and not (mirrored and lake.topic_hours):
        raise ConfigurationError(
            "lake.topic.cleanup.policy",
            lake.topic_policy,
            "delete, unless there are mirrors and an age: what a topic loses must be in its mirror before",
            "set mirror.enabled=true, and lake.topic.retention.hours to the age of events from which on a topic is compacted",
        )
    return lake


def _check_characters(name: str, text: str) -> None:
    """Refuse characters that neither files nor drivers accept: NUL and lone surrogates."""
    for part, shown in ((name, shown_name(name)), (text, "(its value)")):  # the value may be a secret
        if "\0" in part or any("\ud800" <= character <= "\udfff" for character in part):
            raise ConfigurationError(
                shortened(shown_name(name).replace("\0", "?").encode(errors="replace").decode()),
                shown,
                "text without NUL and without lone surrogates",
                "correct it",
            )


def _canonical(given: Given) -> Iterator[tuple[str, str]]:
    """Properties by their names in the property table; the older name of a driver option comes last, so that it holds if the
    newer one is given too, as in the connector (measured)."""
    ordered = sorted(given.items(), key=lambda entry: entry[0].startswith("database."))
    return ((canonical_name(name), text) for name, text in ordered)


def canonical_name(name: str) -> str:
    """A name in the property table's spelling; driver options are given in any letter case or as `database.<option>`, the
    older form."""
    option = name.removeprefix("database.").lower()
    known = option in DRIVER_OPTIONS or option in JDBC_ONLY or option.startswith(JAVA_STORES)
    if name.startswith("database.") and name not in _NAMES and (known or f"driver.{option}" in _TYPED_DRIVER_OPTIONS):
        return _TYPED_DRIVER_OPTIONS.get(f"driver.{option}", f"driver.{option}")
    return _TYPED_DRIVER_OPTIONS.get(name.lower(), name)


def _problems(given: Sequence[tuple[str, str]], masks: Masks) -> Iterator[ConfigurationError]:
    """What is wrong with each property alone; all of it, so that nobody has to try again for each."""
    names, plugins = dict(given), set[str]()
    for name, text in given:
        row = next((row for row in _REFUSED if row.name == name or row.holes(name)), None)
        if row is None or _is_default(row, text):
            continue
        plugins |= {part.strip() for part in text.split(",")} if name in _PLUGIN_LISTS else set()
        if row.patterned and names.get(row.name.partition(".")[0], "").strip():
            continue  # an option of what is refused already
        allowed = f"no value, or {row.default!r}" if row.default else "no value"
        shown = HIDDEN if masks.hides(name) else text
        options = " and its options" if name in _PLUGIN_LISTS else ""
        yield ConfigurationError(name, shown, f"{allowed}: {row.reason}", f"remove the property{options}")
    rows: set[str] = set()
    for name, text in given:
        if name.partition(".")[0] in plugins and "." in name:
            continue
        try:
            row = property_of(name)
            rows.add(row.name)
            if row.status is Status.SUPPORTED:
                row.parse(text)
        except ConfigurationError as error:
            yield error
    try:
        transform_chain(names, names.get("value.format", ""))
    except ConfigurationError as error:
        yield error
    for row in PROPERTIES:
        if row.required and row.name not in rows:
            yield ConfigurationError(row.name, None, row.kind.allowed, f"add {row.name} to the configuration")


def _is_default(row: Property, text: str) -> bool:
    return row.parse(text) == row.parse(row.default or "")


def _check_exclusive(found: Found) -> None:
    given = {row.name: text for _, row, text in found if text.strip()}
    for first, second in EXCLUSIVE:
        if first in given and second in given:
            raise ConfigurationError(
                second, given[second], f"nothing beside {first}", f"keep either {first} or {second}"
            )


def _values(found: Found) -> dict[str, dict[str, Any]]:
    """Parsed values by section and field; values without a field are parsed too, to validate them."""
    values: dict[str, dict[str, Any]] = defaultdict(dict)
    for _, row, text in found:
        if row.status is Status.IGNORED:
            continue
        value = row.parse(text)
        if row.target:
            section, field = row.target.split(".")
            values[section][field] = value
    return values


def _ignored(found: Found) -> Iterator[tuple[str, str]]:
    return ((name, row.reason) for name, row, _ in found if row.status is Status.IGNORED)


def _without_brokers(found: Found) -> Iterator[tuple[str, str]]:
    """Warn of properties that say how topics are written to Kafka, if they are not."""
    if any(row.name == "bootstrap.servers" and text.strip() for _, row, text in found):
        return
    for name, row, _ in found:
        if row.group == _KAFKA and row.name != "bootstrap.servers":
            yield name, "there is no bootstrap.servers, so nothing is written to Kafka"


def _without_secret(masks: Masks) -> Iterator[tuple[str, str]]:
    if masks.misses():
        yield PATTERN, "it matches no property name; to replace characters of topic names use topic.sanitize.pattern"


def _storage_options(found: Found) -> tuple[tuple[str, str], ...]:
    return tuple((holes["option"], text) for _, holes, text in of_pattern(found, "lake.storage.option.<option>"))
