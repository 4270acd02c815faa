"""Converts catalogue rows of the control plane's queries to core values; pure functions."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone
from itertools import groupby
from typing import cast

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.schema import CaptureInstance, Column, InstanceOptions, TableSchema

Row = Sequence[object]

_WIDE = frozenset({"nchar", "nvarchar"})
_SIZED = _WIDE | {"char", "varchar", "binary", "varbinary"}
_DECIMAL = frozenset({"decimal", "numeric"})
_FRACTION = frozenset({"time", "datetime2", "datetimeoffset"})


def integer(value: object) -> int:
    """A number from the driver as int."""
    return int(cast(int, value))


def lsn_of(value: object) -> Lsn | None:
    """An LSN, or None for NULL."""
    return None if value is None else Lsn(bytes(cast(bytes, value)))


def lsn_above_zero_of(value: object) -> Lsn | None:
    """An LSN, or None for NULL and for zero, by which some functions of SQL Server say that there is none."""
    found = lsn_of(value)
    return None if found == ZERO_LSN else found


def column_of(row: Row) -> Column:
    """A row of `queries.columns`, without the names of its table."""
    _, ordinal, name, base, declared, size, precision, scale, nullable, identity, computed, default, collation = row
    type_name = str(base).lower()
    return Column(
        name=str(name),
        type_name=type_name,
        ordinal=integer(ordinal),
        nullable=bool(nullable),
        length=_length(type_name, integer(size)),
        precision=integer(precision) if type_name in _DECIMAL else None,
        scale=integer(scale) if type_name in _DECIMAL | _FRACTION else None,
        identity=bool(identity),
        computed=bool(computed),
        default=None if default is None else str(default),
        alias=str(declared) if str(declared).lower() != type_name else None,
        collation=None if collation is None else str(collation),
    )


def _length(type_name: str, size: int) -> int | None:
    """Declared length; the catalogue counts bytes."""
    if type_name not in _SIZED:
        return None
    return size // 2 if type_name in _WIDE and size > 0 else size


def schema_of(table: TableId, columns: Sequence[Row], keys: Sequence[Row]) -> TableSchema:
    """Structure from rows of `queries.columns` (at least one) and `queries.keys` of one table, without their leading
    table columns."""
    first_index = next(iter(keys), (None,))[0]
    key = tuple(str(name) for index, name in keys if index == first_index)
    return TableSchema(table, integer(columns[0][0]), tuple(column_of(row) for row in columns), key)


def instances_of(database: str, tables: Iterable[Row], columns: Iterable[Row]) -> list[CaptureInstance]:
    """Rows of `queries.CHANGE_TABLES` and `queries.CAPTURED_COLUMNS`, sorted by table, start LSN and age.

    A row whose source table has no name any more is being removed and is skipped, and so is one that has no columns: it was removed
    between the two queries, or made, if another replica answered the second one. So is one without a start LSN: it is not known yet
    which changes the instance holds.
    """
    captured = {key: list(rows) for key, rows in groupby(columns, key=lambda row: row[0])}
    found: list[CaptureInstance] = []
    for object_id, source_id, schema, table, name, start, created, altered in tables:
        begins = lsn_of(start)
        if schema is None or table is None or begins is None or object_id not in captured:
            continue
        instance = CaptureInstance(
            table=TableId(database, str(schema), str(table)),
            source_object_id=integer(source_id),
            name=str(name),
            start_lsn=begins,
            columns=tuple(str(row[1]) for row in captured[object_id]),
            created=cast(datetime | None, created),
            column_ids=tuple(integer(row[2]) for row in captured[object_id]),
            altered=lsn_of(altered),
            change_table_id=integer(object_id),
        )
        found.append(instance)
    return sorted(found, key=lambda instance: (instance.table, *instance.age))


def options_of(row: Row) -> InstanceOptions:
    """A row of `queries.INSTANCE_OPTIONS`, without its name."""
    role, net, index, filegroup, switch = row
    return InstanceOptions(_text(role), bool(net), _text(index), _text(filegroup), bool(switch))


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def commit_time(local: object, offset_minutes: object) -> datetime:
    """Server local time with the server's current offset (spec debezium-sqlserver §3.4, time zone)."""
    zone = timezone(timedelta(minutes=integer(offset_minutes)))
    return cast(datetime, local).replace(tzinfo=zone)
