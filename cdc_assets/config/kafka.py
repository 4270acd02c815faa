"""Builds the settings of what is written to Kafka from Kafka Connect's properties."""

import re
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import urlsplit

from cdc_assets.config.java_patterns import java_pattern
from cdc_assets.config.property import HIDDEN
from cdc_assets.config.settings.kafka import AVRO, JSON, SIMPLE, ConverterSettings, KafkaSettings, TopicRule
from cdc_assets.config.transforms import transform_chain
from cdc_assets.errors import ConfigurationError

_CREATION = "topic.creation."
_OF_THE_JVM = frozenset({"key.serializer", "value.serializer", "enable.idempotence", "transactional.id"})
_FORMATS = {JSON: "json", AVRO: "avro"}
_REGISTRY = ".".join(("schema", "registry", ""))
"""Begins options of the registry's client; they are the converter's, and no properties by themselves."""
_AVRO_OPTIONS = frozenset(
    {
        f"{_REGISTRY}url",
        "basic.auth.user.info",
        f"{_REGISTRY}basic.auth.user.info",
        "auto.register.schemas",
        "ignore.default.for.nullables",
        "schemas.enable",
        "replace.null.with.default",
    }
)
_ONLY = {
    "basic.auth.credentials.source": "USER_INFO",
    f"{_REGISTRY}basic.auth.credentials.source": "USER_INFO",
    "enhanced.avro.schema.support": "false",
    "generalized.sum.type.support": "false",
    "connect.meta.data": "true",
    "scrub.invalid.names": "false",
    "use.latest.version": "false",
    "flatten.unions": "true",
    "key.subject.name.strategy": "io.confluent.kafka.serializers.subject.TopicNameStrategy",
    "value.subject.name.strategy": "io.confluent.kafka.serializers.subject.TopicNameStrategy",
}
"""Options of the Avro converter that change names or bytes, with the value that is supported."""
_FREE = ("schemas.cache.config", "schemas.cache.size", "max.schemas.per.subject", "latest.compatibility.strict")
"""Options that change nothing here."""
_JSON_ANY = ("schemas.enable", "schemas.cache.size")
"""Options of the JSON converter of any value, also of that of headers, whose others change keys that the lake holds as JSON."""
_JSON_OPTIONS = (*_JSON_ANY, "decimal.format", "replace.null.with.default")
_JSON_HEADER_ONLY = {"decimal.format": "BASE64", "replace.null.with.default": "true"}
_RULE_OPTIONS = ("include", "exclude", "partitions", "replication.factor")


def kafka_settings(values: Mapping[str, Any], texts: Mapping[str, str], form: str) -> KafkaSettings:
    """Settings from property texts.

    Args:
        values: parsed values by field.
        texts: all property texts by name.
        form: `value.format`.

    Raises:
        ConfigurationError: a property is wrong.
    """
    found = KafkaSettings(
        **values,
        key=_converter("key", texts),
        value=_converter("value", texts),
        flat=form == "flinkx",
        paved=_flag(texts, "flinkx.paving"),
        split=_flag(texts, "flinkx.split", "false"),
        headers=texts.get("header.converter", "").strip() or SIMPLE,
        header_schema=_flag(texts, "header.converter.schemas.enable"),
        producer=tuple(_producer(texts)),
        rules=tuple(_rules(texts)),
        creates=_flag(texts, f"{_CREATION}enable"),
        transforms=transform_chain(texts, form),
        problem=_problem(texts, form),
    )
    if found.enabled and not found.servers:
        raise ConfigurationError("bootstrap.servers", None, "host:port of a broker, since kafka.enabled", "add it")
    if found.enabled and found.problem:
        name, value, supported = found.problem
        raise ConfigurationError(name, value, f"{supported}, since kafka.enabled", "change it, or leave it out")
    return found


def _flag(texts: Mapping[str, str], name: str, default: str = "true") -> bool:
    text = texts.get(name, default).strip().lower()
    if text not in ("true", "false"):
        raise ConfigurationError(name, text, "true or false", "correct it")
    return text == "true"


def _problem(texts: Mapping[str, str], form: str) -> tuple[str, str, str] | None:
    """A property that Kafka's records do not support yet: its name, its value and what is supported."""
    for name, allowed in (
        ("key.converter", tuple(_FORMATS)),
        ("value.converter", tuple(_FORMATS)),
        ("header.converter", (SIMPLE, JSON)),
    ):
        given = texts.get(name, "").strip()
        if given and given not in allowed:
            return name, given, " or ".join(allowed)
    for side in ("key", "value"):
        is_avro = texts.get(f"{side}.converter", "").strip() == AVRO
        if found := _unknown_to_avro(side, texts) if is_avro else _unknown(side, texts, _JSON_OPTIONS, {}):
            return found
    if found := _unknown("header", texts, _JSON_ANY, _JSON_HEADER_ONLY):
        return found
    if form == "flinkx" and _is_numeric("value", texts):
        return (
            "value.converter.decimal.format",
            "NUMERIC",
            "BASE64 with value.format=flinkx, which has a form of its own",
        )
    if form == "flinkx" and texts.get("value.converter", JSON).strip() != JSON:
        return "value.converter", texts["value.converter"], f"{JSON} with value.format=flinkx"
    return None


def _unknown_to_avro(side: str, texts: Mapping[str, str]) -> tuple[str, str, str] | None:
    """An option of the Avro converter that would change its bytes, and is not supported."""
    start = f"{side}.converter."
    if not texts.get(f"{start}{_REGISTRY}url", "").strip():
        return f"{start}{_REGISTRY}url", "(nothing)", "the address of a schema registry"
    return _unknown(side, texts, (*_AVRO_OPTIONS, *_FREE), _ONLY)


def _unknown(
    side: str, texts: Mapping[str, str], known: Collection[str], only: Mapping[str, str]
) -> tuple[str, str, str] | None:
    """An option of a converter that is not known, or has another value than the supported one of `only`.

    Connect ignores what it does not know with a line in its log, so a misspelt name would have no effect.
    """
    start = f"{side}.converter."
    for name, text in texts.items():
        option, value = name.removeprefix(start), text.strip()
        if name.startswith(start) and option not in known and value != only.get(option):
            return name, value if option in only else HIDDEN, only.get(option, "no such option of this converter")
    return None


def _is_numeric(side: str, texts: Mapping[str, str]) -> bool:
    return texts.get(f"{side}.converter.decimal.format", "").strip().upper() == "NUMERIC"


def _converter(side: str, texts: Mapping[str, str]) -> ConverterSettings:
    start = f"{side}.converter."
    kind = _FORMATS.get(texts.get(f"{side}.converter", "").strip(), "json")
    kept = _flag(texts, f"{start}ignore.default.for.nullables", "false")
    replaced = _flag(texts, f"{start}replace.null.with.default")
    registry = texts.get(f"{start}{_REGISTRY}url", "").strip()
    if kind == "avro" and registry:
        check_addresses(f"{start}{_REGISTRY}url", registry)
    user = texts.get(f"{start}basic.auth.user.info", "") or texts.get(f"{start}{_REGISTRY}basic.auth.user.info", "")
    return ConverterSettings(
        kind,
        _flag(texts, f"{start}schemas.enable"),
        not kept if kind == "avro" else replaced,
        registry,
        user,
        _flag(texts, f"{start}auto.register.schemas"),
        kind == "json" and _is_numeric(side, texts),
    )


def check_addresses(name: str, text: str) -> None:
    """Check the addresses of a registry.

    Raises:
        ConfigurationError: one is no web address, or holds a password.
    """
    if "@" in text:  # also where it is no web address, or the password has a comma
        step = f"give user:password as {name.partition(_REGISTRY)[0]}basic.auth.user.info"
        raise ConfigurationError(name, "(hidden)", "addresses without a password", step)
    for address in text.split(","):
        if urlsplit(address.strip()).scheme not in ("http", "https"):
            raise ConfigurationError(name, address, "addresses with http or https", "correct it")


def _producer(texts: Mapping[str, str]) -> list[tuple[str, str]]:
    found = []
    for name, text in texts.items():
        if name.startswith("producer."):
            option = name.removeprefix("producer.").removeprefix("override.")
            if option not in _OF_THE_JVM:
                found.append((option, text))
    return found


def _rules(texts: Mapping[str, str]) -> list[TopicRule]:
    """The groups in their order, then the default."""
    given = {name.removeprefix(_CREATION): text for name, text in texts.items() if name.startswith(_CREATION)}
    groups = [name.strip() for name in given.pop("groups", "").split(",") if name.strip()]
    given.pop("enable", None)
    for name in given:
        if name.partition(".")[0] not in (*groups, "default"):
            expected = "an option of default or of one of topic.creation.groups"
            raise ConfigurationError(_CREATION + name, given[name], expected, "name its group there, or remove it")
    default = _rule(given, "default", TopicRule())
    return [*(_rule(given, name, default) for name in groups), default]


def _rule(given: Mapping[str, str], group: str, default: TopicRule) -> TopicRule:
    own = {name.removeprefix(f"{group}."): text for name, text in given.items() if name.startswith(f"{group}.")}
    return TopicRule(
        _patterns(group, "include", own),
        _patterns(group, "exclude", own),
        _count(group, "partitions", own, default.partitions),
        _count(group, "replication.factor", own, default.replication),
        tuple((name, text) for name, text in own.items() if name not in _RULE_OPTIONS),
    )


def _patterns(group: str, option: str, own: Mapping[str, str]) -> tuple[str, ...]:
    name = f"{_CREATION}{group}.{option}"
    return tuple(java_pattern(name, text.strip()) for text in own.get(option, "").split(",") if text.strip())


def _count(group: str, option: str, own: Mapping[str, str], default: int) -> int:
    text = own.get(option, str(default)).strip()
    if not re.fullmatch(r"-1|[1-9][0-9]{0,4}", text):
        name = f"{_CREATION}{group}.{option}"
        raise ConfigurationError(name, text, "a number from 1, or -1 for the broker's default", "correct it")
    return int(text)
