"""The law, held against the lake: each committed change once, in order, unless an exact interval says otherwise."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets_tests.contract.histories.chronicle import Change, Chronicle, Table
from cdc_assets_tests.unit.streaming.law import state_of

_READING = 40
"""Characters of a READ's position that are the same in one reading of a table: LSN, command, number of the window."""


@dataclass(frozen=True)
class Seen:
    """An event of a topic; `op` is None in a tombstone."""

    position: str
    op: str | None
    key: int | None
    before: dict[str, Any] | None
    after: dict[str, Any] | None

    @property
    def lsn(self) -> Lsn:
        return Lsn.parse(self.position[:22])


def events_of(config: CaptureConfig, table: TableId) -> list[Seen]:
    """All events of a table over all generations, by position."""
    tables = TopicTables(Location.of(config.lake), "reader")
    found = []
    for directory in tables.generations(f"shop.{table}"):
        handle = tables.open(directory)
        assert handle is not None
        for row in handle.to_pyarrow_table().to_pylist():
            value = row["value"] or {}
            key = row["key"]["id"] if row.get("key") else None
            found.append(Seen(row["position"], value.get("op"), key, value.get("before"), value.get("after")))
    return sorted(found, key=lambda event: event.position)


def check(chronicle: Chronicle, config: CaptureConfig) -> int:
    """Hold every table against the account.

    Returns:
        How many changes were compared.

    Raises:
        AssertionError: a change is lost, doubled, wrong or out of order.
    """
    state = state_of(config)
    assert not state.pending
    compared = 0
    lsns = {database: chronicle.lsns(database) for database in {table.table.database for table in chronicle.tables}}
    for table in chronicle.tables:
        compared += _check(chronicle, config, table, lsns[table.table.database])
    return compared


def _check(chronicle: Chronicle, config: CaptureConfig, table: Table, lsns: dict[int, Lsn]) -> int:
    entry = state_of(config).tables[table.table]
    about = f"{table.table} {entry.status} {entry.reason} {entry.gaps}"
    assert entry.status == "healthy", about
    assert entry.position is not None, about
    assert entry.position >= max(lsns.values()), f"{about}: {entry.position} < {max(lsns.values())}"
    assert not entry.gaps or table.table in chronicle.hurt, f"{about}: nothing was taken away from it"
    events = events_of(config, table.table)
    twice = [position for position, times in Counter(event.position for event in events).items() if times > 1]
    assert not twice, f"{about}: doubled {twice[:5]}"
    start = min(event.lsn for event in events if event.op == "r")

    def lost(lsn: Lsn) -> bool:
        return any(after < lsn <= until for after, until in entry.gaps)

    changes = [event for event in events if event.op not in ("r", None)]
    assert not [event for event in changes if lost(event.lsn)], f"{about}: an interval is told too long"
    by_lsn: dict[Lsn, list[Change]] = {}
    for number, expected in chronicle.committed[table.table].items():
        if number in lsns and lsns[number] > start and not lost(lsns[number]):
            by_lsn[lsns[number]] = expected
    wanted = [(lsn, change) for lsn in sorted(by_lsn) for change in by_lsn[lsn]]
    found = [(event.lsn, event) for event in changes if event.lsn > start]
    for (lsn, change), (place, event) in zip(wanted, found, strict=False):
        assert (lsn, change.op, change.key) == (place, event.op, event.key), (
            f"{about}: wanted {lsn} {change}, found {event}"
        )
        _compare(change.before, event.before, f"{about} before at {lsn}: {change}, {event}")
        _compare(change.after, event.after, f"{about} after at {lsn}: {change}, {event}")
    assert len(wanted) == len(found), f"{about}: wanted {wanted[len(found) :][:3]} found {found[len(wanted) :][:3]}"
    _check_rows(table, events, entry.gaps, about)
    return len(wanted)


def _compare(wanted: dict[str, Any] | None, found: dict[str, Any] | None, about: str) -> None:
    if wanted is None or found is None:
        assert wanted is found, about
        return
    for name, value in wanted.items():
        assert found.get(name) == value, f"{name} {about}"
    others = {name: value for name, value in found.items() if name not in wanted and value is not None}
    assert not others, f"{others} {about}"


def _check_rows(table: Table, events: Sequence[Seen], gaps: Sequence[tuple[Lsn, Lsn]], about: str) -> None:
    """The events, folded, are the rows of the server."""
    if table.keyed:
        rows: dict[int | None, dict[str, Any]] = {}
        for event in events:
            if gaps and event.lsn < gaps[-1][1]:
                continue
            if event.op == "d":
                rows.pop(event.key, None)
            elif event.after is not None:
                rows[event.key] = event.after
        wanted = {number: table.seen(number, row) for number, row in table.rows.items()}
        assert rows.keys() == wanted.keys(), f"{about}: rows differ: {sorted(rows.keys() ^ wanted.keys(), key=str)}"
        for number, row in wanted.items():
            _compare(row, rows[number], f"{about}: row {number} {row} {rows[number]}")
        return
    # a reading is whole: the table has one slice; its snapshot may have been given up before it was complete
    reading = max(event.position[:_READING] for event in events if event.op == "r")
    begin = Lsn.parse(reading[:22])
    folded: Counter[int] = Counter()  # by `v`: what other columns held before they were captured is in no event
    for event in events:
        if event.lsn > begin or (event.op == "r" and event.position.startswith(reading)):
            if event.before is not None:
                folded[event.before["v"]] -= 1
            if event.after is not None:
                folded[event.after["v"]] += 1
    there = Counter(row[table.columns[0]] for row in table.rows.values())
    wrong = {v: (folded[v], there[v]) for v in folded.keys() | there.keys() if folded[v] != there[v]}
    assert not wrong, f"{about}: in the lake and on the server, from {begin} on: {wrong}"
