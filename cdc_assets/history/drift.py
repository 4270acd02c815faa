"""Detects differences between a table and the structure with which its events are decoded, and the T-SQL that resolves
them.

A capture instance never changes its columns: a column that is added is not captured, one that is dropped stays NULL,
and nullability and defaults in events are those of the time when the instance was recorded. Only a second capture
instance has the new structure (spec sqlserver-cdc §1.4 no. 13, debezium-sqlserver §1.5). The recorded structure is the
newest one of the schema history, the current one comes from `sys.columns`; `cdc.ddl_history` names the statements that
caused the difference and reveals additions that are older than the record.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import CaptureInstance, Column, InstanceId, InstanceOptions, TableSchema, declared_type
from cdc_assets.history.records import HistoryEntry
from cdc_assets.history.remedy import disable, enable

Kind = Literal["added", "dropped", "renamed", "retyped", "nullability", "default", "key"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between recorded and current structure.

    Args:
        kind: kind of change.
        column: current name of the column, or the recorded one if it was dropped.
        recorded: the column in events; empty if events lack it.
        current: the column in the table; empty if the table lacks it.
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
    """Report on one table.

    Args:
        differences: differences between events and table; empty if they agree.
        statements: DDL the server recorded since the newest instance was made, oldest first.
        remedy: T-SQL, or advice, after which events have the new structure; empty if there is no difference.
        removable: an older capture instance that was read to its end, or None.
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
    taken: InstanceId | None,
    statements: Sequence[str] = (),
    options: InstanceOptions | None = None,
    used: Collection[str] = (),
) -> Drift:
    """Compare a table with its recorded structure.

    Args:
        entry: newest entry of the schema history.
        current: current structure of the source table.
        instances: capture instances of the table, oldest first.
        taken: the instance that was read last. If it is the newest one, older ones were read to their end.
        statements: rows of `cdc.ddl_history` of the newest instance.
        options: options with which the newest instance was created.
        used: further names that instances have, or had; a new one gets another name.
    """
    found = tuple(_differences(entry, current, statements))
    used = {*used, *(instance.name for instance in instances)}
    older = instances[0] if len(instances) > 1 else None
    done = instances[-1].identity == taken
    return Drift(
        table=current.table,
        differences=found,
        statements=tuple(statements),
        remedy=_remedy(current, instances, options or InstanceOptions(), found, used, done) if found else "",
        removable=older.name if older is not None and done else None,
        removal=disable(current.table, older.name) if older is not None and done else "",
    )


def _differences(entry: HistoryEntry, current: TableSchema, statements: Sequence[str]) -> Iterator[Difference]:
    recorded = {column.name: column for column in entry.schema.columns}
    now = {column.name: column for column in current.columns}
    by_ordinal = {column.ordinal: column for column in current.columns if column.name not in recorded}
    renamed = {
        by_ordinal[column.ordinal].name
        for column in entry.schema.columns
        if column.name not in now and column.ordinal in by_ordinal
    }
    for name, column in recorded.items():
        if name in now and now[name].ordinal == column.ordinal:
            yield from _changed(column, now[name])
        elif name in now:
            yield Difference("dropped", name, declared_type(column))
            yield Difference("added", name, "", declared_type(now[name]))
        elif column.ordinal in by_ordinal:
            yield Difference("renamed", by_ordinal[column.ordinal].name, name, by_ordinal[column.ordinal].name)
        else:
            yield Difference("dropped", name, declared_type(column))
    for name, column in now.items():
        if (name not in recorded and name not in renamed) or _left_out(column, entry, statements):
            yield Difference("added", name, "", declared_type(column))
    if entry.schema.key != current.key:
        yield Difference("key", "key", ", ".join(entry.schema.key), ", ".join(current.key))


def _left_out(column: Column, entry: HistoryEntry, statements: Sequence[str]) -> bool:
    """Whether a column was added before the structure was recorded, but after the instance was created."""
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
    """Columns of a second instance: those of the first one and the added ones, or None if these are all columns."""
    added = {found.column for found in differences if found.kind in ("added", "renamed")}
    names = [column.name for column in current.columns if column.name in captured or column.name in added]
    return None if len(names) == len(current.columns) else names


def _remedy(
    current: TableSchema,
    instances: Sequence[CaptureInstance],
    options: InstanceOptions,
    differences: Sequence[Difference],
    used: Collection[str],
    done: bool,
) -> str:
    """A table has at most two instances, so the older one must be dropped first; and the newest must be in use before
    another is created."""
    if not done:
        return (
            f"wait until the capture has passed {instances[-1].start_lsn}, the start of {instances[-1].name}: it switches to "
            "that instance by itself, and then reports any remaining difference with the T-SQL for it"
        )
    columns = _columns(current, instances[-1].columns, differences)
    removal = [disable(current.table, instances[0].name)] if len(instances) > 1 else []
    return " ".join([*removal, enable(current.table, used, options, columns)])


def changes_between(old: HistoryEntry, new: HistoryEntry) -> tuple[Difference, ...]:
    """The differences that an ALTER made in events."""
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
