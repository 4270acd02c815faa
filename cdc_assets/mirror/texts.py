"""Texts that repeat, held once: columns of rows as dictionary arrays, which Parquet has as they are.

A leaf is decoded, folded and encoded again. Of a text that repeats its file holds numbers and, once for each row group, the
texts. So they stay: `portions_of` reads such columns as dictionary arrays, folding moves the numbers, and the file's
writer takes dictionaries over. That is a fraction of the work of making each text again and looking for it among the
others, and of the memory. Whether a column is a dictionary array says nothing about its meaning.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

TEXTS = pa.dictionary(pa.int32(), pa.string())
_SAMPLED, _FEW = 4096, 1024
_ENCODED_BYTES = 4
"""Bytes of a value up to which a text takes less room as a number: numbers have at most two, the rest is the texts' share."""


def is_encoded(kind: pa.DataType) -> bool:
    """Whether arrays of a type are texts by number."""
    return bool(pa.types.is_dictionary(kind))


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type of the values."""
    return kind.value_type if is_encoded(kind) else kind


def names_of_encoded(parquet: pq.ParquetFile) -> list[str]:
    """Text columns that a file holds as numbers in most of its room."""
    found = []
    metadata, schema = parquet.metadata, parquet.schema_arrow
    if not metadata.num_row_groups:
        return []
    group = metadata.row_group(0)
    for at in range(group.num_columns):
        column = group.column(at)
        name = column.path_in_schema
        if (
            column.has_dictionary_page
            and column.total_uncompressed_size <= _ENCODED_BYTES * column.num_values
            and name in schema.names
            and pa.types.is_string(schema.field(name).type)
        ):
            found.append(name)
    return found


def repeats(column: pa.ChunkedArray) -> bool:
    """Whether a column's texts seem to repeat, so that a dictionary is worth its while."""
    if is_encoded(column.type):
        return True
    if not pa.types.is_string(column.type):
        return False
    sample = column.slice(0, _SAMPLED)
    return len(sample) < _FEW or pc.count_distinct(sample).as_py() <= len(sample) // 2


def in_form(column: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Texts by number or each by itself, as the type says; other values as they are."""
    if column.type == kind or plain_type(column.type) != plain_type(kind):
        return column
    return column.dictionary_encode() if is_encoded(kind) else column.cast(kind)


def plain(table: pa.Table) -> pa.Table:
    """A table with each text by itself."""
    columns = [in_form(column, plain_type(column.type)) for column in table.columns]
    return pa.Table.from_arrays(columns, names=table.column_names)


def whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column in one piece; of dictionaries one is made."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    found = column.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)


def joined(columns: Sequence[pa.Array | pa.ChunkedArray]) -> pa.Array:
    """Columns one after the other; texts by number if they are so in the first one."""
    kind = columns[0].type
    return pa.concat_arrays([whole(in_form(column, kind)) for column in columns])


def compacted(column: pa.Array) -> pa.Array:
    """A dictionary array without texts that no row has: a file would keep them for ever."""
    numbers = column.indices
    is_used = np.zeros(len(column.dictionary), dtype=bool)
    is_used[numbers.drop_null().to_numpy()] = True
    if is_used.all():
        return column
    moved = pa.array(np.maximum(np.cumsum(is_used) - 1, 0).astype(np.int32))
    return pa.DictionaryArray.from_arrays(moved.take(numbers), column.dictionary.filter(pa.array(is_used)))
