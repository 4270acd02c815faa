"""Events as FlinkX (ChunJun) SQL Server CDC records (spec debezium-sqlserver §12.2).

| option | record of an update |
|---|---|
| paved | `{"type":"update","schema":…,"table":…,"lsn":…,"ts":…,"before_id":1,…,"after_id":2,…}` |
| not paved | the same with objects `before` and `after` |
| split | two records, `update_before` and `update_after`, each with its image only |

An insert has only the new image, a delete only the old one. A READ of a snapshot, which FlinkX does not have, is an
insert; tombstones are left out. `lsn` is the commit LSN. `ts` is not a time but a growing number whose upper bits are
milliseconds of the processing time, as FlinkX's. Values have the form of the event settings (time, decimal, binary
modes).
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.envelope.json_text import Pieces, joined, struct_pieces
from cdc_assets.kernels import Numbers
from cdc_assets.typemap.connect import ConnectType

_HEAD = (("type", "string"), ("schema", "string"), ("table", "string"), ("lsn", "string"), ("ts", "int64"))
_TYPES = {"c": "insert", "r": "insert", "d": "delete", "u": "update"}
_SEQUENCE_BITS = 22


def flat_schema(topic_schema: pa.Schema, *, paved: bool = True) -> pa.Schema:
    """Columns of the records of a topic."""
    head = [ConnectType(kind).to_field(name) for name, kind in _HEAD]
    envelope = topic_schema.field("value").type
    images = [envelope.field("before"), envelope.field("after")]
    if not paved:
        return pa.schema([*head, *images])
    columns = [field.with_name(f"{image.name}_{field.name}") for image in images for field in image.type]
    return pa.schema([*head, *columns])


def flat_records(
    batch: pa.RecordBatch, *, paved: bool = True, split: bool = False, last_number: int = -1
) -> pa.RecordBatch:
    """Records of a batch of a topic table.

    Args:
        batch: events.
        paved: whether images are separate columns, `before_x` and `after_x`.
        split: whether an update becomes two records.
        last_number: `ts` of the previous record; these records have greater ones.
    """
    value = batch.column("value").filter(batch.column("value").is_valid())
    types = pc.if_else(pc.equal(value.field("op"), "r"), "c", value.field("op"))
    rows, second = _rows(pc.equal(types, "u").to_numpy(zero_copy_only=False), split)
    value = value.take(pa.array(rows))
    names = _names(value.field("op"), second, split)
    before, after = value.field("before"), value.field("after")
    if split:
        before, after = _only(before, ~_is(names, "update_after")), _only(after, ~_is(names, "update_before"))
    source = value.field("source")
    head = [
        names,
        source.field("schema"),
        source.field("table"),
        source.field("commit_lsn"),
        _numbers(value, last_number),
    ]
    images = [*before.flatten(), *after.flatten()] if paved else [before, after]
    return pa.RecordBatch.from_arrays([*head, *images], schema=flat_schema(batch.schema, paved=paved))


def is_of_table(topic_schema: pa.Schema) -> bool:
    """Whether events of a topic are those of a table, which alone have this form."""
    value = topic_schema.field("value").type
    return bool(pa.types.is_struct(value)) and all(
        value.get_field_index(name) >= 0 for name in ("before", "after", "source")
    )


def origins(batch: pa.RecordBatch, *, split: bool) -> Numbers:
    """The event of each of the records, by its row in the batch."""
    value = batch.column("value")
    shown = np.flatnonzero(value.is_valid().to_numpy(zero_copy_only=False))
    rows, _ = _rows(pc.equal(value.filter(value.is_valid()).field("op"), "u").to_numpy(zero_copy_only=False), split)
    found: Numbers = shown[rows]
    return found


def _rows(updates: Numbers, split: bool) -> tuple[Numbers, Numbers]:
    """Event of each record, and the mask of records that are the second half of an update."""
    if not split:
        return np.arange(len(updates)), np.zeros(len(updates), dtype=bool)
    rows = np.repeat(np.arange(len(updates)), 1 + updates.astype(np.int64))
    second = np.zeros(len(rows), dtype=bool)
    second[1:] = rows[1:] == rows[:-1]
    return rows, second


def _names(operations: pa.Array, second: Numbers, split: bool) -> pa.Array:
    letters = pa.array(list(_TYPES))
    names = pa.array(list(_TYPES.values())).take(pc.index_in(operations, letters))
    if not split:
        return names
    halves = pc.if_else(pa.array(second), "update_after", "update_before")
    return pc.if_else(pc.equal(names, "update"), halves, names)


def _is(names: pa.Array, name: str) -> Numbers:
    found: Numbers = pc.equal(names, name).to_numpy(zero_copy_only=False)
    return found


def _only(image: pa.Array, kept: Numbers) -> pa.Array:
    """The image in those records, null in the others."""
    return image.take(pa.array(np.arange(len(image)), mask=~kept))


def _numbers(value: pa.Array, last: int) -> pa.Array:
    """Increasing numbers, even if slices built in parallel have processing times that do not increase with the
    position."""
    start = value.field("ts_ms").to_numpy(zero_copy_only=False).astype(np.int64) << _SEQUENCE_BITS
    return pa.array(np.maximum.accumulate(np.maximum(start, last + 1)) + np.arange(len(start)))


def flat_json(records: pa.RecordBatch) -> pa.Array:
    """Records as JSON text; absent images are omitted."""
    names = records.column("type")
    made, indexes = [], []
    for name in pc.unique(names).to_pylist():
        chosen = np.flatnonzero(_is(names, name))
        part = records.take(pa.array(chosen))
        left_out = {"insert": "before", "update_after": "before", "delete": "after", "update_before": "after"}.get(name)
        made.append(joined(_object(part, left_out), len(part)))
        indexes.append(chosen)
    if not made:
        return pa.array([], pa.string())
    order = np.argsort(np.concatenate(indexes), kind="stable")
    return pa.concat_arrays(made).take(pa.array(order))


def _object(records: pa.RecordBatch, left_out: str | None) -> Pieces:
    """The JSON object of records that have the same fields."""
    head = len(_HEAD)
    fields = [
        field
        for index, field in enumerate(records.schema)
        if index < head or left_out is None or field.name.partition("_")[0] != left_out
    ]
    columns = pa.StructArray.from_arrays([records.column(field.name) for field in fields], fields=fields)
    return struct_pieces(fields, columns, defaults=False)
