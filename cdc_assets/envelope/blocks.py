"""The fixed parts of the envelope: source block, transaction block, field order (spec debezium-sqlserver §4.3, §4.4).

| | Debezium 3 | 2.3 |
|---|---|---|
| `source.version` | 3.6.3.Final | 2.3.4.Final |
| envelope | version 2: before, after, source, transaction, op, ts_ms, ts_us, ts_ns | version 1: before, after, source, op, ts_ms, transaction |
| source | version 1, 14 fields | no version, without ts_us, ts_ns |
| `source.snapshot` allows | true, first, first_in_data_collection, last_in_data_collection, last, false, incremental | true, last, false, incremental |
"""

from collections.abc import Sequence

import pyarrow as pa

from cdc_assets.config.settings import EventSettings
from cdc_assets.typemap.connect import ConnectType, struct

_TEXT = ConnectType("string")
_NEEDED_TEXT = _TEXT.required()
_LONG = ConnectType("int64")
_NEEDED_LONG = _LONG.required()

MARKERS = ("true", "first", "first_in_data_collection", "last_in_data_collection", "last", "false", "incremental")
_OLD_MARKERS = ("true", "last", "false", "incremental")

_RELEASES = {"3": "3.6.3.Final", "2.3": "2.3.4.Final"}

TRANSACTION = struct(
    "event.block",
    [
        _NEEDED_TEXT.to_field("id"),
        _NEEDED_LONG.to_field("total_order"),
        _NEEDED_LONG.to_field("data_collection_order"),
    ],
    version=1,
)


def release(settings: EventSettings) -> str:
    """Debezium release named in the source block: the one whose form is written."""
    return _RELEASES[settings.event_version]


def source_type(settings: EventSettings) -> ConnectType:
    """Connect schema of the source block."""
    recent = settings.event_version == "3"
    allowed = ",".join(MARKERS if recent else _OLD_MARKERS)
    marker = ConnectType("string", "io.debezium.data.Enum", 1, (("allowed", allowed),), default='"false"')
    fields = [
        _NEEDED_TEXT.to_field("version"),
        _NEEDED_TEXT.to_field("connector"),
        _NEEDED_TEXT.to_field("name"),
        _NEEDED_LONG.to_field("ts_ms"),
        marker.to_field("snapshot"),
        _NEEDED_TEXT.to_field("db"),
        _TEXT.to_field("sequence"),
        *([_LONG.to_field("ts_us"), _LONG.to_field("ts_ns")] if recent else []),
        _NEEDED_TEXT.to_field("schema"),
        _NEEDED_TEXT.to_field("table"),
        _TEXT.to_field("change_lsn"),
        _TEXT.to_field("commit_lsn"),
        _LONG.to_field("event_serial_no"),
    ]
    return struct("io.debezium.connector.sqlserver.Source", fields, version=1 if recent else 0, optional=False)


def envelope_type(name: str, row: ConnectType, settings: EventSettings) -> ConnectType:
    """Connect schema of the whole value."""
    before, after = row.to_field("before"), row.to_field("after")
    source, transaction = source_type(settings).to_field("source"), TRANSACTION.to_field("transaction")
    operation, millis = _NEEDED_TEXT.to_field("op"), _LONG.to_field("ts_ms")
    if settings.event_version == "2.3":
        return struct(name, [before, after, source, operation, millis, transaction], version=1, optional=False)
    stamps = [millis, _LONG.to_field("ts_us"), _LONG.to_field("ts_ns")]
    return struct(name, [before, after, source, transaction, operation, *stamps], version=2, optional=False)


def assemble(kind: pa.DataType, children: dict[str, pa.Array], rows: int, mask: pa.Array | None = None) -> pa.Array:
    """A struct of `rows` rows from its children by name; absent ones are null."""
    fields: Sequence[pa.Field] = [kind.field(index) for index in range(kind.num_fields)]
    arrays = [children.get(field.name) for field in fields]
    filled = [
        pa.nulls(rows, field.type) if array is None else array for field, array in zip(fields, arrays, strict=True)
    ]
    return pa.StructArray.from_arrays(filled, fields=list(fields), mask=mask)
