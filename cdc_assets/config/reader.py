"""Settings of captures that read change events which others wrote, to Kafka topics or to files.

Such a file is known by its `connector.class`. The names are those of a Kafka Connect sink, which such a reader is:
`topics`, `key.converter`, `value.converter.schema.registry.url`, `errors.tolerance`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from cdc_assets.config.java_patterns import java_pattern, matches_name
from cdc_assets.config.property import shown_name
from cdc_assets.errors import ConfigurationError

KAFKA: Final = "cdc_assets.KafkaEvents"
FILES: Final = "cdc_assets.FileEvents"

Format = Literal["json", "avro", "string"]
_CONVERTERS: Final[Mapping[str, Format]] = {
    "org.apache.kafka.connect.json.JsonConverter": "json",
    "io.confluent.connect.avro.AvroConverter": "avro",
    "org.apache.kafka.connect.storage.StringConverter": "string",
}
_COMMON: Final = ("name", "topic.prefix", "connector.class", "schemas.file", "errors.tolerance")
_SIDE: Final = (
    "converter",
    "converter.schemas.enable",
    "converter.schema.registry.url",
    "converter.basic.auth.user.info",
)
_OWN: Final[Mapping[str, tuple[str, ...]]] = {
    KAFKA: ("bootstrap.servers", "topics", "topics.regex"),
    FILES: ("files.path", "files.pattern", "files.topic"),
}
_PREFIXES: Final[Mapping[str, str]] = {KAFKA: "consumer.override.", FILES: "files.storage.option."}


@dataclass(frozen=True, slots=True)
class Converter:
    """How keys or values are written.

    Args:
        format: of the bytes.
        schemas: whether JSON messages carry their schemas; None if each message shows it.
        registry: address of the schema registry.
        credentials: `user:password` for it.
    """

    format: Format = "json"
    schemas: bool | None = None
    registry: str = ""
    credentials: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    """Where events are read from, and how.

    Args:
        kind: `KAFKA` or `FILES`.
        prefix: topic prefix, under which offsets are recorded.
        key: how keys are written.
        value: how values are written.
        schemas_file: of schemas for messages without their own; empty if there is none.
        tolerant: whether a record that cannot be read is put aside, so that its partition or file goes on.
        servers: brokers.
        topics: names of topics.
        pattern: expression for names of topics, or of files.
        options: of the Kafka client, or of the files' object store; may hold secrets.
        path: folder of the files.
        topic: of files that do not name it themselves.
    """

    kind: str
    prefix: str
    key: Converter
    value: Converter
    schemas_file: str = ""
    tolerant: bool = False
    servers: str = ""
    topics: tuple[str, ...] = ()
    pattern: str = ""
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    path: str = ""
    topic: str = ""

    def takes(self, topic: str) -> bool:
        """Whether a topic of the brokers is read.

        Raises:
            ConfigurationError: the expression takes too long.
        """
        if not self.pattern:
            return topic in self.topics
        return not topic.startswith("__") and matches_name("topics.regex", self.pattern, topic)


def reader_settings(texts: Mapping[str, str]) -> ReaderSettings:
    """Settings from property texts.

    Raises:
        ConfigurationError: one is unknown, missing or wrong.
    """
    kind = texts["connector.class"].strip()
    prefix = _PREFIXES[kind]
    known = {*_COMMON, *_OWN[kind], *(f"{side}.{name}" for side in ("key", "value") for name in _SIDE)}
    for name in texts:
        if name not in known and not name.startswith(prefix):
            expected = "one of " + ", ".join(sorted(known)) + f", {prefix}<option>"
            raise ConfigurationError("property", shown_name(name), expected, "correct its name, or remove it")
    topics = tuple(name.strip() for name in texts.get("topics", "").split(",") if name.strip())
    own = "topics.regex" if kind == KAFKA else "files.pattern"
    pattern = java_pattern(own, texts.get(own, "").strip())
    if kind == KAFKA:
        _require(texts, "bootstrap.servers", "host:port of a broker")
        if bool(topics) == bool(pattern):
            raise ConfigurationError("topics", ",".join(topics) or None, "topics, or topics.regex, not both", "set one")
    else:
        _require(texts, "files.path", "the folder of the files")
    tolerance = texts.get("errors.tolerance", "none").strip()
    if tolerance not in ("none", "all"):
        raise ConfigurationError("errors.tolerance", tolerance, "none or all", "correct it")
    return ReaderSettings(
        kind,
        texts["topic.prefix"].strip(),
        _converter("key", texts),
        _converter("value", texts),
        texts.get("schemas.file", "").strip(),
        tolerance == "all",
        texts.get("bootstrap.servers", "").strip(),
        topics,
        pattern,
        tuple((name.removeprefix(prefix), text) for name, text in texts.items() if name.startswith(prefix)),
        texts.get("files.path", "").strip(),
        texts.get("files.topic", "").strip(),
    )


def _require(texts: Mapping[str, str], name: str, expected: str) -> None:
    if not texts.get(name, "").strip():
        raise ConfigurationError(name, None, expected, f"add {name} to the configuration")


def _converter(side: str, texts: Mapping[str, str]) -> Converter:
    given = texts.get(f"{side}.converter", "org.apache.kafka.connect.json.JsonConverter").strip()
    if given not in _CONVERTERS:
        raise ConfigurationError(f"{side}.converter", given, "one of " + ", ".join(_CONVERTERS), "correct it")
    name = f"{side}.converter.schemas.enable"
    enabled = texts.get(name, "").strip()
    if enabled not in ("", "true", "false"):
        raise ConfigurationError(name, enabled, "true or false", "correct it, or remove it: each message shows it")
    registry = texts.get(f"{side}.converter.schema.registry.url", "").strip().rstrip("/")
    if _CONVERTERS[given] == "avro" and not registry:
        raise ConfigurationError(f"{side}.converter.schema.registry.url", None, "the registry's address", "add it")
    credentials = texts.get(f"{side}.converter.basic.auth.user.info", "")
    return Converter(_CONVERTERS[given], None if not enabled else enabled == "true", registry, credentials)
