"""Assembles the parts of events into a batch of the topic table."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from cdc_assets.core.repeated import number_of, repeated_number
from cdc_assets.envelope.blocks import assemble, release
from cdc_assets.envelope.constants import constant
from cdc_assets.envelope.headers import context_headers
from cdc_assets.envelope.plan import EventPlan
from cdc_assets.kernels import Numbers

Clock = Callable[[], int]
"""Nanoseconds since 1970, such as `time.time_ns`."""

now_ns: Clock = time.time_ns


@dataclass(frozen=True)
class Parts:
    """Columns of a batch of events, all of the same length.

    Args:
        position: printed positions.
        key: key structs, or None for a table without key.
        before: row structs or null.
        after: row structs or null.
        operation: event letters.
        times: microseconds since 1970 of the source's clock, int64.
        snapshot: markers.
        change_lsn: printed, or None for null.
        commit_lsn: printed.
        serial: event_serial_no, or None for null.
        tombstone: rows without value, or None if there are none.
        headers: the headers column, or None for the context headers alone.
    """

    position: pa.Array
    key: pa.Array | None
    before: pa.Array | None
    after: pa.Array | None
    operation: pa.Array
    times: pa.Array
    snapshot: pa.Array
    commit_lsn: pa.Array
    change_lsn: pa.Array | None = None
    serial: pa.Array | None = None
    tombstone: Numbers | None = None
    headers: pa.Array | None = None


def event_batch(plan: EventPlan, parts: Parts, window_id: int, processed_ns: int) -> pa.RecordBatch:
    """A batch in the plan's topic schema."""
    rows = len(parts.position)
    columns = [
        parts.position,
        pa.nulls(rows, pa.string()) if parts.key is None else parts.key,
        _values(plan, parts, processed_ns),
        context_headers(plan, rows) if parts.headers is None else parts.headers,
        repeated_number(window_id, rows),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=plan.topic_schema)


def _values(plan: EventPlan, parts: Parts, processed_ns: int) -> pa.Array:
    rows = len(parts.position)
    kind = plan.topic_schema.field("value").type
    children = {
        "before": parts.before,
        "after": parts.after,
        "source": _source(plan, parts, kind.field("source").type),
        "op": parts.operation,
        "ts_ms": repeated_number(processed_ns // 1_000_000, rows),
        "ts_us": repeated_number(processed_ns // 1000, rows),
        "ts_ns": repeated_number(processed_ns, rows),
    }
    present = {name: array for name, array in children.items() if array is not None}
    mask = None if parts.tombstone is None else pa.array(parts.tombstone)
    return assemble(kind, present, rows, mask)


def _source(plan: EventPlan, parts: Parts, kind: pa.DataType) -> pa.Array:
    rows = len(parts.position)
    children = {
        "version": constant(release(plan.settings), rows),
        "connector": constant("sqlserver", rows),
        "name": constant(plan.settings.topic_prefix, rows),
        **_stamps(parts),
        "snapshot": parts.snapshot,
        "db": constant(plan.table.database, rows),
        "schema": constant(plan.table.schema, rows),
        "table": constant(plan.table.table, rows),
        "commit_lsn": parts.commit_lsn,
    }
    if parts.change_lsn is not None:
        children["change_lsn"] = parts.change_lsn
    if parts.serial is not None:
        children["event_serial_no"] = parts.serial
    return assemble(kind, children, rows)


def _stamps(parts: Parts) -> dict[str, pa.Array]:
    """`ts_ms`, `ts_us`, `ts_ns` of the source block."""
    same, rows = number_of(parts.times), len(parts.times)
    if same is not None:
        found = {"ts_ms": same // 1000, "ts_us": same, "ts_ns": same * 1000}
        return {name: repeated_number(value, rows) for name, value in found.items()}
    micros = parts.times.to_numpy(zero_copy_only=False) if parts.times.null_count == 0 else None
    if micros is None:
        filled = parts.times.fill_null(0).to_numpy(zero_copy_only=False)
        hidden = parts.times.is_null().to_numpy(zero_copy_only=False)
    else:
        filled, hidden = micros, None
    made = {"ts_ms": filled // 1000, "ts_us": filled, "ts_ns": filled * 1000}
    return {name: pa.array(values, mask=hidden) for name, values in made.items()}
