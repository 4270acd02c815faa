"""A server in memory whose databases are backed up, and restored to what they were then, or taken over by another server.

A restore takes rows, structures, capture instances, change tables and what the capture job has not read back to those of the backup. From
there on LSNs are given away again that transactions had which are no longer there; so what was before is kept as a `Past`.
"""

import copy
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.ports import RecoveryFork
from cdc_assets.core.schema import CaptureInstance
from cdc_assets.errors import ConnectionLostError
from cdc_assets_tests.simulation.replicas import ReplicatedServer
from cdc_assets_tests.simulation.server import Locks, captured_by_newest, rows_of
from cdc_assets_tests.unit.streaming.simulation import Change, Row

_BY_TABLE: Final = ("schemas", "rows", "stored", "first_rows")
_BY_DATABASE: Final = ("log", "scanned", "entries", "ends")


@dataclass(frozen=True)
class Past:
    """The history of a database that a restore has ended.

    Args:
        point: LSN at which the next one begins; what is below it belongs to both.
        end: its newest LSN.
    """

    database: str
    point: Lsn
    end: Lsn
    history: Sequence[Change]
    made: Sequence[CaptureInstance]
    numbers: Set[tuple[TableId, int]]
    first_rows: Mapping[TableId, Counter[tuple[int, object]]]

    def kept(self, change: Change) -> Row:
        return captured_by_newest(change, self.made, self.numbers)

    def rows_at(self, table: TableId, lsn: Lsn) -> Counter[tuple[int, object]]:
        return rows_of(self.first_rows.get(table, Counter()), self.history, table, lsn)

    def lost(self, table: TableId) -> list[Change]:
        """Changes of a table that are not there any more."""
        return [change for change in self.history if change.table == table and change.lsn >= self.point]


@dataclass(frozen=True)
class Backup:
    """A database as it was.

    Args:
        ticks: number of LSNs that it had given away.
        parts: what is kept by table, or for the database, by the name of the server's field.
    """

    database: str
    ticks: int
    parts: Mapping[str, Any]
    history: Sequence[Change]
    instances: Sequence[CaptureInstance]
    made: Sequence[CaptureInstance]
    change_tables: Mapping[str, Sequence[Change]]
    keyless: frozenset[TableId]
    fork: RecoveryFork | None


@dataclass
class RestorableServer(ReplicatedServer):
    """Its databases can be restored."""

    pasts: list[Past] = field(default_factory=list)
    """Histories that restores have ended."""

    fail_overs: list[str] = field(default_factory=list)
    """Databases that another server has taken over, once each time."""

    def breaks(self, database: str) -> int:
        """How often sessions have ended, because a database was restored or another server has taken it over."""
        return sum(past.database == database for past in self.pasts) + self.fail_overs.count(database)

    def pasts_of(self, table: TableId) -> list[Past]:
        return [past for past in self.pasts if past.database == table.database]

    @contextmanager
    def lock_tables(self, tables: Sequence[TableId], timeout_ms: int) -> Iterator[Locks]:
        names = {table.database for table in tables}
        known = {name: self.breaks(name) for name in names}
        self.locked.update(tables)
        try:
            yield SessionLocks(self, known)
        finally:
            self.locked.subtract([table for table in tables if known[table.database] == self.breaks(table.database)])

    def back_up(self, database: str) -> Backup:
        """A database as it is now."""
        parts: dict[str, Any] = {name: getattr(self, name).get(database) for name in _BY_DATABASE}
        for name in _BY_TABLE:
            parts[name] = {table: found for table, found in getattr(self, name).items() if table.database == database}
        own = [instance for instance in self.instances if instance.table.database == database]
        return Backup(
            database,
            self.ticks[database],
            copy.deepcopy(parts),
            [change for change in self.history if change.table.database == database],
            own,
            [made for made in self.made if made.table.database == database],
            {one.name: list(self.change_tables[one.name]) for one in own},
            frozenset(table for table in self.keyless if table.database == database),
            self.forks.get(database, self.fork),
        )

    def restore(self, backup: Backup, *, is_put_back: bool = False) -> Past:
        """Take a database back to a backup; its sessions end.

        Args:
            is_put_back: whether its whole server is, also the fork that it was on.

        Returns:
            What there was.
        """
        name = backup.database
        known = self.back_up(name)
        end = self.tick(name)
        self.ticks[name] = backup.ticks
        past = Past(name, self.tick(name), end, known.history, known.made, self.numbers, known.parts["first_rows"])
        self.pasts.append(past)
        anew = RecoveryFork(f"F{len(self.pasts)}", past.point)
        self.forks[name] = backup.fork if is_put_back and backup.fork is not None else anew
        self._take_back(backup)
        self._take_markers_back(past, backup)
        self._end_sessions(name)
        if self.replicas:  # it is taken out of its group, and secondaries get all of it anew
            self.replicas.begin_again(self)
        return past

    def force_over(self, backup: Backup) -> Past:
        """A secondary takes a database over that has only what is in a backup. Who was the primary, and the other secondaries, show what
        they had until they are let follow.

        Returns:
            What there was.
        """
        shown = self.replicas.former(self) if self.replicas else []
        past = self.restore(backup)
        self.replicas.suspend(shown)
        return past

    def fail_over(self, name: str) -> None:
        """Another server takes a database over with all that there was, and begins another fork behind it; secondaries get that as they
        get anything else."""
        self.fail_overs.append(name)
        self.forks[name] = RecoveryFork(f"T{len(self.fail_overs)}", self.tick(name))
        self._end_sessions(name)
        self.replicas.take(self)

    def _end_sessions(self, name: str) -> None:
        self.sessions.pop(name, None)
        for table in [table for table in self.locked if table.database == name]:
            del self.locked[table]

    def _take_back(self, backup: Backup) -> None:
        name, parts = backup.database, copy.deepcopy(backup.parts)
        for place in _BY_DATABASE:
            getattr(self, place).pop(name, None)
            if parts[place] is not None:
                getattr(self, place)[name] = parts[place]
        for place in _BY_TABLE:
            found = getattr(self, place)
            for table in [table for table in found if table.database == name]:
                del found[table]
            found |= parts[place]
        for instance in [one for one in self.instances if one.table.database == name]:
            del self.change_tables[instance.name]
        self.change_tables |= {one: list(changes) for one, changes in backup.change_tables.items()}
        for place in ("history", "instances", "made"):
            others = [one for one in getattr(self, place) if one.table.database != name]
            setattr(self, place, [*others, *getattr(backup, place)])
        self.keyless = {table for table in self.keyless if table.database != name} | backup.keyless

    def _take_markers_back(self, past: Past, backup: Backup) -> None:
        for change in past.history:
            self.markers.pop(str(change.row.get("signal_id")), None)
        for change in backup.history:
            if "signal_id" in change.row:
                own_id = str(change.row["signal_id"])
                if change.operation == 2:
                    self.markers[own_id] = dict(change.row)
                else:
                    self.markers.pop(own_id, None)


class SessionLocks(Locks):
    """Locks of a session, which ends when a database of it is restored."""

    def __init__(self, server: RestorableServer, known: Mapping[str, int]) -> None:
        self._server, self._known = server, known

    def check(self) -> None:
        if any(self._server.breaks(name) != count for name, count in self._known.items()):
            raise ConnectionLostError("The session was ended, for its database is restored, or on another server.")
