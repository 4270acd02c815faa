"""Reads a range of a topic as events of rows, in the types that these have; runs in tasks.

Of a file only the columns that the rows need are read, and only the row groups whose positions lie in the range. What the columns
of a file mean is in the schema of its generation. So a topic whose handling modes changed is read with one `TopicGeneration` for
each of its tables. How values become those of the rows, who describes a generation says (`EventColumn.convert`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cdc_assets.errors import ConfigurationError, LakeError
from cdc_assets.kernels import Numbers, mask_of
from cdc_assets.lake.location import Location
from cdc_assets.lake.pieces import rows_at_once
from cdc_assets.lake.reading import extent, opened, plain
from cdc_assets.lake.row_shape import AT, OPERATION, RowShape

Convert = Callable[[pa.Array], pa.Array]
"""Makes values of rows out of those of events; picklable."""

_BATCH_ROWS = 32 * 1024
_AFTER_LSN = "~"
"""Sorts after every position of a commit LSN."""


@dataclass(frozen=True, slots=True)
class EventRange:
    """Which events of a topic a step takes.

    Args:
        after: commit LSN up to which events are applied; empty if none are.
        until: greatest commit LSN, inclusive.
        known: number of the window up to which events at `after` are applied. A READ is committed at an LSN that may be
            reached already.
        window: greatest number of a window; later ones are perhaps not complete.
        first: least position; empty for any.
    """

    after: str
    until: str
    known: int
    window: int
    first: str = ""

    def takes(self, positions: pa.ChunkedArray, windows: pa.ChunkedArray) -> pa.ChunkedArray:
        """Which rows lie in the range."""
        later = pc.greater(positions, self.after + _AFTER_LSN if self.after else "")
        late = pc.and_(pc.greater_equal(positions, self.after), pc.greater(windows, self.known))
        inside = pc.and_(pc.less_equal(positions, self.until + _AFTER_LSN), pc.less_equal(windows, self.window))
        found = pc.and_(pc.or_(later, late), inside)
        return pc.and_(found, pc.greater_equal(positions, self.first)) if self.first else found

    def may_hold(self, least: str | None, greatest: str | None) -> bool:
        """Whether a file or row group may hold rows of the range; bounds that are not known may hold any."""
        return (greatest is None or greatest >= self.after) and (least is None or least <= self.until + _AFTER_LSN)


@dataclass(frozen=True, slots=True)
class EventColumn:
    """Where a column of rows is in events; picklable.

    Args:
        name: in rows.
        type: of its values in rows.
        field: its name in events.
        convert: makes values of the rows out of those of events, which mean what the metadata of their generation says.
        in_key: whether only the key holds it.
        convert_key: does so with values of the event's key, if that holds them as well: there no rule and no filter has ever
            touched them.
    """

    name: str
    type: pa.DataType
    field: str
    convert: Convert
    in_key: bool = False
    convert_key: Convert | None = None


@dataclass(frozen=True)
class TopicGeneration:
    """One Delta table of a topic; picklable.

    Args:
        directory: in the lake.
        columns: of the rows that its events have.
        stamp: name of the time in the source block: `ts_us` or `ts_ms`.
        placeholders: texts that mark a value which the log does not hold.
    """

    directory: str
    columns: tuple[EventColumn, ...]
    stamp: str = "ts_us"
    placeholders: tuple[str, ...] = ()


@dataclass(frozen=True)
class TopicDescription:
    """How the events of a topic are read as rows.

    Args:
        generations: the topic's tables, oldest first.
        coarse: numbers of those whose events shorten the key, with the refusal that follows.
        altered: commit LSN of the newest structure that changed rows without an event; events before it may have another key. Empty if
            there is none.
    """

    shape: RowShape
    generations: tuple[TopicGeneration, ...]
    coarse: Mapping[int, ConfigurationError] = field(default_factory=dict)
    altered: str = ""


@dataclass(frozen=True, slots=True)
class EventFile:
    """A file of a topic.

    Args:
        generation: index of its generation.
        rows: number of its rows.
        least: its least position.
        share: which part of its row groups is meant, and how many parts there are.
    """

    generation: int
    path: str
    rows: int
    least: str
    greatest: str
    share: tuple[int, int] = (0, 1)


@dataclass(frozen=True)
class TopicReader:
    """Reads files of a topic; picklable.

    Args:
        removed: whether deletions have what the log holds of their rows, and not their keys only.
    """

    location: Location
    shape: RowShape
    generations: tuple[TopicGeneration, ...]
    removed: bool = False

    def read(self, files: Iterable[EventFile], wanted: EventRange) -> Iterator[pa.Table]:
        """Events of a range, in the order of each file.

        Raises:
            LakeError: a file cannot be read.
        """
        for file in files:
            yield from (events for events, _ in self.numbered(file, wanted))

    def numbered(self, file: EventFile, wanted: EventRange) -> Iterator[tuple[pa.Table, Numbers]]:
        """Events of a range of one file, and the numbers of the rows of the file in which they are.

        An update of a table without a key is two events (`flat`), so there numbers and events do not correspond.

        Raises:
            LakeError: the file cannot be read.
        """
        generation = self.generations[file.generation]
        with opened(self.location, generation.directory, file.path) as parquet:
            (number, count), total = file.share, parquet.num_row_groups
            own = range(number * total // count, (number + 1) * total // count)
            groups = [at for at in own if wanted.may_hold(*extent(parquet, at, "position") or (None, None))]
            names = self.columns(generation, parquet.schema_arrow)
            numbers, start = _numbers(parquet, groups), 0
            rows = rows_at_once(parquet, _BATCH_ROWS)
            for batch in parquet.iter_batches(rows, row_groups=groups, columns=names, use_threads=False):
                table = pa.Table.from_batches([plain(batch)])
                keep = mask_of(
                    pc.and_(wanted.takes(table["position"], table["window_id"]), pc.is_valid(table["value"]))
                )
                if keep.any():
                    chosen = table if keep.all() else table.filter(pa.array(keep))
                    yield self.flat(generation, chosen), numbers[start : start + batch.num_rows][keep]
                start += batch.num_rows

    def columns(self, generation: TopicGeneration, found: pa.Schema) -> list[str]:
        """Names of the columns to read, given those of a file."""
        names = ["position", "window_id", "value.op", f"value.source.{generation.stamp}"]
        keys = {part.name for part in self.shape.key}
        for column in generation.columns:
            if column.in_key:
                names.append(f"key.{column.field}")
                continue
            names.append(f"value.after.{column.field}")
            if column.convert_key is not None:
                names.append(f"key.{column.field}")
            if column.name in keys or (self.removed and column.name not in self.shape.large):
                names.append(f"value.before.{column.field}")
        if pa.types.is_struct(found.field("value").type):
            return names
        raise LakeError(
            f"{generation.directory} holds no envelopes, so no table can be made of it. Next: leave it out of mirror.table.include.list."
        )

    def flat(self, generation: TopicGeneration, table: pa.Table) -> pa.Table:
        """Events in the types of the rows; see `RowShape.events`. An update of a table without a key is two of them."""
        value = table["value"].combine_chunks()
        operations, after = pc.struct_field(value, "op"), _child(value, "after")
        before = _child(value, "before")
        removes = mask_of(pc.equal(operations, "d"))
        key = table["key"].combine_chunks() if "key" in table.column_names else None
        if self.shape.keyed:
            return self._events(generation, table, operations, _Images(after, before, key, removes))
        sets = self._events(generation, table, operations, _Images(after, before, key, removes))
        updates = np.flatnonzero(mask_of(pc.equal(operations, "u")))
        if not len(updates):
            return sets
        both = _Images(before, before, key, np.zeros(len(removes), dtype=bool))
        removals = self._events(generation, table, operations, both).take(pa.array(updates))
        place = removals.schema.get_field_index(OPERATION)
        removals = removals.set_column(place, OPERATION, pa.repeat(pa.scalar("-"), len(updates)))
        order = np.argsort(np.concatenate([np.arange(table.num_rows) * 2 + 1, updates * 2]), kind="stable")
        return pa.concat_tables([sets, removals]).take(pa.array(order))

    def _events(
        self, generation: TopicGeneration, table: pa.Table, operations: pa.Array, images: "_Images"
    ) -> pa.Table:
        rows = table.num_rows
        columns = {column.name: column for column in generation.columns}
        made: list[pa.Array] = []
        for name, known in zip(self.shape.names, self.shape.values, strict=True):
            column = columns.get(name)
            made.append(pa.nulls(rows, known.type) if column is None else images.values(column, rows))
        made += [table["position"].combine_chunks(), operations, self._times(generation, table)]
        for name in self.shape.large:
            made.append(_missing(generation, made[self.shape.names.index(name)]))
        return pa.Table.from_arrays(made, schema=self.shape.events)

    @staticmethod
    def _times(generation: TopicGeneration, table: pa.Table) -> pa.Array:
        source = pc.struct_field(table["value"].combine_chunks(), "source")
        stamps = pc.struct_field(source, generation.stamp)
        return (stamps if generation.stamp == "ts_us" else pc.multiply(stamps, 1000)).cast(AT)


@dataclass(frozen=True, slots=True)
class _Images:
    """Where an event's values come from: a deletion has its key in `before`."""

    after: pa.Array | None
    before: pa.Array | None
    key: pa.Array | None
    removes: Numbers

    def values(self, column: EventColumn, rows: int) -> pa.Array:
        """A column's values as rows have them: those of the key, where it has them, and else those of the row."""
        shown = self.of(column)
        found = pa.nulls(rows, column.type) if shown is None else _whole(column.convert(shown))
        if column.convert_key is None or (own := _child(self.key, column.field)) is None:
            return found
        return pc.coalesce(_whole(column.convert_key(own)), found)

    def of(self, column: EventColumn) -> pa.Array | None:
        """A column's values as events write them; None if the file has none."""
        name = column.field
        if column.in_key:
            return _child(self.key, name)
        set_to = _child(self.after, name)
        if not self.removes.any():
            return set_to
        removed = _child(self.before, name)
        if set_to is None or removed is None:
            return set_to
        return pc.if_else(pa.array(self.removes), removed, set_to)


def _child(array: pa.Array | None, name: str) -> pa.Array | None:
    """A struct's field, null where the struct is; None if there is no such field."""
    if array is None or not pa.types.is_struct(array.type) or array.type.get_field_index(name) < 0:
        return None
    return pc.struct_field(array, array.type.get_field_index(name))


def _missing(generation: TopicGeneration, values: pa.Array) -> pa.Array:
    """Which values are placeholders."""
    texts = pa.array([text.encode() for text in generation.placeholders], pa.binary()).cast(values.type)
    return pc.and_(pc.is_valid(values), pc.is_in(values, value_set=texts))


def _whole(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _numbers(parquet: pq.ParquetFile, groups: Sequence[int]) -> Numbers:
    """Numbers of the rows of some row groups."""
    ends = np.cumsum([parquet.metadata.row_group(at).num_rows for at in range(parquet.num_row_groups)], dtype=np.int64)
    parts = [np.arange(ends[at - 1] if at else 0, ends[at]) for at in groups]
    return np.concatenate([np.empty(0, dtype=np.int64), *parts])
