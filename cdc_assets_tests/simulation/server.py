"""A server in memory whose capture job lags, and which is asked by actors."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.schema import CaptureInstance
from cdc_assets_tests.simulation.scheduler import Scheduler
from cdc_assets_tests.unit.streaming.simulation import (
    Change,
    SimulatedBulk,
    SimulatedClock,
    SimulatedServer,
)


@dataclass
class Commit:
    """A transaction in the log."""

    lsn: Lsn
    at: datetime
    changes: list[Change]


@dataclass
class LaggingServer(SimulatedServer):
    """Its capture job reads the log when it is told to."""

    log: list[Commit] = field(default_factory=list)
    """What the capture job has not read."""
    times: dict[Lsn, datetime] = field(default_factory=dict)
    """When each transaction was committed."""
    first_rows: dict[TableId, dict[int, str]] = field(default_factory=dict)
    """Rows from before capture began."""
    refusals: dict[str, Exception] = field(default_factory=dict)
    """What statements that hold a text end with."""
    waits: list[float] = field(default_factory=list)

    def create(self, name: str, **options: Any) -> TableId:
        table = super().create(name, **options)
        self.first_rows[table] = {key: str(row["note"]) for key, row in self.rows[table].items()}
        return table

    def commit(self, *changes: tuple[TableId, str, int, str]) -> Lsn:
        """One transaction; the capture job has not read it yet."""
        self._stamp()
        lsn = self.tick()
        made = [
            change
            for place, (table, what, key, note) in enumerate(changes)
            for change in self._logged(table, what, key, note, lsn, place)
        ]
        self.history += made
        self.times[lsn] = self.now
        self.log.append(Commit(lsn, self.now, made))
        return lsn

    def scan(self, most: int | None = None) -> None:
        """The capture job reads so many transactions; all if None, and then it notes the end of the log."""
        for commit in self.log[: len(self.log) if most is None else most]:
            for change in commit.changes:
                for instance in self.instances:
                    if instance.table == change.table and instance.start_lsn < commit.lsn:
                        kept = {name: change.row.get(name) for name in instance.columns}
                        self.change_tables[instance.name].append(replace(change, row=kept))
            self.transactions.append(commit.lsn)
            self.captured = commit.lsn
        self.log = [] if most is None else self.log[most:]
        if most is None and not self.log:
            self.captured = self.tick()

    def enable(self, table: TableId, name: str = "") -> CaptureInstance:
        self.scan()
        return super().enable(table, name)

    def commit_times(self, database: str, lsns: Sequence[Lsn]) -> Mapping[Lsn, datetime]:
        found = {}
        for lsn in lsns:
            before = [known for known in self.transactions if known <= lsn]
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

    @contextmanager
    def refusing(self, text: str, error: Exception) -> Iterator[None]:
        """Within it statements that hold a text end with an error."""
        self.refusals[text] = error
        try:
            yield
        finally:
            del self.refusals[text]


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
        yield from super().read(statement, parameters)


class TurnClock(SimulatedClock):
    """Time passes where actors sleep; the capture job works meanwhile, unless it stands still."""

    def __init__(self, server: LaggingServer, scheduler: Scheduler) -> None:
        super().__init__(server)
        self._scheduler = scheduler

    def sleep(self, seconds: float) -> None:
        self.slept += timedelta(seconds=seconds)
        self.server.now += timedelta(seconds=seconds)
        self._scheduler.pause("sleep")
