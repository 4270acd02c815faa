"""The structure of a capture instance's rows after its table was altered.

A capture instance never changes its columns, but their types may change: `ALTER COLUMN` changes the change table in
place, also for rows that were logged before, and a dropped column is NULL from then on (spec sqlserver-cdc §1.4 no.
13). So types are read from the change table, and everything else from the source table, as long as it has the column: a
column that was dropped and re-created under its name has another id and is another column.

Only two things may change in an instance's recorded structure: types with their collations, because rows are read with them, and NOT NULL
to NULL, because NULLs occur. Both are right for rows of any age in the change table. A column that becomes NOT NULL stays
nullable in events. One that is NOT NULL now may have held NULLs in between, so the change table is queried for them.
All other differences need a second instance and are reported as drift.
"""

from collections.abc import Collection
from dataclasses import replace

from cdc_assets.core.schema import CaptureInstance, Column, TableSchema

_STORED_OTHERWISE = frozenset({"timestamp", "rowversion"})
"""Types of the source that have another type in a change table."""


def captured_structure(source: TableSchema, stored: TableSchema, instance: CaptureInstance) -> TableSchema:
    """The structure of an instance's rows, and of the table's other columns.

    Args:
        source: current structure of the source table.
        stored: current structure of the instance's change table.
        instance: names the captured columns and their ids in the source table.
    """
    now = {column.ordinal: column for column in source.columns}
    types = {column.name: column for column in stored.columns}
    captured = [
        _arriving(name, ordinal, now.get(ordinal), types[name])
        for name, ordinal in zip(instance.columns, instance.column_ids, strict=True)
        if name in types
    ]
    names = {column.name for column in captured}
    others = [column for column in source.columns if column.name not in names]
    return replace(source, columns=tuple(sorted((*captured, *others), key=lambda column: column.ordinal)))


def _arriving(name: str, ordinal: int, source: Column | None, stored: Column) -> Column:
    if source is None or source.name != name:
        return replace(stored, ordinal=ordinal, nullable=True)
    if source.type_name in _STORED_OTHERWISE:
        return source
    return replace(
        _typed(source, stored), collation=source.collation
    )  # by which its values are equal, wherever they are stored


def _typed(column: Column, other: Column) -> Column:
    """A column with the type of another one."""
    return replace(
        column,
        type_name=other.type_name,
        length=other.length,
        precision=other.precision,
        scale=other.scale,
        collation=other.collation,
    )


def without_namesakes(source: TableSchema, instance: CaptureInstance) -> TableSchema:
    """The table without columns that were re-created under a captured column's name; used to read its rows."""
    ordinals = dict(zip(instance.columns, instance.column_ids, strict=True))
    columns = tuple(column for column in source.columns if ordinals.get(column.name, column.ordinal) == column.ordinal)
    return replace(source, columns=columns)


def read_otherwise(recorded: TableSchema, now: TableSchema, names: Collection[str]) -> list[str]:
    """Those of the named columns whose rows no longer arrive as recorded: dropped, made again, or of another type."""
    found = {column.name: column for column in now.columns}
    return [
        column.name
        for column in recorded.columns
        if column.name in names
        and (
            (other := found.get(column.name)) is None
            or (other.ordinal, _type(other)) != (column.ordinal, _type(column))
        )
    ]


def with_nulls(schema: TableSchema, names: Collection[str]) -> TableSchema:
    """The structure with the named columns nullable."""
    return replace(
        schema,
        columns=tuple(replace(column, nullable=True) if column.name in names else column for column in schema.columns),
    )


def followed(recorded: TableSchema, arriving: TableSchema) -> TableSchema:
    """The recorded structure widened so that current rows fit; unchanged if they already do."""
    now = {column.name: column for column in arriving.columns}
    columns = tuple(_followed(column, now.get(column.name)) for column in recorded.columns)
    return replace(recorded, columns=columns, description=arriving.description)


def _followed(column: Column, now: Column | None) -> Column:
    if now is None or now.ordinal != column.ordinal:
        return column
    column = replace(column, description=now.description)
    loosened = now.nullable and not column.nullable
    if (_type(column), column.collation) == (_type(now), now.collation) and not loosened:
        return column
    return replace(_typed(column, now), nullable=column.nullable or now.nullable, default=now.default, alias=now.alias)


def _type(column: Column) -> tuple[object, ...]:
    return column.type_name, column.length, column.precision, column.scale
