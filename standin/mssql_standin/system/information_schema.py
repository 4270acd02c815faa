"""INFORMATION_SCHEMA."""

from collections.abc import Iterator, Sequence

from mssql_standin.catalog import Database, Index, Table
from mssql_standin.contract import SessionContext
from mssql_standin.sqltypes import Value
from mssql_standin.system.describe import (
    referenced_index,
    tables_of,
)
from mssql_standin.system.view import Rows, view


def _keys(database: Database) -> Iterator[tuple[Table, Index]]:
    for table in tables_of(database):
        for index in table.indexes:
            if index.primary_key or index.unique_constraint:
                yield table, index


@view(
    "INFORMATION_SCHEMA.KEY_COLUMN_USAGE",
    "CONSTRAINT_CATALOG sysname, CONSTRAINT_SCHEMA sysname, CONSTRAINT_NAME sysname!, TABLE_CATALOG sysname, "
    "TABLE_SCHEMA sysname, TABLE_NAME sysname, COLUMN_NAME sysname, ORDINAL_POSITION int!",
)
def key_column_usage(_: SessionContext, database: Database) -> Rows:
    """Columns of primary, unique and foreign keys."""
    found: list[Sequence[Value]] = []
    for table in tables_of(database):
        keys = [
            (index.name, tuple(name for name, _ in index.keys)) for owner, index in _keys(database) if owner is table
        ]
        keys += [(key.name, key.columns) for key in table.foreign_keys]
        for name, names in keys:
            for place, column in enumerate(names, 1):
                found.append(
                    (database.name, table.schema, name, database.name, table.schema, table.name, column, place)
                )
    return found


@view(
    "INFORMATION_SCHEMA.REFERENTIAL_CONSTRAINTS",
    "CONSTRAINT_CATALOG sysname, CONSTRAINT_SCHEMA sysname, CONSTRAINT_NAME sysname!, UNIQUE_CONSTRAINT_CATALOG sysname, "
    "UNIQUE_CONSTRAINT_SCHEMA sysname, UNIQUE_CONSTRAINT_NAME sysname, MATCH_OPTION varchar(7), UPDATE_RULE varchar(11), "
    "DELETE_RULE varchar(11)",
)
def referential_constraints(_: SessionContext, database: Database) -> Rows:
    """Foreign keys."""
    for table in tables_of(database):
        for key in table.foreign_keys:
            index = referenced_index(database, key)
            rules = key.on_update.replace("_", " "), key.on_delete.replace("_", " ")
            yield (
                database.name,
                table.schema,
                key.name,
                database.name,
                key.referenced_schema,
                index.name if index else None,
                "SIMPLE",
                *rules,
            )
