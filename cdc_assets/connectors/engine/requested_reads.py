"""Which tables snapshots on request have read whole: not those of which a condition has chosen the rows.

The connector reports that it has read a table, and not by which request. So requests are kept as they are seen: those that the run hands to
the connector, rows of the signal table, which are events, and what the connector's offset says of incremental snapshots. A report is of the
oldest one of its kind that names the table. A table that no known request names, or one with a condition for it, does not count as read.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cdc_assets.config.engine import EngineConfig
from cdc_assets.config.patterns import PatternError, expression_for, matches
from cdc_assets.connectors.engine.feed import Chunk, Offsets
from cdc_assets.connectors.engine.notices import ENDS, INCREMENTAL, STARTED, notifications, scanned
from cdc_assets.connectors.engine.signal_targets import identifier
from cdc_assets.connectors.engine.topics import notification_topic, signal_topic, table_of
from cdc_assets.core.signal import Signal

_COLLECTIONS: Final = "incremental_snapshot_collections"
_ALL: Final = ".*"


@dataclass(slots=True)
class _Request:
    """A snapshot that was requested.

    Args:
        id: of its signal; empty if that is not known.
        names: expressions for its tables.
        conditions: those of which a condition chooses the rows.
        done: tables of which it was reported.
    """

    id: str
    is_incremental: bool
    names: Sequence[str]
    conditions: Sequence[str]
    done: set[str] = field(default_factory=set, compare=False)

    def is_for(self, table: str) -> bool:
        return table not in self.done and _name(self.names, table)

    def chooses(self, table: str) -> bool:
        return self.is_for(table) and _name(self.conditions, table)


class RequestedReads:
    """Follows requests and what the connector reports.

    Args:
        handed: signals that the run hands to the connector; may grow.
        offsets: at which it starts.
    """

    def __init__(self, config: EngineConfig, handed: Sequence[Signal], offsets: Offsets) -> None:
        self._config, self._handed, self._known = config, handed, 0
        self._requests = list[_Request]()
        self._is_own: bool | None = None
        """Whether reports are of the connector's first snapshot; None before it."""
        self.read = set[str]()
        """Tables that were read whole, as the connector names them."""
        self._take_offsets(offsets)

    def take(self, chunk: Chunk) -> None:
        """Take requests and reports of a chunk."""
        new, self._known = self._handed[self._known :], len(self._handed)
        for signal in (*new, *_rows(chunk, signal_topic(self._config))):
            self._take_signal(signal)
        self._take_offsets(chunk.offsets)
        for notification in notifications(chunk, notification_topic(self._config)):
            is_incremental = notification.get("aggregate_type") == INCREMENTAL
            if not is_incremental and self._is_own_now(notification):
                continue
            for table, is_read in scanned(notification):
                known = [it for it in self._requests if it.is_incremental == is_incremental and it.is_for(table)]
                if is_read and known and not any(it.chooses(table) for it in known):
                    self.read.add(table)
                for oldest in known[:1]:
                    oldest.done.add(table)
            if is_incremental and notification.get("type") == "ABORTED":
                self._stop()

    def is_whole(self, topic: str) -> bool:
        """Whether rows of a topic that were read are not known to be chosen by a condition."""
        table = identifier(self._config, table_of(topic, self._config))
        return not any(it.chooses(table) for it in self._requests)

    def _is_own_now(self, notification: Mapping[str, Any]) -> bool:
        """Whether a report is of the connector's first snapshot, by which no request is done."""
        if notification.get("type") == STARTED and self._is_own is None:
            self._is_own = True
        elif notification.get("type") in ENDS:
            self._is_own = False
        return bool(self._is_own)

    def _take_signal(self, signal: Signal) -> None:
        data = _data_of(signal)
        if signal.type == "stop-snapshot" and not data.get("data-collections"):
            self._stop()
        if signal.type == "execute-snapshot":
            request, waiting = _requested(signal.id, data), [it for it in self._requests if not it.done]
            if request not in waiting:  # a signal of the file may wait in the lake, too
                self._requests.append(request)

    def _stop(self) -> None:
        """Forget incremental snapshots; the connector's offset shows those that it takes all the same."""
        self._requests = [it for it in self._requests if not it.is_incremental]

    def _take_offsets(self, offsets: Offsets) -> None:
        """Incremental snapshots by the offset: also those of former runs, and by signals that are not seen here."""
        for _, offset in offsets:
            try:
                entries = json.loads(offset.get(_COLLECTIONS) or "[]")
                tables = [(str(entry[f"{_COLLECTIONS}_id"]), entry) for entry in entries]
            except (ValueError, TypeError, KeyError):  # of a connector that records it in another form
                continue
            for table, entry in tables:
                known = [it for it in self._requests if it.is_incremental and it.is_for(table)]
                is_chosen = any("condition" in name and text for name, text in entry.items())
                if not known or (is_chosen and not any(it.chooses(table) for it in known)):
                    names = [expression_for(table)]
                    self._requests.append(_Request("", True, names, names if is_chosen else []))


def _rows(chunk: Chunk, topic: str) -> Iterator[Signal]:
    """Signals that were put into the signal table: its columns are in this order, whatever their names."""
    for value in notifications(chunk, topic):
        row: Mapping[str, Any] = (value.get("after") or {}) if "op" in value else value
        columns: list[Any] = [*row.values(), None, None, None]
        own_id, kind, data = columns[:3]
        if value.get("op", "c") == "c" and isinstance(data, str):
            yield Signal(str(own_id), str(kind), data)


def _data_of(signal: Signal) -> Mapping[str, Any]:
    """What a signal says; nothing if it cannot be understood."""
    try:
        data: Any = json.loads(signal.data or "{}")
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, Mapping) else {}


def _requested(own_id: str, data: Mapping[str, Any]) -> _Request:
    names = data.get("data-collections")
    given = data.get("additional-conditions") or []
    conditions = [
        str(one["data-collection"]) if isinstance(one, Mapping) and "data-collection" in one else _ALL
        for one in (given if isinstance(given, list) else [given])
    ]
    conditions += [_ALL] if data.get("additional-condition") else []
    is_incremental = str(data.get("type", "incremental")).lower() != "blocking"
    texts = [str(name) for name in names] if isinstance(names, list) else []
    return _Request(own_id, is_incremental, texts, conditions)


def _name(expressions: Sequence[str], table: str) -> bool:
    """Whether expressions name a table, or may do so."""
    try:
        return any(text == table or matches(text.strip(), table, ignore_case=True) for text in expressions)
    except PatternError:
        return True
