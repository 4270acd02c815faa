"""A server in memory whose capture job lags, and which is asked by actors."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.schema import CaptureInstance
from cdc_assets.errors import CdcError
from cdc_assets_tests.simulation.scheduler import Scheduler
from cdc_assets_tests.unit.streaming.simulation import (
    Change,
    SimulatedBulk,
    SimulatedClock,
    SimulatedServer,
)


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
    times: dict[Lsn, datetime] = field(default_factory=dict)
    """When each transaction was committed."""
    first_rows: dict[TableId, dict[int, str]] = field(default_factory=dict)
    """Rows from before capture began."""
    sessions: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Number of the newest scan session of a database, and how many scans of it in a row have found nothing."""
    is_prompt: bool = False
    """Whether capture jobs have looked again whenever somebody asks what they have found."""
    refusals: dict[str, CdcError] = field(default_factory=dict)
    """What statements that hold a text end with."""

    def create(self, name: str, **options: Any) -> TableId:
        table = super().create(name, **options)
        self.first_rows[table] = {key: str(row["note"]) for key, row in self.rows[table].items()}
        return table

    def commit(self, *changes: tuple[TableId, str, int, str]) -> Lsn:
        """One transaction; no capture job has read it yet."""
        self._stamp()
        lsn = self.tick()
        made = [
            change
            for place, (table, what, key, note) in enumerate(changes)
            for change in self._logged(table, what, key, note, lsn, place)
        ]
        self.history += made
        self.times[lsn] = self.now
        for name in {change.table.database for change in made}:
            self.log[name].append(Commit(lsn, [change for change in made if change.table.database == name]))
        return lsn

    def scan(self, database: str, most: int | None = None) -> None:
        """A capture job reads so many transactions; all if None, and then it notes the end of the log."""
        waiting = self.log[database]
        session, empty = self.sessions.get(database, (0, 0))
        self.sessions[database] = (
            (session, empty + 1) if session and not waiting else (session + 1, 0 if waiting else 1)
        )
        for commit in waiting[:most]:
            for change in commit.changes:
                for instance in self.instances:
                    if instance.table == change.table and instance.start_lsn < commit.lsn:
                        kept = {name: change.row.get(name) for name in instance.columns}
                        self.change_tables[instance.name].append(replace(change, row=kept))
            self.scanned[database].append(commit.lsn)
            self.ends[database] = commit.lsn
        self.log[database] = [] if most is None else waiting[most:]
        if most is None:
            self.ends[database] = self.tick()

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
        return super().enable(table, name)

    def clean_up(self, keep_from: Lsn) -> None:
        super().clean_up(keep_from)
        for name, known in self.scanned.items():
            self.scanned[name] = [lsn for lsn in known if lsn >= keep_from]

    def max_captured_lsn(self, database: str) -> Lsn | None:
        return self.ends.get(database)

    def max_transaction_lsn(self, database: str, after: Lsn | None, limit: int, known: Lsn = ZERO_LSN) -> Lsn | None:
        found = [lsn for lsn in self.scanned[database] if after is None or lsn > after]
        found = found[:limit] if limit else found
        return found[-1] if found else None

    def commit_times(self, database: str, lsns: Sequence[Lsn]) -> Mapping[Lsn, datetime]:
        found = {}
        for lsn in lsns:
            before = [known for known in self.scanned[database] if known <= lsn]
            if before:
                found[lsn] = self.times[before[-1]]
        return found

    def rows_at(self, table: TableId, lsn: Lsn) -> dict[int, object]:
        """Rows right after a commit, by key."""
        rows: dict[int, object] = dict(self.first_rows[table])
        for change in self.history:
            if change.table == table and change.lsn <= lsn:
                key = int(str(change.row["id"]))
                if change.operation in (2, 4):
                    rows[key] = change.row["note"]
                elif change.operation == 1:
                    rows.pop(key, None)
        return rows


class Asked:
    """A server's control plane as one actor asks it: others may take their turns at each question."""

    def __init__(self, server: LaggingServer, scheduler: Scheduler) -> None:
        self._server, self._scheduler = server, scheduler

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._server, name)
        if not callable(found):
            return found

        def ask(*arguments: Any, **named: Any) -> Any:
            self._scheduler.pause(f"server.{name}")
            return found(*arguments, **named)

        return ask


@dataclass
class AskedBulk(SimulatedBulk):
    """Its data plane."""

    scheduler: Scheduler = None  # type: ignore[assignment]

    def read(self, statement: str, parameters: Sequence[object] = ()) -> Iterator[pa.RecordBatch]:
        self.scheduler.pause("server.read")
        assert isinstance(self.server, LaggingServer)
        for text, error in list(self.server.refusals.items()):
            if text in statement:
                raise error
        for name, error in list(self.server.troubles.items()):
            if f"[{name}]" in statement:
                raise error
        yield from super().read(statement, parameters)

    def reaching(self, database: str, lsn: Lsn, *, captured: bool = True) -> "AskedBulk":
        """The server that answers is the one that was asked how far it is."""
        return self


class TurnClock(SimulatedClock):
    """Time passes where actors sleep; the capture job works meanwhile, unless it stands still."""

    def __init__(self, server: LaggingServer, scheduler: Scheduler) -> None:
        super().__init__(server)
        self._scheduler = scheduler

    def sleep(self, seconds: float) -> None:
        self.slept += timedelta(seconds=seconds)
        self.server.now += timedelta(seconds=seconds)
        self._scheduler.pause("sleep")
