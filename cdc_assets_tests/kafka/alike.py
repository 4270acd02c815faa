"""Whether two records are the same, byte for byte, but for what differs from reader to reader."""

import io
import json
import re
from collections import Counter
from collections.abc import Callable
from itertools import takewhile
from typing import Any

import fastavro

from cdc_assets_tests.conformance.compare import PLACEHOLDERS
from cdc_assets_tests.kafka.publishing import Sent

_PROCESSED = re.compile(rb'("op":"."),"ts_ms":\d+,"ts_us":\d+,"ts_ns":\d+')
"""When a reader handled an event."""
_READ = re.compile(rb'"ts_ms":\d+,"snapshot":"\w+"|"ts_us":\d+,"ts_ns":\d+')
"""When a row or a structure was read in a snapshot, and its place among them."""
_NOTED = re.compile(rb'"ts_ms":\d+')
"""When a structure or a transaction was noted."""
_UNLOGGED = re.compile(
    rb'("c_\w+_max"):(?:null|"(?:' + "|".join(map(re.escape, sorted(PLACEHOLDERS))).encode() + rb')")'
)
"""A large value that the log does not hold: a listed difference."""
_COUNTS = re.compile(rb'"data_collections":(\[[^\]]*\])')
"""In the order of a hash map."""


def masked(topic: str, value: bytes) -> bytes:
    """JSON without what differs from reader to reader."""
    value = _PROCESSED.sub(rb"\1", value)
    value = _UNLOGGED.sub(rb"\1:null", value)
    value = _COUNTS.sub(lambda found: _sorted(found[1]), value)
    if ".dbo." not in topic:
        value = _NOTED.sub(b"", value)
    if b'"snapshot":"false"' not in value:
        value = _READ.sub(b"", value)
    return value


def _sorted(counts: bytes) -> bytes:
    return json.dumps(sorted(json.loads(counts), key=lambda entry: str(entry["data_collection"]))).encode()


class AvroMask:
    """The same of Avro: the schema's number, and the value read with that schema.

    A value that is read is written again to the bytes that it was read from, so that equal values are equal bytes.

    Args:
        schema: gives the registry's answer for a number.
    """

    def __init__(self, schema: Callable[[int], str | None]) -> None:
        self._schema = schema
        self._schemas: dict[int, Any] = {}

    def __call__(self, topic: str, value: bytes) -> bytes:
        number = int.from_bytes(value[1:5], "big")
        if number not in self._schemas:
            answer = self._schema(number)
            assert answer is not None, f"the registry has no schema {number}"
            plain = json.loads(json.loads(answer)["schema"], object_hook=_without_meaning)
            self._schemas[number] = fastavro.parse_schema(plain)
        found: Any = fastavro.schemaless_reader(io.BytesIO(value[5:]), self._schemas[number], None)
        again = io.BytesIO()
        fastavro.schemaless_writer(again, self._schemas[number], found)
        assert again.getvalue() == value[5:], f"{topic}: no canonical bytes"
        return repr((value[0], number, _without_times(topic, found))).encode()


def _without_meaning(part: dict[str, Any]) -> dict[str, Any]:
    """Decimals stay bytes, instants numbers."""
    return {name: inner for name, inner in part.items() if name != "logicalType"}


def _without_times(topic: str, found: dict[str, Any]) -> dict[str, Any]:
    source = found.get("source") or {}
    for name in ("ts_ms", "ts_us", "ts_ns"):
        found.pop(name, None)
        if source.get("snapshot", "false") != "false":
            source.pop(name, None)
    if ".dbo." not in topic:
        source.pop("ts_ms", None)
    if source.get("snapshot", "false") != "false":
        source.pop("snapshot")
    if found.get("data_collections"):
        found["data_collections"].sort(key=lambda entry: str(entry["data_collection"]))
    for side in ("before", "after"):
        for name, inner in (found.get(side) or {}).items():
            if name.endswith("_max") and inner in (*PLACEHOLDERS, *map(str.encode, PLACEHOLDERS)):
                found[side][name] = None
    return found


class Alike:
    """Compares records and counts them.

    Args:
        mask: what makes values comparable.
    """

    def __init__(self, mask: Callable[[str, bytes], bytes] = masked) -> None:
        self._mask = mask
        self.equal: Counter[str] = Counter()
        """Records by topic."""
        self.same_bytes: Counter[str] = Counter()
        """Those whose values are equal as they are."""

    def check(self, topic: str, theirs: Sent, ours: Sent) -> None:
        """Fail at the first difference."""
        assert (theirs.partition, theirs.key) == (ours.partition, ours.key), f"{topic}: partition and key"
        assert headers(theirs) == headers(ours), f"{topic}: headers of {ours.key!r}"
        assert (theirs.value is None) == (ours.value is None), f"{topic}: tombstone of {ours.key!r}"
        if ours.value is not None:
            one, other = self._mask(topic, theirs.value), self._mask(topic, ours.value)
            assert one == other, f"{topic}: value of {ours.key!r}: {first_difference(one, other)}"
        self.equal[topic] += 1
        self.same_bytes[topic] += theirs.value == ours.value

    def __str__(self) -> str:
        lines = [f"{count:>9,}  {self.same_bytes[topic]:>9,}  {topic}" for topic, count in sorted(self.equal.items())]
        return "\n".join(["   alike   same bytes  topic", *lines])


def first_difference(one: bytes, other: bytes) -> str:
    """Where two values differ first."""
    at = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    return f"at {at}: theirs {one[max(0, at - 80) : at + 60]!r}, ours {other[max(0, at - 80) : at + 60]!r}"


def headers(sent: Sent) -> list[tuple[str, Any]]:
    """Headers but those that name the reader."""
    return [(name, text) for name, text in sent.headers or [] if not name.startswith("__debezium.context")]
