"""A server in memory whose capture job lags."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import Any, Final

import pyarrow as pa

from cdc_assets.core.clocks import CLOCK_SKEW_S
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.ports import RecoveryFork
from cdc_assets.core.schema import CaptureInstance, Column, TableSchema
from cdc_assets.errors import CdcError, QueryError
from cdc_assets_tests.unit.streaming.simulation import (
    DATABASE,
    Change,
    Row,
    SimulatedServer,
)

MOVE: Final = "move to "
"""Before the new id of a row, as what a transaction does with it."""
SIGNAL_COLUMNS: Final = ("signal_id", "kind", "data")


def shared_id(key: int) -> int:
    """The id of a row of a table without a key."""
    return 1 + key % 4


def pair(row: Row) -> tuple[int, object]:
    """What the law knows of a row."""
    return int(str(row["id"])), row["note"]


@dataclass
class Commit:
    """What a transaction has changed in one database."""

    lsn: Lsn
    changes: list[Change]


@dataclass
class LaggingServer(SimulatedServer):
    """Databases whose capture jobs read the log when they are told to."""

    log: dict[str, list[Commit]] = field(default_factory=lambda: defaultdict(list))
    """What the capture job of a database has not read."""
    scanned: dict[str, list[Lsn]] = field(default_factory=lambda: defaultdict(list))
    """Transactions that it has read, but for those that were cleaned up."""
    ends: dict[str, Lsn] = field(default_factory=dict)
    """How far it has read."""
    times: dict[tuple[str, Lsn], datetime] = field(default_factory=dict)
    """When each transaction was really committed."""
    entries: dict[str, list[tuple[Lsn, datetime]]] = field(default_factory=lambda: defaultdict(list))
    """`cdc.lsn_time_mapping`: transactions, and ends of the log, with the server's local time."""
    stamps: dict[tuple[str, Lsn], datetime] = field(default_factory=dict)
    """The server's local time at each transaction."""
    ahead: timedelta = timedelta()
    """What the server's clock is ahead of the time."""
    offset: timedelta = timedelta()
    """The server's offset from UTC."""
    ticks: Counter[str] = field(default_factory=Counter)
    """Number of LSNs that each database has given away."""
    forks: dict[str, RecoveryFork] = field(default_factory=dict)
    """On which recovery fork databases are that were restored."""
    shows_forks: bool = True
    """Whether the login sees that."""
    first_rows: dict[TableId, Counter[tuple[int, object]]] = field(default_factory=dict)
    """Rows from before capture began."""
    sessions: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Number of the newest scan session of a database, and how many scans of it in a row have found nothing."""
    is_prompt: bool = False
    """Whether capture jobs have looked again whenever somebody asks what they have found."""
    keyless: set[TableId] = field(default_factory=set)
    """Tables without a key, in which several rows may be alike."""
    displaced: dict[tuple[TableId, int], Row] = field(default_factory=dict)
    """Rows whose id another one has got, in the middle of a statement that changes theirs, too."""
    locked: Counter[TableId] = field(default_factory=Counter)
    """Tables whose writers wait."""
    numbers: set[tuple[TableId, int]] = field(default_factory=set)
    """Added columns that hold numbers, by ordinal; others hold text."""
    made: list[CaptureInstance] = field(default_factory=list)
    """All instances there ever were, as they were made."""
    markers: dict[str, Row] = field(default_factory=dict)
    """Rows of all signal tables, by id."""
    is_busy: bool = False
    """Whether the next question of somebody is the victim of a deadlock."""
    held: dict[str, CdcError] = field(default_factory=dict)
    """What each question about a database ends with."""
    refusals: dict[str, CdcError] = field(default_factory=dict)
    """What statements that hold a text end with."""

    def create(self, name: str, *, keyless: bool = False, **options: Any) -> TableId:
        table = super().create(name, captured=False, **options)
        if keyless:
            self.keyless.add(table)
            self.schemas[table] = replace(self.schemas[table], key=())
            for key, row in self.rows[table].items():
                row |= {"id": shared_id(key), "note": "old"}
        self.first_rows[table] = Counter(map(pair, self.rows[table].values()))
        self.enable(table)
        return table

    def create_without_key(self, name: str, rows: int) -> TableId:
        """A table without a key of its own, in which no two rows have one id."""
        table = super().create(name, captured=False, rows=rows)
        self.schemas[table] = replace(self.schemas[table], key=())
        self.first_rows[table] = Counter(map(pair, self.rows[table].values()))
        self.enable(table)
        return table

    def _logged(self, table: TableId, what: str, key: int, note: str, lsn: Lsn, place: int) -> Iterator[Change]:
        is_move, target = what.startswith(MOVE), int(what.removeprefix(MOVE)) if what.startswith(MOVE) else key
        made = self._moved if is_move else super()._logged
        for change in made(table, what, key, note, lsn, place):
            if what == "insert" and table in self.keyless:
                change.row["id"] = self.rows[table][key]["id"] = shared_id(key)
            if change.operation in (2, 4):
                columns = self.schemas[table].columns[2:]
                added = {column.name: int(note.split()[1]) if column.type_name == "int" else note for column in columns}
                change.row.update(added)
                self.rows[table][target].update(added)
            yield change

    def _moved(self, table: TableId, what: str, key: int, note: str, lsn: Lsn, place: int) -> Iterator[Change]:
        """A row gets another id, which another row may have until it gets one, too."""
        seqval, rows = Lsn.from_int(int(lsn) + 0x100 + place), self.rows[table]
        row, target = self.displaced.pop((table, key), None) or rows.pop(key), int(what.removeprefix(MOVE))
        yield Change(table, lsn, place + 1, seqval, 3, dict(row))
        if target in rows:
            self.displaced[table, target] = rows[target]
        rows[target] = row | {"id": target, "note": note}
        yield Change(table, lsn, place + 1, seqval, 4, dict(rows[target]))

    @contextmanager
    def lock_tables(self, tables: Sequence[TableId], timeout_ms: int) -> Iterator["Locks"]:
        self.locked.update(tables)
        try:
            yield Locks()
        finally:
            self.locked.subtract(tables)

    def allows_snapshot(self, database: str) -> bool:
        return False

    def server_time(self) -> datetime:
        return (self.now + self.ahead).astimezone(timezone(self.offset))

    def local_time(self) -> datetime:
        """What commits are stamped with."""
        return self.server_time().replace(tzinfo=None)

    def end_time(self, change: Change) -> datetime:
        return self.stamps[change.table.database, change.lsn]

    def recovery_fork(self, database: str, known: Lsn = ZERO_LSN) -> RecoveryFork | None:
        found = self.forks.get(database, self.fork) if self.shows_forks else None
        return None if found is None else replace(found, is_of_replica=self.is_replica(database))

    def recovery_identity(self, database: str) -> str:
        found = self.recovery_fork(database)
        return found.identity if found else ""

    def tick(self, database: str = DATABASE) -> Lsn:
        self._tick += 1
        self.ticks[database] += 1
        return Lsn.from_int((0x2A << 48) + (self.ticks[database] << 16) + 1)

    def commit(self, *changes: tuple[TableId, str, int, str]) -> Lsn:
        """One transaction; no capture job has read it yet. In each database it has an LSN of that."""
        self._stamp()
        lsns = {name: self.tick(name) for name in sorted({table.database for table, *_ in changes})}
        made = [
            change
            for place, (table, what, key, note) in enumerate(changes)
            for change in self._logged(table, what, key, note, lsns[table.database], place)
        ]
        self.history += made
        for name, lsn in lsns.items():
            self.times[name, lsn], self.stamps[name, lsn] = self.now, self.local_time()
            self.log[name].append(Commit(lsn, [change for change in made if change.table.database == name]))
        return max(lsns.values())

    def create_signals(self, database: str) -> TableId:
        """A captured signal table."""
        table = TableId(database, "dbo", "cdc_signal")
        columns = [Column(name, "nvarchar", place, length=50) for place, name in enumerate(SIGNAL_COLUMNS, 1)]
        self.schemas[table] = TableSchema(table, 9000 + self._tick, tuple(columns), SIGNAL_COLUMNS[:1])
        self.rows[table], self.first_rows[table] = {}, Counter()
        self.enable(table, f"signals_of_{database}")
        return table

    def write_signal(self, table: TableId, row: tuple[str, str, str | None]) -> None:
        self.markers[row[0]] = dict(zip(SIGNAL_COLUMNS, row, strict=True))
        self._log_signal(table, 2, row[0])

    def delete_signal(self, table: TableId, column: str, own_id: str) -> bool:
        if own_id not in self.markers:
            return False
        self._log_signal(table, 1, own_id)
        del self.markers[own_id]
        return True

    def signal_lsn(self, instance: CaptureInstance, column: str, own_id: str, after: Lsn) -> Lsn | None:
        changes = self.change_tables.get(instance.name, ())
        found = [c.lsn for c in changes if c.operation == 2 and c.row[column] == own_id and c.lsn > after]
        return found[0] if found else None

    def has_signals(self, instance: CaptureInstance, column: str, but: Sequence[str], after: Lsn) -> bool:
        changes = self.change_tables.get(instance.name, ())
        return any(c.operation == 2 and c.row[column] not in but and c.lsn > after for c in changes)

    def _log_signal(self, table: TableId, operation: int, own_id: str) -> None:
        self._stamp()
        lsn = self.tick(table.database)
        change = Change(table, lsn, 1, Lsn.from_int(int(lsn) + 0x100), operation, dict(self.markers[own_id]))
        self.history.append(change)
        place = table.database, lsn
        self.times[place], self.stamps[place] = self.now, self.local_time()
        self.log[table.database].append(Commit(lsn, [change]))

    def changes_in(self, instance: str) -> list[Change]:
        """What a change table holds.

        Raises:
            QueryError: there is none.
        """
        if instance not in self.change_tables:
            raise QueryError(f"Invalid object name 'cdc.{instance}_CT'.", 208)
        return self.change_tables[instance]

    def scan(self, database: str, most: int | None = None) -> None:
        """A capture job reads so many transactions; all but so many if that is below 0; all if None, and then it notes the end of
        the log."""
        waiting = self.log[database]
        if waiting and most is not None and not waiting[:most]:
            return  # it has not come so far
        session, empty = self.sessions.get(database, (0, 0))
        self.sessions[database] = (
            (session, empty + 1) if session and not waiting else (session + 1, 0 if waiting else 1)
        )
        for commit in waiting[:most]:
            for change in commit.changes:
                for instance in self.instances:
                    if instance.table == change.table and instance.start_lsn < commit.lsn:
                        kept = captured_of(change.row, instance, self.numbers)
                        self.change_tables[instance.name].append(replace(change, row=kept))
            self.scanned[database].append(commit.lsn)
            self.entries[database].append((commit.lsn, self.stamps[database, commit.lsn]))
            self.ends[database] = commit.lsn
        self.log[database] = [] if most is None else waiting[most:]
        if most is None:
            self.ends[database] = self.tick(database)
            self.entries[database].append((self.ends[database], self.local_time()))

    def scan_all(self) -> None:
        """All capture jobs read all."""
        for name in self.names:
            self.scan(name)

    def empty_scans(self, database: str) -> tuple[int, int] | None:
        if self.is_prompt:
            self.scan(database)
        return self.sessions.get(database)

    def enable(self, table: TableId, name: str = "") -> CaptureInstance:
        self.scan(table.database)
        made = super().enable(table, name)
        self.made.append(made)
        return made

    def free_name(self, table: TableId) -> str:
        """The first name of a capture instance that none has now; one that is gone may have had it."""
        taken = {instance.name for instance in self.instances}
        names = [f"{table.schema}_{table.table}", *(f"{table.schema}_{table.table}_v{n}" for n in (2, 3))]
        return next(name for name in names if name not in taken)

    def add_column(self, table: TableId, column: str, *, is_number: bool = False) -> None:
        super().add_column(table, column)
        schema = self.schemas[table]
        added = replace(schema.columns[-1], ordinal=1 + max(one.ordinal for one in schema.columns[:-1]) + self._tick)
        if is_number:
            added = replace(added, type_name="int", length=None)
            self.numbers.add((table, added.ordinal))
        self.schemas[table] = replace(schema, columns=(*schema.columns[:-1], added))

    def kind_of(self, schema: TableSchema, column: str) -> pa.DataType:
        types = {one.name: one.type_name for one in schema.columns}
        return pa.int32() if types.get(column) == "int" else pa.string()

    def drop_column(self, table: TableId, column: str) -> None:
        """Instances go on with NULL in its place."""
        schema = self.schemas[table]
        kept = tuple(one for one in schema.columns if one.name != column)
        self.schemas[table] = replace(schema, columns=kept)
        for row in self.rows[table].values():
            row.pop(column, None)

    def first_start(self, table: TableId) -> Lsn:
        """Where the first instance of a table began."""
        return next(made.start_lsn for made in self.made if made.table == table)

    def kept(self, change: Change) -> Row:
        """What the event of a change has: columns of the newest instance that had begun."""
        return captured_by_newest(change, self.made, self.numbers)

    def clean_up(self, keep_from: Lsn, database: str = DATABASE) -> None:
        """The clean-up job of one database removes what is older, but nothing that the capture job has not read yet."""
        keep_from = min(keep_from, self.ends.get(database, keep_from))
        own = {instance.name for instance in self.instances if instance.table.database == database}
        for name in own:
            self.change_tables[name] = [change for change in self.change_tables[name] if change.lsn >= keep_from]
        self.instances = [
            replace(one, start_lsn=max(one.start_lsn, keep_from)) if one.name in own else one for one in self.instances
        ]
        self.scanned[database] = [lsn for lsn in self.scanned[database] if lsn >= keep_from]
        self.entries[database] = [entry for entry in self.entries[database] if entry[0] >= keep_from]

    def max_captured_lsn(self, database: str) -> Lsn | None:
        return self.ends.get(database)

    def max_transaction_lsn(self, database: str, after: Lsn | None, limit: int, known: Lsn = ZERO_LSN) -> Lsn | None:
        found = [lsn for lsn in self.scanned[database] if after is None or lsn > after]
        found = found[:limit] if limit else found
        return found[-1] if found else None

    def commit_times(self, database: str, lsns: Sequence[Lsn], known: Lsn = ZERO_LSN) -> Mapping[Lsn, datetime]:
        found = {}
        for lsn in lsns:
            before = [stamp for known, stamp in self.entries[database] if known <= lsn]
            if before:
                found[lsn] = before[-1].replace(tzinfo=timezone(self.offset))
        return found

    def was_set_back(self, database: str, lsn: Lsn) -> bool:
        entries, skew, now = self.entries[database], timedelta(seconds=CLOCK_SKEW_S), self.local_time()
        own = [stamp for known, stamp in entries if known == lsn]
        later = [stamp for known, stamp in entries if known > lsn]
        return any(stamp > now + skew or stamp < earliest - skew for stamp in later for earliest in own or [stamp])

    def rows_at(self, table: TableId, lsn: Lsn) -> Counter[tuple[int, object]]:
        """Rows right after a commit."""
        return rows_of(self.first_rows[table], self.history, table, lsn)


def captured_of(row: Row, instance: CaptureInstance, numbers: Set[tuple[TableId, int]]) -> Row:
    """What an instance has of a row. A column that has come back with another type is another one, which it does not have."""
    kept = {}
    for name, ordinal in zip(instance.columns, instance.column_ids, strict=True):
        value, is_number = row.get(name), name == "id" or (instance.table, ordinal) in numbers
        kept[name] = value if isinstance(value, int) == is_number else None
    return kept


def captured_by_newest(change: Change, made: Sequence[CaptureInstance], numbers: Set[tuple[TableId, int]]) -> Row:
    """What the newest instance has of a change that had begun before it."""
    begun = [one for one in made if one.table == change.table and one.start_lsn < change.lsn]
    return captured_of(change.row, begun[-1], numbers) if begun else {}


def rows_of(
    first: Counter[tuple[int, object]], history: Iterable[Change], table: TableId, lsn: Lsn
) -> Counter[tuple[int, object]]:
    """Rows of a table right after a commit, from those that were there before capture began."""
    rows = first.copy()
    for change in history:
        if change.table == table and change.lsn <= lsn:
            rows[pair(change.row)] += 1 if change.operation in (2, 4) else -1
    return +rows


class Locks:
    """Locks that are held."""

    def check(self) -> None:
        """They are never lost."""

    def require_primary(self, database: str) -> None:
        """There are no replicas."""
