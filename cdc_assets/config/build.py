"""From property texts to `CaptureConfig`: every name known, every value valid, every combination possible."""

import difflib
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, cast

from cdc_assets.config.columns import column_rules
from cdc_assets.config.kafka import kafka_settings
from cdc_assets.config.masks import HIDDEN, PATTERN, Masks
from cdc_assets.config.properties import PROPERTIES, property_of
from cdc_assets.config.property import Property, Status
from cdc_assets.config.settings import (
    CaptureConfig,
    ConnectionSettings,
    EventSettings,
    FilterSettings,
    HeartbeatSettings,
    HistorySettings,
    LakeSettings,
    MetricsSettings,
    MirrorSettings,
    NotificationSettings,
    SignalSettings,
    SnapshotSettings,
    StreamingSettings,
    TextSettings,
)
from cdc_assets.config.table.connection import DRIVER_OPTIONS, EXCLUSIVE, JAVA_STORES, JDBC_ONLY, STORE_REASON
from cdc_assets.config.transforms import transform_chain
from cdc_assets.core.identifiers import TableId, parts_of, unquoted
from cdc_assets.errors import ConfigurationError, InvalidValueError, shortened

Given = Mapping[str, str]
"""Property names as written and their texts."""
Found = Sequence[tuple[str, Property, str]]
"""Names as written, their rows in the property table, and their texts."""

_TYPED_DRIVER_OPTIONS = {
    row.name.lower(): row.name for row in PROPERTIES if row.name.startswith("driver.") and not row.patterned
}
_REFUSED = tuple(row for row in PROPERTIES if row.status is Status.REFUSED)
_PLUGIN_LISTS = ("converters", "post.processors")
"""Refused properties with names, whose options begin with these names or with the property's own."""
_KAFKA = property_of("bootstrap.servers").group
_CHANNELS = ("sink", "log")
_ENTRY = re.compile(r"""(?:\[[^\]]*\]|"[^"]*"|[^,])+""")
"""One item of a comma list; commas in brackets or quotes are part of a name."""
_SIGNAL_CHANNELS = ("source", "file", "kafka")


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
    signals = _signals(values, found)
    also = frozenset(str(table).lower() for table in signals.collections)
    events = EventSettings(**values["events"], column_rules=column_rules(found))
    options, ignored_options = _driver_options(found)
    capture = {"name": events.topic_prefix} | values["capture"]
    return CaptureConfig(
        **capture,
        connection=_connection(values["connection"], options),
        filters=FilterSettings(**values["filters"], also=also),
        events=events,
        text=TextSettings(**values["text"]),
        snapshot=_snapshot(values["snapshot"], found),
        streaming=StreamingSettings(**values["streaming"]),
        lake=_lake(values["lake"], found, mirrored=values["mirror"].get("enabled", False)),
        mirror=MirrorSettings(**values["mirror"]),
        metrics=MetricsSettings(**values["metrics"]),
        kafka=kafka_settings(values["kafka"], dict(canonical), values["text"].get("format", "debezium")),
        history=HistorySettings(**values["history"]),
        heartbeat=HeartbeatSettings(**values["heartbeat"]),
        notifications=_notifications(values["notifications"]),
        signals=signals,
        ignored=(
            *_ignored(found),
            *_without_brokers(found),
            *_without_statement(found),
            *_without_secret(masks),
            *ignored_options,
        ),
    )


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
    for part, shown in ((name, name), (text, "(its value)")):  # the value may be a secret
        if "\0" in part or any("\ud800" <= character <= "\udfff" for character in part):
            raise ConfigurationError(
                shortened(name.replace("\0", "?").encode(errors="replace").decode()),
                shown,
                "text without NUL and without lone surrogates",
                "correct it",
            )


def _canonical(given: Given) -> Iterator[tuple[str, str]]:
    """Names in the property table's spelling; driver options are given in any letter case or as `database.<option>`,
    the older form."""
    known = DRIVER_OPTIONS.keys() | JDBC_ONLY
    exact = {row.name for row in PROPERTIES}
    for name, text in given.items():
        option = name.removeprefix("database.").lower()
        if (
            name.startswith("database.")
            and name not in exact
            and (option in known or option.startswith(JAVA_STORES) or f"driver.{option}" in _TYPED_DRIVER_OPTIONS)
        ):
            yield _TYPED_DRIVER_OPTIONS.get(f"driver.{option}", f"driver.{option}"), text
        else:
            yield _TYPED_DRIVER_OPTIONS.get(name.lower(), name), text


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


def _of_pattern(found: Found, pattern: str) -> Iterator[tuple[str, dict[str, str], str]]:
    for name, row, text in found:
        if row.name == pattern:
            yield name, row.holes(name) or {}, text


def _driver_options(found: Found) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
    """ODBC keywords with their values, and options that only the JDBC driver has."""
    options: list[tuple[str, str]] = []
    ignored: list[tuple[str, str]] = []
    for name, holes, text in _of_pattern(found, "driver.<option>"):
        option = holes["option"].lower()
        if option in DRIVER_OPTIONS:
            options.append((DRIVER_OPTIONS[option], text))
        elif option.startswith(JAVA_STORES):
            ignored.append((name, STORE_REASON))
        elif option in JDBC_ONLY:
            ignored.append((name, "only Microsoft's JDBC driver has it"))
        else:
            near = difflib.get_close_matches(option, [*DRIVER_OPTIONS, "encrypt", "trustservercertificate"], n=1)
            hint = f"did you mean driver.{near[0]}" if near else "see `cdc-assets properties driver`"
            raise ConfigurationError("driver option", name, "an option of the ODBC or JDBC driver", hint)
    options += [("Authentication", text) for name, row, text in found if row.name == "driver.authentication"]
    options += [("Driver", text) for name, row, text in found if row.name == "odbc.driver"]
    return tuple(options), tuple(ignored)


def _connection(values: dict[str, Any], options: tuple[tuple[str, str], ...]) -> ConnectionSettings:
    keywords = {keyword for keyword, _ in options}
    if not values.get("user") and not keywords & {"Authentication", "Trusted_Connection"}:
        raise ConfigurationError(
            "database.user", values.get("user"), "a login, unless driver.authentication says how to log in", "add it"
        )
    return ConnectionSettings(**{"user": "", "password": ""} | values, extra=options)


def _snapshot(values: dict[str, Any], found: Found) -> SnapshotSettings:
    parse = property_of("snapshot.max.threads.multiplier").parse
    by_table = _by_table(found, "snapshot.max.threads.multiplier.<table>")
    multipliers = tuple((table, cast(int, parse(text))) for table, text in by_table)
    settings = SnapshotSettings(**values, overrides=_overrides(found), multipliers=multipliers)
    if settings.mode == "configuration_based" and not (settings.data or settings.schema or settings.start_stream):
        raise ConfigurationError(
            "snapshot.mode",
            settings.mode,
            "at least one of snapshot.mode.configuration.based.snapshot.data, .snapshot.schema and .start.stream",
            "set one of them to true",
        )
    return settings


def _overrides(found: Found) -> tuple[tuple[str, str], ...]:
    """Statements by table, in the order of the list; a listed table without one is read like any other (spec
    debezium-sqlserver §2.4)."""
    statements = dict(_by_table(found, "snapshot.select.statement.overrides.<table>"))
    listed = _overridden(found)
    for table in statements:
        if table not in listed:
            raise ConfigurationError(
                f"snapshot.select.statement.overrides.{table}",
                "(a statement)",
                "a table that snapshot.select.statement.overrides lists",
                f"add {table} to that list",
            )
    return tuple((table, statements[table]) for table in listed if table in statements)


def _overridden(found: Found) -> list[str]:
    text = next((text for _, row, text in found if row.name == "snapshot.select.statement.overrides"), "")
    return [_bare(entry) for entry in _ENTRY.findall(text) if entry.strip()]


def _without_statement(found: Found) -> Iterator[tuple[str, str]]:
    """Warn of listed tables whose statement is missing, as Debezium does."""
    given = dict(_by_table(found, "snapshot.select.statement.overrides.<table>"))
    name = "snapshot.select.statement.overrides"
    for table in _overridden(found):
        if table not in given:
            yield name, f"{table} is read like any other table, because {name}.{table} is missing"


def _without_secret(masks: Masks) -> Iterator[tuple[str, str]]:
    if masks.misses():
        yield PATTERN, "it matches no property name; to replace characters of topic names use topic.sanitize.pattern"


def _by_table(found: Found, pattern: str) -> Iterator[tuple[str, str]]:
    return ((_bare(holes["table"]), text) for _, holes, text in _of_pattern(found, pattern))


def _bare(table: str) -> str:
    try:
        return unquoted(table)
    except InvalidValueError as error:
        raise ConfigurationError(error.what, table, error.expected, error.hint) from None


def _storage_options(found: Found) -> tuple[tuple[str, str], ...]:
    return tuple((holes["option"], text) for _, holes, text in _of_pattern(found, "lake.storage.option.<option>"))


def _signals(values: Mapping[str, Mapping[str, Any]], found: Found) -> SignalSettings:
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
    consumer = tuple((holes["option"], text) for _, holes, text in _of_pattern(found, "signal.consumer.<option>"))
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


def _notifications(values: dict[str, Any]) -> NotificationSettings:
    settings = NotificationSettings(**values)
    for channel in settings.channels:
        if channel not in _CHANNELS:
            raise ConfigurationError(
                "notification.enabled.channels", channel, "one of " + ", ".join(_CHANNELS), "remove the channel"
            )
    if "sink" in settings.channels and not settings.sink_topic:
        raise ConfigurationError(
            "notification.sink.topic.name", "", "a topic name, since the channel sink is enabled", "add it"
        )
    return settings
