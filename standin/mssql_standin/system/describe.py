"""What catalogue views say of types and columns."""

from datetime import datetime
from typing import Final

from mssql_standin.capture.times import to_stored
from mssql_standin.catalog import (
    AliasType,
    Column,
    Database,
    ForeignKey,
    Index,
    Table,
    UserProcedure,
    fold,
)
from mssql_standin.sqltypes import (
    CHARACTER,
    DEFAULT_COLLATION,
    SqlType,
)

CLR_TYPES: Final = {"hierarchyid": 128, "geometry": 129, "geography": 130}
"""`user_type_id` of the types that share one `system_type_id`."""


def stored_datetime(moment: datetime) -> int:
    """A moment as a stored `datetime`, 0 for one from before 1900: what never was dated."""
    return max(to_stored(moment), 0)


def collation(kind: SqlType, database: Database) -> str | None:
    """Collation of a character type."""
    if kind.name not in CHARACTER or kind.name == "xml":
        return None
    return kind.collation or database.collation or DEFAULT_COLLATION


def user_type_id(column: Column, database: Database) -> int:
    """`sys.columns.user_type_id`: the alias type's, or the system type's."""
    alias = alias_of(column, database)
    if alias is not None:
        return alias.user_type_id
    return CLR_TYPES.get(column.type.name, column.type.system_id)


def alias_of(column: Column, database: Database) -> AliasType | None:
    """The alias type a column was declared with."""
    if column.alias_type is None:
        return None
    wanted = fold(column.alias_type.rpartition(".")[2])
    return next((alias for alias in database.alias_types if fold(alias.name) == wanted), None)


def schema_id(database: Database, schema: str) -> int:
    """The schema's id, 0 when there is none."""
    return next((key for name, key in database.schemas.items() if fold(name) == fold(schema)), 0)


def catalog_type_name(kind: SqlType) -> str:
    """`timestamp` for rowversion: the catalogue keeps the old name."""
    return "timestamp" if kind.name == "rowversion" else kind.name


def referenced_index(database: Database, key: ForeignKey) -> Index | None:
    """The unique index of the referenced table that a foreign key relies on: over its columns, in any order."""
    parent = database.table(key.referenced_schema, key.referenced_table)
    wanted = {fold(name) for name in key.referenced_columns}
    indexes = parent.indexes if parent else ()
    return next((index for index in indexes if index.unique and {fold(name) for name, _ in index.keys} == wanted), None)


def procedures_of(database: Database) -> list[UserProcedure]:
    """User procedures in the order of their object ids."""
    return sorted(database.procedures, key=lambda procedure: procedure.shape.object_id)


def tables_of(database: Database) -> list[Table]:
    """Tables in the order of their object ids."""
    return sorted(database.tables.shared(), key=lambda table: table.object_id)
