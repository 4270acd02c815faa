"""Rows as the bulk reader gives them, and plans to build events from them."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pyarrow as pa

from cdc_assets.config.settings import EventSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.schema import Column, TableSchema
from cdc_assets.envelope.changes import ChangeContext, build_changes
from cdc_assets.envelope.plan import ConnectorIdentity, EventPlan, plan_events

IDENTITY = ConnectorIdentity(run_id="run")

_ARRIVES: Mapping[str, pa.DataType] = {
    "bit": pa.bool_(),
    "tinyint": pa.uint8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "real": pa.float32(),
    "float": pa.float64(),
    "money": pa.decimal128(19, 4),
    "smallmoney": pa.decimal128(10, 4),
    "date": pa.date32(),
    "time": pa.time64("ns"),
    "smalldatetime": pa.timestamp("us"),
    "datetime": pa.timestamp("us"),
    **dict.fromkeys(("binary", "varbinary", "image", "rowversion", "hierarchyid"), pa.large_binary()),
}


def ticks(text: str) -> int:
    """Ticks of 100 ns of `hh:mm:ss.fffffff`."""
    clock, _, fraction = text.partition(".")
    moment = time.fromisoformat(clock)
    return (moment.hour * 3600 + moment.minute * 60 + moment.second) * 10_000_000 + int(fraction.ljust(7, "0") or 0)


def datetime2_bytes(text: str) -> bytes:
    """The server's binary form of a datetime2(7)."""
    day, _, clock = text.partition("T")
    days = date.fromisoformat(day).toordinal() - 1
    return b"\x07" + ticks(clock).to_bytes(5, "little") + days.to_bytes(3, "little")


def datetimeoffset_bytes(text: str) -> bytes:
    """The server's binary form of a datetimeoffset(7), whose text ends in `+hh:mm` or `-hh:mm`."""
    local, sign, zone = text[:-6], text[-6], text[-5:]
    minutes = (int(zone[:2]) * 60 + int(zone[3:])) * (-1 if sign == "-" else 1)
    day, _, clock = local.partition("T")
    days, rest = divmod(ticks(clock) - minutes * 600_000_000, 864_000_000_000)
    days += date.fromisoformat(day).toordinal() - 1
    return (
        b"\x07" + rest.to_bytes(5, "little") + days.to_bytes(3, "little") + minutes.to_bytes(2, "little", signed=True)
    )


def arriving(column: Column, values: Sequence[Any]) -> pa.Array:
    """Python values of a column as the bulk reader gives them; times as ISO text."""
    name = column.type_name
    if name in ("decimal", "numeric"):
        return pa.array(values, pa.decimal128(column.precision or 18, column.scale or 0))
    if name == "datetime2" and column.scale in (None, 7):
        return pa.array([None if value is None else datetime2_bytes(value) for value in values], pa.large_binary())
    if name == "datetimeoffset":
        return pa.array([None if value is None else datetimeoffset_bytes(value) for value in values], pa.large_binary())
    if name in ("smalldatetime", "datetime", "datetime2"):
        moments = [None if value is None else datetime.fromisoformat(value) for value in values]
        return pa.array(moments, pa.timestamp("us"))
    if name == "time":
        return pa.array([None if value is None else ticks(value) * 100 for value in values], pa.int64()).cast(
            pa.time64("ns")
        )
    return pa.array(values, _ARRIVES.get(name, pa.large_string()))


def table_batch(plan: EventPlan, rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    """Rows of a table as `plan.select_list` gives them."""
    columns = list(zip(*rows, strict=True)) or [[] for _ in plan.columns]
    arrays = [arriving(column.mapped.column, values) for column, values in zip(plan.columns, columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in plan.columns])


def change(
    commit: str,
    seqval: str,
    operation: int,
    *,
    mask: bytes = b"\xff",
    at: str = "2026-11-21T09:00:00",
    command: int = 1,
) -> tuple[Any, ...]:
    """The metadata of a change row."""
    return (Lsn.parse(commit).raw, command, Lsn.parse(seqval).raw, operation, mask, datetime.fromisoformat(at))


def change_batch(plan: EventPlan, rows: Sequence[tuple[tuple[Any, ...], Sequence[Any]]]) -> pa.RecordBatch:
    """Change rows as `change_select_list` gives them."""
    types = [pa.large_binary(), pa.int32(), pa.large_binary(), pa.int32(), pa.large_binary(), pa.timestamp("us")]
    leading = [
        pa.array(values, kind)
        for values, kind in zip(zip(*[meta for meta, _ in rows], strict=True), types, strict=True)
    ]
    names = ["__$start_lsn", "__$command_id", "__$seqval", "__$operation", "__$update_mask", "tran_end_time"]
    data = table_batch(plan, [values for _, values in rows])
    return pa.RecordBatch.from_arrays([*leading, *data.columns], names=[*names, *data.schema.names])


def plan_of(
    name: str,
    columns: Sequence[Column],
    key: Sequence[str] = ("id",),
    settings: EventSettings | None = None,
    captured: Sequence[str] | None = None,
) -> EventPlan:
    """A plan for `TestDB.dbo.<name>` under the prefix `shop`."""
    schema = TableSchema(TableId("TestDB", "dbo", name), 1, tuple(columns), tuple(key))
    return plan_events(schema, captured, settings or EventSettings("shop"), connector=IDENTITY)


def column(name: str, type_name: str, **more: Any) -> Column:
    """A column without regard to its place."""
    return Column(name, type_name, 1, **more)


def zero() -> int:
    """A processing time that golden files can hold."""
    return 0


def changed(plan: EventPlan, *batches: pa.RecordBatch, window: int = 1) -> pa.Table:
    """All events of batches of change rows."""
    built = list(build_changes(plan, iter(batches), ChangeContext(window, 0, zero)))
    return pa.Table.from_batches(built, schema=plan.topic_schema)


def moment(micros: int) -> datetime:
    """An aware time of microseconds since 1970."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
