"""Row groups of events in which columns repeat in all the ways that they do."""

import io
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from cdc_assets.core.repeated import repeated, repeated_number
from cdc_assets.envelope.number_texts import number_texts
from cdc_assets.lake.parquet.file import ParquetFile

SOURCE = pa.struct([("db", pa.string()), ("ts_ms", pa.int64()), ("sequence", pa.string())])
ROW = pa.struct([("id", pa.int32()), ("name", pa.string()), ("tags", pa.list_(pa.string())), ("paid", pa.bool_())])
VALUE = pa.struct([("before", ROW), ("after", ROW), ("source", SOURCE), ("op", pa.string())])
HEADERS = pa.map_(pa.string(), pa.string())
SCHEMA = pa.schema([("position", pa.string()), ("value", VALUE), ("headers", HEADERS), ("window_id", pa.int64())])
ROOM = 4096


def headers(rows: int, pairs: Sequence[tuple[str, str]]) -> pa.Array:
    """The same ones in each row, in the middle of a longer column."""
    offsets = pa.array(np.arange(rows + 3, dtype=np.int32) * len(pairs))
    texts = [repeated(tuple(column), ROOM).array for column in zip(*pairs, strict=True)] or [[], []]
    return pa.MapArray.from_arrays(offsets, *texts).slice(2)


def batch(
    first: int,
    rows: int,
    *,
    before: Sequence[bool] | None = None,
    tombstones: Sequence[bool] | None = None,
    op: str | None = "c",
    ts_ms: int | None = 5,
    pairs: Sequence[tuple[str, str]] | None = (("name", "shop"), ("task", "0"), ("type", "0")),
    slice_number: int | None = None,
) -> pa.RecordBatch:
    """Events; `before` and `tombstones` are masks of nulls. With a slice number they are READs, whose positions count."""
    numbers = np.arange(first, first + rows)
    columns = [
        pa.array(numbers, pa.int32()),
        pa.array([f"name {number}" for number in numbers]),
        pa.array([["x"] * (int(number) % 3) for number in numbers], pa.list_(pa.string())),
        pa.nulls(rows, pa.bool_()),
    ]
    row = pa.StructArray.from_arrays(columns, fields=list(ROW))
    shown = np.ones(rows, bool) if before is None else np.resize(before, rows)
    source = [
        repeated(("shop",), ROOM).array.slice(3, rows),
        pa.array(numbers if ts_ms is None else [ts_ms] * rows, pa.int64()),
        pa.nulls(rows, pa.string()),
    ]
    value = [
        pa.StructArray.from_arrays(columns, fields=list(ROW), mask=pa.array(shown)),
        row,
        pa.StructArray.from_arrays(source, fields=list(SOURCE)),
        pa.array(["c", "u"] * rows, pa.string()).slice(0, rows)
        if op is None
        else repeated((op,), ROOM).array.slice(0, rows),
    ]
    mask = None if tombstones is None else pa.array(np.resize(tombstones, rows))
    made = [
        pa.array([f"{number:08d}" for number in numbers])
        if slice_number is None
        else number_texts(f"0000002c/ffffffff/00000002:{slice_number:04x}", first, rows + 1, "/0").slice(1),
        pa.StructArray.from_arrays(value, fields=list(VALUE), mask=mask),
        pa.array([[("own", str(number))] for number in numbers], HEADERS) if pairs is None else headers(rows, pairs),
        pa.array([7] * rows, pa.int64()) if slice_number is None else repeated_number(7, rows + 2).slice(2),
    ]
    return pa.RecordBatch.from_arrays(made, schema=SCHEMA)


GROUPS: dict[str, list[list[pa.RecordBatch]]] = {
    "one value": [[batch(0, 1000)]],
    "one row": [[batch(0, 1)]],
    "several values": [[batch(0, 900), batch(900, 1, op="u", ts_ms=-6), batch(901, 90, ts_ms=2**60)]],
    "a group of its own kind": [[batch(0, 9)], [batch(9, 900, op=None, ts_ms=None, pairs=None)], [batch(1000, 9)]],
    "old rows come and go": [[batch(0, 100, before=[False]), batch(100, 50), batch(150, 50, before=[True, False])]],
    "tombstones": [[batch(0, 100), batch(100, 901, tombstones=[False, False, True])]],
    "tombstones alone": [[batch(0, 9, tombstones=[True]), batch(9, 2, tombstones=[True, False], op="d", ts_ms=None)]],
    "no headers": [[batch(0, 1000, pairs=())], [batch(1000, 3, pairs=())]],
    "one header": [[batch(0, 77, pairs=[("a", "b")])]],
    "headers of two kinds": [[batch(0, 10), batch(10, 10, pairs=[("a", "b")])]],
    "READs": [[batch(0xFF80, 700, slice_number=1)]],
    "READs of several slices": [
        [batch(0, 1, slice_number=1), batch(1, 1, slice_number=1), batch(15, 300, slice_number=1)],
        [batch(0xFFFFF, 1, slice_number=2), batch(0x100000, 40, slice_number=2), batch(0, 3, slice_number=3)],
        [batch(3, 1, slice_number=3), batch(0xFFFFFF, 2, slice_number=4)],
    ],
    "READs and others": [[batch(3, 20), batch(0, 20, slice_number=1)]],
    "many headers": [[batch(0, 333, pairs=[(str(number), str(number % 5)) for number in range(9)])]],
}


def written(groups: list[list[pa.RecordBatch]]) -> bytes:
    stream = io.BytesIO()
    file = ParquetFile(stream, SCHEMA)
    for group in groups:
        file.write(pa.Table.from_batches(group))
    file.close()
    return stream.getvalue()
