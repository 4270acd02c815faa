"""The position of an event in its source's log, as far as its source block contains it.

A connector continues at the offset that was recorded with the last batch, so it should not repeat anything. But its own
guarantee is at least once; a repeated event is recognised by its position:

| connector | position | why it only grows |
|---|---|---|
| mysql, mariadb | number of the binlog file, `pos`, `row` | the binlog is one sequence; not used with GTIDs, where the server may change |
| postgresql | both LSNs of `sequence` | the last commit before the transaction, then the position inside it: decoding is in commit order |
| oracle | `commit_scn`, `txId`, `scn`, `rs_id`, `ssn` | transactions are emitted in commit order, their changes in log order |

Events of snapshots have no position, nor have those of connectors that are not listed: they are never dropped.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

Place = tuple[int | str, ...]
"""Compared part by part."""
Source = Mapping[str, Any]
_STREAMED = (None, "false", "")


def place_of(source: Source) -> Place | None:
    """The position of a streamed event; None if it has none that can be compared."""
    rule = _RULES.get(source.get("connector") or "")
    if rule is None or source.get("snapshot") not in _STREAMED:
        return None
    try:
        return rule(source)
    except (KeyError, TypeError, ValueError, IndexError):  # an unknown form is no reason to drop an event
        return None


def _binlog(source: Source) -> Place | None:
    number = re.search(r"\.(\d+)$", source["file"])
    if source.get("gtid") or number is None:
        return None
    return int(number.group(1)), int(source["pos"]), int(source["row"])


def _wal(source: Source) -> Place:
    before, own = json.loads(source["sequence"])
    return int(before or 0), int(own)


def _redo(source: Source) -> Place:
    own = int(source["scn"]), str(source.get("rs_id") or ""), int(source.get("ssn") or 0)
    return int(source["commit_scn"]), str(source["txId"]), *own


def is_behind(place: Place, recorded: Place) -> bool:
    """Whether an event is new. Two transactions of Oracle may commit at one SCN: their order is then unknown."""
    if isinstance(place[1], str) and place[1] != recorded[1]:
        return place[:1] >= recorded[:1]
    return place > recorded


_RULES: Mapping[str, Callable[[Source], Place | None]] = {
    "mysql": _binlog,
    "mariadb": _binlog,
    "postgresql": _wal,
    "oracle": _redo,
}


def sources_of(table: pa.Table) -> list[Source | None]:
    """The source block of each event; None for a tombstone and for events without one."""
    if "value" not in table.column_names:
        return [None] * table.num_rows
    kind = table.schema.field("value").type
    if not pa.types.is_struct(kind) or kind.get_field_index("source") < 0:
        return [None] * table.num_rows
    found: list[Source | None] = pc.struct_field(table.column("value"), "source").to_pylist()
    return found


def repeated(tables: Sequence[pa.Table], recorded: Place) -> tuple[list[list[bool]], bool]:
    """Which events of a chunk a batch holds already.

    An event without a source block, such as a tombstone, goes with the one before it.

    Args:
        tables: one for each topic and schemas, with each event's index in the chunk in `n`.
        recorded: the last position that is recorded.

    Returns:
        For each table which of its events are repetitions, and whether the last repetition has passed.
    """
    order = sorted(
        (n, part, row) for part, table in enumerate(tables) for row, n in enumerate(table.column("n").to_pylist())
    )
    sources = [sources_of(table) for table in tables]
    found = [[False] * table.num_rows for table in tables]
    drop = False
    for _, part, row in order:
        if (source := sources[part][row]) is not None:
            place = place_of(source)
            if place is not None and is_behind(place, recorded):
                return found, True
            drop = place is not None
        found[part][row] = drop
    return found, False


def last_place(tables: Sequence[pa.Table]) -> Place | None:
    """The greatest position among the last events of a chunk's tables: each has its own events in order."""
    found = [_last_place(table) for table in tables]
    return max((place for place in found if place is not None), default=None)


def _last_place(table: pa.Table) -> Place | None:
    for row in range(table.num_rows - 1, -1, -1):
        source = sources_of(table.slice(row, 1))[0]
        if source is not None:
            return place_of(source)
    return None
