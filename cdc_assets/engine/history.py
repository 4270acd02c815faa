"""A connector's schema history in the lake: the table structures that it needs to continue reading the log.

A connector reads ahead: it writes a record when it meets a statement in the log, many events before those that need it
are sent. It restarts at an offset with *all* records that it is given, also those ahead of the offset (MySQL's
compares them with an offset that has lost its server's number), and cannot read the rows between. So a record is held
back until an offset has reached it. If a run dies while it holds one back, the connector reads the statement again and
writes the record again. Should the connector write one twice, it counts once, whatever its time stamp.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow.compute as pc

from cdc_assets.engine.feed import Offsets
from cdc_assets.engine.staging import history_directory
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

    def read(self) -> list[str]:
        """All of them in order.

        Raises:
            LakeError: the table is there but cannot be read.
        """
        handle = self._tables.open(self._directory)
        if handle is None:
            return []
        table = handle.to_pyarrow_table(columns=["position", "record"])
        records: list[str] = table.take(pc.sort_indices(table.column("position"))).column("record").to_pylist()
        self._known.update(map(_identity, records))
        return records

    def reached(self, records: Sequence[str], offsets: Offsets) -> list[str]:
        """Records up to these offsets that are not there yet, those held back before included; from now on they are known."""
        waiting = [*self._ahead, *records]
        places = [_place(offset) for _, offset in offsets]
        count = next((n for n, record in enumerate(waiting) if _is_ahead(record, places)), len(waiting))
        self._ahead = waiting[count:]
        found = []
        for record in waiting[:count]:
            if (identity := _identity(record)) not in self._known:
                self._known.add(identity)
                found.append(record)
        return found


Place = tuple[str, int]


def _place(position: Mapping[str, Any]) -> Place | None:
    """Position of a record or an offset: binlog file and position, or SCN; None if it has neither, or GTIDs."""
    if position.get("gtids"):  # compared by the connector itself, and numbers of another server say nothing
        return None
    if "file" in position and "pos" in position:
        number = re.search(r"[0-9]+$", position["file"])
        return number[0].rjust(12, "0") if number else position["file"], int(position["pos"])
    return ("", int(position["scn"])) if str(position.get("scn")).isdigit() else None


def _is_ahead(record: str, reached: Sequence[Place | None]) -> bool:
    place = _place(json.loads(record).get("position", {}))
    return place is not None and all(at is not None and place > at for at in reached)


def _identity(record: str) -> str:
    found = json.loads(record)
    found.pop("ts_ms", None)
    return json.dumps(found, sort_keys=True)
