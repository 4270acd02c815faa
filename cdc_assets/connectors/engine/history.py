"""A connector's schema history in the lake: the table structures that it needs to continue reading the log.

A connector reads ahead: it writes a record when it meets a statement in the log, many events before those that need it
are sent. It restarts at an offset with *all* records that it is given, also those ahead of the offset, and cannot read the rows
between. (MySQL's compares them with an offset that has lost its server's number.) So a record is held
back until an offset has reached it. If a run dies while it holds one back, the connector reads the statement again and
writes the record again. Should the connector write one twice, it counts once, whatever its time stamp.
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow.compute as pc

from cdc_assets.connectors.engine.feed import Offsets
from cdc_assets.connectors.engine.source import point_of_offset
from cdc_assets.connectors.engine.staging import history_directory
from cdc_assets.core.identifiers import TableId
from cdc_assets.lake.topics import TopicTables


class History:
    """The records that are in the lake.

    Args:
        tables: the lake's Delta tables.
        prefix: topic prefix.
    """

    def __init__(self, tables: TopicTables, prefix: str) -> None:
        self._tables, self._directory = tables, history_directory(prefix)
        self._known: set[str] = set()
        self._ahead: list[str] = []

    def read(self, batch_id: int | None = None) -> list[str]:
        """All of them in order, or those of one batch.

        Raises:
            LakeError: the table is there but cannot be read.
        """
        handle = self._tables.open(self._directory)
        if handle is None:
            return []
        only = None if batch_id is None else [("window_id", "=", batch_id)]
        table = handle.to_pyarrow_table(columns=["position", "record"], filters=only)
        records: list[str] = table.take(pc.sort_indices(table.column("position"))).column("record").to_pylist()
        self._known.update(map(_identity, records))
        return records

    def reached(self, records: Sequence[str], offsets: Offsets) -> list[str]:
        """Records up to these offsets that are not there yet, those held back before included; from now on they are known."""
        waiting = [*self._ahead, *records]
        places = [_position(offset) for _, offset in offsets]
        count = next((n for n, record in enumerate(waiting) if _is_ahead(record, places)), len(waiting))
        self._ahead = waiting[count:]
        found = []
        for record in waiting[:count]:
            if (identity := _identity(record)) not in self._known:
                self._known.add(identity)
                found.append(record)
        return found


def newest_structure(records: Sequence[str]) -> tuple[TableId, str, str, datetime] | None:
    """Table, kind of change, place in the log and time of the newest record that holds a table's structure; None if none does."""
    for record in reversed(records):
        found = json.loads(record)
        for change in reversed(found.get("tableChanges") or ()):
            names = [name.replace('""', '"') for name in _QUOTED.findall(change.get("id", ""))]
            if names:
                table = TableId(names[0], names[1] if len(names) > 2 else "", names[-1])
                position = point_of_offset(found.get("position", {}))
                at = datetime.fromtimestamp(found.get("ts_ms", 0) / 1000, UTC)
                return table, str(change.get("type", "")), str(position or ""), at
    return None


_QUOTED = re.compile(r'"((?:[^"]|"")*)"')

HistoryPosition = tuple[str, int]


def _position(position: Mapping[str, Any]) -> HistoryPosition | None:
    """Position of a record or an offset: binlog file and position, or SCN; None if it has neither, or GTIDs."""
    if position.get("gtids"):  # compared by the connector itself, and numbers of another server say nothing
        return None
    if "file" in position and "pos" in position:
        number = re.search(r"[0-9]+$", position["file"])
        return number[0].rjust(12, "0") if number else position["file"], int(position["pos"])
    return ("", int(position["scn"])) if str(position.get("scn")).isdigit() else None


def _is_ahead(record: str, reached: Sequence[HistoryPosition | None]) -> bool:
    position = _position(json.loads(record).get("position", {}))
    return position is not None and all(at is not None and position > at for at in reached)


def _identity(record: str) -> str:
    found = json.loads(record)
    found.pop("ts_ms", None)
    return json.dumps(found, sort_keys=True)
