"""Texts that repeat go into Parquet as indexes into a dictionary, without hashing each row.

A Parquet writer finds the distinct texts of a column by hashing every row. For columns that event building has made by
repetition (`core.repeated`) they are known, and the writer uses dictionary arrays as they are. The file is the same, with
the same types and pages.

The first rows of a file decide which columns are dictionaries, because a file has one structure. Later rows of such a
column that were made in another way are encoded here.
"""

from collections.abc import Sequence

import pyarrow as pa

from cdc_assets.core.repeated import encoded

ENCODED = pa.dictionary(pa.int32(), pa.string())


def encoded_schema(table: pa.Table) -> pa.Schema:
    """The table's structure, in which texts that are known to repeat are dictionaries."""
    fields = [_encoded_field(field, table[index].chunks) for index, field in enumerate(table.schema)]
    return pa.schema(fields, table.schema.metadata)


def encode(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table in a structure that `encoded_schema` gave."""
    columns = [
        pa.chunked_array(_encode(table[index].chunks, field.type), field.type) for index, field in enumerate(schema)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _encoded_field(field: pa.Field, arrays: Sequence[pa.Array]) -> pa.Field:
    return field.with_type(_encoded_type(field.type, arrays))


def _encoded_type(kind: pa.DataType, arrays: Sequence[pa.Array]) -> pa.DataType:
    if pa.types.is_struct(kind):
        children = (kind.field(index) for index in range(kind.num_fields))
        return pa.struct(
            [_encoded_field(child, [array.field(index) for array in arrays]) for index, child in enumerate(children)]
        )
    if pa.types.is_map(kind):
        keys, items = [array.keys for array in arrays], [array.items for array in arrays]
        return pa.map_(_encoded_type(kind.key_type, keys), _encoded_field(kind.item_field, items))
    known = pa.types.is_string(kind) and all(encoded(array) is not None for array in arrays)
    return ENCODED if known else kind


def _encode(arrays: Sequence[pa.Array], kind: pa.DataType) -> list[pa.Array]:
    """Consecutive arrays, in a type that has dictionaries."""
    if all(array.type == kind for array in arrays):
        return list(arrays)
    if pa.types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        columns = [_encode([array.field(index) for array in arrays], field.type) for index, field in enumerate(fields)]
        return [
            pa.StructArray.from_arrays(
                list(children), fields=fields, mask=array.is_null() if array.null_count else None
            )
            for array, *children in zip(arrays, *columns, strict=True)
        ]
    if pa.types.is_map(kind):
        arrays = [pa.concat_arrays([array]) if array.null_count else array for array in arrays]
        keys = _encode([array.keys for array in arrays], kind.key_type)
        items = _encode([array.items for array in arrays], kind.item_type)
        return [
            pa.MapArray.from_arrays(
                array.offsets, names, values, kind, mask=array.is_null() if array.null_count else None
            )
            for array, names, values in zip(arrays, keys, items, strict=True)
        ]
    found = [known if (known := encoded(array)) is not None else array.dictionary_encode() for array in arrays]
    if all(array.dictionary.equals(found[0].dictionary) for array in found):
        return found
    return list(pa.chunked_array(found).unify_dictionaries().chunks)  # a file's rows share one dictionary
