"""The code that runs inside a task: it reads one slice of a window, for all tables that have rows in it.

A task reads each table's change rows in order, builds events and writes them;
all of it streams, so memory is bounded by a batch and a row group. It returns
only descriptions of files. A slice ends at a commit LSN, or inside a large
transaction at a place that separates no update pair (`slices`): then it holds the
rows after its `begins` and up to its `ends`, of all tables.

*A slice that begins inside a transaction* depends on the rows before it.
The events' serial numbers need the number of rows that share the place of the last one, which
is queried from each change table. Transaction metadata need the number of earlier events of each table. `count_open` finds it by
building the events once without writing them, because rows do not show how many events they become.

*Problems of one table* are returned as values, and the other tables continue: also that somebody locks its change table for longer
than a read waits. So is the error of a database that cannot be read, for ever or this time, for slices of other databases are in the same job.
Errors of the lake are raised, since they concern all databases.

*Gap guard.* After the last row the task reads the low-water marks: direct
reads do not fail when the clean-up job removes rows during the read (spec
sqlserver-cdc §1.4 no. 5). A table whose mark has passed the slice's lower bound
is reported with its marks, and its rows are not trusted.

*Completeness.* The change rows that arrive are counted, and the window is committed only if they are as many as the planner
counted (`row_counts`). Each session of the task is queried before its first row whether its server, perhaps a replica, has the
log up to the window's end (`core.ports.BulkSource.reaching`).

*Structure guard.* The same query shows whether a table was altered since its
structure was read: a new type changes the change table in place, so
rows may have arrived in another type than planned. Such a table is reported as
moved, and its rows are not trusted either. So is a table whose capture instance is gone; if
another one has its name by now, its mark is later than the slice, which is a gap.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.core.identifiers import TableId, quote
from cdc_assets.core.lsn import Lsn, Position
from cdc_assets.core.ports import BulkSource
from cdc_assets.core.task_counters import counting
from cdc_assets.envelope.amend import data_events
from cdc_assets.envelope.changes import ChangeContext, build_changes
from cdc_assets.envelope.plan import EventPlan
from cdc_assets.errors import (
    DATABASE_ERRORS,
    CdcDisabledError,
    CdcError,
    CredentialsError,
    LakeError,
    LockTimeoutError,
    QueryError,
    describe_error,
)
from cdc_assets.lake.files import DataFile, TopicWriter
from cdc_assets.lake.location import Location
from cdc_assets.ledger.state import TableRead
from cdc_assets.shared.instances import Gap, before, clip, gap_of
from cdc_assets.shared.statements import change_queries, low_water_query, preceding_queries
from cdc_assets.streaming.row_counts import RowKey, RowsRead, key_of
from cdc_assets.system_topics.transactions import TOPIC_SCHEMA, Carried, Stream, number

_PRECEDING_ROWS = 16
"""Number of rows before a slice that are read first; an update or a changed key has two."""

RowCounter = Counter[RowKey]
"""Change rows that arrived."""

_INVALID_OBJECT = 208
"""SQL Server's error number for a table that does not exist."""


@dataclass(frozen=True, slots=True)
class PlannedRead:
    """One read of a slice, with the plan and directory of its events.

    Args:
        read: capture instance and bounds.
        plan: event plan of the instance's structure.
        directory: directory of the topic generation that holds this structure.
        committed: whether an earlier attempt committed it, so that it is read only for transaction metadata.
        altered: LSN of the newest DDL of the table when its structure was read.
    """

    read: TableRead
    plan: EventPlan
    directory: str
    committed: bool = False
    altered: Lsn | None = None


@dataclass(frozen=True, slots=True)
class TransactionTopic:
    """Destination of BEGIN and END events.

    Args:
        directory: directory of the transaction topic's table.
        known: commit LSN up to which earlier windows have written transactions.
    """

    directory: str
    known: Lsn


@dataclass(frozen=True, slots=True)
class SliceTask:
    """One slice of a window.

    Args:
        database: database that it reads.
        reads: what it reads; the parts of one table follow each other.
        bulk: data plane that it reads from.
        mode: `data.query.mode`.
        offset_minutes: the server's offset from UTC, for commit times.
        transactions: the transaction topic, if `provide.transaction.metadata` is on.
        attempt: part of the names of its files.
        begins: place inside a transaction after which the slice begins.
        ends: place inside a transaction up to which the slice goes.
        carried: earlier events of the transaction that the slice begins inside.
    """

    window_id: int
    database: str
    reads: tuple[PlannedRead, ...]
    location: Location
    bulk: BulkSource
    mode: Literal["direct", "function"]
    offset_minutes: int
    transactions: TransactionTopic | None = None
    attempt: str = ""
    begins: Position | None = None
    ends: Position | None = None
    carried: Carried | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """Files of one read."""

    table: TableId
    directory: str
    files: tuple[DataFile, ...]


@dataclass(frozen=True, slots=True)
class SliceResult:
    """Result of a slice.

    Args:
        written: files by read.
        failed: tables whose rows cannot be read or turned into events, with the reason.
        gaps: tables whose changes the clean-up job removed while they were read.
        moved: tables that were altered, or lost a capture instance, while they were read.
        transactions: files of the transaction topic.
        trouble: why the database cannot be read; then there is no other result.
        locked: failed tables whose change table somebody locks for longer than a read waits.
        counts: what no event shows (`core.task_counters`).
        rows: change rows that arrived.
    """

    written: tuple[Written, ...]
    failed: dict[TableId, str] = field(default_factory=dict)
    gaps: dict[TableId, Gap] = field(default_factory=dict)
    moved: frozenset[TableId] = frozenset()
    transactions: tuple[DataFile, ...] = ()
    trouble: CdcError | None = None
    locked: Mapping[TableId, LockTimeoutError] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    rows: RowsRead = field(default_factory=dict)


def run_slice(task: SliceTask) -> SliceResult:
    """Read, build and write one slice.

    Raises:
        LakeFullError: there is no room in the lake.
        LakeError: the lake cannot be written.
    """
    try:
        with counting() as counts:
            result = _run(task)
        return replace(result, counts=dict(counts))
    except (CdcDisabledError, *DATABASE_ERRORS) as error:
        return SliceResult((), trouble=error)


def _run(task: SliceTask) -> SliceResult:
    if task.transactions is not None:
        return _run_with_transactions(task, task.transactions)
    written: list[Written] = []
    failed: dict[TableId, str] = {}
    locked: dict[TableId, LockTimeoutError] = {}
    rows = RowCounter()
    for planned in task.reads:
        table = planned.read.table
        if table in failed:
            continue
        try:
            written.append(_write_read(task, planned, rows))
        except (LakeError, CredentialsError):  # not limited to one table
            raise
        except LockTimeoutError as error:
            locked[table], failed[table] = error, describe_error(error)
        except CdcError as error:
            if error.retryable:
                raise
            failed[table] = describe_error(error)
    return SliceResult(tuple(written), failed, *_guards(task), locked=locked, rows=rows)


def _run_with_transactions(task: SliceTask, topic: TransactionTopic) -> SliceResult:
    """Read all tables side by side, so that their events can be numbered by transaction; one connection per table."""
    failed: dict[TableId, str] = {}
    locked: dict[TableId, LockTimeoutError] = {}
    rows = RowCounter()

    def stream(planned: PlannedRead, writer: TopicWriter) -> Stream:
        table = planned.read.table

        def note(error: CdcError) -> None:
            failed.setdefault(table, describe_error(error))
            if isinstance(error, LockTimeoutError):
                locked[table] = error

        return Stream(str(table), _events(task, planned, rows), _discard if planned.committed else writer.write, note)

    with ExitStack() as stack:
        writers = [stack.enter_context(_writer(task, planned)) for planned in task.reads]
        transactions_out = stack.enter_context(_topic_writer(task, topic.directory, TOPIC_SCHEMA))
        streams = [stream(planned, writer) for planned, writer in zip(task.reads, writers, strict=True)]
        continues = task.ends.commit_lsn if task.ends else None
        numbered = number(streams, topic.known, task.window_id, task.carried, continues, database=task.database)
        transactions_out.write(numbered)
    written = tuple(
        Written(planned.read.table, planned.directory, tuple(writer.files))
        for planned, writer in zip(task.reads, writers, strict=True)
        if not planned.committed and planned.read.table not in failed
    )
    return SliceResult(written, failed, *_guards(task), tuple(transactions_out.files), locked=locked, rows=rows)


def _discard(batches: Sequence[pa.RecordBatch]) -> None:
    """Sink of a table that an earlier attempt has committed."""


def _place(task: SliceTask, read: TableRead) -> Position | None:
    """Place inside a transaction after which a read begins: that of the slice, or of another reader before us."""
    places = [task.begins, read.begins.position if read.begins else None]
    return max((place for place in places if place is not None), default=None)


def _events(task: SliceTask, planned: PlannedRead, counter: RowCounter) -> Iterator[pa.RecordBatch]:
    statements = change_queries(planned.plan, planned.read, task.mode, _place(task, planned.read), task.ends)
    batches = (batch for statement, parameters in statements for batch in task.bulk.read(statement, parameters))
    rows = _noted(batches, planned.read, counter)
    context = ChangeContext(task.window_id, task.offset_minutes, preceding=_preceding(task, planned))
    return build_changes(planned.plan, rows, context)


def _noted(batches: Iterator[pa.RecordBatch], read: TableRead, counter: RowCounter) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        counter[key_of(read)] += batch.num_rows
        yield batch


def _preceding(task: SliceTask, planned: PlannedRead) -> tuple[Lsn, Lsn, int] | None:
    """Commit and change LSN of the table's row before the slice, and the number of rows up to it that share them."""
    read = planned.read
    place = _place(task, read)
    if place is None or not read.after < place.commit_lsn <= read.until:
        return None
    if read.begins and place == read.begins.position:
        return place.commit_lsn, place.change_lsn, read.begins.serial
    wanted = _PRECEDING_ROWS
    while True:
        last: list[bytes] = []
        for statement, parameters in preceding_queries(planned.plan, read, place, wanted):
            if len(last) < wanted:
                last += [bytes(value) for batch in task.bulk.read(statement, parameters) for [value] in _cells(batch)]
        if not last:
            return None
        same = len(list(takewhile(last[0].__eq__, last)))
        if same < wanted:
            return place.commit_lsn, Lsn(last[0]), same
        wanted *= 16


def _cells(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)


def count_open(task: SliceTask) -> dict[str, int]:
    """Events of each table, inside the slice, of the transaction that the slice ends inside.

    Raises:
        RetryableError: the server is away or busy; the call may be repeated.
    """
    assert task.ends is not None  # noqa: S101 - only called for such slices
    commit, counts = task.ends.commit_lsn, Counter[str]()
    for planned in task.reads:
        read = clip(planned.read, before(commit), commit)
        if read is None:
            continue
        try:
            for batch in _events(task, replace(planned, read=read), RowCounter()):
                counts[str(read.table)] += int(pc.sum(data_events(batch)).as_py() or 0)
        except CdcError as error:  # lasting problems of one table are reported when the slice is read
            if error.retryable or isinstance(error, CredentialsError):
                raise
    return dict(counts)


def _writer(task: SliceTask, planned: PlannedRead) -> TopicWriter:
    return _topic_writer(task, planned.directory, planned.plan.topic_schema)


def _topic_writer(task: SliceTask, directory: str, schema: pa.Schema) -> TopicWriter:
    return TopicWriter(task.location, directory, schema, task.window_id, task.attempt)


def _write_read(task: SliceTask, planned: PlannedRead, rows: RowCounter) -> Written:
    with _writer(task, planned) as writer:
        writer.write(_events(task, planned, rows))
    return Written(planned.read.table, planned.directory, tuple(writer.files))


def _guards(task: SliceTask) -> tuple[dict[TableId, Gap], frozenset[TableId]]:
    """Tables with a gap, and tables that were altered or lost a capture instance, while they were read.

    Raises:
        CdcDisabledError: the database has no change data capture any more.
    """
    statement, parameters = low_water_query(task.database)
    marks: dict[str, Lsn] = {}
    altered: dict[str, Lsn | None] = {}
    try:
        for batch in task.bulk.read(statement, parameters):
            for name, start, last in _cells(batch.select([0, 1, 2])):
                if start is not None:
                    marks[name], altered[name] = Lsn(bytes(start)), None if last is None else Lsn(bytes(last))
    except QueryError as error:
        if error.number != _INVALID_OBJECT:
            raise
        raise CdcDisabledError(
            f"Change data capture was turned off in database {task.database!r} while it was being read. "
            f"Next: USE {quote(task.database)}; EXEC sys.sp_cdc_enable_db"
        ) from error
    # what is read to be counted alone is in the lake: its table lacks nothing
    found = (gap_of([planned.read], marks) for planned in task.reads if not planned.read.counted)
    moved = frozenset(
        planned.read.table
        for planned in task.reads
        if planned.read.instance not in marks or altered[planned.read.instance] != planned.altered
    )
    return {gap.table: gap for gap in found if gap is not None}, moved
