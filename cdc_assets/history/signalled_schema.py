"""A structure that somebody gives by a `schema-changes` signal, as one element of Debezium's `tableChanges`.

What is given describes the events from now on; it cannot change how the server
stores a column. So columns and types must be those of the recorded structure,
and what is taken over is what the server does not dictate: the key, default
values, and which columns may be null. A column that holds NULLs in the log can
not be made required, so that is only loosened.
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
    """The table that an element is about: `"db"."schema"."table"`, also with brackets or bare.

    Raises:
        InvalidValueError: it names none.
    """
    try:
        database, schema, table = parts_of(str(change.get("id", "")))
    except ValueError:  # of another number of parts, or no name at all
        raise _wrong("id", change.get("id"), '"database"."schema"."table"') from None
    return TableId(database, schema, table)


def given_entry(change: Mapping[str, Any], known: HistoryEntry, lsn: Lsn, now: datetime) -> HistoryEntry:
    """The record of a given structure.

    Args:
        change: element of `tableChanges`.
        known: the table's newest record.
        lsn: from which on it holds.

    Raises:
        InvalidValueError: it is no structure, or not one in which the table's rows could arrive.
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
    return HistoryEntry(kind, schema, known.captured, known.instance, lsn, now)


def _kind(change: Mapping[str, Any]) -> Literal["CREATE", "ALTER"]:
    kind = str(change.get("type", "")).upper()
    if kind == "CREATE":
        return "CREATE"
    if kind == "ALTER":
        return "ALTER"
    raise _wrong("type", change.get("type"), "CREATE or ALTER; the end of a table is told by the capture itself")


def _key(table: Mapping[str, Any], names: Sequence[str]) -> tuple[str, ...]:
    key = table.get("primaryKeyColumnNames") or []
    if not isinstance(key, list) or not all(isinstance(name, str) and name in names for name in key):
        raise _wrong("primaryKeyColumnNames", key, f"some of {', '.join(names)}")
    return tuple(key)


def _column(column: Column, given: Mapping[str, Any] | None) -> Column:
    if given is None:
        return column
    stored = jdbc_type(column)
    told = str(given.get("typeName", "")).removesuffix(" identity")
    if told not in (stored.name.removesuffix(" identity"), column.type_name) or any(
        given.get(name) not in (None, own) for name, own in (("length", stored.length), ("scale", stored.scale))
    ):
        size = {name: given[name] for name in ("length", "scale") if given.get(name) is not None}
        raise _wrong(
            f"type of {column.name}", f"{told} {size}", f"{stored.name}, length {stored.length}, scale {stored.scale}"
        )
    default = given.get("defaultValueExpression")
    nullable = column.nullable or bool(given.get("optional"))
    return dataclasses.replace(column, nullable=nullable, default=None if default is None else str(default))


def _wrong(what: str, value: object, expected: str) -> InvalidValueError:
    return InvalidValueError(f"{what} of a schema change", value, expected, "correct the signal")
