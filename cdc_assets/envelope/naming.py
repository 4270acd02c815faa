"""Names of topics, schemas and fields (spec debezium-sqlserver §4.1).

A topic is `<prefix>.<db>.<schema>.<table>`; invalid characters become `_`. Schema names are the topic's name plus
`.Key`, `.Value`, `.Envelope`, adjusted by `schema.name.adjustment.mode`; fields by `field.name.adjustment.mode`.
"""

import re
from collections.abc import Iterable

from cdc_assets.config.kinds import LONGEST_TOPIC
from cdc_assets.config.patterns import PatternError, replaced
from cdc_assets.config.settings import AdjustmentMode, EventSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.errors import ConfigurationError

NOT_IN_TOPIC = r"[^A-Za-z0-9._-]"
"""Characters that become `_`."""
TWO_UNITS = "[\U00010000-\U0010ffff]"
"""Characters that become two of them, because they are two for Java."""
CURRENT, HISTORY = ".__current", ".__history"
"""Ends of the names of a topic's mirrors, which are next to it."""
_NOT_IN_ADDRESS = re.compile(r"[/\\%#?@\x00-\x1f]")
"""Characters not allowed in a table's directory, even if `topic.sanitize.pattern` allows them: separators, escapes and
delimiters of an address, and the mark of a topic's next generation."""


def topic_name(table: TableId, settings: EventSettings) -> str:
    """Topic of a table's events.

    Raises:
        ConfigurationError: the name is longer than 249 characters, or is `.` or `..`.
    """
    parts = (settings.topic_prefix, table.database, table.schema, table.table)
    return sanitized(settings.topic_delimiter.join(parts), settings)


def sanitized(name: str, settings: EventSettings) -> str:
    """A topic name with invalid characters replaced.

    Raises:
        ConfigurationError: the name is longer than 249 bytes, is `.` or `..`, or no directory can have it.
    """
    try:
        topic = replaced(settings.sanitize_pattern, "_", name) if settings.sanitize_pattern else key_part(name)
    except PatternError as error:
        raise ConfigurationError(
            "topic.sanitize.pattern",
            settings.sanitize_pattern,
            f"a regular expression that matches quickly: {error}",
            "correct it",
        ) from None
    if not 0 < len(topic.encode()) <= LONGEST_TOPIC or topic in (".", ".."):
        raise ConfigurationError(
            "topic name", topic, f"1 to {LONGEST_TOPIC} bytes, not . or ..", "choose a shorter topic.prefix"
        )
    if _NOT_IN_ADDRESS.search(topic):
        raise ConfigurationError(
            "topic name", topic, "a name without / \\ % # ? @", "let topic.sanitize.pattern match these characters too"
        )
    return topic


def key_part(name: str) -> str:
    """A name as a part of an asset key: characters that Dagster does not allow become `_`, as in topics.

    So two tables with the same key would share a topic, which `check_conflicts` refuses.
    """
    return re.sub(NOT_IN_TOPIC, "_", re.sub(TWO_UNITS, "__", name))


def key_parts(table: TableId) -> tuple[str, ...]:
    """Database, schema and table as parts of an asset key; without those that a table does not have."""
    return tuple(key_part(part) for part in (table.database, table.schema, table.table) if part)


def schema_name(topic: str, part: str, mode: AdjustmentMode) -> str:
    """Name of a topic's `Key`, `Value` or `Envelope` schema."""
    return adjusted(f"{topic}.{part}", mode, dots=True)


def adjusted(name: str, mode: AdjustmentMode, *, dots: bool = False) -> str:
    """A name that Avro accepts, or the name itself in mode `none`.

    Args:
        name: name of a schema or field.
        mode: `avro` replaces invalid characters by `_`, `avro_unicode` by their code as `_uXXXX`.
        dots: whether dots are allowed after the first character.
    """
    if mode == "none" or not name:
        return name
    unicode_form = mode == "avro_unicode"
    first = _first(name[0], unicode_form)
    return first + "".join(_following(character, dots, unicode_form) for character in name[1:])


def _first(character: str, unicode_form: bool) -> str:
    if _ascii_letter(character) or (character == "_" and not unicode_form):
        return character
    if character.isascii() and character.isdigit() and not unicode_form:
        return "_" + character
    return _replacement(character, unicode_form)


def _following(character: str, dots: bool, unicode_form: bool) -> str:
    valid = _ascii_letter(character) or (character.isascii() and character.isdigit()) or (dots and character == ".")
    if valid or (character == "_" and not unicode_form):
        return character
    return _replacement(character, unicode_form)


def _ascii_letter(character: str) -> bool:
    return character.isascii() and character.isalpha()


def _replacement(character: str, unicode_form: bool) -> str:
    units = character.encode("utf-16-be")
    if not unicode_form:
        return "_" * (len(units) // 2)
    return "".join(f"_u{units[index : index + 2].hex()}" for index in range(0, len(units), 2))


_BY_CASE = "; lists ignore letter case, but not in (?-i:Name)"


class TopicOwners:
    """Which table has which topic: no two share a topic or a schema name, and no topic has the name of another one's mirror.

    Delta directories on some file systems ignore letter case, so names that differ only by case conflict too.

    Args:
        settings: name the topics.
        own: topics of the capture itself, such as that of notifications, which no table may have.
    """

    def __init__(self, settings: EventSettings, own: Iterable[str] = ()) -> None:
        self._settings, self._own = settings, {topic.lower() for topic in own}
        self._by_schema: dict[str, TableId] = {}
        self._by_topic: dict[str, TableId] = {}

    def add(self, table: TableId) -> None:
        """Give a table its topic.

        Raises:
            ConfigurationError: the table would write to the place of another one; it gets none.
        """
        topic = topic_name(table, self._settings)
        name = schema_name(topic, "Value", self._settings.schema_name_adjustment)
        other = self._by_schema.get(name.lower(), table)
        if other != table:
            raise ConfigurationError(
                "topic name",
                name.removesuffix(".Value"),
                "one table per topic",
                f"exclude {other} or {table}, or set topic.sanitize.pattern so that their names differ"
                + (_BY_CASE if str(other).lower() == str(table).lower() else ""),
            )
        if topic.lower() in self._own:
            hint = f"exclude {table}, or rename the capture's topic of heartbeats, notifications or transactions"
            raise ConfigurationError("topic name", topic, f"one for events of {table} alone", hint)
        self._check_mirrors(topic.lower(), table)
        self._by_schema[name.lower()] = self._by_topic[topic.lower()] = table

    def _check_mirrors(self, topic: str, table: TableId) -> None:
        for end in (CURRENT, HISTORY):
            mirrored = self._by_topic.get(topic.removesuffix(end)) if topic.endswith(end) else None
            if mirrored is not None:
                raise self._of_mirror(topic, table, mirrored)
            if (other := self._by_topic.get(topic + end)) is not None:
                raise self._of_mirror(topic + end, other, table)

    def _of_mirror(self, topic: str, table: TableId, mirrored: TableId) -> ConfigurationError:
        expected = f"another name than the mirror of {mirrored} has"
        return ConfigurationError("topic name", topic, expected, f"exclude {mirrored} or {table}")


def check_conflicts(tables: Iterable[TableId], settings: EventSettings, own: Iterable[str] = ()) -> None:
    """Check that each table has a topic for itself (`TopicOwners`).

    Raises:
        ConfigurationError: two tables would write to the same place.
    """
    owners = TopicOwners(settings, own)
    for table in tables:
        owners.add(table)
