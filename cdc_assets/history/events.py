"""Public schema change events: topic `<prefix>` (spec debezium-sqlserver §6.3)."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from cdc_assets.config.settings import EventSettings
from cdc_assets.core.lsn import ZERO_LSN, Position
from cdc_assets.core.schema import Column
from cdc_assets.envelope.blocks import release, source_type
from cdc_assets.envelope.headers import context_pairs
from cdc_assets.envelope.plan import HEADERS, POSITION, WINDOW, ConnectorIdentity
from cdc_assets.history.records import HistoryEntry, column_facts, key_columns, quoted_id
from cdc_assets.typemap.connect import ConnectType, array, struct

_TEXT, _INT, _BOOL = ConnectType("string"), ConnectType("int32"), ConnectType("boolean")


def _column_type() -> ConnectType:
    fields = [
        _TEXT.required().to_field("name"),
        _INT.required().to_field("jdbcType"),
        _INT.to_field("nativeType"),
        _TEXT.required().to_field("typeName"),
        _TEXT.to_field("typeExpression"),
        _TEXT.to_field("charsetName"),
        _INT.to_field("length"),
        _INT.to_field("scale"),
        _INT.required().to_field("position"),
        _BOOL.to_field("optional"),
        _BOOL.to_field("autoIncremented"),
        _BOOL.to_field("generated"),
        _TEXT.to_field("comment"),
        _TEXT.to_field("defaultValueExpression"),
        array("enumValues", _TEXT.required()),
    ]
    return struct("io.debezium.connector.schema.Column", fields, version=1, optional=False)


def _change_type() -> ConnectType:
    table = struct(
        "io.debezium.connector.schema.Table",
        [
            _TEXT.to_field("defaultCharsetName"),
            array("primaryKeyColumnNames", _TEXT.required()),
            array("columns", _column_type(), optional=False),
            _TEXT.to_field("comment"),
        ],
        version=1,
    )
    fields = [_TEXT.required().to_field("type"), _TEXT.required().to_field("id"), table.to_field("table")]
    return struct("io.debezium.connector.schema.Change", fields, version=1, optional=False)


def topic_schema(settings: EventSettings) -> pa.Schema:
    """Layout of the schema change topic."""
    key = struct(
        "io.debezium.connector.sqlserver.SchemaChangeKey",
        [_TEXT.required().to_field("databaseName")],
        version=1,
        optional=False,
    )
    value = struct(
        "io.debezium.connector.sqlserver.SchemaChangeValue",
        [
            source_type(settings).to_field("source"),
            ConnectType("int64").required().to_field("ts_ms"),
            _TEXT.to_field("databaseName"),
            _TEXT.to_field("schemaName"),
            _TEXT.to_field("ddl"),
            array("tableChanges", _change_type(), optional=False),
        ],
        version=1,
        optional=False,
    )
    return pa.schema([POSITION, key.to_field("key"), value.to_field("value"), HEADERS, WINDOW])


def build_events(
    entries: Sequence[HistoryEntry], window_id: int, settings: EventSettings, connector: ConnectorIdentity
) -> pa.Table:
    """Public events of history entries, in their order. There are few per run, so rows are built one by one.

    Tables of one snapshot have different low watermarks; their positions keep the order, so that `last` is the last.
    """
    rows = [_event(entry, window_id, settings, connector) for entry in entries]
    reached = ZERO_LSN
    for ordinal, (row, entry) in enumerate(zip(rows, entries, strict=True)):
        reached = max(reached, entry.lsn) if entry.snapshot else entry.lsn
        # command ids and change LSNs of data start above zero, so the event precedes the data of its LSN
        row["position"] = f"{Position(reached, 0, ZERO_LSN, 0)}s{ordinal:08d}"
    return pa.Table.from_pylist(rows, topic_schema(settings))


def _event(
    entry: HistoryEntry, window_id: int, settings: EventSettings, connector: ConnectorIdentity
) -> dict[str, Any]:
    return {
        "key": {"databaseName": entry.table.database},
        "value": {
            "source": _source(entry, settings),
            "ts_ms": int(entry.at.timestamp() * 1000),
            "databaseName": entry.table.database,
            "schemaName": entry.table.schema,
            "ddl": None if entry.snapshot else "N/A",
            "tableChanges": [_change(entry)],
        },
        "headers": context_pairs(settings, connector),
        "window_id": window_id,
    }


def _source(entry: HistoryEntry, settings: EventSettings) -> dict[str, Any]:
    micros = round(entry.at.timestamp() * 1_000_000)
    marker = ("last" if entry.last else "true") if entry.snapshot else None
    return {
        "version": release(settings),
        "connector": "sqlserver",
        "name": settings.topic_prefix,
        "ts_ms": micros // 1000,
        "snapshot": marker,
        "db": entry.table.database,
        "sequence": None,
        "ts_us": micros,
        "ts_ns": micros * 1000,
        "schema": entry.table.schema,
        "table": entry.table.table,
        "change_lsn": None,
        "commit_lsn": str(entry.lsn),
        "event_serial_no": None,
    }


def _change(entry: HistoryEntry) -> dict[str, Any]:
    table = {
        "defaultCharsetName": None,
        "primaryKeyColumnNames": key_columns(entry),
        "columns": [_column(column, ordinal) for ordinal, column in enumerate(entry.columns(), 1)],
        "comment": None,
    }
    return {"type": entry.kind, "id": quoted_id(entry.table), "table": None if entry.kind == "DROP" else table}


def _column(column: Column, ordinal: int) -> dict[str, Any]:
    return column_facts(column, ordinal) | {
        "nativeType": None,
        "defaultValueExpression": column.default,
        "enumValues": None,
    }
