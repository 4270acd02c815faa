"""Describes rows of topics as their table was when they were written.

The metadata of a topic's table are those with which its fields were added (`lake.evolution`). What has changed since is in the schema
history: whether a column may be null, its default, its length. An entry is committed under the number of a window, before the data, and holds
from its LSN on; windows are in the order of the log. So the entry of a row is the last one of an earlier window, or of its own window
if its LSN is not above. Rows of a snapshot have the entries before them, as its rounds follow its structures.

A field that was optional once stays so, for a registry takes no schema that cannot read what was written before. What the history does not
know (a field that a setting shapes otherwise by now) stays as the table describes it.
"""

import itertools
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from threading import Lock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.envelope.naming import topic_name
from cdc_assets.envelope.plan import ConnectorIdentity, plan_events
from cdc_assets.errors import ConfigurationError, LakeError
from cdc_assets.history.records import HistoryEntry
from cdc_assets.history.store import SchemaHistory
from cdc_assets.lake.topics import TopicTables
from cdc_assets.publish.offset import PublishOffset

_SAME = (b"connect.type", b"connect.name", b"connect.version")
"""What a column's values mean; if it differs, they are others."""
_OPTIONAL = b"connect.optional"
_ROWS = ("before", "after")


class Structures:
    """Structures of the tables of one capture, from its schema history.

    Args:
        tables: the lake's Delta tables.
    """

    def __init__(self, config: CaptureConfig, tables: TopicTables) -> None:
        self._config, self._tables = config, tables
        self._history = SchemaHistory(tables, config.events, config.history, ConnectorIdentity())
        self._lock, self._is_due, self._version = Lock(), True, -1
        self._begins: dict[str, list[PublishOffset]] = {}
        """Where entries begin, by topic."""
        self._entries: dict[str, list[HistoryEntry]] = {}
        self._planned: dict[tuple[str, int], pa.Schema | None] = {}

    def expect_more(self) -> None:
        """Have the history read again, if it has grown, before the next rows are described."""
        self._is_due = True

    def parts(self, topic: str, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Rows of a topic in their order, those of one structure together, with its metadata.

        Raises:
            LakeError: the schema history cannot be read.
        """
        with self._lock:
            self._refresh()
            begins = self._begins.get(topic, [])
        first, last = (self._entry(begins, batch, row) for row in (0, batch.num_rows - 1))
        edges = [0, *(_first_row(batch, begins[number]) for number in range(first + 1, last + 1)), batch.num_rows]
        for number, (start, stop) in enumerate(itertools.pairwise(edges), first):
            if start < stop:
                yield self._described(topic, number, batch.slice(start, stop - start))

    @staticmethod
    def _entry(begins: Sequence[PublishOffset], batch: pa.RecordBatch, row: int) -> int:
        """Number of a row's entry; -1 if there is none."""
        offset = batch.column("window_id")[row].as_py(), batch.column("position")[row].as_py()
        return bisect_right(begins, offset) - 1

    def _refresh(self) -> None:
        """Read the history if that is due. It stays due if it cannot be read: no row may be described by less than there is."""
        if not self._is_due:
            return
        handle = self._tables.open(self._history.directory)
        if handle is None:
            if self._version >= 0:
                raise LakeError(
                    f"The schema history {self._history.directory} has disappeared. Next: see whether the lake's file system is "
                    "mounted (lake.path)"
                )
            return
        if handle.version() != self._version:
            self._read()
            self._version = handle.version()
        self._is_due = False

    def _read(self) -> None:
        self._begins.clear()
        self._entries.clear()
        self._planned.clear()
        topics: dict[TableId, str] = {}
        for window, entry in self._history.read():
            if entry.kind != "DROP":
                topic = topics.setdefault(entry.table, topic_name(entry.table, self._config.events))
                self._begins.setdefault(topic, []).append((window, str(entry.lsn)))
                self._entries.setdefault(topic, []).append(entry)

    def _described(self, topic: str, number: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        planned = self._schema(topic, max(number, 0))
        if planned is None:
            return batch
        fields = [_of(field, planned) for field in batch.schema]
        return pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema(fields, batch.schema.metadata))

    def _schema(self, topic: str, number: int) -> pa.Schema | None:
        """The structure of an entry's events; None if there is no entry, or the settings fit it no more."""
        entries = self._entries.get(topic, [])
        if number >= len(entries):
            return None
        if (topic, number) not in self._planned:
            entry = entries[number]
            try:
                plan = plan_events(entry.schema, entry.captured, self._config.events, connector=ConnectorIdentity())
                self._planned[topic, number] = plan.topic_schema
            except ConfigurationError:
                self._planned[topic, number] = None
        return self._planned[topic, number]


def _first_row(batch: pa.RecordBatch, begin: PublishOffset) -> int:
    """Number of the first row that is not before a place; rows are in their order."""
    window, position = batch.column("window_id"), batch.column("position")
    before = pc.or_(
        pc.less(window, begin[0]), pc.and_(pc.equal(window, begin[0]), pc.less(position, begin[1]))
    ).to_numpy(zero_copy_only=False)
    return int(np.count_nonzero(before))


def _of(field: pa.Field, planned: pa.Schema) -> pa.Field:
    """A column of a topic, described by a structure."""
    if field.name not in ("key", "value") or not pa.types.is_struct(field.type):
        return field
    other = planned.field(field.name)
    if field.name == "key":
        return _row(field, other)
    rows = {name: other.type.field(name) for name in _ROWS}
    return field.with_type(
        pa.struct([_row(child, rows[child.name]) if child.name in rows else child for child in field.type])
    )


def _row(own: pa.Field, other: pa.Field) -> pa.Field:
    """A record of columns, each described by that of the same name, if its values mean the same."""
    if not pa.types.is_struct(own.type) or not pa.types.is_struct(other.type):
        return own
    known = {field.name: field for field in other.type}
    return own.with_type(pa.struct([_column(child, known.get(child.name)) for child in own.type]))


def _column(own: pa.Field, other: pa.Field | None) -> pa.Field:
    mine = own.metadata or {}
    if other is None or any(mine.get(name) != (other.metadata or {}).get(name) for name in _SAME):
        return own
    found = dict(other.metadata)
    if mine.get(_OPTIONAL) == b"true":
        found[_OPTIONAL] = b"true"
    return own.with_metadata(found)
