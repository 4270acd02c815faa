"""Capture triggers: full row images into staging tables, at C speed.

Per capture instance stands a staging table `s<change table id>` with the captured columns
under the column names of the change table. Per source table stand three AFTER triggers;
each holds one INSERT per instance, so that both instances of a table see a change with one
and the same number.

`rank`, the primary key of a staging table, is

    ((transaction number · 2^32) + change number) · 4 + operation − 1

where the change number counts over all tables of a transaction (SQL functions `cdc_next`
and `cdc_this`, counters of the session). Hence rowid order is the order (transaction,
change, operation); a transaction's rows are one range; the two rows of one update, or the
delete and insert of a key change, share a change number and so one `__$seqval`.

A statement that changes the keys of several rows (`SET id = id + 1`) may delete a key after
it inserted it for another row; in row order a replay would lose the row. As on a real
server all its deletes come first: `cdc_rekey` notes such a statement, its inserts are
moved behind its last change before the commit (`separate`), and the numbers for them are
left free by the change after.

Why nothing is lost or invented: a trigger runs inside the statement that changes the row,
so a statement, savepoint or transaction that rolls back takes its staged rows with it, and
a commit makes them durable together with the row.

Rules of the images (spec debezium-sqlserver §3.9, vendor page `cdc.<capture_instance>_CT`):
an update of a column of the clustered or a unique index is a delete and an insert, and so is
a statement that sets a column of the clustered index to the value it has; any other
update that changes no captured column leaves no trace; text, ntext and image are NULL in
deletes and before images and, unless changed, in after images; (max) and xml columns are
NULL in both images of an update unless changed; computed columns are always NULL.
"""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from mssql_standin.catalog import Column, Table, fold
from mssql_standin.sqltypes import LEGACY_LOB

_CHUNK = 48
"""Mask bits per integer handed to `cdc_mask`."""


@dataclass(frozen=True, slots=True)
class Captured:
    """A captured column: where its value lies in the change table, and its source column while that exists."""

    target: str
    """SQLite column of the change and the staging table."""
    source: Column | None


@dataclass(frozen=True, slots=True)
class Instance:
    """What the triggers need of a capture instance."""

    change_table: int
    """Object id."""
    columns: tuple[Captured, ...]


def full_mask(columns: int) -> bytes:
    """The update mask of inserts and deletes: first column in the lowest bit of the last byte."""
    return ((1 << columns) - 1).to_bytes((columns + 7) // 8, "big")


def staging(instance: Instance) -> str:
    """Name of the staging table."""
    return f"s{instance.change_table}"


def create_staging(connection: sqlite3.Connection, instance: Instance) -> None:
    """Create the instance's staging table."""
    columns = "".join(f", {column.target}" for column in instance.columns)
    connection.execute(f"CREATE TABLE {staging(instance)}(rank INTEGER PRIMARY KEY, mask, command{columns})")


def move_statement(instance: Instance) -> str:
    """The statement that moves a range of staged rows into the change table.

    Parameters: lsn, vlf, block, low and high rank.
    """
    columns = "".join(f"{column.target}, " for column in instance.columns)
    return (
        f"INSERT INTO t{instance.change_table} "
        f"SELECT :lsn, NULL, cdc_seqval(:vlf, :block, (rank >> 2) & 4294967295), (rank & 3) + 1, mask, {columns}command "
        f"FROM {staging(instance)} WHERE rank >= :low AND rank < :high"
    )


def separate(connection: sqlite3.Connection, change_table: int, low: int, high: int, shift: int) -> None:
    """Move the inserts of a statement's key changes, which lie in ranks from `low` to below `high`, `shift` changes on."""
    connection.execute(
        f"UPDATE s{change_table} SET rank = rank + :shift * 4 WHERE rank >= :low AND rank < :high AND rank & 3 = 1"
        f" AND EXISTS (SELECT 1 FROM s{change_table} AS pair WHERE pair.rank = s{change_table}.rank - 1)",
        {"shift": shift, "low": low, "high": high},
    )


def drop_triggers(connection: sqlite3.Connection, source: Table) -> None:
    """Drop the capture triggers of a source table, if any."""
    for event in ("insert", "delete", "update", "rekey"):
        connection.execute(f"DROP TRIGGER IF EXISTS capture_{event}_{source.object_id}")


def create_triggers(
    connection: sqlite3.Connection, source: Table, database_id: int, instances: Sequence[Instance]
) -> None:
    """Replace the capture triggers of a source table by those for these instances."""
    drop_triggers(connection, source)
    if not instances:
        return
    draw = f"SELECT cdc_next({database_id}, {source.object_id});"
    keys = key_columns(source)
    moved = _differs(keys)
    again = f" OR cdc_rewrites({source.object_id})" if source.clustered_key else ""
    named = ", ".join(column.sqlite for column in keys)
    captured = {c.source.column_id for instance in instances for c in instance.columns if c.source and _stored(c)}
    touched = _differs(column for column in source.columns if column.column_id in captured)
    bodies: tuple[tuple[str, str, str, Callable[[Instance], str]], ...] = (
        ("insert", "INSERT", "", _insert),
        ("delete", "DELETE", "", _delete),
        ("rekey", f"UPDATE OF {named}", f" WHEN {moved}{again}", _rekey),
        ("update", "UPDATE", f" WHEN ({touched}) AND NOT ({moved}{again})", _update),
    )
    for event, verb, when, body in bodies:
        if event == "rekey" and not keys:
            continue
        statements = " ".join(body(instance) for instance in instances)
        connection.execute(
            f"CREATE TRIGGER capture_{event}_{source.object_id} AFTER {verb} ON {source.sqlite}{when} "
            f"BEGIN {draw} {statements} END"
        )


def key_columns(source: Table) -> list[Column]:
    """Columns of the clustered index and of every unique index."""
    names = {fold(name) for index in source.indexes if index.unique or index.clustered for name, _ in index.keys}
    return [column for column in source.columns if fold(column.name) in names and column.computed is None]


def _insert(instance: Instance) -> str:
    return _stage(instance, 2, _full(instance), (_image("NEW", column) for column in instance.columns))


def _delete(instance: Instance) -> str:
    return _stage(instance, 1, _full(instance), (_deleted(column) for column in instance.columns))


def _rekey(instance: Instance) -> str:
    return f"SELECT cdc_rekey(); {_delete(instance)} {_insert(instance)}"


def _update(instance: Instance) -> str:
    """Both images; an instance none of whose columns changed gets no row."""
    when = f" WHERE {_differs(column.source for column in instance.columns if _stored(column))}"
    mask = _mask(instance)
    before = _stage(instance, 3, mask, (_updated("OLD", column) for column in instance.columns), when)
    after = _stage(instance, 4, mask, (_updated("NEW", column) for column in instance.columns), when)
    return f"{before} {after}"


def _stage(instance: Instance, operation: int, mask: str, values: Iterable[str], when: str = "") -> str:
    images = "".join(f", {value}" for value in values)
    return (
        f"INSERT INTO {staging(instance)} SELECT cdc_this() * 4 + {operation - 1}, {mask}, cdc_command(){images}{when};"
    )


def _stored(column: Captured) -> bool:
    return column.source is not None and column.source.computed is None


def _image(row: str, column: Captured) -> str:
    source = column.source
    return "NULL" if source is None or source.computed is not None else f"{row}.{source.sqlite}"


def _deleted(column: Captured) -> str:
    legacy = column.source is not None and column.source.type.name in LEGACY_LOB
    return "NULL" if legacy else _image("OLD", column)


def _updated(row: str, column: Captured) -> str:
    source = column.source
    if source is None or source.computed is not None:
        return "NULL"
    if source.type.name in LEGACY_LOB and row == "OLD":
        return "NULL"
    if source.type.is_max or source.type.name in LEGACY_LOB:
        return f"CASE WHEN {_differs([source])} THEN {row}.{source.sqlite} END"
    return f"{row}.{source.sqlite}"


def _differs(columns: Iterable[Column | None]) -> str:
    """Whether any of these columns changed, byte for byte: a column's collation would hide a change of letter case."""
    terms = [f"OLD.{column.sqlite} IS NOT NEW.{column.sqlite} COLLATE BINARY" for column in columns if column]
    return " OR ".join(terms) or "0"


def _full(instance: Instance) -> str:
    return f"x'{full_mask(len(instance.columns)).hex()}'"


def _mask(instance: Instance) -> str:
    """Call of `cdc_mask(width, bits…)`, lowest column first, `_CHUNK` columns per integer."""
    bits = [f"({_differs([column.source])})" if _stored(column) else "0" for column in instance.columns]
    parts = [bits[start : start + _CHUNK] for start in range(0, len(bits), _CHUNK)]
    sums = [" | ".join(f"({bit} << {place})" for place, bit in enumerate(part)) for part in parts]
    return f"cdc_mask({len(bits)}, {', '.join(sums)})"
