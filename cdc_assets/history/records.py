"""Schema history records: the structure of a table from a position on.

An entry is stored in three forms: Debezium's own record as JSON text (spec debezium-sqlserver §6.1), typed columns to
query, and the complete `TableSchema`, from which decoding is planned after a restart.

An entry is valid *from* its LSN on: the snapshot's low watermark for CREATE, the newer capture instance's start LSN for
ALTER. So the structure valid for a change at LSN x is the entry with the greatest LSN not above x.

An entry belongs to *one* capture instance, and each instance that was read has an entry. A name is given again when its
instance is dropped, so an entry also records when the instance was made and the object id of its change table.
"""

import dataclasses
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.schema import Column, InstanceId, TableSchema
from cdc_assets.typemap.jdbc import jdbc_type

ChangeType = Literal["CREATE", "ALTER", "DROP"]


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One change of one table's structure.

    Args:
        kind: `CREATE`, `ALTER` or `DROP`.
        schema: structure from `lsn` on; for a DROP the last structure.
        captured: columns of the capture instance, in mask order; None if the table is not captured.
        instance: name of the capture instance, or None.
        lsn: LSN from which the entry is valid; see the module's head.
        at: time of recording.
        snapshot: `INITIAL` or `BLOCKING` when a snapshot recorded it, else None.
        last: whether it is the last schema record of a snapshot without data (marker `last`).
        made: creation time of the instance, server time without zone; None without one.
        change_table_id: object id of its change table; None the same.
        hidden: columns that events from `lsn` on do not show as they are (`EventPlan.hidden`); None if it was not recorded.
    """

    kind: ChangeType
    schema: TableSchema
    captured: tuple[str, ...] | None
    instance: str | None
    lsn: Lsn
    at: datetime
    snapshot: str | None = None
    last: bool = False
    made: datetime | None = None
    change_table_id: int | None = None
    hidden: tuple[tuple[str, str], ...] | None = None

    @property
    def identity(self) -> InstanceId | None:
        """The capture instance to which it belongs, or None."""
        return None if self.instance is None else InstanceId(self.instance, self.made, self.change_table_id)

    @property
    def table(self) -> TableId:
        """The table."""
        return self.schema.table

    def columns(self) -> list[Column]:
        """Columns that events can hold: those of the table that are captured, in table order."""
        return [column for column in self.schema.columns if self.captured is None or column.name in self.captured]

    @property
    def events_of(self) -> TableSchema:
        """The structure with only the columns that events can hold."""
        return dataclasses.replace(self.schema, columns=tuple(self.columns()))

    def same_form(self, other: "HistoryEntry") -> bool:
        """Whether events look the same before and after."""
        return self.columns() == other.columns() and self.schema.key == other.schema.key

    def same_structure(self, other: "HistoryEntry") -> bool:
        """Whether rows become the same events before and after: the order of the captured columns is that of the bits in
        update masks."""
        return self.captured == other.captured and self.same_form(other)

    def is_news(self, previous: "HistoryEntry | None") -> bool:
        """Whether readers of the public topic learn anything from it; not if only the capture instance is another one, or what
        settings hide."""
        if self.kind != "ALTER" or previous is None:
            return True
        is_given = (previous.identity, previous.hidden or ()) == (self.identity, self.hidden or ())
        return is_given or not self.same_form(previous)


def debezium_record(entry: HistoryEntry, prefix: str) -> dict[str, Any]:
    """The internal record as Debezium writes it; `ddl` is absent in a snapshot and `N/A` while streaming."""
    position: dict[str, Any] = {"event_serial_no": 1, "commit_lsn": str(entry.lsn), "change_lsn": "NULL"}
    if entry.snapshot:
        position |= {"snapshot": entry.snapshot, "snapshot_completed": False}
    record: dict[str, Any] = {
        "source": {"server": prefix, "database": entry.table.database},
        "position": position,
        "ts_ms": int(entry.at.timestamp() * 1000),
        "databaseName": entry.table.database,
        "schemaName": entry.table.schema,
    }
    if not entry.snapshot:
        record["ddl"] = "N/A"
    return record | {"tableChanges": [table_change(entry)]}


def table_change(entry: HistoryEntry) -> dict[str, Any]:
    """One element of `tableChanges` in the internal form."""
    change: dict[str, Any] = {"type": entry.kind, "id": quoted_id(entry.table)}
    if entry.kind != "DROP":
        change["table"] = {
            "defaultCharsetName": None,
            "primaryKeyColumnNames": key_columns(entry),
            "columns": [_column(column, ordinal) for ordinal, column in enumerate(entry.columns(), 1)],
            "attributes": [],
        }
    return change | {"comment": None}


def column_facts(column: Column, ordinal: int) -> dict[str, Any]:
    """Description of a column that the record and the public event share.

    Args:
        ordinal: number of the column among the described ones, from 1.
    """
    kind = jdbc_type(column)
    return {
        "name": column.name,
        "jdbcType": kind.number,
        "typeName": kind.name,
        "typeExpression": kind.name,
        "charsetName": None,
        "length": kind.length,
        "scale": kind.scale,
        "position": ordinal,
        "optional": column.nullable,
        "autoIncremented": column.identity,
        "generated": column.computed,
        "comment": None,
    }


def _column(column: Column, ordinal: int) -> dict[str, Any]:
    described = column_facts(column, ordinal) | {
        # a nullable column has the default null (measured, spec debezium-live §4 no. 10)
        "hasDefaultValue": column.nullable or column.default is not None,
        "defaultValueExpression": column.default,
        "enumValues": [],
    }
    absent = {"length", "scale", "defaultValueExpression"}
    return {name: value for name, value in described.items() if value is not None or name not in absent}


def key_columns(entry: HistoryEntry) -> list[str]:
    """Key columns that are captured."""
    names = {column.name for column in entry.columns()}
    return [name for name in entry.schema.key if name in names]


def quoted_id(table: TableId) -> str:
    """`"db"."schema"."table"`; a quote in a name is doubled."""
    parts = (table.database, table.schema, table.table)
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def structure_text(entry: HistoryEntry) -> str:
    """The complete structure as JSON text."""
    hidden = {} if entry.hidden is None else {"hidden": dict(entry.hidden)}
    return json.dumps(
        {"schema": entry.schema.to_data(), "captured": entry.captured} | hidden,
        separators=(",", ":"),
        ensure_ascii=False,
    )


def parse_structure(text: str) -> tuple[TableSchema, tuple[str, ...] | None, tuple[tuple[str, str], ...] | None]:
    """Inverse of `structure_text`: the structure, the captured columns, and the hidden ones, which earlier versions did not record."""
    data = json.loads(text)
    captured, hidden = data["captured"], data.get("hidden")
    return (
        TableSchema.from_data(data["schema"]),
        None if captured is None else tuple(captured),
        None if hidden is None else tuple(hidden.items()),
    )
