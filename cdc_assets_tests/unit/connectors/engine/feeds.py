"""An engine made of a list of events: it continues after the offset that it is given, and may repeat events."""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from cdc_assets.connectors.engine.feed import Chunk, Habits, Lines, Offsets

READY = Habits(warm_up_s=0.001)
"""It sends at once."""
ID = {"type": "int32", "optional": False, "field": "id"}
KEY = {"type": "struct", "fields": [ID], "optional": False, "name": "shop.items.Key"}
SOURCE = {
    "type": "struct",
    "optional": False,
    "field": "source",
    "fields": [
        {"type": "string", "optional": True, "field": name}
        for name in ("connector", "snapshot", "file", "gtid", "sequence", "txId", "commit_scn", "scn", "rs_id")
    ]
    + [{"type": "int64", "optional": True, "field": name} for name in ("pos", "row", "ssn")],
}


def value_schema(*more: dict[str, Any]) -> dict[str, Any]:
    """An envelope with the id and other fields in `after`."""
    after = {"type": "struct", "fields": [ID, *more], "optional": True, "field": "after"}
    return {
        "type": "struct",
        "optional": False,
        "name": "shop.items.Envelope",
        "fields": [after, SOURCE, {"type": "string", "optional": False, "field": "op"}],
    }


def place_in_source(connector: str, number: int) -> dict[str, Any]:
    """Where the n-th event stands in the log of a connector's database; three are of one transaction."""
    if connector == "postgresql":
        return {"sequence": json.dumps([str(number // 3 * 100 + 1), str(number)]), "txId": str(number // 3)}
    if connector == "oracle":
        commit, within = divmod(number, 3)
        return {"commit_scn": str(100 + commit), "txId": f"t{commit}", "scn": str(100), "rs_id": "0x1", "ssn": within}
    return {"file": f"bin.{number // 10:06}", "pos": number, "row": 0}


def event(
    number: int, *, topic: str, op: str = "c", more: dict[str, Any] | None = None, connector: str = "mysql"
) -> dict[str, Any]:
    """The n-th event of a connector's log."""
    source = {field["field"]: None for field in SOURCE["fields"]}
    source |= {"connector": connector, **place_in_source(connector, number)}
    return {
        "topic": topic,
        "key": {"id": number},
        "value": {"after": {"id": number, **(more or {})}, "source": source, "op": op},
        "headers": [{"key": "h", "value": str(number)}],
    }


class ListFeed:
    """Sends events in chunks.

    Args:
        events: of all time.
        ends: event numbers at which chunks end.
        again: events that are sent again at a start behind an offset.
        snapshot: events that belong to a snapshot, at the beginning.
    """

    def __init__(
        self, events: Sequence[dict[str, Any]], ends: Sequence[int], again: int = 0, snapshot: int = 0
    ) -> None:
        self._events, self._ends, self._again, self._snapshot = events, ends, again, snapshot
        self.started, self.snapshot, self.closed = True, False, False
        self.acknowledged: list[int] = []
        self.starts: list[tuple[Offsets, Sequence[str]]] = []
        self._pending: list[Chunk] = []

    def __call__(self, offsets: Offsets, history: Sequence[str]) -> "ListFeed":
        self.starts.append((offsets, list(history)))
        begin = max((offset["at"] for _, offset in offsets), default=0)
        begin = max(0, begin - self._again) if begin else 0
        borders = [begin, *(end for end in self._ends if end > begin)]
        self._pending = [self._chunk(number, *pair) for number, pair in enumerate(pairwise(borders), 1)]
        return self

    def next(self, timeout_s: float) -> Chunk | None:
        return self._pending.pop(0) if self._pending else None

    def committed(self, number: int) -> None:
        self.acknowledged.append(number)

    def close(self) -> None:
        self.closed = True

    def _chunk(self, number: int, start: int, end: int) -> Chunk:
        lines: dict[str, list[str]] = {}
        for place, entry in enumerate(self._events[start:end]):
            line = {"n": place, **{name: entry[name] for name in ("key", "value", "headers")}}
            lines.setdefault(entry["topic"], []).append(json.dumps(line))
        groups = [
            Lines(topic, int(topic[-1]), KEY, value_schema(), len(found), 1000, "\n".join(found).encode() + b"\n")
            for topic, found in lines.items()
        ]
        offsets = [({"server": "shop"}, {"at": end})]
        history = [json.dumps({"ts_ms": number, "ddl": f"create table t{end}"})]
        return Chunk(number, groups, end - start, offsets, history, end < self._snapshot)
