"""Where a table has moved away from the structure its events are decoded with, and what mends that.

A capture instance never changes its columns: a column that is added is not
captured, one that is dropped stays NULL, and nullability and defaults in events
are those of the day the instance was recorded. Only a second capture instance
brings the new structure (spec sqlserver-cdc §1.4 no. 13, debezium-sqlserver
§1.5). The recorded structure is the newest one of the schema history, the
current one comes from `sys.columns`; `cdc.ddl_history` tells which statements
made the difference and finds additions that are older than the record.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import CaptureInstance, Column, TableSchema, declared_type
from cdc_assets.history.records import HistoryEntry
from cdc_assets.history.remedy import InstanceOptions, disable, enable

Kind = Literal["added", "dropped", "renamed", "retyped", "nullability", "default", "key"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between recorded and current structure.

    Args:
        kind: what happened.
        column: its name now, or the recorded one if it is gone.
        recorded: as events have it; empty if they do not.
        current: as the table has it; empty if it does not.
    """

    kind: Kind
    column: str
    recorded: str = ""
    current: str = ""

    def __str__(self) -> str:
        change = " → ".join(text for text in (self.recorded, self.current) if text)
        return f"{self.column} {self.kind}" + (f" ({change})" if change else "")


@dataclass(frozen=True, slots=True)
class Drift:
    """What is to be told of one table.

    Args:
        differences: empty if events and table agree.
        statements: DDL the server recorded since the newest instance was made, oldest first.
        remedy: T-SQL, or advice, that brings the new structure into the events; empty if there is no difference.
        removable: an older capture instance that is read to its end, or None.
        removal: T-SQL that drops it.
    """

    table: TableId
    differences: tuple[Difference, ...] = ()
    statements: tuple[str, ...] = ()
    remedy: str = ""
    removable: str | None = None
    removal: str = ""


def drift_of(
    entry: HistoryEntry,
    current: TableSchema,
    instances: Sequence[CaptureInstance],
    taken: str | None,
    statements: Sequence[str] = (),
    options: InstanceOptions | None = None,
) -> Drift:
    """Compare a table with its recorded structure.

    Args:
        entry: newest entry of the schema history.
        current: structure of the source table, asked now.
        instances: of the table, oldest first.
        taken: name of the instance that was read last. If that is the newest one, older ones are read to their end.
        statements: rows of `cdc.ddl_history` of the newest instance.
        options: what the newest instance was made with.
    """
    found = tuple(_differences(entry, current, statements))
    older = instances[0] if len(instances) > 1 else None
    done = taken == instances[-1].name
    return Drift(
        table=current.table,
        differences=found,
        statements=tuple(statements),
        remedy=_remedy(current, instances, options or InstanceOptions(), found, done) if found else "",
        removable=older.name if older is not None and done else None,
        removal=disable(current.table, older.name) if older is not None and done else "",
    )


def _differences(entry: HistoryEntry, current: TableSchema, statements: Sequence[str]) -> Iterator[Difference]:
    recorded = {column.name: column for column in entry.schema.columns}
    now = {column.name: column for column in current.columns}
    places = {column.ordinal: column for column in current.columns if column.name not in recorded}
    renamed = {
        places[column.ordinal].name
        for column in entry.schema.columns
        if column.name not in now and column.ordinal in places
    }
    for name, column in recorded.items():
        if name in now and now[name].ordinal == column.ordinal:
            yield from _changed(column, now[name])
        elif name in now:
            yield Difference("dropped", name, declared_type(column))
            yield Difference("added", name, "", declared_type(now[name]))
        elif column.ordinal in places:
            yield Difference("renamed", places[column.ordinal].name, name, places[column.ordinal].name)
        else:
            yield Difference("dropped", name, declared_type(column))
    for name, column in now.items():
        if (name not in recorded and name not in renamed) or _left_out(column, entry, statements):
            yield Difference("added", name, "", declared_type(column))
    if entry.schema.key != current.key:
        yield Difference("key", "key", ", ".join(entry.schema.key), ", ".join(current.key))


def _left_out(column: Column, entry: HistoryEntry, statements: Sequence[str]) -> bool:
    """Whether the record, but not the instance, is younger than the statement that added a column."""
    if entry.captured is None or column.name in entry.captured or entry.schema.column(column.name) is None:
        return False
    mention = re.compile(rf"\bADD\b.*(?<!\w){re.escape(column.name)}(?!\w)", re.IGNORECASE | re.DOTALL)
    return any(mention.search(statement) for statement in statements)


def _changed(old: Column, new: Column) -> Iterator[Difference]:
    if declared_type(old) != declared_type(new):
        yield Difference("retyped", new.name, declared_type(old), declared_type(new))
    if old.nullable != new.nullable:
        yield Difference("nullability", new.name, _nullability(old), _nullability(new))
    if old.default != new.default:
        yield Difference("default", new.name, old.default or "none", new.default or "none")


def _nullability(column: Column) -> str:
    return "NULL" if column.nullable else "NOT NULL"


def _columns(current: TableSchema, captured: Sequence[str], differences: Sequence[Difference]) -> list[str] | None:
    """What a second instance captures: the columns of the first one and the added ones, or None if that is all of them."""
    added = {found.column for found in differences if found.kind in ("added", "renamed")}
    names = [column.name for column in current.columns if column.name in captured or column.name in added]
    return None if len(names) == len(current.columns) else names


def _remedy(
    current: TableSchema,
    instances: Sequence[CaptureInstance],
    options: InstanceOptions,
    differences: Sequence[Difference],
    done: bool,
) -> str:
    """A table has two instances at most, so the older one must go first; and none is made before the newest is read."""
    if not done:
        return (
            f"wait until the capture has passed {instances[-1].start_lsn}, the start of {instances[-1].name}: it takes "
            "that instance over by itself, and what is still missing then is told with the T-SQL for it"
        )
    columns = _columns(current, instances[-1].columns, differences)
    removal = [disable(current.table, instances[0].name)] if len(instances) > 1 else []
    return " ".join([*removal, enable(current.table, instances, options, columns)])


def changes_between(old: HistoryEntry, new: HistoryEntry) -> tuple[Difference, ...]:
    """What an ALTER changed in events."""
    before = {column.name: column for column in old.columns()}
    after = {column.name: column for column in new.columns()}
    found = [Difference("dropped", name, declared_type(column)) for name, column in before.items() if name not in after]
    for name, column in after.items():
        if name in before:
            found += _changed(before[name], column)
        else:
            found.append(Difference("added", name, "", declared_type(column)))
    if old.schema.key != new.schema.key:
        found.append(Difference("key", "key", ", ".join(old.schema.key), ", ".join(new.schema.key)))
    return tuple(found)
