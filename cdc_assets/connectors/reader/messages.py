"""What is read: messages with their places, and JSON split into schemas and payloads.

A message with its schema is mostly schema, the same one in each message. So the text before a payload is remembered with
the schema that it holds, and is only compared in the messages that follow.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cdc_assets.errors import InvalidValueError
from cdc_assets.typemap.connect import LITERALS

Schema = Mapping[str, Any]
"""Connect's JSON form of a schema."""

_SPACE = re.compile(r"[ \t\r\n]*")
_BEFORE_SCHEMA = re.compile(r'[ \t\r\n]*\{[ \t\r\n]*"schema"[ \t\r\n]*:[ \t\r\n]*')
_BEFORE_PAYLOAD = re.compile(r'[ \t\r\n]*,[ \t\r\n]*"payload"[ \t\r\n]*:[ \t\r\n]*')
_DECODER = json.JSONDecoder()
_MAX_REMEMBERED = 64
_FACTS = {"name": str, "version": int, "parameters": dict}
"""What a schema may say beside its type, and as what."""


@dataclass(frozen=True, slots=True)
class Part:
    """A key or a value.

    Args:
        schema: its own; None if the message has none.
        text: the payload as JSON in one line.
        parsed: the payload.
    """

    schema: Schema | None
    text: str
    parsed: Any = field(repr=False)


@dataclass(frozen=True, slots=True)
class Message:
    """One record.

    Args:
        stream: the partition or file.
        next_offset: where to continue after it.
        place: where it is, for people.
        topic: which it came from, and whose table it goes into.
        key: None if it has none.
        value: None is a tombstone.
        headers: names and texts.
    """

    stream: str
    next_offset: int
    place: str
    topic: str
    key: Part | None
    value: Part | None
    headers: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record that cannot be read.

    Args:
        stream: see `Message`.
        next_offset: see `Message`.
        place: see `Message`.
        topic: its topic; empty if it is unknown.
        reason: what is wrong.
        raw: what was found, as text.
    """

    stream: str
    next_offset: int
    place: str
    topic: str
    reason: str
    raw: str = ""


class BadRecordError(Exception):
    """A record cannot be read; the reader knows which one."""


def one_line(value: Any) -> str:
    """Compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class JsonDecoder:
    """Takes keys or values apart.

    Args:
        schemas: whether messages have a schema; None if each one shows it.
    """

    def __init__(self, schemas: bool | None) -> None:
        self._schemas = schemas
        self._remembered: dict[str, Schema] = {}

    def decode(self, text: str) -> Part | None:
        """The part that is a whole text; None for null.

        Raises:
            BadRecordError: it is no JSON, or its schema is none.
        """
        part, end = self.decode_at(text, 0)
        if _SPACE.match(text, end).end() != len(text):  # type: ignore[union-attr]  # it matches nothing too
            raise BadRecordError(f"text follows the JSON at character {end}")
        return part

    def decode_at(self, text: str, start: int) -> tuple[Part | None, int]:
        """The part that begins there, and its end.

        Raises:
            BadRecordError: see `decode`.
        """
        if self._schemas is not False:
            for before, schema in self._remembered.items():
                if text.startswith(before, start):
                    parsed, end = scan_value(text, start + len(before))
                    closed = _closing(text, end)
                    if closed:
                        return _part(schema, text[start + len(before) : end], parsed), closed
            if found := self._first(text, start):
                return found
        start = _SPACE.match(text, start).end()  # type: ignore[union-attr]  # it matches nothing too
        parsed, end = scan_value(text, start)
        if self._schemas is not False and isinstance(parsed, dict) and set(parsed) == {"schema", "payload"}:
            schema = parsed["schema"]
            if schema is None or (isinstance(schema, dict) and "type" in schema):
                payload = parsed["payload"]
                own = None if schema is None else normalised(schema)
                return _part(own, one_line(payload), payload), end
        if self._schemas and parsed is not None:
            raise BadRecordError("it has no schema and payload, as converter.schemas.enable=true says")
        return _part(None, text[start:end], parsed), end

    def _first(self, text: str, start: int) -> tuple[Part | None, int] | None:
        """A part whose schema precedes its payload; the text before the payload is remembered."""
        opening = _BEFORE_SCHEMA.match(text, start)
        if opening is None:
            return None
        schema, end = scan_value(text, opening.end())
        between = _BEFORE_PAYLOAD.match(text, end)
        if between is None or not isinstance(schema, dict) or "type" not in schema:
            return None
        own = normalised(schema)
        parsed, end = scan_value(text, between.end())
        closed = _closing(text, end)
        if not closed:
            return None
        if len(self._remembered) >= _MAX_REMEMBERED:
            self._remembered.pop(next(iter(self._remembered)))
        self._remembered = {text[start : between.end()]: own, **self._remembered}
        return _part(own, text[between.end() : end], parsed), closed


def _part(schema: Schema | None, text: str, parsed: Any) -> Part | None:
    if parsed is None:
        return None
    return Part(schema, one_line(parsed) if "\n" in text or "\r" in text else text, parsed)


def scan_value(text: str, start: int) -> tuple[Any, int]:
    """The JSON value that begins there, and its end.

    Raises:
        BadRecordError: none does.
    """
    try:
        return _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError) as error:  # also a number of more digits than Python reads
        raise BadRecordError(f"it is no JSON: {error}") from None


def _closing(text: str, start: int) -> int:
    """After the brace that closes an object there; 0 if none does."""
    place = _SPACE.match(text, start).end()  # type: ignore[union-attr]  # it matches nothing too
    return place + 1 if text.startswith("}", place) else 0


def normalised(schema: Any) -> Schema:
    """A schema with all that others may leave out.

    Raises:
        BadRecordError: it is none of Connect's.
    """
    if not isinstance(schema, dict) or not isinstance(kind := schema.get("type"), str):
        raise BadRecordError(f"{one_line(schema)[:200]} is no Connect schema")
    if kind not in LITERALS and kind not in ("struct", "array", "map"):
        raise BadRecordError(f"{kind} is no type of Connect")
    for name, expected in _FACTS.items():
        if schema.get(name) is not None and type(schema[name]) is not expected:
            raise BadRecordError(f"a schema's {name} is {one_line(schema[name])[:100]}; expected {expected.__name__}")
    for name, text in (schema.get("parameters") or {}).items():
        if not isinstance(
            text, str
        ):  # as Connect's converter refuses them, and so would each reader of what is in the lake
            raise BadRecordError(f"a schema's parameters have {one_line(text)[:100]} for {name[:100]}; expected a text")
    found: dict[str, Any] = {"type": kind, "optional": schema.get("optional") is True}
    found |= {
        name: schema[name]
        for name in ("name", "version", "parameters", "default", "field")
        if schema.get(name) is not None
    }
    try:
        if kind == "struct":
            found["fields"] = [{**normalised(inner), "field": str(inner["field"])} for inner in schema["fields"]]
        elif kind == "array":
            found["items"] = normalised(schema["items"])
        elif kind == "map":
            found |= {name: normalised(schema[name]) for name in ("keys", "values")}
    except (KeyError, TypeError) as error:
        raise BadRecordError(f"a schema of type {kind} lacks {error}") from None
    except RecursionError:
        raise BadRecordError("its schema is nested too deeply") from None
    return found


def header_text(value: Any) -> str | None:
    """A header's value as text; what was written with its schema, without it."""
    if isinstance(value, str):
        if not value.startswith("{"):
            return value
        try:
            part = JsonDecoder(None).decode(value)
        except BadRecordError:
            return value
        return part.text if part is not None and part.schema is not None else value
    if isinstance(value, dict) and set(value) == {"schema", "payload"}:
        value = value["payload"]
    return value if value is None or isinstance(value, str) else one_line(value)


def checked_schemas(content: Any, file: str) -> dict[str, dict[str, Schema]]:
    """Schemas of a file by topic and by `key` and `value`.

    Raises:
        InvalidValueError: it holds something else.
    """
    try:
        return {
            topic: {side: normalised(schema) for side, schema in sides.items() if side in ("key", "value")}
            for topic, sides in content.items()
        }
    except (AttributeError, BadRecordError) as error:
        expected = 'an object of {"key": schema, "value": schema} by topic'
        raise InvalidValueError("schemas.file", file, f"{expected} ({error})", "correct the file") from None
