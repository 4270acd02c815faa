"""Reads a range of a topic as events in natural types; runs in tasks.

Of a file only the columns that a mirror needs are read, and only the row groups whose positions lie in the range. What the columns
of a file mean is in the schema of its generation. So a topic whose handling modes changed is read with one `TopicGeneration` for
each of its tables.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cdc_assets.errors import LakeError
from cdc_assets.lake.location import STORE_ERRORS, Location, trouble
from cdc_assets.lake.pieces import rows_at_once
from cdc_assets.mirror.fold import mask_of
from cdc_assets.mirror.natural import Natural, converter
from cdc_assets.mirror.shape import AT, OPERATION, POSITION, Shape
from cdc_assets.typemap.kernels import Numbers

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
    """

    after: str
    until: str
    known: int
    window: int

    def takes(self, positions: pa.ChunkedArray, windows: pa.ChunkedArray) -> pa.ChunkedArray:
        """Which rows lie in the range."""
        later = pc.greater(positions, self.after + _AFTER_LSN if self.after else "")
        late = pc.and_(pc.greater_equal(positions, self.after), pc.greater(windows, self.known))
        inside = pc.and_(pc.less_equal(positions, self.until + _AFTER_LSN), pc.less_equal(windows, self.window))
        return pc.and_(pc.or_(later, late), inside)

    def may_hold(self, least: str | None, greatest: str | None) -> bool:
        """Whether a file or row group may hold rows of the range; bounds that are not known may hold any."""
        return (greatest is None or greatest >= self.after) and (least is None or least <= self.until + _AFTER_LSN)


@dataclass(frozen=True, slots=True)
class EventColumn:
    """Where a mirror's column is in events.

    Args:
        name: in the mirror.
        field: of the event, with the metadata of its generation.
        in_key: whether only the key holds it.
        key_field: of the event's key, if the key holds it as well: there no rule and no filter has ever touched it.
    """

    name: str
    field: pa.Field
    wanted: Natural
    in_key: bool = False
    key_field: pa.Field | None = None


@dataclass(frozen=True)
class TopicGeneration:
    """One Delta table of a topic; picklable.

    Args:
        directory: in the lake.
        columns: of the mirror that its events have.
        stamp: name of the time in the source block: `ts_us` or `ts_ms`.
        placeholders: texts that mark a value which the log does not hold.
    """

    directory: str
    columns: tuple[EventColumn, ...]
    stamp: str = "ts_us"
    placeholders: tuple[str, ...] = ()


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
    """Reads files of a topic; picklable."""

    location: Location
    shape: Shape
    generations: tuple[TopicGeneration, ...]

    def read(self, files: Iterable[EventFile], wanted: EventRange) -> Iterator[pa.Table]:
        """Events of a range, in the order of each file.

        Raises:
            LakeError: a file cannot be read.
        """
        for file in files:
            generation = self.generations[file.generation]
            try:
                yield from self._read(generation, file, wanted)
            except STORE_ERRORS as error:
                place = f"{self.location.uri(generation.directory)}/{file.path}"
                raise trouble(f"The events in {place} cannot be read", error, "restore the file") from error

    def _read(self, generation: TopicGeneration, file: EventFile, wanted: EventRange) -> Iterator[pa.Table]:
        files, is_far = self.location.existing(generation.directory), not self.location.is_local
        with files.open_input_file(file.path) as stream, pq.ParquetFile(stream, pre_buffer=is_far) as parquet:
            (number, count), total = file.share, parquet.num_row_groups
            own = range(number * total // count, (number + 1) * total // count)
            groups = [at for at in own if wanted.may_hold(*_bounds(parquet, at))]
            names = self.columns(generation, parquet.schema_arrow)
            rows = rows_at_once(parquet, _BATCH_ROWS)
            for batch in parquet.iter_batches(rows, row_groups=groups, columns=names, use_threads=False):
                table = pa.Table.from_batches([batch])
                keep = pc.and_(wanted.takes(table["position"], table["window_id"]), pc.is_valid(table["value"]))
                keep = mask_of(keep)
                if keep.any():
                    yield self.flat(generation, table if keep.all() else table.filter(pa.array(keep)))

    def columns(self, generation: TopicGeneration, found: pa.Schema) -> list[str]:
        """Names of the columns to read, given those of a file."""
        names = ["position", "window_id", "value.op", f"value.source.{generation.stamp}"]
        keys = {part.name for part in self.shape.key}
        for column in generation.columns:
            if column.in_key:
                names.append(f"key.{column.field.name}")
                continue
            names.append(f"value.after.{column.field.name}")
            if column.key_field is not None:
                names.append(f"key.{column.key_field.name}")
            if column.name in keys:
                names.append(f"value.before.{column.field.name}")
        if pa.types.is_struct(found.field("value").type):
            return names
        raise LakeError(
            f"{generation.directory} holds no envelopes, so no table can be made of it. Next: leave it out of mirror.table.include.list."
        )

    def flat(self, generation: TopicGeneration, table: pa.Table) -> pa.Table:
        """Events in natural types; see `Shape.events`. An update of a table without a key is two of them."""
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
        for name, field in zip(self.shape.names, self.shape.events, strict=False):
            column = columns.get(name)
            made.append(pa.nulls(rows, field.type) if column is None else images.values(column, rows))
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
        """A column's values in natural types: those of the key, where it has them, and else those of the row."""
        shown = self.of(column)
        found = pa.nulls(rows, column.wanted.type) if shown is None else _natural(column.field, column.wanted, shown)
        if column.key_field is None or (own := _child(self.key, column.key_field.name)) is None:
            return found
        return pc.coalesce(_natural(column.key_field, column.wanted, own), found)

    def of(self, column: EventColumn) -> pa.Array | None:
        """A column's values as events write them; None if the file has none."""
        name = column.field.name
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


def _natural(field: pa.Field, wanted: Natural, array: pa.Array) -> pa.Array:
    found = converter(field, wanted)(array)
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _bounds(parquet: pq.ParquetFile, group: int) -> tuple[str | None, str | None]:
    """Least and greatest position of a row group."""
    metadata = parquet.metadata.row_group(group)
    for at in range(metadata.num_columns):
        column = metadata.column(at)
        if column.path_in_schema == "position":
            found = column.statistics
            return (None, None) if found is None or not found.has_min_max else (found.min, found.max)
    return None, None


def in_order(events: Sequence[pa.Table], shape: Shape) -> pa.Table:
    """Events in the order of their positions, each once; those with one position stay in the given order.

    An event may come twice while another program's rewrite is not undone yet (`lake.foreign`). With a key that would make no
    difference, without one there would be another row.
    """
    whole = pa.concat_tables(events) if events else shape.events.empty_table()
    positions = whole[POSITION].combine_chunks() if whole.num_rows else None
    if positions is None:
        return whole
    if pc.all(pc.less_equal(positions[:-1], positions[1:])).as_py() is False:
        whole = whole.take(_stable(positions))
    return whole if shape.keyed else _once(whole)


def _stable(positions: pa.Array) -> pa.Array:
    numbered = pa.table({"position": positions, "number": np.arange(len(positions))})
    return pc.sort_indices(numbered, sort_keys=[("position", "ascending"), ("number", "ascending")])


def _once(events: pa.Table) -> pa.Table:
    """Of events with one position and operation the first."""
    codes = [events[name].combine_chunks().dictionary_encode().indices.to_numpy() for name in (POSITION, OPERATION)]
    _, first = np.unique(codes[0].astype(np.int64) * len(events) + codes[1], return_index=True)
    return events if len(first) == len(events) else events.take(pa.array(np.sort(first)))
