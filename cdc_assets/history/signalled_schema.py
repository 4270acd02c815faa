"""A structure given by a `schema-changes` signal, as one element of Debezium's `tableChanges`.

It describes the events from now on; it cannot change how the server stores a column. So columns and types must be those
of the recorded structure; the key, default values and nullability are taken from the signal. The log may hold NULLs of
a column, so a nullable column cannot be made required; only the opposite is possible.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from cdc_assets.core.identifiers import TableId, parts_of
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.schema import Column
from cdc_assets.errors import InvalidValueError
from cdc_assets.history.records import HistoryEntry
from cdc_assets.typemap.jdbc import jdbc_type


def table_of(change: Mapping[str, Any]) -> TableId:
    """The table of an element: `"db"."schema"."table"`, also in brackets or without quotes.

    Raises:
        InvalidValueError: the element names no table.
    """
    try:
        database, schema, table = parts_of(str(change.get("id", "")))
    except ValueError:  # wrong number of parts, or not a name
        raise _wrong("id", change.get("id"), '"database"."schema"."table"') from None
    return TableId(database, schema, table)


def given_entry(change: Mapping[str, Any], known: HistoryEntry, lsn: Lsn, now: datetime) -> HistoryEntry:
    """The history entry of a given structure.

    Args:
        change: element of `tableChanges`.
        known: the table's newest record.
        lsn: LSN from which the entry is valid.

    Raises:
        InvalidValueError: the element is not a structure, or the table's rows cannot have it.
    """
    kind = _kind(change)
    table = change.get("table")
    if not isinstance(table, Mapping) or not isinstance(table.get("columns"), list):
        raise _wrong("table", table, "an object with columns and primaryKeyColumnNames")
    given = {str(column.get("name")): column for column in table["columns"] if isinstance(column, Mapping)}
    names = [column.name for column in known.columns()]
    if set(given) != set(names):
        raise _wrong("columns", ", ".join(given), f"the captured columns {', '.join(names)}")
    columns = tuple(_column(column, given.get(column.name)) for column in known.schema.columns)
    schema = dataclasses.replace(known.schema, columns=columns, key=_key(table, names))
    return dataclasses.replace(known, kind=kind, schema=schema, lsn=lsn, at=now, snapshot=None, last=False)


def _kind(change: Mapping[str, Any]) -> Literal["CREATE", "ALTER"]:
    kind = str(change.get("type", "")).upper()
    if kind == "CREATE":
        return "CREATE"
    if kind == "ALTER":
        return "ALTER"
    raise _wrong("type", change.get("type"), "CREATE or ALTER; the capture itself records that a table was dropped")


def _key(table: Mapping[str, Any], names: Sequence[str]) -> tuple[str, ...]:
    key = table.get("primaryKeyColumnNames") or []
    if not isinstance(key, list) or not all(isinstance(name, str) and name in names for name in key):
        raise _wrong("primaryKeyColumnNames", key, f"some of {', '.join(names)}")
    if len(set(key)) < len(key):
        raise _wrong("primaryKeyColumnNames", key, "each column once")
    return tuple(key)


def _column(column: Column, given: Mapping[str, Any] | None) -> Column:
    if given is None:
        return column
    stored = jdbc_type(column)
    given_type = str(given.get("typeName", "")).removesuffix(" identity")
    if given_type not in (stored.name.removesuffix(" identity"), column.type_name) or any(
        given.get(name) not in (None, expected)
        for name, expected in (("length", stored.length), ("scale", stored.scale))
    ):
        size = {name: given[name] for name in ("length", "scale") if given.get(name) is not None}
        raise _wrong(
            f"type of {column.name}",
            f"{given_type} {size}",
            f"{stored.name}, length {stored.length}, scale {stored.scale}",
        )
    default = given.get("defaultValueExpression")
    nullable = column.nullable or bool(given.get("optional"))
    return dataclasses.replace(column, nullable=nullable, default=None if default is None else str(default))


def _wrong(what: str, value: object, expected: str) -> InvalidValueError:
    return InvalidValueError(f"{what} of a schema change", value, expected, "correct the signal")
