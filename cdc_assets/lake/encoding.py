"""How the columns of a topic's data file are encoded: Parquet options, each measured on events of eight columns.

No choice changes what a reader sees. They were taken by processor time, with files that are no larger. Leaves that hold a few
runs of a value in a row group are not written by these options but as their runs (`parquet.pages`).
"""

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

_REPEATED = ("value.source.", "value.transaction.", "value.op", "value.ts_", "headers.", "window_id")
"""Columns whose values repeat from row to row: only for them a dictionary reduces size without costing time."""

_ORDERED = ("value.source.ts_", "value.source.commit_lsn", "value.ts_", "window_id")
"""Columns whose least and greatest value let a reader skip a row group; the others have the same values everywhere."""

_OLD = "value.before."
"""Values that are gone: no row is searched for by them, and their statistics take a twentieth of the time."""

_BATCH_ROWS = 8 * 1024
"""Rows that the writer takes at once of a column; of its own accord it takes a thousand."""


def encoding(schema: pa.Schema, of_columns: Mapping[str, str] | None = None) -> dict[str, object]:
    """Options of `ParquetWriter`: 2.5 times as fast as dictionaries everywhere, half the size.

    `position` is unique but neighbours share most of it, which delta encoding keeps once. zstd at level 1 is the
    fastest codec that halves the remaining size. Statistics of constant columns would take an eighth of the time.

    Args:
        schema: of what is written.
        of_columns: encodings of some leaves (`ordered`).
    """
    names = list(_leaves(schema))
    repeated = [name for name in names if name.startswith(_REPEATED) and name != "value.source.change_lsn"]
    options: dict[str, object] = {
        "store_schema": False,
        "store_decimal_as_integer": True,
        "write_batch_size": _BATCH_ROWS,
        "compression": "ZSTD",
        "compression_level": 1,
        "use_dictionary": repeated or False,
        "write_statistics": [name for name in names if has_statistics(name)] or False,
    }
    special = {"position": "DELTA_BYTE_ARRAY"} if "position" in names else {}
    if special := special | dict(of_columns or {}):
        options["column_encoding"] = special
    return options


_ROWS = ("before", "after")
"""Structs of a table's own columns."""
_SAMPLE = 256
"""Rows of a batch from which its order is judged."""
_WHOLE = (pa.int16(), pa.int32(), pa.int64())


def ordered(table: pa.Table) -> dict[str, str]:
    """Encodings of whole numbers that grow or fall from row to row, such as a generated key in a snapshot.

    Their differences take a few bits, which is smaller and faster than the numbers and zstd. Of numbers in no order, or of a
    few that come again, zstd makes less than their differences take.

    Args:
        table: what is written.
    """
    return {
        path: "DELTA_BINARY_PACKED"
        for field, column in zip(table.schema, table.columns, strict=True)
        if field.name in ("key", "value")
        for path, arrays in _whole_numbers(field, column.chunks, field.name)
        if _is_ordered(arrays)
    }


def _whole_numbers(field: pa.Field, arrays: list[pa.Array], path: str) -> Iterator[tuple[str, list[pa.Array]]]:
    """Leaves of the table's own columns that hold whole numbers, with their batches."""
    if field.type in _WHOLE:
        yield path, arrays
    elif pa.types.is_struct(field.type):
        for place, child in enumerate(field.type):
            if path != "value" or child.name in _ROWS:
                yield from _whole_numbers(child, [array.field(place) for array in arrays], f"{path}.{child.name}")


def _is_ordered(arrays: list[pa.Array]) -> bool:
    """Whether a few numbers at the beginning and in the middle of each batch only grow, or only fall."""
    rising = falling = False
    for array in arrays:
        for start in (0, len(array) // 2):
            steps = np.diff(array.slice(start, _SAMPLE).drop_null().to_numpy())
            rising, falling = rising or bool((steps > 0).any()), falling or bool((steps < 0).any())
            if rising and falling:
                return False
    return rising or falling


def has_statistics(name: str) -> bool:
    """Whether files tell the least and greatest value of this leaf column."""
    return name.startswith(_ORDERED) or not name.startswith((*_REPEATED, _OLD))


def _leaves(schema: pa.Schema) -> Iterator[str]:
    """Parquet's dotted names of all leaf columns."""
    for field in schema:
        yield from _leaves_of(field.type, field.name)


def _leaves_of(kind: pa.DataType, path: str) -> Iterator[str]:
    if pa.types.is_struct(kind):
        for child in kind:
            yield from _leaves_of(child.type, f"{path}.{child.name}")
    elif pa.types.is_map(kind):
        yield f"{path}.key_value.key"
        yield from _leaves_of(kind.item_type, f"{path}.key_value.value")
    elif pa.types.is_list(kind):
        yield from _leaves_of(kind.value_type, f"{path}.list.element")
    else:
        yield path
