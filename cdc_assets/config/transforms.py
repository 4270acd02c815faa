"""Builds the chain of single message transforms from Kafka Connect's properties.

The class names are those of Debezium and Kafka Connect; no class is loaded. What is not known here is refused, because a
transform that is left out would change every record.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from cdc_assets.config.kinds import split_list
from cdc_assets.config.settings.transforms import (
    AddedField,
    LogicalRouteSettings,
    OutboxField,
    OutboxSettings,
    Predicate,
    RouteSettings,
    Step,
    TimezoneRule,
    TimezoneSettings,
    TransformSettings,
    UnwrapSettings,
)
from cdc_assets.config.transform_options import Options
from cdc_assets.config.zones import zone_of
from cdc_assets.errors import ConfigurationError

_DEBEZIUM: Final = "io.debezium.transforms."
_CONNECT: Final = "org.apache.kafka.connect.transforms."
_DELETES: Final = ("drop", "tombstone", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone")
_OLDER_DELETES: Final[Mapping[tuple[str, bool], str]] = {
    ("drop", True): "drop",
    ("drop", False): "tombstone",
    ("rewrite", True): "rewrite",
    ("rewrite", False): "rewrite-with-tombstone",
    ("none", True): "delete-to-tombstone",
}
"""Modes of Debezium 2: `delete.handling.mode` and `drop.tombstones`."""
_OFFSET: Final = re.compile(r"[+-]\d{2}:\d{2}(:\d{2})?", re.ASCII)
_NAME: Final = r'[".\w\s]+'
_RULES: Final = re.compile(rf"{_NAME}:{_NAME}(:{_NAME})?(, {_NAME}(:{_NAME})?)*", re.ASCII)
_OF_TRANSACTIONS: Final = ("id", "data_collection_order", "total_order")
_OF_ENVELOPES: Final = ("op", "ts_ms", "ts_us", "ts_ns")


def transform_chain(texts: Mapping[str, str], form: str) -> tuple[Step, ...]:
    """The transforms in their order.

    Args:
        texts: all property texts by name.
        form: `value.format`.

    Raises:
        ConfigurationError: a transform is not known, or an option is wrong.
    """
    names = split_list(texts.get("transforms", ""))
    _check_names("transforms", names, texts)
    _check_names("predicates", split_list(texts.get("predicates", "")), texts)
    if names and not texts.get("bootstrap.servers", "").strip():
        raise ConfigurationError(
            "transforms",
            texts["transforms"],
            "no value without bootstrap.servers: transforms change what `cdc-assets publish` writes to Kafka, never the lake",
            "remove them, or add the brokers; to reshape tables, read a mirror (mirror.enabled)",
        )
    if names and form == "flinkx":
        raise ConfigurationError(
            "transforms", texts["transforms"], "no value with value.format=flinkx", "keep one of the two"
        )
    return tuple(_step(name, texts) for name in names)


def _check_names(what: str, names: Sequence[str], texts: Mapping[str, str]) -> None:
    if len(set(names)) < len(names):
        raise ConfigurationError(what, texts[what], "each name once", "remove one")
    for name in texts:
        if name.startswith(f"{what}.") and name.split(".")[1] not in names:
            raise ConfigurationError(name, "(given)", f"an option of one of {what}", f"name it in {what}, or remove it")


def _step(name: str, texts: Mapping[str, str]) -> Step:
    options = Options(f"transforms.{name}.", texts)
    settings = _settings(name, options, texts)
    options.finish()
    return Step(name, settings, _predicate(options, texts))


def _settings(name: str, options: Options, texts: Mapping[str, str]) -> TransformSettings:
    kind = options.required("type")
    if kind not in TRANSFORMS:
        raise ConfigurationError(
            f"transforms.{name}.type",
            kind,
            f"one of {', '.join(TRANSFORMS)}: classes of the JVM cannot be loaded here",
            "remove it, and transform in the consumer; or read current rows from a mirror (mirror.enabled)",
        )
    return TRANSFORMS[kind](options)


def _predicate(options: Options, texts: Mapping[str, str]) -> Predicate | None:
    name, negated = options.text("predicate"), options.flag("negate", "false")
    if not name:
        if negated:
            raise options.refuse("negate", "no value without a predicate")
        return None
    if name not in split_list(texts.get("predicates", "")):
        raise options.refuse("predicate", "one of predicates", "name it there")
    own = Options(f"predicates.{name}.", texts)
    kind = own.required("type")
    if kind == f"{_CONNECT}predicates.TopicNameMatches":
        found = Predicate(own.pattern("pattern", own.required("pattern")), negated)
    elif kind == f"{_CONNECT}predicates.RecordIsTombstone":
        found = Predicate("", negated)
    else:
        known = " or ".join(f"{_CONNECT}predicates.{name}" for name in ("TopicNameMatches", "RecordIsTombstone"))
        raise own.refuse("type", known, "transform in the consumer")
    own.finish()
    return found


def _unwrap(options: Options) -> UnwrapSettings:
    fields = _added(options, "add.fields")
    headers = _added(options, "add.headers")
    for name in ("drop.fields.header.name", "drop.fields.from.key", "drop.fields.keep.schema.compatible"):
        if options.text(name, "false") not in ("", "false"):
            raise options.refuse(
                name, f"no value: only {_DEBEZIUM}ExtractChangedRecordState makes a header with names of fields"
            )
    return UnwrapSettings(
        _deletes(options),
        fields,
        headers,
        options.text("route.by.field"),
        options.flag("replace.null.with.default", "true"),
    )


def _deletes(options: Options) -> str:
    own = "delete.tombstone.handling.mode"
    older = [name for name in ("delete.handling.mode", "drop.tombstones") if options.given(name)]
    if not older:
        return options.choice(own, "tombstone", _DELETES)
    if options.given(own):
        raise options.refuse(older[0], f"nothing beside {own}", "keep one of the two")
    modes = options.choice("delete.handling.mode", "drop", ("drop", "rewrite", "none"))
    drops = options.flag("drop.tombstones", "true")
    if (modes, drops) not in _OLDER_DELETES:
        raise options.refuse(
            older[0], f"drop or rewrite with drop.tombstones=false: two tombstones for a delete have no {own}"
        )
    return _OLDER_DELETES[modes, drops]


def _added(options: Options, name: str) -> tuple[AddedField, ...]:
    prefix = options.text(f"{name}.prefix", "__")
    found = tuple(_one_added(options, name, prefix, text) for text in split_list(options.text(name)))
    if len({one.name for one in found}) < len(found):
        raise options.refuse(name, "each name once", "correct it")
    return found


def _one_added(options: Options, name: str, prefix: str, text: str) -> AddedField:
    source, _, renamed = text.partition(":")
    struct, _, field = source.rpartition(".")
    if not field or ":" in renamed or "." in struct:
        raise options.refuse(name, "a list of field, struct.field or struct.field:name", "correct it")
    shown = renamed or (f"{struct}_{field}" if struct else field)
    if not struct:
        struct = "transaction" if field in _OF_TRANSACTIONS else "" if field in _OF_ENVELOPES else "source"
    return AddedField(struct, field, prefix + shown)


def _regex_router(options: Options) -> RouteSettings:
    return options.route("regex", "replacement")


def _logical_router(options: Options) -> LogicalRouteSettings:
    topics = options.route("topic.regex", "topic.replacement")
    if not topics.replacement:
        raise options.refuse("topic.replacement", "a value", "add it")
    key_field = options.text("key.field.name", "__dbz__physicalTableIdentifier")
    key_value = options.route("key.field.regex", "key.field.replacement") if options.text("key.field.regex") else None
    if key_value is not None and not key_value.replacement:
        raise options.refuse("key.field.replacement", "a value beside key.field.regex", "add it")
    options.text("key.field.replacement")
    options.text("logical.table.cache.size")
    adjusts = options.choice("schema.name.adjustment.mode", "none", ("none", "avro")) == "avro"
    enforces = options.flag("key.enforce.uniqueness", "true")
    return LogicalRouteSettings(topics, key_field if enforces else "", key_value, adjusts)


def _outbox(options: Options) -> OutboxSettings:
    expand = "table.expand.json.payload"
    if options.flag(expand, "false"):
        raise options.refuse(expand, "false: the structure of a payload is not found out from each row")
    for name in (
        "table.json.payload.null.behavior",
        "table.json.payload.empty.array.behavior",
        "table.field.event.type",
    ):
        options.text(name)
    placed = options.text("table.fields.additional.placement")
    return OutboxSettings(
        options.route(
            "route.topic.regex", "route.topic.replacement", ("(?<routedByValue>.*)", "outbox.event.${routedByValue}")
        ),
        options.text("route.by.field", "aggregatetype"),
        options.text("table.field.event.id", "id"),
        options.text("table.field.event.key", "aggregateid"),
        options.text("table.field.event.payload", "payload"),
        options.text("table.field.event.timestamp"),
        options.text("table.field.event.schema.version"),
        tuple(_outbox_field(options, text) for text in split_list(placed)),
        options.choice("table.field.additional.missing", "error", ("error", "ignore")) == "ignore",
        options.flag("route.tombstone.on.empty.payload", "false"),
        options.choice("table.op.invalid.behavior", "warn", ("warn", "error", "fatal")),
    )


def _outbox_field(options: Options, text: str) -> OutboxField:
    field, _, rest = text.partition(":")
    placement, _, name = rest.partition(":")
    placement = placement.strip().lower()
    if not field or placement not in ("header", "envelope", "partition") or ":" in name:
        expected = "a list of column:header, column:envelope or column:partition, each with :alias if wanted"
        raise options.refuse("table.fields.additional.placement", expected, "correct it")
    return OutboxField(field.strip(), placement, name.strip() or field.strip())


def _timezone(options: Options) -> TimezoneSettings:
    zone = options.required("converted.timezone")
    try:
        if zone[0] in "+-" and not _OFFSET.fullmatch(zone):
            raise ValueError
        zone_of(zone)
    except (ValueError, KeyError, OSError):
        expected = "a zone such as Europe/Berlin, or an offset such as +08:00"
        raise options.refuse("converted.timezone", expected, "correct it") from None
    given = [name for name in ("include.list", "exclude.list") if options.text(name)]
    if len(given) > 1:
        raise options.refuse("exclude.list", "nothing beside include.list", "keep one of the two")
    rules = _timezone_rules(options, given[0]) if given else ()
    return TimezoneSettings(zone, rules, "exclude.list" in given)


def _timezone_rules(options: Options, name: str) -> tuple[TimezoneRule, ...]:
    """The rules; a kind that an item names holds for those behind it, too."""
    fields: dict[tuple[str, str], set[str]] = {}
    kind = ""
    texts = split_list(options.text(name))
    if not _RULES.fullmatch(", ".join(texts)):
        expected = (
            "source:table, topic:name or name:field, the first two with :field if wanted, then name or name:field"
        )
        raise options.refuse(name, expected, "correct it")
    for text in texts:
        parts = text.split(":")
        if len(parts) > 1 and parts[0] in ("source", "topic"):
            kind, *parts = parts
        own = fields.setdefault((kind, parts[0]), set())
        own.update(parts[1:2])
    return tuple(TimezoneRule(*key, frozenset(names)) for key, names in fields.items())


TRANSFORMS: Final[Mapping[str, Callable[[Options], TransformSettings]]] = {
    f"{_DEBEZIUM}ExtractNewRecordState": _unwrap,
    f"{_DEBEZIUM}ByLogicalTableRouter": _logical_router,
    f"{_DEBEZIUM}outbox.EventRouter": _outbox,
    f"{_DEBEZIUM}TimezoneConverter": _timezone,
    f"{_CONNECT}RegexRouter": _regex_router,
}
"""What is known, by the class's name."""
