"""How the JDBC driver describes columns, which Debezium's records repeat.

Measured with mssql-jdbc 12.4 (spec debezium-events/schema-history-types.json):
type number, display length, and scale only where the driver gives one.
"""

from dataclasses import dataclass

from cdc_assets.core.schema import Column

_CHARACTERS = {"char": 1, "varchar": 12, "nchar": -15, "nvarchar": -9}
_BINARIES = {"binary": -2, "varbinary": -3}
_LARGEST = {"varchar": 2147483647, "nvarchar": 1073741823, "varbinary": 2147483647}

# type → (JDBC type, length, scale)
_FIXED: dict[str, tuple[int, int, int | None]] = {
    "bit": (-7, 1, None),
    "tinyint": (-6, 3, 0),
    "smallint": (5, 5, 0),
    "int": (4, 10, 0),
    "bigint": (-5, 19, 0),
    "real": (7, 24, None),
    "float": (8, 53, None),
    "money": (3, 19, 4),
    "smallmoney": (3, 10, 4),
    "date": (91, 10, None),
    "datetime": (93, 23, 3),
    "smalldatetime": (93, 16, 0),
    "uniqueidentifier": (1, 36, None),
    "xml": (-16, 2147483647, None),
    "text": (-1, 2147483647, None),
    "ntext": (-16, 1073741823, None),
    "image": (-4, 2147483647, None),
    "timestamp": (-2, 8, None),
    "rowversion": (-2, 8, None),
    "sql_variant": (-156, 8000, None),
    "geometry": (-157, 2147483647, None),
    "geography": (-158, 2147483647, None),
    "hierarchyid": (-3, 892, None),
}

# type → (JDBC type, length without fraction)
_FRACTIONS = {"time": (92, 8), "datetime2": (93, 19), "datetimeoffset": (-155, 26)}


@dataclass(frozen=True, slots=True)
class JdbcType:
    """What the driver's catalogue says about a column's type."""

    number: int
    name: str
    length: int | None
    scale: int | None


def jdbc_type(column: Column) -> JdbcType:
    """The driver's view of a column; an unknown type counts as OTHER (1111)."""
    number, length, scale = _numbers(column)
    return JdbcType(number, f"{column.type_name} identity" if column.identity else column.type_name, length, scale)


def _numbers(column: Column) -> tuple[int, int | None, int | None]:
    name = column.type_name
    if name in _CHARACTERS or name in _BINARIES:
        length = _LARGEST.get(name, column.length) if column.length in (None, -1) else column.length
        return (_CHARACTERS | _BINARIES)[name], length, None
    if name in ("decimal", "numeric"):
        return 3, column.precision, column.scale
    if name in _FRACTIONS:
        number, length = _FRACTIONS[name]
        scale = 7 if column.scale is None else column.scale
        return number, length + (scale + 1 if scale else 0), scale
    return _FIXED.get(name, (1111, column.length, column.scale))
