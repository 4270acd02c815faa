"""Changes events after they are built: snapshot markers and transaction blocks."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.envelope.blocks import MARKERS
from cdc_assets.errors import InvalidValueError


def mark(batch: pa.RecordBatch, row: int, marker: str) -> pa.RecordBatch:
    """The batch with another snapshot marker in one row; negative rows count from the end.

    Raises:
        InvalidValueError: the marker is not one of Debezium's.
    """
    if marker not in MARKERS:
        raise InvalidValueError("snapshot marker", marker, ", ".join(MARKERS), "use a marker of Debezium")
    value = batch.column("value")
    source = value.field("source")
    chosen = np.zeros(batch.num_rows, dtype=bool)
    chosen[row] = True
    markers = pc.if_else(pa.array(chosen), marker, source.field("snapshot"))
    return _with_value(batch, replaced(value, "source", replaced(source, "snapshot", markers)))


def data_events(batch: pa.RecordBatch) -> pa.Array:
    """Mask of the rows that count in a transaction: all but tombstones."""
    return batch.column("value").is_valid()


def with_transactions(batch: pa.RecordBatch, total_order: pa.Array, collection_order: pa.Array) -> pa.RecordBatch:
    """The batch with transaction blocks; the transaction's id is the commit LSN (spec debezium-sqlserver §7).

    Args:
        batch: events of change rows.
        total_order: number of each event within its transaction, from 1; null for no block. Values in a tombstone's row
            are not used.
        collection_order: number among the transaction's events of the same table, from 1.
    """
    value = batch.column("value")
    kind = value.type.field("transaction").type
    children = [
        value.field("source").field("commit_lsn"),
        total_order.cast(pa.int64()),
        collection_order.cast(pa.int64()),
    ]
    absent = pc.or_(total_order.is_null(), value.is_null())
    block = pa.StructArray.from_arrays(children, fields=list(kind), mask=absent)
    return _with_value(batch, replaced(value, "transaction", block))


def _with_value(batch: pa.RecordBatch, value: pa.Array) -> pa.RecordBatch:
    index = batch.schema.get_field_index("value")
    return batch.set_column(index, batch.schema.field("value"), value)


def replaced(array: pa.Array, name: str, child: pa.Array) -> pa.Array:
    """A struct array with one child replaced."""
    kind = array.type
    fields = [kind.field(index) for index in range(kind.num_fields)]
    children = [child if field.name == name else array.field(field.name) for field in fields]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
