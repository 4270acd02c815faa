"""A connector's notifications about requested snapshots: one that read nothing is reported, whichever channel the signal came by.

A connector reports a snapshot as complete also if a table that the signal names does not exist. An incremental one
shows that by the table's status; a blocking one by the end of a snapshot in which no table was read. The first snapshot of
each start is the connector's own (skipped, if it continues), and reads nothing if there are no tables.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from cdc_assets.connectors.engine.feed import Chunk

STARTED: Final = "STARTED"
INCREMENTAL: Final = "Incremental Snapshot"
"""What notifications of incremental snapshots are about."""
ENDS: Final = ("COMPLETED", "ABORTED", "SKIPPED")
_READ: Final = ("SUCCEEDED", "EMPTY")
_REASONS: Final = {
    "UNKNOWN_SCHEMA": ("the connector captures no table of this name (letter case counts)", "correct the name"),
    "NO_PRIMARY_KEY": ("it has no primary key", "give it one, name a surrogate-key, or request a blocking snapshot"),
    "SQL_EXCEPTION": ("the database refuses to read it", "see the connector's log, and the condition of the signal"),
}


def notifications(chunk: Chunk, topic: str) -> Iterator[Mapping[str, Any]]:
    """The notifications in a chunk, in order; of another topic its values."""
    for lines in chunk.lines if topic else ():
        if lines.topic != topic:
            continue
        values = (
            [json.loads(line)["value"] for line in lines.data.splitlines()]
            if lines.table is None
            else lines.table.column("value").to_pylist()
        )
        yield from (value for value in values if value)


def refused(notification: Mapping[str, Any]) -> list[str]:
    """The table that an incremental snapshot has passed over since a statement has failed, as the connector names it."""
    more = dict(notification.get("additional_data") or {})
    return [str(more["scanned_collection"])] if more.get("status") == "SQL_EXCEPTION" else []


def scanned(notification: Mapping[str, Any]) -> list[tuple[str, bool]]:
    """The table that a snapshot is done with, as the connector names it, and whether it was read."""
    more = dict(notification.get("additional_data") or {})
    if notification.get("type") != "TABLE_SCAN_COMPLETED" or not more.get("scanned_collection"):
        return []
    return [(str(more["scanned_collection"]), (more.get("status") or _READ[0]) in _READ)]


class SnapshotNotices:
    """Follows the notifications of one start of a connector.

    Args:
        captured: lists the tables that signals can name.
    """

    def __init__(self, captured: Callable[[], str]) -> None:
        self._captured = captured
        self._is_own, self._read = True, 0

    def take(self, notification: Mapping[str, Any]) -> str:
        """What is wrong, with the next step; empty if nothing is."""
        kind, more = notification.get("type"), dict(notification.get("additional_data") or {})
        if kind == "TABLE_SCAN_COMPLETED":
            self._read += 1
            return self._unread(notification, more)
        if notification.get("aggregate_type") == INCREMENTAL:
            return ""
        if kind == STARTED:
            self._read = 0
        if kind not in ENDS:
            return ""
        is_own, self._is_own = self._is_own, False
        if is_own or self._read or kind != "COMPLETED":
            return ""
        return (
            "The blocking snapshot of a signal has read no table: its data-collections name none that is captured. "
            f"{self._captured()}Next: correct the names (letter case counts), and send the signal again."
        )

    def _unread(self, notification: Mapping[str, Any], more: Mapping[str, Any]) -> str:
        status = more.get("status") or _READ[0]
        if status in _READ:
            return ""
        reason, step = _REASONS.get(status, (f"its status is {status}", "see the connector's log"))
        known = self._captured() if status == "UNKNOWN_SCHEMA" else ""
        return (
            f"The snapshot by signal {notification.get('id')!r} has not read {more.get('scanned_collection')!r}: {reason}. "
            f"{known}Next: {step}, and send the signal again."
        )
