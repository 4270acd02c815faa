"""What is known of a table whose mirror is compared, and the tasks that follow from it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime

import pyarrow as pa

from cdc_assets.config.column_rules import hides
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import quote
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.ports import BulkSource, KeyRange
from cdc_assets.core.ranges import can_bound, cut_by, to_text, where
from cdc_assets.core.schema import Column, TableSchema
from cdc_assets.envelope.naming import adjusted, topic_name
from cdc_assets.envelope.plan import ConnectorIdentity, EventPlan, plan_events
from cdc_assets.errors import LakeError
from cdc_assets.history.store import SchemaHistory
from cdc_assets.lake.events import TopicGeneration, TopicReader
from cdc_assets.lake.location import Location
from cdc_assets.lake.pieces import Piece
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.table_state import TableState
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.delta import MirrorTables, current_directory, history_directory
from cdc_assets.mirror.leaves import Leaf
from cdc_assets.mirror.ledger import MirrorState
from cdc_assets.mirror.natural import EXACT
from cdc_assets.reconcile.tasks import Compared, CompareTask, ReadTask
from cdc_assets.shared.statements import source_text

_ALIKE = frozenset({"tinyint", "smallint", "int", "bigint", "date"})
"""Types whose values the mirror orders as the server does."""


@dataclass(frozen=True)
class Subject:
    """A table whose mirror is compared.

    Args:
        schema: its structure now.
        plan: how its rows become events.
        reader: how events become rows of the mirror.
        generation: of the topic to which the plan writes.
        text_columns: the key's columns, or without a key those that can identify rows.
        column: column of the mirror by which ranges are cut on both sides; None if only the server can.
        lsn: up to which the mirror is right.
        window: greatest number of a window that it has read.
        hidden: names of the mirror's columns whose values are never shown: those that a rule changes, and those of the
            key that events do not show.
        tells: whether the texts of a row's key may be recorded: no rule hides any of its columns.
    """

    topic: str
    schema: TableSchema
    plan: EventPlan
    compared: Compared
    reader: TopicReader
    generation: TopicGeneration
    text_columns: tuple[Column, ...]
    column: str | None
    lsn: str
    window: int
    hidden: frozenset[str] = frozenset()
    tells: bool = True

    def leaves(self, tables: MirrorTables) -> list[Leaf]:
        """The mirror's leaves, at least one.

        Raises:
            LakeError: another program has rewritten them.
        """
        tables.tables.forget(self.compared.current)
        found = tables.leaves(self.compared.current)
        if found is None:
            raise LakeError(
                f"{self.compared.current} was rewritten by another program. Next: cdc-assets mirror --rebuild {self.topic}."
            )
        return found or [Leaf((), b"")]

    def read_task(
        self, entry: KeyRange, low: Lsn, server_time: datetime, bounds: tuple[bytes, ...], bulk: BulkSource
    ) -> ReadTask:
        """The task that reads a range from the server; columns that the table has lost are NULL."""
        present = {column.name for column in self.schema.columns}
        lacking = frozenset(column.name for column in self.plan.columns if column.name not in present)
        columns = [source_text(column, lacking) for column in self.plan.columns]
        columns += [
            f"{to_text(column, f'[t].{quote(column.name)}')} AS {quote(f'__cdc_assets_key_{number}')}"
            for number, column in enumerate(self.text_columns)
        ]
        condition, parameters = where(self.schema, entry)
        text = f"/* cdc-assets: chunk to compare */ SELECT {', '.join(columns)} FROM {self.schema.table.quoted} AS [t]"  # noqa: S608 - quoted names
        statement = (f"{text} WHERE {condition}" if condition else text, parameters)
        return ReadTask(
            self.compared, statement, self.plan, self.reader, self.generation, low, server_time, bounds, bulk
        )

    def compare_tasks(
        self, tables: MirrorTables, leaves: Sequence[Leaf], pieces: Sequence[Piece], ranges: Sequence[KeyRange]
    ) -> list[CompareTask]:
        """A task for each leaf that the ranges touch; one for all if a row's place depends on values that events omit.

        A file that a step has replaced since the leaves were listed may hold anything.
        """
        spans = tuple((self._bound(entry.low), self._bound(entry.high)) for entry in ranges) if self.column else ()
        outside = self._outside(tables, spans)
        return [
            CompareTask(self.compared, leaf.paths, own, self.column, spans)
            for number, leaf in enumerate(leaves)
            if (own := tuple(piece for piece in pieces if piece.number == number)) or not outside.issuperset(leaf.paths)
        ]

    def _bound(self, text: str | None) -> object:
        if text is None:
            return None
        kind = self.compared.shape.current.field(str(self.column)).type
        return date.fromisoformat(text) if pa.types.is_date(kind) else int(text)

    def _outside(self, tables: MirrorTables, spans: Sequence[tuple[object, object]]) -> set[str]:
        """Files that hold no rows of the spans."""
        handle = tables.tables.open(self.compared.current)
        if self.column is None or handle is None:
            return set()
        chosen = set[str]()
        for row in pa.table(handle.get_add_actions(flatten=True)).to_pylist():
            least, greatest = row.get(f"min.{self.column}"), row.get(f"max.{self.column}")
            if least is None or greatest is None:
                continue
            if not any((low is None or low <= greatest) and (high is None or least < high) for low, high in spans):
                chosen.add(row["path"])
        return chosen


def subject_of(
    config: CaptureConfig,
    topics: TopicTables,
    mirrors: CaptureMirrors,
    state: TableState,
    schema: TableSchema,
    known: MirrorState,
) -> Subject:
    """What is known of a table and its mirror.

    Raises:
        CdcError: the lake cannot be read, or the table has no mirror.
    """
    table, events = schema.table, config.events
    topic = topic_name(table, events)
    found, troubles = mirrors.found([table])
    if troubles or not found:
        raise troubles.get(topic) or LakeError(f"{table} has no mirror. Next: cdc-assets mirror {table}.")
    about, plan = found[0].description, _plan_of(config, topics, state)
    # the generation that an event would enter now: its columns have the types in which both sides are compared
    directory = topics.directory_for(topic, plan.topic_schema)
    generation = next((made for made in about.generations if made.directory == directory), about.generations[-1])
    shape = about.shape
    # only columns that both sides have, since a dropped one would differ in every row
    present = {column.name for column in schema.columns}
    fields = {adjusted(column.name, events.field_name_adjustment) for column in plan.columns if column.name in present}
    names = tuple(column.name for column in generation.columns if column.field in fields)
    texts = tuple(column for name in schema.key if (column := schema.column(name)) is not None) or tuple(
        column for column in schema.columns if can_bound(column) and not column.computed
    )
    location = Location.of(config.lake)
    compared = Compared(
        location,
        shape,
        names,
        len(texts),
        current_directory(topic),
        history_directory(topic),
        f"{topic}.__reconciling",
    )
    reader = TopicReader(location, shape, about.generations)
    # reports name rows that differ, and must not show what a rule hides in events
    hidden = frozenset(
        column.name
        for column in shape.columns
        if (column.source != column.name and column.note != EXACT.note) or hides(table, column.source, events)
    )
    tells = not any(hides(table, column.name, events) for column in texts)
    return Subject(
        topic,
        schema,
        plan,
        compared,
        reader,
        generation,
        texts,
        _cut_by(compared, schema),
        known.lsn,
        known.window,
        hidden,
        tells,
    )


def _plan_of(config: CaptureConfig, topics: TopicTables, state: TableState) -> EventPlan:
    """How events of a table are made of its rows, as the schema history knows them."""
    history = SchemaHistory(topics, config.events, config.history, ConnectorIdentity())
    history.read()
    entry = history.of_instance(state.table, state.identity)
    if entry is None:
        raise LakeError(f"The schema history does not know {state.table}. Next: restore it from a copy.")
    return plan_events(entry.schema, entry.captured, config.events, connector=ConnectorIdentity())


def _cut_by(compared: Compared, schema: TableSchema) -> str | None:
    """The column by which both sides can be cut alike: the leading key, if it is an integer or a date on both."""
    leading = cut_by(schema)
    if leading is None or leading.type_name not in _ALIKE or not compared.shape.keyed:
        return None
    for part in compared.shape.key:
        column = next(column for column in compared.shape.columns if column.name == part.name)
        is_whole = pa.types.is_integer(column.type) or pa.types.is_date32(column.type)
        if column.source == leading.name and is_whole:
            return column.name
    return None
