"""Which rows of a transaction a connector has delivered, from the place at which it stopped inside it.

*The order of a connector* (spec debezium-sqlserver §3.5): it reads each table by command id, change LSN and operation,
and takes from the tables the row with the smallest change LSN. So what it delivered of a table is the first part of
the table's rows, but which part is not decided by comparing change LSNs: a later command may have a smaller one. This
module repeats the connector's merge and stops at the event that its offset names: the row with that change LSN at which
as many rows in sequence share it as `event_serial_no` says. Each table continues after its last row before that.

*When the offset names no row* of the tables, because the row's table is no longer captured, change LSNs decide if they
only grow; otherwise, and if the offset names two rows, nothing is guessed.

The merge holds one batch of each table. Nothing is written here.
"""

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn, Position
from cdc_assets.errors import InvalidValueError
from cdc_assets.ledger.table_state import Start

Row = tuple[int | None, Lsn, int]
"""Command id, change LSN, operation."""

_BEFORE = 3
_NEXT = (
    "start the connector again until it has passed this transaction and adopt it then, or give --from-lsn with the "
    "commit LSN before it, which delivers the transaction once more"
)


@dataclass(frozen=True, slots=True)
class Delivered:
    """What was delivered of a transaction.

    Args:
        starts: the place of each table of which something was delivered.
        all: whether all rows were.
        found: whether the offset names a row.
    """

    starts: Mapping[TableId, Start]
    all: bool
    found: bool


@dataclass(slots=True)
class _Merge:
    """The rows so far."""

    last: dict[TableId, Row] = field(default_factory=dict)
    events: Counter[TableId] = field(default_factory=Counter)
    serials: dict[TableId, int] = field(default_factory=dict)
    newest: Lsn | None = None
    serial: int = 0

    def add(self, table: TableId, row: Row) -> None:
        _, change, operation = row
        self.serial = self.serial + 1 if change == self.newest else 1
        self.newest = change
        same = table in self.last and self.last[table][1] == change
        self.serials[table] = self.serials[table] + 1 if same else 1
        self.last[table] = row
        self.events[table] += operation != _BEFORE

    def starts(self, commit: Lsn) -> dict[TableId, Start]:
        found = {}
        for table, (command, change, operation) in self.last.items():
            if command is None:
                raise InvalidValueError(
                    "offset", f"{commit}/{change}", f"one at the end of a transaction: rows of {table} have no command id", _NEXT
                )  # fmt: skip
            found[table] = Start(Position(commit, command, change, operation), self.serials[table], self.events[table])
        return found


def delivered(tables: Mapping[TableId, Iterator[Row]], commit: Lsn, change: Lsn, serial: int) -> Delivered:
    """Repeat the connector's merge of a transaction up to its offset.

    Args:
        tables: rows of the transaction by table, in the order in which the connector reads them.
        commit: commit LSN of the transaction.
        change: change LSN of the last delivered event.
        serial: its `event_serial_no`.

    Raises:
        InvalidValueError: the offset does not say what was delivered.
    """
    merge, places, cut = _Merge(), list[dict[TableId, Start]](), dict[TableId, Start]()
    grows, behind, ends = True, False, False
    for table, row in _merged(tables):
        grows = grows and (merge.newest is None or merge.newest <= row[1])
        if not behind and row[1] > change:
            behind, cut = True, merge.starts(commit)
        merge.add(table, row)
        ends = row[1] == change and row[2] != _BEFORE and merge.serial == serial
        if ends:
            places.append(merge.starts(commit))
    if len(places) == 1:
        return Delivered(places[0], all=ends, found=True)
    if places or not grows:
        what = f"named by two of its rows ({commit}/{change}, serial {serial})" if places else "of a captured table"
        raise InvalidValueError(
            "offset", f"{commit}/{change}", f"a place inside a transaction that is not {what}" if places else f"a row {what}", _NEXT
        )  # fmt: skip
    return Delivered(cut if behind else merge.starts(commit), all=not behind, found=False)


def _merged(tables: Mapping[TableId, Iterator[Row]]) -> Iterator[tuple[TableId, Row]]:
    """All rows as the connector takes them: the smallest change LSN of those that come next."""
    heads: list[tuple[Lsn, TableId, Row]] = []

    def push(table: TableId) -> None:
        if (row := next(tables[table], None)) is not None:
            heapq.heappush(heads, (row[1], table, row))

    for table in tables:
        push(table)
    while heads:
        _, table, row = heapq.heappop(heads)
        yield table, row
        push(table)
