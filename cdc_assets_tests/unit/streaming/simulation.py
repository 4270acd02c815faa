"""A SQL Server in memory, as far as the capture asks it: a log, change tables, clean-up, several instances.

It answers the statements of `capture.statements` and nothing else, with small
Arrow batches so that update pairs straddle them. `history` keeps every change
ever made, so that a test knows what the lake must hold.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from operator import eq, gt, le, lt

import pyarrow as pa

from cdc_assets.core.capture_job import CaptureJob
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn, Position
from cdc_assets.core.ports import Captured, HeldLocks, KeyExtent, KeyRange, RecoveryFork
from cdc_assets.core.ranges import cut_by, type_of_bounds
from cdc_assets.core.schema import CaptureInstance, Column, InstanceOptions, TableSchema
from cdc_assets.errors import CdcError, IncompleteReadError, QueryError

Row = dict[str, object]
START = datetime(2026, 10, 1, 8, 0, tzinfo=UTC)
DATABASE = "SalesDb"


def table_id(name: str) -> TableId:
    return TableId(DATABASE, "dbo", name)


def plain_schema(name: str, object_id: int, extra: Sequence[str] = ()) -> TableSchema:
    """`id` and `note`, and further nullable text columns."""
    columns = [Column("id", "int", 1, nullable=False), Column("note", "nvarchar", 2, length=50)]
    columns += [Column(column, "nvarchar", place, length=50) for place, column in enumerate(extra, 3)]
    return TableSchema(table_id(name), object_id, tuple(columns), ("id",))


@dataclass(frozen=True)
class Change:
    """One change row of the log, with the row as it was logged."""

    table: TableId
    lsn: Lsn
    command: int
    seqval: Lsn
    operation: int
    row: Row


@dataclass
class SimulatedServer:
    """`core.ports.Source` over a log in memory; `bulk` is its `BulkSource`."""

    schemas: dict[TableId, TableSchema] = field(default_factory=dict)
    beginning: set[TableId] = field(default_factory=set)
    """Tables with an instance that has no start yet."""
    hidden: set[TableId] = field(default_factory=set)
    """Tables on which the login has no right."""
    rows: dict[TableId, dict[int, Row]] = field(default_factory=dict)
    history: list[Change] = field(default_factory=list)
    transactions: list[Lsn] = field(default_factory=list)
    instances: list[CaptureInstance] = field(default_factory=list)
    change_tables: dict[str, list[Change]] = field(default_factory=dict)
    stored: dict[TableId, TableSchema] = field(default_factory=dict)
    """Structures of the change tables."""
    captured: Lsn | None = None
    now: datetime = START
    behind: timedelta = timedelta()
    """What the clocks of captures are behind the server's."""
    before_read: Callable[[str], None] = lambda statement: None
    meanwhile: Callable[[float], None] = lambda seconds: None
    """Called at the end of each wait of a capture, with the seconds that it has waited so far."""
    looks: int = 0
    """How often the capture job has found nothing."""
    batch_rows: int = 3
    names: Sequence[str] = (DATABASE,)
    """Databases; a transaction of both has one LSN in both logs."""
    kinds: dict[str, pa.DataType] = field(default_factory=lambda: {"id": pa.int32()})
    """Arrow types of columns that are not text."""
    troubles: dict[str, CdcError] = field(default_factory=dict)
    """Databases that cannot be captured now."""
    described: dict[TableId, Mapping[int, str]] = field(default_factory=dict)
    """Descriptions of tables, under 0, and columns."""
    altered: dict[str, Lsn] = field(default_factory=dict)
    """LSN of the newest DDL of instances whose table was altered while it is read."""
    fork: RecoveryFork | None = field(default_factory=lambda: RecoveryFork("A", None))
    left: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Forks that databases have left."""
    is_secondary: bool = False
    routed: "SimulatedServer | None" = None
    """The replica to which connections of the data plane are routed, if it is another one."""
    _tick: int = 0

    # what happens on the server

    def tick(self, database: str = DATABASE) -> Lsn:
        self._tick += 1
        return Lsn.from_int((0x2A << 48) + (self._tick << 16) + 1)

    def create(
        self, name: str, *, captured: bool = True, extra: Sequence[str] = (), rows: int = 0, database: str = DATABASE
    ) -> TableId:
        schema = plain_schema(name, 1000 + len(self.schemas) + self._tick, extra)
        schema = replace(schema, table=replace(schema.table, database=database))
        self.schemas[schema.table] = schema
        self.rows[schema.table] = {key: {"id": key, "note": f"old {key}"} for key in range(1, rows + 1)}
        if captured:
            self.enable(schema.table)
        return schema.table

    def enable(self, table: TableId, name: str = "") -> CaptureInstance:
        schema = self.schemas[table]
        count = sum(instance.table == table for instance in self.instances)
        name = name or f"{table.schema}_{table.table}" + (f"_{count + 1}" if count else "")
        instance = CaptureInstance(
            table,
            schema.object_id,
            name,
            self.tick(table.database),
            tuple(column.name for column in schema.columns),
            self._stamp(),
            tuple(column.ordinal for column in schema.columns),
            change_table_id=5000 + self._tick,
        )
        self.stored[instance.change_table] = replace(schema, table=instance.change_table)
        self.instances.append(instance)
        self.change_tables[name] = []
        return instance

    def disable(self, name: str) -> None:
        self.instances = [instance for instance in self.instances if instance.name != name]
        del self.change_tables[name]

    def add_column(self, table: TableId, column: str) -> None:
        schema = self.schemas[table]
        added = Column(column, "nvarchar", len(schema.columns) + 1, length=50)
        self.schemas[table] = replace(schema, columns=(*schema.columns, added))
        for row in self.rows[table].values():
            row[column] = None

    def kind_of(self, schema: TableSchema, column: str) -> pa.DataType:
        """Arrow type in which a column is read."""
        return self.kinds.get(column, pa.string())

    def stored_of(self, instance: str) -> TableSchema:
        """Structure of a change table."""
        return next(schema for table, schema in self.stored.items() if table.table == f"{instance}_CT")

    def _stamp(self) -> datetime:
        self.now += timedelta(milliseconds=7)
        return self.now.replace(tzinfo=None)

    def commit(self, *changes: tuple[TableId, str, int, str]) -> Lsn:
        """One transaction of (table, `insert` | `update` | `delete`, key, note); captured at once."""
        self._stamp()
        lsn = self.tick()
        for place, (table, what, key, note) in enumerate(changes):
            for change in self._logged(table, what, key, note, lsn, place):
                self.history.append(change)
                for instance in self.instances:
                    if instance.table == table:
                        kept = {name: change.row.get(name) for name in instance.columns}
                        self.change_tables[instance.name].append(replace(change, row=kept))
        self.transactions.append(lsn)
        self.captured = lsn
        return lsn

    def _logged(self, table: TableId, what: str, key: int, note: str, lsn: Lsn, place: int) -> Iterator[Change]:
        seqval = Lsn.from_int(int(lsn) + 0x100 + place)
        rows = self.rows[table]
        if what == "insert":
            rows[key] = {column.name: None for column in self.schemas[table].columns} | {"id": key, "note": note}
            yield Change(table, lsn, place + 1, seqval, 2, dict(rows[key]))
        elif what == "delete":
            yield Change(table, lsn, place + 1, seqval, 1, rows.pop(key))
        else:
            yield Change(table, lsn, place + 1, seqval, 3, dict(rows[key]))
            rows[key]["note"] = note
            yield Change(table, lsn, place + 1, seqval, 4, dict(rows[key]))

    def idle_tick(self) -> None:
        """The capture job's own entry of a quiet database."""
        self.captured = self.tick()

    def clean_up(self, keep_from: Lsn) -> None:
        """What the clean-up job does: remove rows below an LSN and raise every low-water mark to it."""
        for name, changes in self.change_tables.items():
            self.change_tables[name] = [change for change in changes if change.lsn >= keep_from]
        self.transactions = [lsn for lsn in self.transactions if lsn >= keep_from]
        self.instances = [
            replace(instance, start_lsn=max(instance.start_lsn, keep_from)) for instance in self.instances
        ]

    # Source

    def databases(self) -> Sequence[str]:
        return self.names

    def trouble(self, database: str) -> CdcError | None:
        return self.troubles.get(database)

    def server_time(self) -> datetime:
        return self.now

    def table_schema(self, table: TableId, known: Lsn = ZERO_LSN) -> TableSchema | None:
        return None if table in self.hidden else self.schemas.get(table) or self.stored.get(table)

    def table_schemas(self, tables: Sequence[TableId], known: Lsn = ZERO_LSN) -> Mapping[TableId, TableSchema]:
        return {table: schema for table in tables if (schema := self.table_schema(table)) is not None}

    def descriptions(self, schemas: Sequence[TableSchema]) -> Mapping[TableId, Mapping[int, str]]:
        return {schema.table: found for schema in schemas if (found := self.described.get(schema.table))}

    def user_tables(self, database: str) -> Sequence[TableId]:
        return sorted(table for table in self.schemas if table.database == database)

    def capture_instances(self, database: str, known: Lsn = ZERO_LSN) -> Sequence[CaptureInstance]:
        if self.is_secondary and known > (self.max_captured_lsn(database) or ZERO_LSN):
            raise IncompleteReadError(f"The replica lags behind {known}.")
        found = (
            instance
            for instance in self.instances
            if instance.table.database == database and instance.table not in self.hidden
        )
        return sorted(found, key=lambda instance: (instance.table, *instance.age))

    def hidden_sources(self, database: str) -> frozenset[int]:
        captured = {instance.table for instance in self.instances if instance.table.database == database}
        return frozenset(self.schemas[table].object_id for table in captured & self.hidden)

    def beginning_tables(self, database: str) -> frozenset[TableId]:
        return frozenset(table for table in self.beginning if table.database == database)

    def columns_with_nulls(
        self, instance: CaptureInstance, columns: Sequence[Column], after: Lsn, known: Lsn = ZERO_LSN
    ) -> frozenset[str]:
        changes = [change for change in self.change_tables[instance.name] if change.lsn > after]
        names = [column.name for column in columns]
        return frozenset(name for name in names if any(change.row.get(name) is None for change in changes))

    def max_captured_lsn(self, database: str) -> Lsn | None:
        return self.captured

    def captured_by(self, database: str) -> Captured:
        return Captured(self.max_captured_lsn(database), self.is_replica(database))

    def recovery_fork(self, database: str, known: Lsn = ZERO_LSN) -> RecoveryFork | None:
        if known > (self.max_captured_lsn(database) or ZERO_LSN):
            raise IncompleteReadError(f"The replica lags behind {known}.")
        return None if self.fork is None else replace(self.fork, is_of_replica=self.is_replica(database))

    def leave_forks(self, database: str, forks: Sequence[str]) -> None:
        self.left[database] = tuple(forks)

    def left_forks(self, database: str) -> tuple[str, ...]:
        return self.left.get(database, ())

    def is_replica(self, database: str) -> bool:
        return self.is_secondary

    def lists_as_replica(self, database: str) -> bool:
        return self.is_replica(database)

    def max_transaction_lsn(self, database: str, after: Lsn | None, limit: int, known: Lsn = ZERO_LSN) -> Lsn | None:
        own = {change.lsn for change in self.history if change.table.database == database}
        foreign = {change.lsn for change in self.history} - own
        found = [lsn for lsn in self.transactions if lsn not in foreign and (after is None or lsn > after)]
        found = found[:limit] if limit else found
        return found[-1] if found else None

    def low_water_marks(self, database: str) -> Mapping[str, Lsn]:
        own = (instance for instance in self.instances if instance.table.database == database)
        return {instance.name: instance.start_lsn for instance in own}

    def active_instances(self, database: str, bounds: Mapping[str, Lsn], until: Lsn) -> frozenset[str]:
        return frozenset(
            name
            for name, after in bounds.items()
            if any(after < change.lsn <= until for change in self.change_tables.get(name, []))
        )

    def rows_per_commit(
        self, database: str, bounds: Mapping[str, Lsn], until: Lsn, skipped: Sequence[int] = ()
    ) -> Mapping[str, Sequence[tuple[Lsn, int]]]:
        counts = {
            name: Counter(
                change.lsn
                for change in self.change_tables.get(name, [])
                if after < change.lsn <= until and change.operation not in skipped
            )
            for name, after in bounds.items()
        }
        return {name: sorted(found.items()) for name, found in counts.items()}

    def positions_in_commit(
        self, database: str, instances: Sequence[str], commit: Lsn, step: int
    ) -> Sequence[Position]:
        found = set()
        for name in instances:
            own = sorted(
                (c.command, c.seqval, c.operation) for c in self.change_tables.get(name, []) if c.lsn == commit
            )
            found |= {Position(commit, command, change, 4) for command, change, _ in own[step - 1 :: step]}
        return sorted(found, key=str)

    def commit_times(self, database: str, lsns: Sequence[Lsn], known: Lsn = ZERO_LSN) -> Mapping[Lsn, datetime]:
        return {lsn: self.now for lsn in lsns if lsn in self.transactions}

    def was_set_back(self, database: str, lsn: Lsn) -> bool:
        return False

    def end_time(self, change: Change) -> datetime:
        """When a change was committed, by the server's local time."""
        return self.now.replace(tzinfo=None)

    def row_counts(self, schemas: Sequence[TableSchema]) -> Mapping[TableId, int]:
        return {schema.table: len(self.rows[schema.table]) for schema in schemas}

    def key_extents(self, schemas: Sequence[TableSchema], rows: Mapping[TableId, int]) -> Mapping[TableId, KeyExtent]:
        return {}

    def key_ranges(
        self, schema: TableSchema, rows: int, slices: int, extent: KeyExtent | None = None
    ) -> Sequence[KeyRange]:
        keys = sorted(self.rows[schema.table])
        column = cut_by(schema)
        if column is None:
            return [KeyRange(None, None, None)]
        kind = type_of_bounds(column)
        if len(keys) < 2:
            return [KeyRange(column.name, None, None, kind)]
        step = max(1, len(keys) // slices)
        bounds = [str(key) for key in keys[step::step]][: slices - 1]
        return [KeyRange("id", low, high, kind) for low, high in zip([None, *bounds], [*bounds, None], strict=True)]

    def lock_tables(self, tables: Sequence[TableId], timeout_ms: int) -> AbstractContextManager[HeldLocks]:
        raise QueryError("The simulation has no locks.")

    def write_signal(self, table: TableId, row: tuple[str, str, str | None]) -> None:
        raise QueryError(f"Invalid object name '{table}'.", 208)

    def delete_signal(self, table: TableId, column: str, own_id: str) -> bool:
        raise QueryError(f"Invalid object name '{table}'.", 208)

    def empty_scans(self, database: str) -> tuple[int, int] | None:
        """The job is never behind: it has looked again whenever somebody asks."""
        self.looks += 1
        return 1, self.looks

    def capture_job(self, database: str) -> CaptureJob:
        return CaptureJob(database, True, 0)

    def ddl_statements(self, database: str) -> Mapping[str, Sequence[str]]:
        return {}

    def instance_options(self, database: str) -> Mapping[str, InstanceOptions]:
        return {}

    def agent_running(self, database: str) -> bool | None:
        return True

    @property
    def bulk(self) -> "SimulatedBulk":
        return SimulatedBulk(self.routed or self)


@dataclass
class SimulatedBulk:
    """`core.ports.BulkSource` of a simulated server."""

    server: SimulatedServer
    floor: Lsn = ZERO_LSN
    database: str = ""
    left: Sequence[str] = ()

    def reaching(self, database: str, lsn: Lsn, *, captured: bool = True, left: Sequence[str] = ()) -> "SimulatedBulk":
        return replace(self, floor=lsn, database=database, left=left)

    def read(self, statement: str, parameters: Sequence[object] = ()) -> Iterator[pa.RecordBatch]:
        self.server.before_read(statement)
        if (self.server.captured or ZERO_LSN) < self.floor and not any(
            i.start_lsn > self.floor for i in self.server.instances
        ):
            raise IncompleteReadError("It lags.")
        fork = self.server.recovery_fork(self.database) if self.left else None
        if fork is not None and fork.identity in self.left:
            raise IncompleteReadError("It does not follow.")
        if "cdc-assets: changes" in statement or "cdc-assets: preceding" in statement:
            table = self._changes(statement, parameters)
        elif "cdc-assets: marks" in statement:
            database = re.search(r"FROM \[([^\]]+)\]\.cdc", statement)
            assert database
            marks = self.server.low_water_marks(database[1])
            altered = self.server.altered
            table = pa.table(
                {
                    "capture_instance": list(marks),
                    "start_lsn": pa.array([mark.raw for mark in marks.values()], pa.binary()),
                    "altered": pa.array(
                        [altered[name].raw if name in altered else None for name in marks], pa.binary()
                    ),
                }
            )
        else:
            table = self._rows(statement, parameters)
        batches = table.to_batches(max_chunksize=self.server.batch_rows)
        yield from batches or [pa.RecordBatch.from_pylist([], schema=table.schema)]

    def _changes(self, statement: str, parameters: Sequence[object]) -> pa.Table:
        found = re.search(r"cdc\.\[([^\]]+)_CT\]", statement)
        assert found
        name = found[1]
        if name not in self.server.change_tables:
            raise QueryError(f"Invalid object name 'cdc.{name}_CT'.", 208)
        chosen = condition_of(statement.partition(" WHERE ")[2], parameters)
        skipped = re.search(r"\[__\$operation\] NOT IN \(([\d, ]+)\)", statement)
        left_out = {int(code) for code in skipped[1].split(",")} if skipped else set()
        changes = [c for c in self.server.change_tables[name] if chosen(c) and c.operation not in left_out]
        changes.sort(key=lambda c: (c.lsn, c.command, c.seqval, c.operation))
        if "cdc-assets: preceding" in statement:
            most = int(re.findall(r"TOP \((\d+)\)", statement)[0])
            last = [change.seqval.raw for change in reversed(changes)][:most]
            return pa.table({"change": pa.array(last, pa.binary())})
        columns = {
            "__$start_lsn": pa.array([c.lsn.raw for c in changes], pa.binary()),
            "__$command_id": pa.array([c.command for c in changes], pa.int32()),
            "__$seqval": pa.array([c.seqval.raw for c in changes], pa.binary()),
            "__$operation": pa.array([c.operation for c in changes], pa.int32()),
            "__$update_mask": pa.array([b"\xff" for _ in changes], pa.binary()),
            "tran_end_time": pa.array(list(map(self.server.end_time, changes)), pa.timestamp("us")),
        }
        rows, schema = [c.row for c in changes], self.server.stored_of(name)
        return pa.table(columns | self._data(statement.partition(" FROM ")[0], rows, schema))

    def _rows(self, statement: str, parameters: Sequence[object]) -> pa.Table:
        found = re.search(r"FROM \[([^\]]+)\]\.\[([^\]]+)\]\.\[([^\]]+)\]", statement)
        assert found
        about = TableId(*found.groups())
        rows = self.server.rows[about]
        low = int(str(parameters[0])) if ">=" in statement else None
        high = int(str(parameters[-1])) if re.search(r"<[^=>]", statement) else None
        chosen = [
            row for key, row in sorted(rows.items()) if (low is None or key >= low) and (high is None or key < high)
        ]
        return pa.table(self._data(statement.partition(" FROM ")[0], chosen, self.server.schemas[about]))

    def _data(self, select: str, rows: Sequence[Row], schema: TableSchema) -> dict[str, pa.Array]:
        names = [name for name in re.findall(r"AS \[([^\]]+)\]", select) if not name.startswith("__$")]
        return {
            name: pa.array([row.get(name) for row in rows], self.server.kind_of(schema, name))
            for name in names
            if name != "tran_end_time"
        }


def condition_of(text: str, parameters: Sequence[object]) -> Callable[[Change], bool]:
    """What a statement's condition says of a change row; its terms are joined by AND."""
    terms = re.findall(r"\[__\$(start_lsn|command_id|seqval|operation)\] (=|<=|>|<) \?", text)
    assert len(terms) == len(parameters), text

    def chosen(change: Change) -> bool:
        cells = {
            "start_lsn": change.lsn.raw,
            "command_id": change.command,
            "seqval": change.seqval.raw,
            "operation": change.operation,
        }
        return all(
            {"=": eq, "<=": le, ">": gt, "<": lt}[sign](cells[column], value)
            for (column, sign), value in zip(terms, parameters, strict=True)
        )

    return chosen


@dataclass
class SimulatedClock:
    """Time that passes only by sleeping."""

    server: SimulatedServer
    slept: timedelta = timedelta()

    def now(self) -> datetime:
        return self.server.now - self.server.behind

    def elapsed(self) -> timedelta:
        return self.slept

    def sleep(self, seconds: float) -> None:
        self.slept += timedelta(seconds=seconds)
        self.server.now += timedelta(seconds=seconds)
        self.server.meanwhile(self.slept.total_seconds())
