"""Constraints as written to the indexes and foreign keys of a table's definition."""

from collections.abc import Callable

from mssql_standin.catalog import ForeignKey, Index, Table, fold
from mssql_standin.definitions.elements import Constraint, generated
from mssql_standin.definitions.ports import DefinitionSession
from mssql_standin.errors import SqlError

ObjectIds = Callable[[], int]
"""Gives fresh object ids."""


def add_constraints(
    session: DefinitionSession, table: Table, constraints: list[Constraint], new_object_id: ObjectIds
) -> None:
    """Put constraints into the table's definition.

    Raises:
        SqlError: 1779, 8111, 1911, 1767, 1770, 1776, 2714 for what does not fit.
    """
    ordered = sorted(constraints, key=lambda constraint: constraint.kind not in ("PRIMARY", "UNIQUE"))
    for constraint in ordered:
        if constraint.kind in ("PRIMARY", "UNIQUE", "INDEX"):
            _add_key(table, constraint, new_object_id)
        else:
            table.foreign_keys.append(_foreign_key(session, table, constraint, new_object_id))


def _add_key(table: Table, constraint: Constraint, new_object_id: ObjectIds) -> None:
    primary = constraint.kind == "PRIMARY"
    if primary and table.primary_key is not None:
        raise SqlError(1779, f"Table '{table.name}' already has a primary key defined on it.")
    keys = []
    for name, descending in constraint.keys:
        column = table.column(name)
        if column is None:
            raise SqlError(1911, f"Column name '{name}' does not exist in the target table or view.")
        if primary and column.nullable:
            raise SqlError(8111, f"Cannot define PRIMARY KEY constraint on nullable column in table '{table.name}'.")
        keys.append((column.name, descending))
    clustered = constraint.clustered
    if clustered is None:
        clustered = primary and table.clustered_key is None
    if clustered and table.clustered_key is not None:
        raise SqlError(1902, f"Cannot create more than one clustered index on table '{table.name}'.")
    is_index = constraint.kind == "INDEX"
    name = constraint.name or generated("PK" if primary else "UQ", table.name)
    unique = not is_index or constraint.expression == "UNIQUE"
    table.indexes.append(
        Index(
            name, next_index_id(table, clustered), tuple(keys), unique, clustered, primary,
            unique_constraint=constraint.kind == "UNIQUE", object_id=0 if is_index else new_object_id(),
        )
    )  # fmt: skip


def next_index_id(table: Table, clustered: bool) -> int:
    """1 for the clustered index, else a free number from 2."""
    return 1 if clustered else max([1, *(index.index_id for index in table.indexes)]) + 1


def _foreign_key(
    session: DefinitionSession, table: Table, constraint: Constraint, new_object_id: ObjectIds
) -> ForeignKey:
    name = constraint.name or generated("FK", table.name, constraint.keys[0][0])
    parts = constraint.references
    schema = parts[-2] if len(parts) > 1 and parts[-2] else "dbo"
    if len(parts) > 2 and parts[-3] and fold(parts[-3]) != fold(table.database):
        raise SqlError(
            1763, f"Cross-database foreign key references are not supported. Foreign key '{'.'.join(parts)}'."
        )
    database = session.catalog.database(table.database)
    itself = fold(schema) == fold(table.schema) and fold(parts[-1]) == fold(table.name)
    parent = table if itself else database.table(schema, parts[-1]) if database else None
    if parent is None:
        raise SqlError(1767, f"Foreign key '{name}' references invalid table '{'.'.join(parts)}'.")
    primary = parent.primary_key
    columns = constraint.referenced_columns or ([key for key, _ in primary.keys] if primary else [])
    for column in columns:
        if parent.column(column) is None:
            raise SqlError(
                1770, f"Foreign key '{name}' references invalid column '{column}' in referenced table '{parent.name}'."
            )
    for column, _ in constraint.keys:
        if table.column(column) is None:
            raise SqlError(
                1769, f"Foreign key '{name}' references invalid column '{column}' in referencing table '{table.name}'."
            )
    wanted = {fold(column) for column in columns}
    if not columns or not any(i.unique and {fold(n) for n, _ in i.keys} == wanted for i in parent.indexes):
        raise SqlError(
            1776,
            f"There are no primary or candidate keys in the referenced table '{parent.name}' that match the referencing column list in "
            f"the foreign key '{name}'.",
        )
    return ForeignKey(
        name, new_object_id(), tuple(key for key, _ in constraint.keys), parent.schema, parent.name, tuple(columns),
        constraint.on_delete, constraint.on_update,
    )  # fmt: skip
