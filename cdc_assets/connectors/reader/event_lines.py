"""Lines of files: JSON objects with a key, a value, headers and a topic.

Forms: what this project's `tail` prints and Debezium Server's file sinks write (`key`, `value`, `headers`), what kcat
writes (`payload` for the value; parts as texts that hold JSON), and a bare value, which has no key. Rows may have columns
called `key` or `value`. So a line is an event only if it has a value, and each of its names is one that these forms have;
anything else is a bare value, of which nothing is left out.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from cdc_assets.connectors.reader.messages import (
    BadRecordError,
    JsonDecoder,
    Message,
    Part,
    header_text,
    one_line,
    scan_value,
)

_TOKEN = re.compile(r"[ \t\r\n]*([{}:,]?)[ \t\r\n]*")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
RECORDS: Final = frozenset(
    [
        "batches",
        "compacting",
        "current",
        "engine_history",
        "hindrances",
        "history",
        "jobs",
        "mirroring",
        "mirrors",
        "published",
        "publisher",
        "readers",
        "reconciled",
        "reconciling",
        "replayed",
        "schema_history",
        "signals",
        "staging",
        "windows",
    ]
)
"""What follows `.__` in the names of this project's own tables and folders, of whatever capture of the lake."""
_SINK_FILE = re.compile(r"(?:.*/)?([A-Za-z0-9._-]+)\+\d+\+\d+\.[^/]*")
_SIDES: Final = {"key": "key", "value": "value", "payload": "value"}
_ENVELOPE = ".Envelope"
_NAMES: Final = frozenset({"topic", "key", "value", "payload", "headers", "position"})
_OF_KAFKA: Final = frozenset({"partition", "offset", "broker", "ts", "tstype", "timestamp", "timestampType"})
"""Names that are an event's only beside its topic."""


_POSITION = re.compile(r"[0-9A-Fa-f:/.~-]{16,}")


class EventLines:
    """Turns lines into messages.

    Args:
        key: takes keys apart.
        value: takes values apart.
        topic: of lines that name none; empty if the file's name or the value's schema gives it.
        prefix: topic prefix, whose own tables no line may name; nor those of other captures.
    """

    def __init__(self, key: JsonDecoder, value: JsonDecoder, topic: str, prefix: str) -> None:
        self._parts = {"key": key, "value": value}
        self.topic, self._prefix = topic, prefix

    def message(self, stream: str, next_offset: int, place: str, text: str) -> Message:
        """The message of one line.

        Args:
            stream: the file.
            next_offset: place after the line.
            place: for people.
            text: the line.

        Raises:
            BadRecordError: it is none.
        """
        found = self._event(text) or {"value": self._parts["value"].decode(text)}
        key, value = found.get("key"), found.get("value")
        headers = tuple((name, header_text(inner)) for name, inner in _pairs(found.get("headers")))
        return Message(
            stream, next_offset, place, self._topic_of(stream, found.get("topic"), value), key, value, headers
        )

    def _event(self, text: str) -> dict[str, Any]:
        """What an event's line holds; nothing if it is a bare value."""
        try:
            found = self._members(text)
        except BadRecordError:  # a column of a row may be called as a part, and hold what no part does
            row, end = scan_value(text, 0)
            if not isinstance(row, dict) or not row or _is_event(row) or text[end:].strip():
                raise
            return {}
        if not _is_event(found):
            return {}
        if "payload" in found:
            found["value"] = found.pop("payload")
        return found

    def _members(self, text: str) -> dict[str, Any]:
        """What a line's object holds."""
        found: dict[str, Any] = {}
        end = _after(text, 0, "{")
        if _TOKEN.match(text, end).group(1) == "}":  # type: ignore[union-attr]  # it matches nothing too
            raise BadRecordError("it is an empty object")
        while True:
            name, end = scan_value(text, end)
            if not isinstance(name, str):
                raise BadRecordError(f"it is no JSON: a name is expected before character {end}")
            start = _after(text, end, ":")
            side = _SIDES.get(name)
            if side == "value" and "schema" in found:
                return found
            if side is not None:
                found[name], end = self._side(side, text, start)
            else:
                found[name], end = scan_value(text, start)
            follows = _TOKEN.match(text, end)
            end = follows.end()  # type: ignore[union-attr]  # it matches nothing too
            if follows.group(1) == "}":  # type: ignore[union-attr]  # it matches nothing too
                break
            if follows.group(1) != ",":  # type: ignore[union-attr]  # it matches nothing too
                raise BadRecordError(f"it is no JSON: a comma or a brace is expected at character {end}")
        if end != len(text):
            raise BadRecordError(f"text follows the JSON at character {end}")
        return found

    def _side(self, side: str, text: str, start: int) -> tuple[Part | None, int]:
        part, end = self._parts[side].decode_at(text, start)
        if part is not None and part.schema is None and isinstance(part.parsed, str) and part.parsed[:1] in ("{", "["):
            return self._parts[side].decode(part.parsed), end
        return part, end

    def _topic_of(self, file: str, given: Any, value: Part | None) -> str:
        topic = given or self.topic or topic_of_file(file) or _topic_of_schema(value)
        if not isinstance(topic, str) or not topic:
            raise BadRecordError("it names no topic; set files.topic, or write the topic into the line")
        return checked_topic(topic, self._prefix)


def _is_event(found: Mapping[str, Any]) -> bool:
    """Whether an object with these members is an event, and no row."""
    has_value = "value" in found or ("payload" in found and ("key" in found or "topic" in found))
    known = _NAMES | _OF_KAFKA if "topic" in found else _NAMES
    position = found.get("position", "")
    is_known = known.issuperset(found) and not ("value" in found and "payload" in found)
    is_place = not position or (isinstance(position, str) and _POSITION.fullmatch(position) is not None)
    return has_value and is_known and is_place


def checked_topic(topic: str, prefix: str) -> str:
    """A name that may be a topic table's.

    Raises:
        BadRecordError: it may not.
    """
    _, separator, name = topic.rpartition(".__")
    is_record = topic.startswith(f"{prefix}.__") or (separator and name in RECORDS)
    if not _TOPIC.fullmatch(topic) or topic in (".", "..") or is_record:
        raise BadRecordError(f"{one_line(topic)[:300]} is no name of a topic")
    return topic


def _after(text: str, start: int, token: str) -> int:
    found = _TOKEN.match(text, start)
    if found is None or found.group(1) != token:
        raise BadRecordError(f"it is no JSON object: {token} is expected at character {start}")
    return found.end()


def topic_of_file(file: str) -> str | None:
    """The topic in the name that Connect's sinks give to files: `<topic>+<partition>+<offset>.json`."""
    found = _SINK_FILE.fullmatch(file)
    return found.group(1) if found else None


def _topic_of_schema(value: Part | None) -> str | None:
    name = value.schema.get("name", "") if value is not None and value.schema is not None else ""
    return str(name.removesuffix(_ENVELOPE)) if name.endswith(_ENVELOPE) else None


def _pairs(headers: Any) -> Iterable[tuple[str, Any]]:
    """Headers of an object, of a list of entries, or of kcat's list of names and values by turns."""
    if headers is None:
        return []
    if isinstance(headers, dict):
        return list(headers.items())
    if isinstance(headers, list) and all(isinstance(entry, dict) and "key" in entry for entry in headers):
        return [(str(entry["key"]), entry.get("value")) for entry in headers]
    if isinstance(headers, list) and len(headers) % 2 == 0 and all(isinstance(name, str) for name in headers[::2]):
        return list(zip(headers[::2], headers[1::2], strict=True))
    raise BadRecordError("its headers are neither an object nor a list of entries")
