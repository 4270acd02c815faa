"""Compares two captures of the same changes field by field and counts what differs.

Records are what a JSON converter with schemas gives: `topic`, `key`, `value`, `headers`.
Streamed records of a topic are compared in order. READ records have no order that two
readers must share, so they are compared by row, without the markers of their places (`test_snapshots`, `test_forms`).
"""

import base64
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

Record = dict[str, Any]

PLACEHOLDER = "__debezium_unavailable_value"
PLACEHOLDERS = {
    PLACEHOLDER,
    base64.urlsafe_b64encode(PLACEHOLDER.encode()).decode(),
    base64.b64encode(PLACEHOLDER.encode()).decode(),
    PLACEHOLDER.encode().hex(),
}
PROCESSING = frozenset({"payload.ts_ms", "payload.ts_us", "payload.ts_ns"})
"""When a reader handled the event: differs from run to run."""
IDENTITY = frozenset({"payload.source.version", "__debezium.context.runId", "__debezium.context.connectorName"})
"""Who the reader is."""
READ_TIME = frozenset(
    {"payload.source.ts_ms", "payload.source.ts_us", "payload.source.ts_ns", "payload.source.snapshot"}
)
"""When a row was read, and its place among the rows: only of READ events."""
STRUCTURE_TIME = frozenset({"payload.source.ts_ms", "payload.source.ts_us", "payload.source.ts_ns"})
"""When a structure was read: only of schema change events."""


@dataclass
class Report:
    """What was compared and what differed.

    Args:
        compared: records compared, by topic.
        differences: path → how often it differed without an explanation.
        explained: name of a listed difference → how often it was met.
        examples: path → first (topic, theirs, ours).
    """

    compared: Counter[str] = field(default_factory=Counter)
    differences: Counter[str] = field(default_factory=Counter)
    explained: Counter[str] = field(default_factory=Counter)
    examples: dict[str, tuple[str, Any, Any]] = field(default_factory=dict)

    def add(self, path: str, topic: str, theirs: Any, ours: Any) -> None:
        """Count one difference."""
        self.differences[path] += 1
        self.examples.setdefault(path, (topic, theirs, ours))

    def __str__(self) -> str:
        lines = [f"{count:>9,}  {topic}" for topic, count in sorted(self.compared.items())]
        lines = ["   events  topic", *lines, f"{sum(self.compared.values()):>9,}  in all", ""]
        lines += [f"{count:>9,}  explained: {name}" for name, count in sorted(self.explained.items())]
        if not self.differences:
            return "\n".join([*lines, "no unexplained differences"])
        lines += ["    times  difference"]
        for path, count in self.differences.most_common():
            topic, theirs, ours = self.examples[path]
            lines.append(
                f"{count:>9,}  {path}\n           first in {topic}\n             theirs: {short(theirs)}\n             ours:   {short(ours)}"
            )
        return "\n".join(lines)


def short(value: Any) -> str:
    """A value on one line."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 300 else text[:300] + " …"


Explained = Callable[[str, Any, Any], str | None]
"""(path, theirs, ours) → name of the listed difference, or None."""


def nothing_explained(path: str, theirs: Any, ours: Any) -> str | None:
    """No difference is expected."""
    return None


def compare(theirs: Iterable[Record], ours: Iterable[Record], explained: Explained = nothing_explained) -> Report:
    """Compare two captures.

    Args:
        theirs: the referee's records.
        ours: our records.
        explained: tells differences that are listed, with a test each, in docs/differences-from-debezium.md.
    """
    report = Report()
    left, right = by_topic(theirs), by_topic(ours)
    for topic in sorted(left.keys() | right.keys()):
        one, other = left.get(topic, []), right.get(topic, [])
        compare_reads(topic, reads(one), reads(other), report, explained)
        compare_streams(topic, streamed(one), streamed(other), report, explained)
    return report


def by_topic(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Records of each topic, in order."""
    grouped: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        grouped[record["topic"]].append(record)
    return grouped


def is_read(record: Record) -> bool:
    """Whether it is a READ event."""
    value = record["value"]
    return value is not None and value["payload"].get("op") == "r"


def reads(records: list[Record]) -> list[Record]:
    """The READ events."""
    return [record for record in records if is_read(record)]


def streamed(records: list[Record]) -> list[Record]:
    """The others."""
    return [record for record in records if not is_read(record)]


def compare_streams(topic: str, theirs: list[Record], ours: list[Record], report: Report, explained: Explained) -> None:
    """Compare pair by pair, in order."""
    if len(theirs) != len(ours):
        report.add("number of streamed records", topic, len(theirs), len(ours))
    for one, other in zip(theirs, ours, strict=False):
        report.compared[topic] += 1
        compare_record(topic, one, other, report, PROCESSING | structure_time(one), explained)


def compare_reads(topic: str, theirs: list[Record], ours: list[Record], report: Report, explained: Explained) -> None:
    """Compare READ events that have the same row."""
    left, right = (sorted(records, key=row_of) for records in (theirs, ours))
    if len(left) != len(right):
        report.add("number of READ records", topic, len(left), len(right))
    for one, other in zip(left, right, strict=False):
        report.compared[topic] += 1
        compare_record(topic, one, other, report, PROCESSING | READ_TIME, explained)


def structure_time(record: Record) -> frozenset[str]:
    """What depends on when a snapshot ran, if it is a schema change event of a snapshot."""
    payload = (record["value"] or {}).get("payload") or {}
    in_snapshot = "tableChanges" in payload and payload["source"].get("snapshot", "false") != "false"
    return STRUCTURE_TIME if in_snapshot else frozenset()


def row_of(record: Record) -> str:
    """A READ event's row as sortable text."""
    return json.dumps(record["value"]["payload"]["after"], sort_keys=True)


def compare_record(
    topic: str, one: Record, other: Record, report: Report, skip: frozenset[str], explained: Explained
) -> None:
    """Compare key, value and headers of two records."""
    for part in ("key", "value"):
        for path, theirs, ours in differences(one[part], other[part], ""):
            if path in skip or path in IDENTITY:
                continue
            name = explained(path, theirs, ours)
            if name is not None:
                report.explained[name] += 1
            else:
                report.add(f"{part}: {path}", topic, theirs, ours)
    for name in sorted(one["headers"].keys() | other["headers"].keys()):
        if name in IDENTITY:
            continue
        theirs, ours = one["headers"].get(name), other["headers"].get(name)
        if theirs != ours:
            report.add(f"header: {name}", topic, theirs, ours)


def differences(theirs: Any, ours: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Paths at which two JSON values differ; the order of object keys is part of a payload's contract."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        if list(theirs) != list(ours) and theirs.keys() == ours.keys():
            yield f"{path} (order of fields)", list(theirs), list(ours)
        for name in theirs.keys() | ours.keys():
            inner = f"{path}.{name}" if path else name
            if name not in theirs or name not in ours:
                yield inner, theirs.get(name, "(absent)"), ours.get(name, "(absent)")
            else:
                yield from differences(theirs[name], ours[name], inner)
    elif isinstance(theirs, list) and isinstance(ours, list):
        if path == "payload.data_collections":  # the connector prints a hash map's order
            theirs, ours = (sorted(counts, key=lambda entry: entry["data_collection"]) for counts in (theirs, ours))
        if len(theirs) != len(ours):
            yield f"{path}[] (length)", theirs, ours
        for index, (one, other) in enumerate(zip(theirs, ours, strict=False)):
            label = one.get("field", index) if isinstance(one, dict) else index
            yield from differences(one, other, f"{path}[{label}]")
    elif type(theirs) is not type(ours) or theirs != ours:
        yield path, theirs, ours


def explained(path: str, theirs: Any, ours: Any) -> str | None:
    """Differences listed in docs/differences-from-debezium.md, each with a test of its own."""
    if path.endswith("_max") and theirs is None and ours in PLACEHOLDERS:
        return "a (max) value that the log does not hold"
    return None
