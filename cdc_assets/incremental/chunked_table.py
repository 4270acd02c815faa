"""Key order and row identity of an incremental snapshot.

*Order.* A surrogate key if the signal names one, else the primary key (or unique index), else `message.key.columns`.
Values need not be unique (`chunks`).

*Identity* decides which rows have changed: the primary key; the event key if the log does not hold all of the primary key;
and for a table without either, all columns that the log always holds. Values are compared exactly, even if the
collation treats them as equal: a row that was read and then changed is, byte for byte, the image before its first change after the
read. A row that changed before the read is the image after its last one.

*Without a key* several rows may be alike, and if one of them has changed it is not known which of those that were read it
is. Then the round is read again, in smaller ones, until none has changed meanwhile; if that does not come about, the table is
given up. And the key order has only columns of the identity, so that rows that are alike are read in one span.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from cdc_assets.core.lsn import ZERO_LSN
from cdc_assets.core.ports import BulkSource, Source
from cdc_assets.core.ranges import can_bound, type_of_bounds
from cdc_assets.core.schema import Column, InstanceId, TableSchema
from cdc_assets.envelope.columns import EventColumn
from cdc_assets.envelope.plan import EventPlan
from cdc_assets.errors import InvalidValueError
from cdc_assets.incremental.chunks import Ordered, Span, maximum_query, nth_key_query
from cdc_assets.ledger.signal_state import Key, QueuedTable
from cdc_assets.ledger.state import CaptureState
from cdc_assets.ledger.table_state import TableState
from cdc_assets.shared.lake import Lake
from cdc_assets.shared.selects import require_predicate
from cdc_assets.shared.statements import Statement


class UnreadableError(Exception):
    """A table cannot be read in chunks.

    Args:
        status: for its notification (spec debezium-sqlserver §10.1).
        reason: with the next step, for people; empty if the status says all.
    """

    def __init__(self, status: str, reason: str = "") -> None:
        super().__init__(status)
        self.status, self.reason = status, reason


@dataclass(frozen=True, slots=True)
class ChunkedTable:
    """Key order and row identity of one table.

    Args:
        plan: event plan of its rows.
        directory: directory of its topic table.
        instance: capture instance whose columns are read.
        ordered: the table with the columns of its key order.
        identity: indexes in the plan's columns of those that identify a row.
        lacking: names of the plan's columns that the table has lost.
        unique: whether its identity tells each row from all others.
        own: whether its identity is the table's own key: a message key may repeat, and pass from one row to another.
    """

    plan: EventPlan
    directory: str
    instance: InstanceId
    ordered: Ordered
    identity: tuple[int, ...]
    lacking: frozenset[str]
    unique: bool = True
    own: bool = True

    @property
    def large(self) -> bool:
        """Whether a single row may be large."""
        return any(column.mapped.large for column in self.plan.columns)

    @property
    def omittable(self) -> tuple[EventColumn, ...]:
        """Columns of which an update may omit the value, though the row has one; none if any change makes a round useless."""
        columns = [self.plan.columns[index] for index in self.plan.value_columns] if self.unique else []
        return tuple(
            column
            for column in columns
            if column.mapped.large and not column.mapped.column.computed and column.name not in self.lacking
        )

    @property
    def declared_width(self) -> int:
        """Approximate size of a row in bytes if its texts are full, without large columns."""
        return sum(column.mapped.column.length or 8 for column in self.plan.columns if not column.mapped.large)

    def holds(self, lake: Lake, state: TableState) -> bool:
        """Whether the table is still streamed from the same instance, with the same structure."""
        same = state.streams and state.identity == self.instance
        return same and destination_of(lake, state) == (self.plan, self.directory)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns of the key order."""
        return tuple(column.name for column in self.ordered.columns)

    @property
    def types(self) -> tuple[str, ...]:
        """What the order of their values depends on."""
        return tuple(type_of_bounds(column) for column in self.ordered.columns)

    def continues(self, entry: QueuedTable) -> bool:
        """Whether the keys of a queued table that is begun belong to this key order."""
        return entry.maximum is not None and (entry.order, entry.types or self.types) == (self.names, self.types)


def chunked_table(known: CaptureState, source: Source, lake: Lake, entry: QueuedTable) -> ChunkedTable:
    """Key order and row identity of a queued table, from its structure now.

    Raises:
        UnreadableError: the table cannot be read in chunks.
        CdcError: the server or the lake failed.
    """
    state = known.tables.get(entry.table)
    known_up_to = ZERO_LSN if state is None else state.position or ZERO_LSN
    schema = source.table_schema(entry.table, known_up_to)
    if state is None or schema is None or schema.object_id != state.object_id or state.identity is None:
        raise UnreadableError("UNKNOWN_SCHEMA")
    if not state.streams:
        raise UnreadableError("SKIPPED", f"It is not streamed, so no incremental snapshot can read it: {state.reason}")
    plan, directory = destination_of(lake, state)
    present = {(column.name, column.ordinal) for column in schema.columns}  # one that was made again is another column
    lacking = frozenset(
        column.name for column in plan.columns if (column.name, column.mapped.column.ordinal) not in present
    )
    identity, unique = _identity(schema, plan, lacking)
    held = None if unique else {plan.columns[index].name for index in identity}
    ordered = Ordered(entry.table, _order(entry, schema, plan, held), _condition(entry))
    return ChunkedTable(
        plan, directory, state.identity, ordered, identity, lacking, unique, _is_own(schema, plan, identity)
    )


def _condition(entry: QueuedTable) -> str:
    """The condition of the signal; checked again, because it comes out of the lake."""
    try:
        require_predicate(entry.condition)
    except InvalidValueError as error:
        raise UnreadableError("SQL_EXCEPTION", str(error)) from error
    return entry.condition


def destination_of(lake: Lake, state: TableState) -> tuple[EventPlan, str]:
    """The plan by which the stream turns a table's rows into events, and the directory of its topic table.

    Raises:
        UnreadableError: the table has no recorded structure.
        CdcError: the lake failed.
    """
    known = lake.history.of_instance(state.table, state.identity)
    if known is None:
        raise UnreadableError("UNKNOWN_SCHEMA")
    return lake.destination(known)


def _order(
    entry: QueuedTable, schema: TableSchema, plan: EventPlan, held: Collection[str] | None
) -> tuple[Column, ...]:
    """Columns of the key order.

    Args:
        held: columns of the identity, if several rows may be alike in them; None if not.
    """
    names = (entry.surrogate,) if entry.surrogate else schema.key or plan.key
    names = tuple(name for name in names if held is None or name in held)
    if not names:
        raise UnreadableError(
            "NO_PRIMARY_KEY",
            "It has no captured key, so it cannot be read in chunks. Next: name a captured column that is not large as "
            "surrogate-key in the signal, or request a blocking snapshot.",
        )
    columns = tuple(column for name in names if (column := schema.column(name)) is not None)
    if len(columns) < len(names) or not all(can_bound(column) for column in columns):
        raise UnreadableError(
            "SKIPPED",
            f"It cannot be read in chunks by {', '.join(names)}: not all of these are columns of it with an ordered type. "
            "Next: name another column as surrogate-key in the signal, or request a blocking snapshot.",
        )
    return columns


def _identity(schema: TableSchema, plan: EventPlan, lacking: frozenset[str]) -> tuple[tuple[int, ...], bool]:
    """Indexes of the columns of the identity, and whether they tell each row from all others."""
    logged = {  # of all others change rows hold NULL, or may
        column.name: index
        for index, column in enumerate(plan.columns)
        if not (column.mapped.large or column.mapped.column.computed or column.name in lacking)
    }
    for key in (schema.key, plan.key):
        if key and logged.keys() >= set(key):
            return tuple(logged[name] for name in key), True
    return tuple(logged.values()), False


def _is_own(schema: TableSchema, plan: EventPlan, identity: Sequence[int]) -> bool:
    return tuple(plan.columns[index].name for index in identity) == tuple(schema.key or ())


def find_maximum(bulk: BulkSource, chunked: ChunkedTable) -> Key:
    """The greatest key now: the snapshot of the table ends there, however fast rows are added after it.

    Raises:
        UnreadableError: the table has no rows.
        CdcError: the server failed.
    """
    maximum = _key(bulk, maximum_query(chunked.ordered))
    if maximum is None:
        raise UnreadableError("EMPTY")
    return maximum


def next_spans(
    bulk: BulkSource,
    chunked: ChunkedTable,
    entry: QueuedTable,
    low: Key | None,
    rows: Sequence[int],
    *,
    recompile: bool,
) -> list[Span]:
    """Adjacent spans after a key, with the given numbers of rows; fewer if they reach the table's greatest key.

    Raises:
        CdcError: the server failed.
    """
    spans: list[Span] = []
    for wanted in rows:
        remaining = Span(low, entry.maximum)
        high = _key(bulk, nth_key_query(chunked.ordered, remaining, wanted, recompile=recompile)) or entry.maximum
        spans.append(Span(low, high))
        if high == entry.maximum:
            break
        low = high
    return spans


def _key(bulk: BulkSource, statement: Statement) -> Key | None:
    """The only row of a key query, or None."""
    for batch in bulk.read(*statement):
        if batch.num_rows:
            return tuple(column[0].as_py() for column in batch.columns)
    return None
