"""Readable secondaries that lag.

Each of them shows a database as it was some changes ago: its log, its clean-up, its rows and its catalogue are of one moment. A
connection belongs to one server; one that is opened again may come to another one, which is further behind, or to the primary. What the
product's adapters ask of a connection is asked here too (`adapters.sqlserver.reached`).

*After a forced failover* the former primary and the secondaries that did not take over are suspended: they show what they had, also what
the new primary lacks, until they are let follow.
"""

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from random import Random
from typing import Any, Final

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.schema import CaptureInstance, TableSchema
from cdc_assets.errors import IncompleteReadError, PreflightError, QueryError
from cdc_assets.shared.instances import before
from cdc_assets_tests.simulation.server import LaggingServer, Locks
from cdc_assets_tests.unit.streaming.simulation import DATABASE

_KEPT: Final = 30
"""Moments by which a secondary lags at most."""
_ATTEMPTS: Final = 4
"""So many connections are tried before a server that has not got far enough is told."""
_KNOWN_AT: Final = {
    "recovery_fork": 1,
    "max_transaction_lsn": 3,
    "active_instances": 2,
    "rows_per_commit": 2,
    "capture_instances": 1,
    "commit_times": 2,
    "columns_with_nulls": 3,
    "table_schema": 1,
    "table_schemas": 1,
}
"""Questions to a server that has the log as far as one of their arguments says, with the place of that."""
_OF_THE_LOG: Final = ("table_schema", "table_schemas")
"""Those of them for which it need not be captured so far."""
_OF_THE_LISTER: Final = ("lists_as_replica", "beginning_tables", "hidden_sources")
"""Questions to the server that has answered `capture_instances`."""
_READ_ONLY: Final = "Failed to update database because the database is read-only."


class Replicas:
    """Secondaries, and what they show.

    Args:
        rng: chooses who answers and how far it is.
    """

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._photos = deque[Photo](maxlen=_KEPT)
        self._taken = self._count = 0
        self._places: list[int] = []
        """Numbers of the photos that secondaries show."""
        self._stands_still = False
        self._former: list[Photo] = []
        """What secondaries show until they are let follow, if a server has taken over that lacks some of it."""

    def __bool__(self) -> bool:
        return bool(self._places)

    def begin(self, count: int, primary: LaggingServer) -> None:
        """There are so many secondaries, and they have all that there is."""
        self._photos.clear()
        self._former = []
        self._places, self._stands_still, self._count = [self._taken + 1] * count, False, count
        self.take(primary)

    def begin_again(self, primary: LaggingServer) -> None:
        """There are as many as there were."""
        self.begin(self._count, primary)

    def end(self) -> None:
        """There are none for a while."""
        self._places, self._former = [], []

    def former(self, primary: LaggingServer) -> list["Photo"]:
        """What would be shown if the first secondary took over now, and the others and the primary did not follow it."""
        return [photo_of(primary), *(self._photo(number) for number in range(1, len(self._places)))]

    def suspend(self, shown: Sequence["Photo"]) -> None:
        """They go on to show that until they are let follow, whatever happens."""
        self._former = list(shown)

    @property
    def are_suspended(self) -> bool:
        return bool(self._former)

    def stop(self) -> None:
        """The first one does not go on."""
        self._stands_still = True

    def go_on(self) -> None:
        """All have all that there is."""
        self._places, self._stands_still, self._former = [self._taken] * len(self._places), False, []

    def take(self, primary: LaggingServer) -> None:
        """Something has changed."""
        if self._places:
            self._photos.append(photo_of(primary))
            self._taken += 1
            oldest = self._taken - len(self._photos) + 1
            self._places = [max(oldest, place) for place in self._places]

    def pass_time(self) -> None:
        """Secondaries follow."""
        for number, place in enumerate(self._places):
            if not (number == 0 and self._stands_still) and self._rng.random() < 0.2:
                self._places[number] = min(self._taken, place + self._rng.choice([1, 2, 3, _KEPT]))

    def routed(self) -> int | None:
        """Where a new connection comes to; None for the primary."""
        return self._rng.choice([None, *range(len(self._places))])

    def breaks(self) -> bool:
        """Whether a connection has to be opened again."""
        return self._rng.random() < 0.1

    def shown(self, number: int | None, primary: LaggingServer) -> LaggingServer:
        """What a server has."""
        if number is None or number >= len(self._places):
            return primary
        photo = self._former[number] if self._former else self._photo(number)
        photo.now, photo.ahead, photo.offset = primary.now, primary.ahead, primary.offset
        return photo

    def _photo(self, number: int) -> "Photo":
        return self._photos[self._places[number] - self._taken - 1]

    def captured_everywhere(self, primary: LaggingServer) -> Mapping[str, Lsn]:
        """How far the log of each database is captured by each server, as far as that is the primary's."""
        every = [primary, *(self.shown(number, primary) for number in range(len(self._places)))]
        return {name: min(_captured(one, primary, name) for one in every) for name in primary.ends}


def _captured(server: LaggingServer, primary: LaggingServer, name: str) -> Lsn:
    end, fork = server.ends.get(name, ZERO_LSN), primary.forks.get(name)
    is_same = fork is None or fork.point is None or server.forks.get(name) == fork
    return end if is_same else min(end, before(fork.point))


class Photo(LaggingServer):
    """A server as it was; its clock and what is refused are those of now."""

    def is_replica(self, database: str) -> bool:
        return True

    def row_counts(self, schemas: Sequence[TableSchema]) -> Mapping[TableId, int]:
        return {schema.table: len(self.rows.get(schema.table, ())) for schema in schemas}

    def empty_scans(self, database: str) -> None:
        """The capture job runs elsewhere."""
        return

    def write_signal(self, table: TableId, row: tuple[str, str, str | None]) -> None:
        raise QueryError(_READ_ONLY, 3906)

    def delete_signal(self, table: TableId, column: str, own_id: str) -> bool:
        raise QueryError(_READ_ONLY, 3906)

    @contextmanager
    def lock_tables(self, tables: Sequence[TableId], timeout_ms: int) -> Iterator[Locks]:
        """They keep no writer away."""
        yield SecondaryLocks()


class SecondaryLocks(Locks):
    """Locks on a secondary."""

    def require_primary(self, database: str) -> None:
        raise PreflightError(f"{database} is a secondary replica, which cannot keep writers away.")


def photo_of(server: LaggingServer) -> Photo:
    """What a server shows now."""
    known = {field.name: getattr(server, field.name) for field in fields(LaggingServer)}
    return Photo(
        **known
        | {
            "schemas": dict(server.schemas),
            "rows": {table: {key: dict(row) for key, row in rows.items()} for table, rows in server.rows.items()},
            "instances": list(server.instances),
            "change_tables": {name: list(changes) for name, changes in server.change_tables.items()},
            "stored": dict(server.stored),
            "scanned": defaultdict(list, {name: list(lsns) for name, lsns in server.scanned.items()}),
            "entries": defaultdict(list, {name: list(known) for name, known in server.entries.items()}),
            "ends": dict(server.ends),
            "forks": dict(server.forks),
            "markers": dict(server.markers),
            "is_prompt": False,
            "locked": Counter(),
        }
    )


@dataclass
class ReplicatedServer(LaggingServer):
    """A server whose changes its secondaries get."""

    replicas: Replicas = None  # type: ignore[assignment]

    def commit(self, *changes: tuple[TableId, str, int, str]) -> Lsn:
        lsn = super().commit(*changes)
        self.replicas.take(self)
        return lsn

    def _log_signal(self, table: TableId, operation: int, own_id: str) -> None:
        super()._log_signal(table, operation, own_id)
        self.replicas.take(self)

    def scan(self, database: str, most: int | None = None) -> None:
        super().scan(database, most)
        self.replicas.take(self)

    def enable(self, table: TableId, name: str = "") -> CaptureInstance:
        made = super().enable(table, name)
        self.replicas.take(self)
        return made

    def disable(self, name: str) -> None:
        super().disable(name)
        self.replicas.take(self)

    def add_column(self, table: TableId, column: str, *, is_number: bool = False) -> None:
        super().add_column(table, column, is_number=is_number)
        self.replicas.take(self)

    def drop_column(self, table: TableId, column: str) -> None:
        super().drop_column(table, column)
        self.replicas.take(self)

    def clean_up(self, keep_from: Lsn, database: str = DATABASE) -> None:
        super().clean_up(keep_from, database)
        self.replicas.take(self)


class Connection:
    """A connection of one process; what is asked over it is answered by the server to which it was routed."""

    def __init__(self, server: LaggingServer) -> None:
        assert isinstance(server, ReplicatedServer)
        self._primary, self._replicas = server, server.replicas
        self._number, self._opened = server.replicas.routed(), 1
        self._probed: dict[str, int] = {}
        self._listed: dict[str, int] = {}
        self.left: dict[str, tuple[str, ...]] = {}
        """Forks that databases have left; nothing is asked of a server that shows one."""

    def _open(self) -> None:
        self._number, self._opened = self._replicas.routed(), self._opened + 1

    def server(self) -> LaggingServer:
        """Who answers next."""
        if self._replicas:
            self._replicas.pass_time()
            if self._replicas.breaks():
                self._open()
        return self._replicas.shown(self._number, self._primary)

    def reaching(self, database: str, lsn: Lsn, captured: bool = True, left: Sequence[str] = ()) -> LaggingServer:
        """Who answers next, and has the log of a database up to an LSN, on no fork that it has left.

        Raises:
            IncompleteReadError: nobody has.
        """
        for _ in range(_ATTEMPTS):
            found = self.server()
            if found.recovery_identity(database) not in left and _has(found, database, lsn, captured=captured):
                return found
            self._open()
        raise IncompleteReadError(f"Database {database} lags behind {lsn}. The question is repeated")

    def ask(self, name: str, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """The answer to a question of the control plane."""
        if name == "lock_tables":  # over a session of its own
            return self._replicas.shown(self._replicas.routed(), self._primary).lock_tables(*arguments, **named)
        database = _database_of(arguments[0]) if arguments else ""
        if name in _KNOWN_AT:
            place = _KNOWN_AT[name]
            known = arguments[place] if len(arguments) > place else ZERO_LSN
            left = () if name == "recovery_fork" else self.left.get(database, ())
            found = self.reaching(database, known, captured=name not in _OF_THE_LOG, left=left)
        else:
            found = self.server()
        if name == "active_instances":
            self._probed[database] = self._opened
        if name == "capture_instances":
            self._listed[database] = self._opened
        if name == "low_water_marks" and self._probed.pop(database, self._opened) != self._opened:
            raise IncompleteReadError(f"The connection to {database} was opened again between two questions")
        if name in _OF_THE_LISTER and self._listed.get(database, self._opened) != self._opened:
            raise IncompleteReadError(f"The connection to {database} was opened again since it was asked for instances")
        try:
            return getattr(found, name)(*arguments, **named)
        except KeyError as unknown:
            raise QueryError(f"Invalid object name '{unknown}'.", 208) from unknown


def _database_of(asked: Any) -> str:
    """Of which database something is that is asked about."""
    if isinstance(asked, CaptureInstance | TableSchema):
        return asked.table.database
    if isinstance(asked, TableId):
        return asked.database
    if isinstance(asked, str):
        return asked
    return _database_of(next(iter(asked), ""))


def _has(server: LaggingServer, database: str, lsn: Lsn, *, captured: bool) -> bool:
    starts = [instance.start_lsn for instance in server.instances if instance.table.database == database]
    newest = ZERO_LSN if captured else max(starts, default=ZERO_LSN)
    return max(newest, server.ends.get(database, ZERO_LSN)) >= lsn


def answering(server: LaggingServer, floor: "Floor | None") -> LaggingServer:
    """Whose rows a session of the data plane gets.

    Raises:
        IncompleteReadError: none has the log as far as it must.
    """
    connection = Connection(server)
    return connection.server() if floor is None else connection.reaching(*floor)


Floor = tuple[str, Lsn, bool, tuple[str, ...]]
"""A database, up to where a server must have its log, whether it must be captured so far, and forks that it has left."""


def check_names(server: LaggingServer, statement: str) -> None:
    """Check that a server has the table and the columns that a statement reads, if it reads a source table.

    Raises:
        QueryError: it has not.
    """
    place = re.search(r"FROM \[([^\]]+)\]\.\[([^\]]+)\]\.\[([^\]]+)\] AS \[t\]", statement)
    if place is None:
        return
    schema = server.schemas.get(TableId(*place.groups()))
    if schema is None:
        raise QueryError(f"Invalid object name '{place[0]}'.", 208)
    unknown = set(re.findall(r"\[t\]\.\[(\w+)\]", statement)).difference(column.name for column in schema.columns)
    if unknown:
        raise QueryError(f"Invalid column name '{min(unknown)}'.", 207)
