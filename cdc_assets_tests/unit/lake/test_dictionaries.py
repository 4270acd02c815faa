"""Texts that are known to repeat are written without a look at each row; the file is the same."""

import io
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cdc_assets.core.repeated import encoded, repeated
from cdc_assets.lake.dictionaries import ENCODED, encode, encoded_schema
from cdc_assets.lake.encoding import encoding

ROW = pa.struct([("op", pa.string()), ("name", pa.string())])
SCHEMA = pa.schema([("value", ROW), ("headers", pa.map_(pa.string(), pa.string()))])


def rows(operations: pa.Array, names: Sequence[str | None], mask: Sequence[bool] | None = None) -> pa.RecordBatch:
    """Events with two headers each, whose texts repeat."""
    count = len(operations)
    headers = (repeated(texts, 8).array for texts in (("a", "b"), ("one", "two")))
    value = pa.StructArray.from_arrays(
        [operations, pa.array(names, pa.string())], fields=list(ROW), mask=None if mask is None else pa.array(mask)
    )
    offsets = pa.array(np.arange(9, dtype=np.int32) * 2)
    return pa.record_batch([value, pa.MapArray.from_arrays(offsets, *headers).slice(8 - count)], SCHEMA)


def constant(text: str, count: int) -> pa.Array:
    return repeated((text,), 8).array.slice(8 - count, count)


CHUNKS = {
    "all repeat": [rows(constant("c", 3), ["x", None, "y"]), rows(constant("c", 2), ["z", "z"])],
    "another value": [rows(constant("c", 2), ["x", "y"]), rows(constant("u", 2), ["x", "y"])],
    "made otherwise": [rows(constant("c", 2), ["x", "y"]), rows(pa.array(["d", "c", "c"]), ["x", "y", "z"])],
    "tombstones": [rows(constant("d", 3), ["x", None, "y"], [False, True, False])],
}


@pytest.mark.parametrize("chunks", CHUNKS.values(), ids=CHUNKS)
def test_readers_get_the_same(chunks: list[pa.RecordBatch]) -> None:
    schema = encoded_schema(pa.Table.from_batches(chunks[:1]))
    file = io.BytesIO()
    with pq.ParquetWriter(file, schema, **encoding(schema)) as writer:
        for chunk in (chunks[:1], chunks):  # the second time rows come that the first ones did not promise
            table = pa.Table.from_batches(chunk)
            writer.write_table(encode(table, schema), row_group_size=table.num_rows)
    read = pq.read_table(file)
    assert read.schema.equals(SCHEMA)
    assert read.to_pylist() == pa.Table.from_batches([chunks[0], *chunks]).to_pylist()


def test_only_what_repeats_becomes_a_dictionary() -> None:
    table = pa.Table.from_batches([rows(constant("c", count), ["x"] * count) for count in (3, 2)])
    schema = encoded_schema(table)
    assert [field.type for field in schema.field("value").type] == [ENCODED, pa.string()]
    assert schema.field("headers").type == pa.map_(ENCODED, ENCODED)
    assert encode(table, schema).column("value").chunk(0).field("op").dictionary.to_pylist() == ["c"]


def test_only_a_text_that_is_the_same_everywhere_is_not_compressed() -> None:
    table = pa.Table.from_batches([rows(constant("c", 3), ["x"] * 3)])
    schema = encoded_schema(table)
    file = io.BytesIO()
    with pq.ParquetWriter(file, schema, **encoding(schema)) as writer:
        writer.write_table(encode(table, schema))
    group = pq.read_metadata(file).row_group(0)
    columns = [group.column(place) for place in range(group.num_columns)]
    assert [column.path_in_schema for column in columns if column.compression == "UNCOMPRESSED"] == ["value.op"]


def test_a_copy_and_an_empty_text_are_unknown() -> None:
    assert encoded(pa.concat_arrays([constant("c", 2), constant("c", 2)])) is None
    assert encoded(repeated(("",), 4).array) is None
    assert encoded(pa.array([], pa.string())) is None


def test_freed_memory_is_not_taken_for_what_lay_there() -> None:
    gone = repeated(("gone",), 4).array
    repeated.cache_clear()
    assert encoded(gone) is None
