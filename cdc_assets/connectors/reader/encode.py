"""Messages as columns of their topics' tables.

Messages of a topic with one pair of schemas go together through Arrow. Those that do not fit go one by one, which shows
what is wrong with which. Messages without a schema have the one of the configuration, or else what their topic's values
have shown until now (`inference`), beginning with what its table holds.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pyarrow as pa

from cdc_assets.connectors.engine.feed import Lines
from cdc_assets.connectors.engine.schemas import read_lines, topic_schema
from cdc_assets.connectors.reader.columns import NotDirectError, is_direct, read_payloads
from cdc_assets.connectors.reader.inference import inferred
from cdc_assets.connectors.reader.messages import BadRecordError, Message, Part, Schema, one_line
from cdc_assets.connectors.reader.values import engine_value
from cdc_assets.errors import EngineError

Known = Callable[[str], Mapping[str, Schema]]
"""What a topic's table says of its keys and values."""
_Pair = tuple[Schema | None, Schema | None]
_NO_NUMBER = -1
"""Marks a schema that is inferred."""
_MAX_IDENTITIES = 1000
"""Schemas that are known again by identity: a message whose payload comes before its schema brings a new one each time."""


class Encoder:
    """Keeps what topics have shown, and numbers of their structures.

    Args:
        declared: schemas by topic and side, for messages that have none.
        known: what tables say, for topics that are in neither.
    """

    def __init__(self, declared: Mapping[str, Mapping[str, Schema]], known: Known) -> None:
        self._declared, self._known = declared, known
        self._shapes: dict[str, dict[str, Schema | None]] = {}
        self._numbers: dict[str, int] = {}
        self._by_identity: dict[int, tuple[Schema, int]] = {}
        self._schemas: list[Schema] = []
        self._structures: dict[tuple[str, str, str], int] = {}
        self._newest: dict[str, int] = {}

    def encode(self, messages: Sequence[Message]) -> tuple[list[Lines], dict[int, str]]:
        """Columns of messages, and what is wrong with those that are in none, by their place in the sequence."""
        groups: dict[tuple[str, int | None, int | None], list[int]] = {}
        for place, message in enumerate(messages):
            topic = message.topic
            key, value = self._number(topic, "key", message.key), self._number(topic, "value", message.value)
            if value is None:
                value = self._newest.get(topic)
            else:
                self._newest[topic] = value
            groups.setdefault((topic, key, value), []).append(place)
        found: list[Lines] = []
        wrong: dict[int, str] = {}
        for (topic, key, value), places in groups.items():
            lines, bad = self._group(topic, key, value, [(place, messages[place]) for place in places])
            found += lines
            wrong |= bad
        return found, wrong

    def _number(self, topic: str, side: str, part: Part | None) -> int | None:
        """Number of the schema of a message's key or value."""
        if part is None:
            return None
        schema = part.schema or self._declared.get(topic, {}).get(side)
        if schema is None:
            return _NO_NUMBER
        if (held := self._by_identity.get(id(schema))) is not None:
            return held[1]
        number = self._numbers.setdefault(_text(schema), len(self._schemas))
        if number == len(self._schemas):
            self._schemas.append(schema)
        if len(self._by_identity) >= _MAX_IDENTITIES:
            self._by_identity.clear()
        self._by_identity[id(schema)] = schema, number
        return number

    def _group(
        self, topic: str, key: int | None, value: int | None, messages: Sequence[tuple[int, Message]]
    ) -> tuple[list[Lines], dict[int, str]]:
        is_inferred = _NO_NUMBER in (key, value)
        pair = self._schema(topic, "key", key), self._schema(topic, "value", value)
        unknown = any(
            number == _NO_NUMBER and schema is None for number, schema in zip((key, value), pair, strict=True)
        )
        try:
            if not unknown:
                with suppress(NotDirectError):
                    return [self._directly(topic, pair, messages, is_inferred)], {}
            return self._one_by_one(topic, (key, value), pair, messages)
        except (
            EngineError,
            UnicodeEncodeError,
            RecursionError,
        ) as error:  # the lake has no type for the schema, or not its names
            return [], {place: str(error) for place, _ in messages}

    def _schema(self, topic: str, side: str, number: int | None) -> Schema | None:
        if number is None:
            return None
        if number != _NO_NUMBER:
            return self._schemas[number]
        if topic not in self._shapes:
            self._shapes[topic] = dict(self._known(topic))
        return self._shapes[topic].get(side)

    def _directly(self, topic: str, pair: _Pair, messages: Sequence[tuple[int, Message]], is_inferred: bool) -> Lines:
        schema = topic_schema(*pair)
        if not all(is_direct(schema.field(name)) for name in ("key", "value") if name in schema.names):
            raise NotDirectError
        lines = [_line(place, message) for place, message in messages]
        data = "\n".join(lines).encode("utf-8", "surrogatepass")
        table = read_payloads(schema, data, 4 * max(map(len, lines)), inferred=is_inferred)
        return self._lines(topic, pair, table)

    def _one_by_one(
        self, topic: str, numbers: tuple[int | None, int | None], pair: _Pair, messages: Sequence[tuple[int, Message]]
    ) -> tuple[list[Lines], dict[int, str]]:
        """The slow way: each message by itself; a new run of lines where what was inferred does not hold any more."""
        wrong: dict[int, str] = {}
        runs: list[tuple[_Pair, list[str]]] = []
        schemas = dict(zip(("key", "value"), pair, strict=True))
        sides = [side for side, number in zip(("key", "value"), numbers, strict=True) if number == _NO_NUMBER]
        for place, message in messages:
            try:
                parsed = {side: _exactly(part) for side, part in (("key", message.key), ("value", message.value))}
                shown = {side: inferred(schemas[side], parsed[side]) for side in sides}
                if parsed["value"] is not None and shown.get("value", pair[1]) is None:
                    raise BadRecordError("its value shows no type, and without one would be a tombstone")
                now = schemas | shown
                values = {
                    side: None if schema is None else engine_value(schema, parsed[side], "")
                    for side, schema in now.items()
                }
                text = one_line({"n": place, **values, "headers": _headers(message)})
                text.encode()
                if any(shown[side] is not schemas[side] for side in shown):
                    topic_schema(now["key"], now["value"])  # only what the lake can hold is kept
            except (BadRecordError, EngineError, RecursionError) as error:
                wrong[place] = str(error)
            except UnicodeEncodeError:
                wrong[place] = "a text has half of a surrogate pair"
            else:
                schemas = now
                if shown:
                    self._shapes[topic] |= shown
                own = now["key"], now["value"]
                if not runs or any(new is not old for new, old in zip(own, runs[-1][0], strict=True)):
                    runs.append((own, []))
                runs[-1][1].append(text)
        return [self._read(topic, own, lines) for own, lines in runs], wrong

    def _read(self, topic: str, pair: _Pair, lines: Sequence[str]) -> Lines:
        data = "\n".join(lines).encode()
        return self._lines(topic, pair, read_lines(topic_schema(*pair), data, 4 * max(map(len, lines))))

    def _lines(self, topic: str, pair: _Pair, table: pa.Table) -> Lines:
        key, value = pair
        name = topic, _text(key), _text(value)
        structure = self._structures.setdefault(name, len(self._structures) + 1)
        return Lines(topic, structure, key, value, table.num_rows, 0, b"", table)


def _text(schema: Schema | None) -> str:
    return json.dumps(schema, sort_keys=True)


def _line(place: int, message: Message) -> str:
    key = f',"key":{message.key.text}' if message.key is not None else ""
    value = f',"value":{message.value.text}' if message.value is not None else ""
    headers = one_line(_headers(message)) if message.headers else "[]"
    return f'{{"n":{place}{key}{value},"headers":{headers}}}'


def _headers(message: Message) -> list[dict[str, str | None]]:
    return [{"key": name, "value": text} for name, text in message.headers]


def _exactly(part: Part | None) -> Any:
    """A payload with all digits of its numbers."""
    if part is None:
        return None
    try:
        return json.loads(part.text, parse_float=Decimal)
    except (ValueError, RecursionError) as error:
        raise BadRecordError(f"it is no JSON: {error}") from None
