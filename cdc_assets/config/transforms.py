"""Builds the chain of single message transforms from Kafka Connect's properties.

The class names are those of Debezium and Kafka Connect; no class is loaded. What is not known here is refused, because a
transform that is left out would change every record.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from cdc_assets.config.java_patterns import check_replacement, java_pattern
from cdc_assets.config.kinds import split_list
from cdc_assets.config.settings.transforms import (
    AddedField,
    LogicalRouteSettings,
    Predicate,
    RouteSettings,
    Step,
    TransformSettings,
    UnwrapSettings,
)
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
_OF_TRANSACTIONS: Final = ("id", "data_collection_order", "total_order")
_OF_ENVELOPES: Final = ("op", "ts_ms", "ts_us", "ts_ns")
_OF_TRANSFORMS: Final = ("type", "predicate", "negate")


class Options:
    """The options of one transform or predicate; each is taken once, and what is left is refused.

    Args:
        start: what the names of its properties begin with.
        texts: all property texts.
    """

    def __init__(self, start: str, texts: Mapping[str, str]) -> None:
        self._start = start
        self._given = {name.removeprefix(start): text for name, text in texts.items() if name.startswith(start)}
        self._known: list[str] = []

    def text(self, name: str, default: str = "") -> str:
        """A text without blanks around it."""
        self._known.append(name)
        return self._given.get(name, default).strip()

    def given(self, name: str) -> bool:
        """Whether an option is there."""
        self._known.append(name)
        return name in self._given

    def required(self, name: str) -> str:
        """A text that must be there."""
        if not (found := self.text(name)):
            raise ConfigurationError(self._start + name, None, "a value", "add it")
        return found

    def flag(self, name: str, default: str) -> bool:
        """True or false."""
        return self.choice(name, default, ("true", "false")) == "true"

    def choice(self, name: str, default: str, allowed: Sequence[str]) -> str:
        """One of some words, in any letter case."""
        found = self.text(name, default).lower()
        if found not in allowed:
            raise ConfigurationError(self._start + name, found, " or ".join(allowed), "correct it")
        return found

    def pattern(self, name: str, text: str) -> str:
        """An expression in Python's syntax."""
        return java_pattern(self._start + name, text)

    def route(self, regex: str, replacement: str) -> RouteSettings:
        """An expression and its replacement."""
        pattern, text = self.pattern(regex, self.required(regex)), self.text(replacement)
        check_replacement(self._start + replacement, pattern, text)
        return RouteSettings(pattern, text)

    def refuse(self, name: str, expected: str, hint: str = "remove it") -> ConfigurationError:
        """What is wrong with an option."""
        return ConfigurationError(self._start + name, self._given.get(name), expected, hint)

    def finish(self) -> None:
        """Refuse what is left."""
        for name in self._given:
            if name not in (*self._known, *_OF_TRANSFORMS):
                known = ", ".join(dict.fromkeys(self._known)) or "none"
                raise ConfigurationError(self._start + name, "(given)", f"an option of it: {known}", "remove it")


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


TRANSFORMS: Final[Mapping[str, Callable[[Options], TransformSettings]]] = {
    f"{_DEBEZIUM}ExtractNewRecordState": _unwrap,
    f"{_DEBEZIUM}ByLogicalTableRouter": _logical_router,
    f"{_CONNECT}RegexRouter": _regex_router,
}
"""What is known, by the class's name."""
