"""Key order and row identity of an incremental snapshot.

*Order.* A surrogate key if the signal names one, else the primary key (or unique index), else `message.key.columns`.
Values need not be unique (`chunks`).

*Identity* says which rows have changed: the primary key, the event key if not all of that is captured, and for a table
without either all columns that the log always holds. Values are compared exactly, though the collation may fold them:
a row that was read and then changed is, byte for byte, the image before its first change after the read, and one that
changed before the read is the image behind its last one. Of rows that are alike in all these columns each is taken for
changed if one is.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from cdc_assets.capture.lake import Lake
from cdc_assets.capture.statements import Statement
from cdc_assets.core.ports import BulkSource, Source
from cdc_assets.core.ranges import can_bound
from cdc_assets.core.schema import Column, TableSchema
from cdc_assets.envelope.plan import EventPlan
from cdc_assets.incremental.chunks import Ordered, Span, maximum_query, nth_key_query
from cdc_assets.ledger.signal_state import Collection, Key
from cdc_assets.ledger.state import CaptureState, TableState

log = logging.getLogger(__name__)


class UnreadableError(Exception):
    """A table cannot be read in chunks; holds the status for its notification (spec debezium-sqlserver §10.1)."""


@dataclass(frozen=True, slots=True)
class Walk:
    """Key order and row identity of one table.

    Args:
        plan: how its rows become events.
        directory: where its events go.
        instance: capture instance whose columns are read.
        ordered: the table with the columns of its key order.
        identity: indexes in the plan's columns of those that identify a row.
        lacking: names of the plan's columns that the table has lost.
    """

    plan: EventPlan
    directory: str
    instance: str
    ordered: Ordered
    identity: tuple[int, ...]
    lacking: frozenset[str]

    @property
    def large(self) -> bool:
        """Whether single rows may be large."""
        return any(column.mapped.large for column in self.plan.columns)

    @property
    def declared_width(self) -> int:
        """About the bytes of a row whose texts are full, but for large columns."""
        return sum(column.mapped.column.length or 8 for column in self.plan.columns if not column.mapped.large)

    def holds(self, lake: Lake, state: TableState) -> bool:
        """Whether the table is still streamed from the same instance, with the same structure."""
        same = state.streams and state.instance == self.instance
        return same and destination_of(lake, state) == (self.plan, self.directory)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns of the key order."""
        return tuple(column.name for column in self.ordered.columns)


def walk_of(known: CaptureState, source: Source, lake: Lake, entry: Collection) -> Walk:
    """Key order and row identity of a queued table, from its structure now.

    Raises:
        UnreadableError: the table cannot be read in chunks.
        CdcError: the server or the lake failed.
    """
    state = known.tables.get(entry.table)
    schema = source.table_schema(entry.table)
    if state is None or schema is None or schema.object_id != state.object_id or state.instance is None:
        raise UnreadableError("UNKNOWN_SCHEMA")
    if not state.streams:
        log.warning("%s is not streamed, so it cannot be read beside the stream: %s", entry.table, state.reason)
        raise UnreadableError("SKIPPED")
    plan, directory = destination_of(lake, state)
    present = {column.name for column in schema.columns}
    ordered = Ordered(entry.table, _order(entry, schema, plan), entry.condition)
    lacking = frozenset(column.name for column in plan.columns if column.name not in present)
    return Walk(plan, directory, state.instance, ordered, _identity(schema, plan, lacking), lacking)


def destination_of(lake: Lake, state: TableState) -> tuple[EventPlan, str]:
    """How a table's rows become events as the stream knows it now, and where they go.

    Raises:
        UnreadableError: nothing is known of it.
        CdcError: the lake failed.
    """
    known = lake.history.of_instance(state.table, state.instance) or lake.history.latest(state.table)
    if known is None:
        raise UnreadableError("UNKNOWN_SCHEMA")
    return lake.destination(known)


def _order(entry: Collection, schema: TableSchema, plan: EventPlan) -> tuple[Column, ...]:
    names = (entry.surrogate,) if entry.surrogate else schema.key or plan.key
    if not names:
        log.warning("%s has no key, so it cannot be read in chunks; name a surrogate-key.", entry.table)
        raise UnreadableError("NO_PRIMARY_KEY")
    columns = tuple(column for name in names if (column := schema.column(name)) is not None)
    if len(columns) < len(names) or not all(can_bound(column) for column in columns):
        log.warning(
            "%s cannot be read in chunks along %s: not all are columns of it with an ordered type.",
            entry.table, ", ".join(names),
        )  # fmt: skip
        raise UnreadableError("SKIPPED")
    return columns


def _identity(schema: TableSchema, plan: EventPlan, lacking: frozenset[str]) -> tuple[int, ...]:
    places = {column.name: place for place, column in enumerate(plan.columns)}
    if schema.key and all(name in places for name in schema.key):
        return tuple(places[name] for name in schema.key)
    if plan.key:
        return plan.key_columns
    return tuple(
        place
        for place, column in enumerate(plan.columns)
        if not column.mapped.large and not column.mapped.column.computed and column.name not in lacking
    )


def find_maximum(bulk: BulkSource, walk: Walk) -> Key:
    """The greatest key now: the end of the walk, however fast rows are added behind it.

    Raises:
        UnreadableError: there is no row.
        CdcError: the server failed.
    """
    maximum = _key(bulk, maximum_query(walk.ordered))
    if maximum is None:
        raise UnreadableError("EMPTY")
    return maximum


def next_spans(
    bulk: BulkSource, walk: Walk, entry: Collection, low: Key | None, rows: Sequence[int], *, recompile: bool
) -> list[Span]:
    """Adjacent spans behind a key, of so many rows each; fewer if the table ends, at its greatest key, before.

    Raises:
        CdcError: the server failed.
    """
    spans: list[Span] = []
    for wanted in rows:
        rest = Span(low, entry.maximum)
        high = _key(bulk, nth_key_query(walk.ordered, rest, wanted, recompile=recompile)) or entry.maximum
        spans.append(Span(low, high))
        if high == entry.maximum:
            break
        low = high
    return spans


def _key(bulk: BulkSource, statement: Statement) -> Key | None:
    """The one row of a query of keys, or None."""
    for batch in bulk.read(*statement):
        if batch.num_rows:
            return tuple(column[0].as_py() for column in batch.columns)
    return None
