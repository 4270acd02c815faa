"""The position of an event in its source's log, as far as its source block contains it.

A connector continues at the offset that was recorded with the last batch, so it should not repeat anything. But its own
guarantee is at least once; a repeated event is recognised by its position:

| connector | position | why it only grows |
|---|---|---|
| mysql, mariadb | number of the binlog file, `pos`, `row` | the binlog is one sequence; not used with GTIDs, where the server may change |
| postgresql | both LSNs of `sequence` | the last commit before the transaction, then the position inside it: decoding is in commit order |
| oracle | `commit_scn`, `txId`, `scn`, `rs_id`, `ssn` | transactions are emitted in commit order, their changes in log order |

Some events have no position: those of snapshots, PostgreSQL's messages outside a transaction, which are sent before the
transactions around them are, and those of connectors that are not listed: they are never dropped.

What is recorded is the position of the last event that is in the lake. Repetitions are before it and do not move it, so that
the same events are recognised again if the connector repeats them at another start.

A connector repeats itself only at its start. The first event that is new ends the search. So does one of a snapshot of whole
tables, with which a connector starts over, and one that is before the offset at which it was started: both
may come from another server, whose log counts from a lower number, and are new however small their positions are. The
position that is recorded ends with such a snapshot, too (`ledger`).

PostgreSQL's connector knows no commit before the first transaction after a snapshot, and its offset names the last one from then
on. So an event without one is new if the recorded position has one: between them the connector has started over.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.connectors.engine.boundaries import Boundary, has_boundaries, without_recorded

LogPosition = tuple[int | str, ...]
"""Compared part by part."""
Source = Mapping[str, Any]
_STREAMED = (None, "false", "")
_AMID_STREAM = "incremental"


def position_of(source: Source) -> LogPosition | None:
    """The position of a streamed event; None if it has none that can be compared."""
    rule = _RULES.get(str(source.get("connector")))
    if rule is None or source.get("snapshot") not in _STREAMED:
        return None
    try:
        return rule(source)
    except (
        KeyError,
        TypeError,
        ValueError,
        IndexError,
        OverflowError,
    ):  # an unknown form is no reason to drop an event
        return None


def _binlog(source: Source) -> LogPosition | None:
    number = re.search(r"\.(\d+)$", source["file"])
    if source.get("gtid") or number is None:
        return None
    return int(number.group(1)), int(source["pos"]), int(source["row"])


def _wal(source: Source) -> LogPosition | None:
    before, own = json.loads(source["sequence"])
    if source["txId"] is None:
        return None
    return int(before or 0), int(own)


def _redo(source: Source) -> LogPosition:
    own = int(source["scn"]), str(source.get("rs_id") or ""), int(source.get("ssn") or 0)
    return int(source["commit_scn"]), str(source["txId"]), *own


def is_behind(position: LogPosition, recorded: LogPosition) -> bool:
    """Whether an event is new. Two transactions of Oracle may commit at one SCN: their order is then unknown."""
    if isinstance(position[1], str) and position[1] != recorded[1]:
        return position[:1] >= recorded[:1]
    return position > recorded


_RULES: Mapping[str, Callable[[Source], LogPosition | None]] = {
    "mysql": _binlog,
    "mariadb": _binlog,
    "postgresql": _wal,
    "oracle": _redo,
}


def start_of(connector: str, offset: Mapping[str, Any]) -> LogPosition:
    """The least position that a connector sends when it is started after an offset; () if that is not known."""
    try:
        if connector in ("mysql", "mariadb") and (number := re.search(r"\.(\d+)$", offset["file"])):
            return int(number.group(1)), int(offset["pos"])
        return (int(offset["lsn_commit"]),) if connector == "postgresql" else ()
    except (KeyError, TypeError, ValueError):
        return ()


class Repetitions:
    """What one connector sends again at its start.

    Args:
        recorded: the last position that a batch holds; None if there is none that can be compared.
        offsets: after which the connector was started.
        boundary: the last BEGIN or END that a batch holds.
    """

    def __init__(
        self, recorded: LogPosition | None, offsets: Sequence[Mapping[str, Any]], boundary: Boundary | None = None
    ) -> None:
        self._recorded, self._offsets, self._boundary = recorded, offsets, boundary

    def drop(self, tables: Sequence[pa.Table]) -> Sequence[pa.Table]:
        """The tables of a chunk without what a batch holds already."""
        rows = iter(self._new_rows([table for table in tables if not has_boundaries(table)]))
        return [self._new_boundaries(table) if has_boundaries(table) else next(rows) for table in tables]

    def _new_boundaries(self, table: pa.Table) -> pa.Table:
        if self._boundary is None:
            return table
        found, through = without_recorded(table, self._boundary)
        if through:
            self._boundary = None
        return found

    def _new_rows(self, tables: Sequence[pa.Table]) -> Sequence[pa.Table]:
        if self._recorded is None:
            return tables
        marks, through = repeated(tables, self._recorded, self._offsets)
        if through:
            self._recorded = None
        kept = [pa.array([not repetition for repetition in mark], pa.bool_()) for mark in marks]
        return [table.filter(mask) for table, mask in zip(tables, kept, strict=True)]


def repeated(
    tables: Sequence[pa.Table], recorded: LogPosition, offsets: Sequence[Mapping[str, Any]] = ()
) -> tuple[list[list[bool]], bool]:
    """Which events of a chunk a batch holds already.

    An event without a source block, such as a tombstone, goes with the one before it.

    Args:
        tables: one for each topic and schemas, with each event's index in the chunk in `n`.
        recorded: the last position that is recorded.
        offsets: after which the connector was started.

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
            position = position_of(source)
            if _is_of_new_snapshot(source) or (position is not None and _is_new(source, position, recorded, offsets)):
                return found, True
            drop = position is not None
        found[part][row] = drop
    return found, False


def _is_of_new_snapshot(source: Source) -> bool:
    return source.get("snapshot") not in (*_STREAMED, _AMID_STREAM)


def _is_new(source: Source, position: LogPosition, recorded: LogPosition, offsets: Sequence[Mapping[str, Any]]) -> bool:
    connector = str(source["connector"])
    if connector == "postgresql" and position[0] == 0 != recorded[0]:
        return True
    starts = [start_of(connector, offset) for offset in offsets]
    return is_behind(position, recorded) or any(position[: len(start)] < start for start in starts)


def last_position(tables: Sequence[pa.Table]) -> LogPosition | None:
    """The position of the last streamed event of a chunk; None if none has one."""
    found = [last for table in tables if (last := _last_position(table)) is not None]
    return max(found)[1] if found else None


def _last_position(table: pa.Table) -> tuple[int, LogPosition] | None:
    """Index and position of the last event that has one; snapshots' are passed over together, and no row is built in vain."""
    if "value" not in table.column_names or not (blocks := _blocks(table)):
        return None
    for row in _streamed_rows(blocks[0]):
        source = sources_of(table.slice(row, 1))[0]
        if source is not None and (position := position_of(source)) is not None:
            return table.column("n")[row].as_py(), position
    return None


def _streamed_rows(source: pa.ChunkedArray) -> Iterator[int]:
    """Rows of streamed events, the last first."""
    place = source.type.get_field_index("snapshot")
    if place < 0 or pa.types.is_nested(source.type.field(place).type):
        return iter(range(len(source) - 1, -1, -1))
    mark = pc.fill_null(pc.struct_field(source, "snapshot").cast(pa.string()), "")
    known = pc.and_(source.is_valid(), pc.is_in(mark, value_set=pa.array(["", "false"])))
    rows: list[int] = pc.indices_nonzero(known).to_pylist()
    return reversed(rows)


def _blocks(table: pa.Table) -> list[pa.ChunkedArray]:
    """The source blocks as one column; none if events have none, such as rows with a column of this name."""
    kind = table.schema.field("value").type
    place = kind.get_field_index("source") if pa.types.is_struct(kind) else -1
    if place < 0 or not pa.types.is_struct(kind.field(place).type):
        return []
    return [pc.struct_field(table.column("value"), "source")]


def sources_of(table: pa.Table) -> list[Source | None]:
    """The source block of each event; None for a tombstone and for events without one."""
    if "value" not in table.column_names or not (blocks := _blocks(table)):
        return [None] * table.num_rows
    found: list[Source | None] = blocks[0].to_pylist()
    return found
