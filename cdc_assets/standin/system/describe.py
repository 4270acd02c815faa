"""What catalogue views say of types and columns."""

from datetime import datetime
from typing import Final

from cdc_assets.standin.capture.times import to_stored
from cdc_assets.standin.catalog import (
    AliasType,
    Column,
    Database,
    ForeignKey,
    Index,
    Table,
    UserProcedure,
    UserView,
    fold,
)
from cdc_assets.standin.sqltypes import (
    APPROXIMATE,
    CHARACTER,
    DECIMAL,
    DEFAULT_COLLATION,
    LEGACY_LOB,
    SCALED_TIME,
    SqlType,
)

CLR_TYPES: Final = {"hierarchyid": 128, "geometry": 129, "geography": 130}
"""`user_type_id` of the types that share one `system_type_id`."""

_NUMERIC: Final[dict[str, tuple[int, int]]] = {
    "bit": (1, 0), "tinyint": (3, 0), "smallint": (5, 0), "int": (10, 0), "bigint": (19, 0), "money": (19, 4),
    "smallmoney": (10, 4), "date": (10, 0), "datetime": (23, 3), "smalldatetime": (16, 0), "real": (24, 0), "float": (53, 0),
}  # fmt: skip
_COUNTED: Final = frozenset({"tinyint", "smallint", "int", "bigint", "money", "smallmoney"})
_FRACTIONS: Final = {"date": 0, "smalldatetime": 0, "datetime": 3}
_TIME_DIGITS: Final = {"time": 8, "datetime2": 19, "datetimeoffset": 26}


def stored_datetime(moment: datetime) -> int:
    """A moment as a stored `datetime`, 0 for one from before 1900: what never was dated."""
    return max(to_stored(moment), 0)


def precision(kind: SqlType) -> int:
    """`sys.columns.precision`."""
    if kind.name in DECIMAL:
        return kind.precision
    if kind.name in SCALED_TIME:
        return _TIME_DIGITS[kind.name] + (kind.scale + 1 if kind.scale else 0)
    return _NUMERIC.get(kind.name, (0, 0))[0]


def scale(kind: SqlType) -> int:
    """`sys.columns.scale`."""
    if kind.name in DECIMAL or kind.name in SCALED_TIME:
        return kind.scale
    return _NUMERIC.get(kind.name, (0, 0))[1]


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


def measures(kind: SqlType) -> tuple[int | None, ...]:
    """Length in characters and in bytes, precision, its radix, scale, and digits of a second, as INFORMATION_SCHEMA has them."""
    approximate = kind.name in APPROXIMATE
    numeric = kind.name in _COUNTED or approximate or kind.name in DECIMAL
    digits = (
        (precision(kind), 2 if approximate else 10, None if approximate else scale(kind)) if numeric else (None,) * 3
    )
    fraction = kind.scale if kind.name in SCALED_TIME else _FRACTIONS.get(kind.name)
    return (*_lengths(kind), *digits, fraction)


def _lengths(kind: SqlType) -> tuple[int | None, int | None]:
    if kind.name in LEGACY_LOB:
        octets = 2147483646 if kind.name == "ntext" else 2147483647
        return (1073741823 if kind.name == "ntext" else octets), octets
    if kind.name == "xml" or (kind.is_max and (kind.name in CHARACTER or kind.name == "varbinary")):
        return -1, -1
    if kind.name in CHARACTER or kind.name in ("binary", "varbinary"):
        return kind.length, kind.max_length
    return None, None


def catalog_type_name(kind: SqlType) -> str:
    """`timestamp` for rowversion: the catalogue keeps the old name."""
    return "timestamp" if kind.name == "rowversion" else kind.name


def is_approximate(kind: SqlType) -> bool:
    """real and float."""
    return kind.name in APPROXIMATE


def referenced_index(database: Database, key: ForeignKey) -> Index | None:
    """The unique index of the referenced table that a foreign key relies on: over its columns, in any order."""
    parent = database.table(key.referenced_schema, key.referenced_table)
    wanted = {fold(name) for name in key.referenced_columns}
    indexes = parent.indexes if parent else ()
    return next((index for index in indexes if index.unique and {fold(name) for name, _ in index.keys} == wanted), None)


def views_of(database: Database) -> list[UserView]:
    """User views in the order of their object ids."""
    return sorted(database.views, key=lambda view: view.shape.object_id)


def procedures_of(database: Database) -> list[UserProcedure]:
    """User procedures in the order of their object ids."""
    return sorted(database.procedures, key=lambda procedure: procedure.shape.object_id)


def shapes_of(database: Database) -> list[Table]:
    """Tables, and views as if they were tables, in the order of their object ids."""
    return sorted((*database.tables.shared(), *(view.shape for view in database.views)), key=lambda one: one.object_id)


def tables_of(database: Database) -> list[Table]:
    """Tables in the order of their object ids."""
    return sorted(database.tables.shared(), key=lambda table: table.object_id)
