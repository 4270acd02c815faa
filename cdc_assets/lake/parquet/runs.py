"""Finds leaf columns of a row group that hold a few runs of the same value, and the table without them.

Most columns of an envelope are like that: the source block names the table, a READ has no `before`, every event has the same
headers. Of such a column nothing needs to be checked row by row (`pages`).

*Why no value is lost.* A leaf is taken out only if each of its batches is known to hold one value: a slice of repeated texts
(`core.repeated`), nulls by their count, integers that are repeated or were compared. All other leaves stay.

*The switch.* With `CDC_PLAIN_PARQUET=1` in the environment no leaf is taken out and pyarrow writes all. Tests
set it: nothing but speed and the size of files may depend on this package.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from cdc_assets.core.repeated import number_of, repeated_texts
from cdc_assets.lake.parquet.pages import Cycle, Numbers, Path, Repetition, Run

MAP_ENTRIES = ("key_value",)
"""Parquet's name of the entries of a map."""
_MAX_RUNS = 256
"""Beyond so many, Parquet's writer is as fast."""

VARIABLE: Final = "CDC_PLAIN_PARQUET"


@dataclass(slots=True)
class _Rows:
    """Rows of one batch below some ancestors.

    Args:
        array: a column, or a child of one.
        level: definition level of rows whose ancestors are there.
        absent: whether an ancestor is null in all rows.
        present: rows whose outermost ancestor is there, if it is null in some.
    """

    array: pa.Array
    level: int
    absent: bool = False
    present: Numbers | None = None

    def inner(self, field: pa.Field, array: pa.Array) -> "_Rows | None":
        """The rows of a child; None if nulls come and go below the outermost ancestor."""
        if self.absent:
            return _Rows(array, self.level, True, self.present)
        if not field.nullable:
            return _Rows(array, self.level, False, self.present)
        nulls = array.null_count
        if nulls == len(array):
            return _Rows(array, self.level, True, self.present)
        if not nulls:
            return _Rows(array, self.level + 1, False, self.present)
        if self.present is None and self.level == 0 and pa.types.is_struct(array.type):
            return _Rows(array, 1, False, array.is_valid().to_numpy(zero_copy_only=False))
        return None


def repetitions(table: pa.Table) -> dict[Path, Repetition]:
    """The leaves, by Parquet's path, that hold a few runs."""
    if os.environ.get(VARIABLE):
        return {}
    found: dict[Path, Repetition] = {}
    for field, column in zip(table.schema, table.columns, strict=True):
        chunks = [_Rows(array, 0).inner(field, array) for array in column.chunks]
        known = [rows for rows in chunks if rows is not None]
        if known and len(known) == len(chunks):
            found.update(_leaves((field.name,), field.type, known))
    return found


def _leaves(path: Path, kind: pa.DataType, chunks: Sequence[_Rows]) -> Iterator[tuple[Path, Repetition]]:
    if pa.types.is_struct(kind):
        for index in range(kind.num_fields):
            field = kind.field(index)
            inner = [rows.inner(field, rows.array.field(index)) for rows in chunks]
            known = [rows for rows in inner if rows is not None]
            if len(known) == len(inner):
                yield from _leaves((*path, field.name), field.type, known)
    elif pa.types.is_map(kind):
        yield from _map_leaves(path, chunks)
    elif not pa.types.is_nested(kind):
        content = _runs(chunks)
        if content is not None:
            yield path, content


def _runs(chunks: Sequence[_Rows]) -> tuple[Run, ...] | None:
    found: list[Run] = []
    for rows in chunks:
        known = _value(rows)
        if known is None or len(found) > _MAX_RUNS:
            return None
        value = None if rows.absent else known[0]
        last = found[-1] if found else None
        if last and last.present is None and rows.present is None and (last.level, last.value) == (rows.level, value):
            found[-1] = Run(last.rows + len(rows.array), rows.level, value)
        else:
            found.append(Run(len(rows.array), rows.level, value, rows.present))
    return tuple(found)


def _value(rows: _Rows) -> tuple[str | int | None] | None:
    """The only value of some rows, or None if there may be several."""
    array, kind = rows.array, rows.array.type
    if rows.absent:
        return (None,)
    if pa.types.is_string(kind):
        texts = repeated_texts(array)
        return (texts[0],) if texts is not None and len(texts) == 1 else None
    if not pa.types.is_int64(kind):
        return None
    same = number_of(array)
    if same is not None:
        return (same,)
    numbers = np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array)]
    shown = numbers if rows.present is None else numbers[rows.present]
    return (int(shown[0]),) if shown[0] == shown[-1] and bool((shown == shown[0]).all()) else None


def _map_leaves(path: Path, chunks: Sequence[_Rows]) -> Iterator[tuple[Path, Cycle]]:
    """Keys and items of a map that is the same in every row."""
    entries = {_entries(rows) for rows in chunks}
    if len(entries) == 1 and (same := entries.pop()) is not None:
        rows = sum(len(each.array) for each in chunks)
        level = chunks[0].level
        for number, name in enumerate(("key", "value")):
            texts = tuple(pair[number] for pair in same)
            yield (*path, *MAP_ENTRIES, name), Cycle(texts, rows, level + (number + 1 if texts else 0))


def _entries(rows: _Rows) -> tuple[tuple[str, str], ...] | None:
    """The entries that each row's map has, or None if maps may differ."""
    array = rows.array
    if rows.absent or rows.present is not None or not array.type.item_field.nullable:
        return None
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    first, each = int(offsets[0]), int(offsets[1] - offsets[0])
    if not bool((np.diff(offsets) == each).all()):
        return None
    if not each:
        return ()
    names, values = repeated_texts(array.keys), repeated_texts(array.items)
    whole = names is not None and values is not None and len(names) == len(values) == each
    aligned = (first + array.keys.offset) % each == (first + array.items.offset) % each == 0
    return tuple(zip(names or (), values or (), strict=True)) if whole and aligned else None


def without(table: pa.Table, paths: set[Path]) -> pa.Table:
    """The table without these leaves, and without structs and maps of which none is left."""
    batches = [_without_batch(batch, paths) for batch in table.to_batches()]
    return pa.Table.from_batches(batches)


def _without_batch(batch: pa.RecordBatch, paths: set[Path]) -> pa.RecordBatch:
    columns, fields = [], []
    for field, array in zip(batch.schema, batch.columns, strict=True):
        kept = _kept(array, (field.name,), paths)
        if kept is not None:
            columns.append(kept)
            fields.append(field.with_type(kept.type))
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _kept(array: pa.Array, path: Path, paths: set[Path]) -> pa.Array | None:
    kind = array.type
    if path in paths or (*path, *MAP_ENTRIES, "key") in paths:
        return None
    if not pa.types.is_struct(kind) or not any(other[: len(path)] == path for other in paths):
        return array
    fields = [kind.field(index) for index in range(kind.num_fields)]
    inner = [
        (field, kept)
        for index, field in enumerate(fields)
        if (kept := _kept(array.field(index), (*path, field.name), paths)) is not None
    ]
    if not inner:
        return None
    return pa.StructArray.from_arrays(
        [kept for _, kept in inner],
        fields=[field.with_type(kept.type) for field, kept in inner],
        mask=array.is_null() if array.null_count else None,
    )
